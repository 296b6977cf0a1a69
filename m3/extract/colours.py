"""CSS colours, as far as telling text from its background needs them."""

from __future__ import annotations

import colorsys
import re
from functools import lru_cache
from typing import NamedTuple

from m3.patterns import lazy_pattern


class Colour(NamedTuple):
    """Red, green, blue and opacity, each 0 to 1."""

    red: float
    green: float
    blue: float
    alpha: float = 1.0


WHITE = Colour(1, 1, 1)
CLEAR = Colour(0, 0, 0, 0)

# The names that pages use; CSS has 148.
_NAMES = {
    "white": "fff", "snow": "fffafa", "ivory": "fffff0", "ghostwhite": "f8f8ff", "floralwhite": "fffaf0",
    "whitesmoke": "f5f5f5", "mintcream": "f5fffa", "azure": "f0ffff", "aliceblue": "f0f8ff", "seashell": "fff5ee",
    "oldlace": "fdf5e6", "linen": "faf0e6", "beige": "f5f5dc", "lightyellow": "ffffe0", "honeydew": "f0fff0",
    "black": "000", "silver": "c0c0c0", "gray": "808080", "grey": "808080", "lightgray": "d3d3d3",
    "lightgrey": "d3d3d3", "gainsboro": "dcdcdc", "darkgray": "a9a9a9", "darkgrey": "a9a9a9", "dimgray": "696969",
    "red": "f00", "maroon": "800000", "yellow": "ff0", "olive": "808000", "lime": "0f0", "green": "008000",
    "aqua": "0ff", "cyan": "0ff", "teal": "008080", "blue": "00f", "navy": "000080", "fuchsia": "f0f",
    "magenta": "f0f", "purple": "800080", "orange": "ffa500", "pink": "ffc0cb", "brown": "a52a2a", "gold": "ffd700",
}  # fmt: skip
_CALL = lazy_pattern(r"(rgb|hsl)a?\(([^()]*)\)")


def parse_colour(value: str, inherited: Colour | None) -> Colour | None:
    """A CSS or attribute colour; `inherited` for a word that refers to it; None for what is not known."""
    value = value.strip().lower()
    if value in ("inherit", "currentcolor"):
        return inherited
    if value == "transparent":
        return CLEAR
    digits = _NAMES.get(value, value.removeprefix("#") if value.startswith("#") else "")
    if not digits and re.fullmatch(r"[0-9a-f]{6}", value):  # bgcolor=ffffff
        digits = value
    if re.fullmatch(r"[0-9a-f]{3,4}", digits):
        digits = "".join(c * 2 for c in digits)
    if re.fullmatch(r"[0-9a-f]{6}(?:[0-9a-f]{2})?", digits):
        parts = [int(digits[i : i + 2], 16) / 255 for i in range(0, len(digits), 2)]
        return Colour(*parts)
    match = _CALL.fullmatch(value)
    return _called(match[1], re.split(r"[\s,/]+", match[2].strip())) if match else None


def _called(name: str, words: list[str]) -> Colour | None:
    try:
        numbers = [float(w.rstrip("%deg")) / (100 if w.endswith("%") else 1) for w in words]
    except ValueError:
        return None
    if len(numbers) not in (3, 4):
        return None
    alpha = min(1.0, max(0.0, numbers[3])) if len(numbers) == 4 else 1.0
    if name == "hsl":
        red, green, blue = colorsys.hls_to_rgb(numbers[0] % 360 / 360, min(1.0, numbers[2]), min(1.0, numbers[1]))
    else:
        scaled = (n if w.endswith("%") else n / 255 for n, w in zip(numbers[:3], words[:3], strict=True))
        red, green, blue = (min(1.0, max(0.0, n)) for n in scaled)
    return Colour(red, green, blue, alpha)


def contrast(one: Colour, other: Colour) -> float:
    """The contrast ratio of WCAG 2 with the channel difference weighed in, 1 for the same colour.

    Luminance alone calls some pairs of different hue alike; those can be read.
    """
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    spread = max(abs(one.red - other.red), abs(one.green - other.green), abs(one.blue - other.blue))
    return (light + 0.05) / (dark + 0.05) + (1.0 if spread > 0.15 else 0.0)


@lru_cache(maxsize=1_024)  # a page has few colours and many elements
def _luminance(colour: Colour) -> float:
    """Relative luminance by WCAG 2."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
