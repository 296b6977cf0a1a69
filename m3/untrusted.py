"""Foreign text made harmless: for a prompt, for a terminal or log, for the finished report.

A page is data. What a reader cannot see is taken out, what imitates the loop or a model's control tokens is
replaced so that it can be read but not obeyed by a parser. Replaced, never deleted: deleting can join the halves of
another token. The raw text of pages is kept for quote checks; only what enters a prompt passes here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection
from functools import lru_cache

from config import redact
from m3.patterns import lazy_pattern

MAX_WORD = 1_000  # characters without a space; a longer run is no word
MAX_MARKS = 8  # combining marks in a row; no script needs more

# --- characters ------------------------------------------------------------------------------------------

_LINE_ENDS = lazy_pattern(r"\r\n?|[\x85\u2028\u2029\x0c]")
_SURROGATE = lazy_pattern(r"[\ud800-\udfff]")
_FLAG = lazy_pattern(r"(?<=\U0001f3f4)[\U000e0020-\U000e007e]{1,8}\U000e007f")
_INVISIBLE = lazy_pattern(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f"  # C0 and C1 controls
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufeff\uffa0\ufff0-\uffFB\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\ue000-\uf8ff\U000f0000-\U0010ffff"  # private use
    r"\ufdd0-\ufdef\U000e0000-\U000e0fff"  # noncharacters; tags and variation selectors that carry bytes
    r"\ufffe\uffff]"
)
_HIGH_NONCHARACTER = lazy_pattern(
    "[" + "".join(chr(plane * 0x10000 + n) for plane in range(1, 15) for n in (0xFFFE, 0xFFFF)) + "]"
)
_JOINERS = lazy_pattern(r"[\u200c\u200d\ufe00-\ufe0f]")
_MARKS = lazy_pattern(
    rf"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{{{MAX_MARKS + 1},}}"
)
_MISREAD = lazy_pattern(
    r"[\xc2-\xdf][\x80-\x9f]|[\xe0-\xef](?:[\x80-\x9f][\x80-\xbf]|[\xa0-\xbf][\x80-\x9f])"
    r"|[\xf0-\xf4][\x80-\xbf]{3}"
)
# Scripts that put no blanks between words have no words that could be too long.
_LONG = lazy_pattern(
    rf"[^\s\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
    rf"\U00020000-\U0003ffff]{{{MAX_WORD + 1},}}"
)
# Scripts in which ZWNJ and ZWJ are spelling: Arabic and its kin, the Indic ones, Khmer, Myanmar, Mongolian.
_JOINING = lazy_pattern(
    r"[\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17ff\u1800-\u18af\ufb50-\ufdff\ufe70-\ufefc]"
)


def clean_characters(text: str) -> str:
    """`text` without what no reader sees and no script needs; line ends become line feeds.

    Kept: ZWNJ and ZWJ where a script or an emoji needs them, an emoji's variation selector, right-to-left text,
    decomposed accents, full-width CJK; there is no compatibility folding. A lone surrogate becomes U+FFFD.
    """
    text = _LINE_ENDS.sub("\n", text)
    if text.isascii():
        text = _INVISIBLE.sub("", text)
    else:
        text = _SURROGATE.sub("\ufffd", text)
        kept: list[str] = _FLAG.findall(text)
        text = _FLAG.sub("\ufff0", text) if kept else text  # U+FFF0 is unassigned: a stand-in that text cannot hold
        text = _HIGH_NONCHARACTER.sub("", text)
        text = "".join(
            _INVISIBLE.sub("", part) + flag for part, flag in zip(text.split("\ufff0"), [*kept, ""], strict=False)
        )
        text = text.replace("\u2800", " ")
        text = _JOINERS.sub(_needed_joiner, text)
        text = _MARKS.sub(lambda m: m[0][:MAX_MARKS], text)
    return _LONG.sub(lambda m: m[0][:MAX_WORD] + "…", text)


def clean_page(text: str) -> str:
    """`clean_characters` for a page's own text, from which quotes are taken.

    C1 controls stay where they are the tail of wrongly decoded UTF-8 (U+00E2 U+0080 U+00A6 for an ellipsis): without
    them nobody could tell which character was meant. They are gone from what enters a prompt or a terminal.
    """
    if not _MISREAD.search(text):
        return clean_characters(text)
    kept = _MISREAD.findall(text)
    between = _MISREAD.split(text)
    return "".join(clean_characters(part) + tail for part, tail in zip(between, [*kept, ""], strict=True))


def _needed_joiner(match: re.Match[str]) -> str:
    start, end = match.span()
    if start == 0:
        return ""
    before, after = match.string[start - 1], match.string[end : end + 1]
    if match[0] in "\u200c\u200d":
        joined = bool(_JOINING.match(before)) or unicodedata.combining(before) == 9  # 9: a virama
        emoji = match[0] == "\u200d" and _is_symbol(before) and _is_symbol(after)
        return match[0] if joined or emoji else ""
    return match[0] if _is_symbol(before) or before in "0123456789#*" else ""


def _is_symbol(character: str) -> bool:
    """True for emoji and their modifiers."""
    return bool(character) and (
        unicodedata.category(character) in ("So", "Sk", "Sm") or "\ufe00" <= character <= "\ufe0f"
    )


# --- structure -------------------------------------------------------------------------------------------

# Letters of other scripts that look like Latin ones; used to match, never to rewrite.
_LOOK_ALIKES = str.maketrans(
    "АВЕЅІЈКМНОРСТУХаеіјорсухѕԁԛԝ" "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧοαιν" "ıǀ∣ⅼ։∶ꓽˑ：﹕",
    "ABESIJKMHOPCTYXaeijopcyxsdqw" "ABEZHIKMNOPTYXoaiv" "i||l::::::",
)  # fmt: skip
_ROLES = (
    r"thought|action(?:[ _]?input)?|observation|final[ _]?answer|"
    r"system|user|assistant|human|developer|tool|function|ai|model"
)
_LABEL = lazy_pattern(rf"^[ \t>*#`_~\-+\d.)\[(¦]*(?:{_ROLES})[ \t*_`\])]*[:=\-–>]", re.I | re.M)
_AT_LINE_START = lazy_pattern(
    r"^(?=[ \t]*#{1,6}[ \t]*\(?[ \t]*(?:system|instructions?|user|assistant|developer)\b)"
    r"|^(?=[ \t]*(?:sources?|references?)[ \t]*:[ \t]*$)"
    r"|^(?=[ \t]*[-=_*#~]{3,}[ \t]*(?:begin|end|start|stop)\b)",
    re.I | re.M,
)
_TAG_WORDS = (
    r"(?:think|reasoning|scratchpad|invoke|function|tool|parameter|antml|system|user|assistant|human|developer|"
    r"instruction|information|important|untrusted|page|document|source|observation|search|result|context|turn|prompt|"
    r"im_|eot|eom|data-|leads|start_|end_|begin_|fim_|quote)[\w:.-]*|s|sop|eop|bos|eos|pad|unk|mask"
)
_REPLACEMENTS: tuple[tuple[re.Pattern[str], Callable[[str], str]], ...] = (
    # Special tokens of any family: <|…|>, <｜…｜>, <<…>>, [INST], [gMASK], [TOOL_CALLS].
    (lazy_pattern(r"<[|｜]|[|｜]>|<<+|>>+"), lambda s: s.translate(str.maketrans("<>|｜", "‹›¦¦"))),
    (
        lazy_pattern(r"\[/?(?:INST|[gs]?MASK|SYSTEM_PROMPT|TOOL_(?:CALLS|RESULTS)|AVAILABLE_TOOLS|THINK)\]", re.I),
        lambda s: f"({s[1:-1]})",
    ),
    (lazy_pattern(rf"</?(?:{_TAG_WORDS})(?=[\s/>])[^<>\n]{{0,200}}>", re.I), lambda s: f"‹{s[1:-1]}›"),
    # The citation grammar and link definitions.
    (
        lazy_pattern(r"\[\s*(?:sources?\s*)?\^?\d[\d\s,;&–-]*\]|【[^】\n]{0,40}】", re.I),
        lambda s: f"({s[1:-1].lstrip('^')})",
    ),
    # A JSON step or call.
    (
        lazy_pattern(
            r"\{(?=\s*\"(?:thought|action|action_input|tool|tool_name|tool_calls?|function_call|arguments)\"\s*:)",
            re.I,
        ),
        lambda s: "❴",
    ),
    (
        lazy_pattern(r"\{(?=\s*\"name\"\s*:\s*\"[^\"\n]{1,60}\"\s*,\s*\"(?:arguments|parameters|input)\")", re.I),
        lambda s: "❴",
    ),
    # Fences and quotes that could close ours.
    (lazy_pattern(r"`{3,}|~{3,}"), lambda s: "ʼ" * len(s)),
    (lazy_pattern(r'"{3,}'), lambda s: "”" * len(s)),
)  # fmt: skip


@lru_cache(maxsize=4_096)
def _folded_character(character: str) -> str:
    folded = unicodedata.normalize("NFKC", character)
    return folded if len(folded) == 1 else character


@lru_cache(maxsize=4)  # one pattern after the other asks for the same text
def _folded(text: str) -> str:
    """The text as it looks, character for character: compatibility forms and look-alikes become Latin."""
    if text.isascii():
        return text
    return "".join(map(_folded_character, text)).translate(_LOOK_ALIKES)


def neutralise(text: str) -> str:
    """`text` for a prompt: cleaned, and without anything that reads as the loop's own frame.

    Labels such as `Action:` at a line's start, tool calls, `[Source 3]`, special tokens of any model family, closing
    delimiters. The words stay readable. Idempotent.
    """
    text = clean_characters(text)
    for _ in range(6):
        before = text
        for pattern, replace in _REPLACEMENTS:
            text = _replace(pattern, replace, text)
        text = _replace(_LABEL, lambda s: f"¦ {s[:-1].rstrip()} ·", text)
        text = _replace(_AT_LINE_START, lambda s: "¦ ", text)
        if text == before:
            break
    return text


def _replace(pattern: re.Pattern[str], replace: Callable[[str], str], text: str) -> str:
    """Substitute what matches in the folded text by a replacement of the original characters."""
    pieces: list[str] = []
    at = 0
    for match in pattern.finditer(_folded(text)):
        original = text[match.start() : match.end()]
        changed = replace(original)
        if changed == original:
            continue
        pieces += [text[at : match.start()], changed]
        at = match.end()
    return "".join([*pieces, text[at:]]) if pieces else text


def foreign_line(text: str, limit: int = 300) -> str:
    """A title, snippet, address or server's message for a prompt: one line, neutralised, bounded."""
    return neutralise(safe_line(text, limit))


# --- terminal, logs, tables ------------------------------------------------------------------------------


LONGEST_SECRET = 600  # characters, in its longest form


def safe_line(text: str, limit: int = 300) -> str:
    """A foreign string on one line for a terminal or a log: no control or format characters, no secret, bounded.

    Secrets go before the text is cut: half a key would not be known for one.
    """
    clean = clean_characters(redact(text[: limit * 4 + LONGEST_SECRET]))
    clean = " ".join("".join(c if c.isprintable() else " " for c in clean).split())
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def safe_cell(value: str) -> str:
    """A string for a CSV cell that no spreadsheet takes for a formula. Numbers stay numbers."""
    if re.fullmatch(r"[+-]?\d+(?:[.,]\d+)?", value):
        return value
    return f"'{value}" if unicodedata.normalize("NFKC", value[:1]) in ("=", "+", "-", "@", "\t", "\r") else value


# --- the finished report ---------------------------------------------------------------------------------

_FENCE = lazy_pattern(r"^([ \t]*)(`{3,}|~{3,})[^\n]*$", re.M)
_COMMENT = lazy_pattern(r"<!--.*?(?:-->|\Z)", re.S)
_ELEMENT = lazy_pattern(r"<(script|style|svg|iframe|object|template|title|textarea)\b.*?(?:</\1\s*>|\Z)", re.S | re.I)
_HTML_TAG = lazy_pattern(
    r"</?(?:a|abbr|address|area|article|aside|audio|b|base|bdo|big|blink|blockquote|body|br|button|canvas|center|code|col|"
    r"dd|del|details|dialog|div|dl|dt|em|embed|fieldset|figure|font|footer|form|frame(?:set)?|h[1-6]|head(?:er)?|hr|html|i|"
    r"iframe|img|input|ins|kbd|label|legend|li|link|main|map|mark|marquee|math|meta|nav|noscript|object|ol|option|p|"
    r"picture|pre|q|s|script|section|select|small|source|span|strike|strong|style|sub|summary|sup|svg|table|tbody|td|"
    r"template|textarea|tfoot|th|thead|title|tr|track|tt|u|ul|var|video|wbr)\b[^<>]*>",
    re.I,
)
_DEFINITION = lazy_pattern(
    r"^[ \t]{0,3}\[([^\]\n]{1,200})\]:[ \t]*<?(\S*?)>?(?:[ \t]+(?:\"[^\"]*\"|'[^']*'|\([^)]*\)))?[ \t]*$", re.M
)
_LINK = lazy_pattern(
    r"(!?)\[((?:[^\[\]\n]|\[[^\[\]\n]*\]){0,500})\](?:\(([^()\n]*(?:\([^()\n]*\)[^()\n]*)*)\)|\[([^\]\n]{0,200})\])"
)
_BARE_URL = lazy_pattern(r"<?\b(?:https?|ftp|file|javascript|data|vbscript)\s*:(?://)?[^\s<>\"'`\])]+>?", re.I)
_CODE_SPAN = lazy_pattern(r"(`+)(?:(?!\1).)+\1", re.S)
_MATH = lazy_pattern(r"(?<![\\$])\$(?=\$?[^$\n]*\\[a-zA-Z])")


def safe_report(text: str, allowed: Collection[str] = ()) -> str:
    """A model's Markdown for people: no image, no HTML, links only to `allowed` URLs, no hidden definitions.

    An image keeps its alt text, a link that is not allowed its text; a bare URL that is not allowed is shown as code,
    so that no viewer makes a link of it. `[Source N]` tags stay.
    """
    text = clean_characters(text)
    text = _FENCE.sub(lambda m: m[1] + m[2], text)
    parts = re.split(r"(^[ \t]*(?:`{3,}|~{3,})$)", text, flags=re.M)
    out: list[str] = []
    for i, part in enumerate(parts):
        inside_fence = (i // 2) % 2 == 1
        out.append(part if i % 2 or inside_fence else _safe_prose(part, allowed))
    return "".join(out)


def _safe_prose(text: str, allowed: Collection[str]) -> str:
    definitions = {name.casefold(): url for name, url in _DEFINITION.findall(text)}
    text = _DEFINITION.sub("", text)
    text = _ELEMENT.sub("", _COMMENT.sub("", text))

    def link(match: re.Match[str]) -> str:
        bang, label, inline, reference = match[1], match[2], match[3], match[4]
        if inline is not None and inline.startswith("\x00"):
            return match[0]  # decided in an earlier round
        if inline is None and (reference or label).casefold() not in definitions:
            return match[0] if not bang else label
        if inline is not None:
            url = inline.split(" ")[0].strip("<> ")
        else:
            url = definitions[(reference or label).casefold()]
        if bang or url not in allowed or (_BARE_URL.match(label.strip()) and label.strip() != url):
            return label
        return f"[{label}](\x00{url})"

    for _ in range(3):  # a link's text may hold an image
        changed = _LINK.sub(link, text)
        if changed == text:
            break
        text = changed
    text = _outside_code(text, lambda piece: _plain_urls(_without_html(piece), allowed))
    # What is left of a cut image could be closed by the text that follows.
    text = _outside_code(text, lambda piece: piece.replace("![", "! ["))
    return _MATH.sub(r"\\$", text).replace("\x00", "")


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    pieces: list[str] = []
    at = 0
    for span in _CODE_SPAN.finditer(text):
        pieces += [change(text[at : span.start()]), span[0]]
        at = span.end()
    return "".join([*pieces, change(text[at:])])


def _without_html(text: str) -> str:
    """Known elements are taken out; any other `<` that a viewer could take for one is replaced, its words stay."""
    return re.sub(r"<(?=[a-zA-Z/!?])(?!(?:https?|ftp)://)", "‹", _HTML_TAG.sub("", text))


def _plain_urls(text: str, allowed: Collection[str]) -> str:
    return _BARE_URL.sub(lambda m: _shown_url(m[0], allowed), text)


def _shown_url(found: str, allowed: Collection[str]) -> str:
    url = found.strip("<>")
    trailing = re.search(r"[.,;:!?]+$", url)
    end = trailing[0] if trailing else ""
    url = url[: len(url) - len(end)]
    return f"{url}{end}" if url in allowed else f"`{url}`{end}"
