"""What a provider's refusal means: one fault for each, decided by status, code and text, never by an SDK's class.

SDK classes differ where the meaning is the same (Groq's 413 is no RateLimitError) and agree where it differs (its
413 and its 429 carry the same code). The texts that are read here were reported publicly for each provider.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple, TypeAlias

from m3.patterns import lazy_pattern
from m3.records import Usage
from m3.untrusted import safe_line

FaultKind: TypeAlias = Literal[
    "auth", "permission", "not_found", "billing",  # fatal: nothing but a person can mend it
    "bad_request", "refusal",  # this prompt is not served; another may be
    "too_large", "output_cap", "parameter",  # mended by a smaller or different request, at once
    "rate_limit",  # mended by waiting
    "failed_generation",  # the model wrote what the server could not read
    "server", "connection", "timeout", "broken_reply",  # mended by asking again, perhaps
]  # fmt: skip
FATAL: frozenset[FaultKind] = frozenset(("auth", "permission", "not_found", "billing"))
# Faults after which the provider may have billed what it did.
BILLED: frozenset[FaultKind] = frozenset(("timeout", "broken_reply", "failed_generation"))
RETRIED: frozenset[FaultKind] = frozenset(("server", "connection", *BILLED))

LIMIT_NAMES = {
    "TPM": "tokens per minute",
    "TPD": "tokens per day",
    "RPM": "requests per minute",
    "RPD": "requests per day",
    "ITPM": "input tokens per minute",
    "OTPM": "output tokens per minute",
}


class RateLimit(NamedTuple):
    """A limit as a refusal states it. kind: TPM, TPD, RPM, RPD, ITPM, OTPM or ""; counts are 0 where unsaid."""

    kind: str = ""
    limit: int = 0
    used: int = 0
    requested: int = 0

    @property
    def window(self) -> float:
        """Seconds over which the limit refills."""
        return 86_400.0 if self.kind.endswith("D") else 60.0

    def wait(self) -> float:
        """Seconds until the request fits: the limits are leaky buckets, which refill all the time."""
        missing = self.used + self.requested - self.limit
        return max(0.0, missing / self.limit * self.window) if self.limit else 0.0

    def __str__(self) -> str:
        name = LIMIT_NAMES.get(self.kind, "")
        words = f"{name} ({self.kind})" if name else "its rate"
        return f"{words}: {self.limit:,}" if self.limit else words


class ProviderFault(Exception):
    """One attempt failed. `str(fault)` is what the provider said, on one line.

    wait: seconds the provider asks for, None when it names none; limit: the rate limit that was hit; parameter: the
    request field it refuses; cap: the largest number it accepts (of output tokens, or of the context); prompt_tokens:
    its count of the prompt, 0 where unsaid; generated: the model's text where the server returned it with the refusal;
    usage: what the attempt cost.
    """

    def __init__(
        self,
        kind: FaultKind,
        message: str,
        *,
        status: int = 0,
        wait: float | None = None,
        limit: RateLimit | None = None,
        parameter: str = "",
        cap: int = 0,
        prompt_tokens: int = 0,
        generated: str = "",
        usage: Usage | None = None,
    ) -> None:
        super().__init__(safe_line(message, 300))
        self.kind: FaultKind = kind
        self.status, self.wait, self.limit = status, wait, limit
        self.parameter, self.cap, self.prompt_tokens, self.generated = parameter, cap, prompt_tokens, generated
        self.usage = usage


# --- reading a refusal -----------------------------------------------------------------------------------

MAX_MESSAGE = 4_000  # characters of a refusal that are read

_LIMIT = lazy_pattern(
    r"(?:\((?P<kind>[IO]?[TR]P[MD])\))?\s*:\s*Limit\s+(?P<limit>\d+(?:,\d{3})*)"
    r"(?:,\s*Used\s+(?P<used>\d+(?:,\d{3})*))?(?:,\s*Requested\s+~?(?P<requested>\d+(?:,\d{3})*))?",
    re.I,
)
_AGAIN = lazy_pattern(r"try again in\s+((?:[\d.]+\s*(?:ms|[dhms])\s*)+)", re.I)
_DURATION = lazy_pattern(r"([\d.]+)\s*(ms|[dhms])", re.I)
_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_CAP = lazy_pattern(
    r"(?:must be (?:less than or equal to|at most|<=)\s*`?|supports at most |max_tokens: \d+ > )(\d+)", re.I
)
_CONTEXT = lazy_pattern(
    r"context[_ ](?:length|window|size)|prompt is too long|reduce the length of the (?:messages|prompt)"
    r"|exceeds? the (?:available )?context|maximum context",
    re.I,
)
_CONTEXT_SIZE = lazy_pattern(
    r"(?:maximum context (?:length|window)(?: of this model)? (?:is|of)|context window of|n_ctx[ =(]*|tokens >)"
    r"\s*(\d+)",
    re.I,
)
_IN_PROMPT = lazy_pattern(r"(\d+) (?:tokens )?in the (?:messages|prompt)|prompt is too long: (\d+) tokens", re.I)
_TOO_LARGE = lazy_pattern(r"request too large|request entity too large|payload too large", re.I)
_PARAMETERS = (
    "max_completion_tokens", "max_tokens", "reasoning_effort", "stream_options", "include_reasoning", "temperature",
    "cache_control", "stop_sequences", "stop",
)  # fmt: skip
_UNSUPPORTED = lazy_pattern(
    r"unsupported|not supported|unrecognized|unknown|unexpected|deprecated|not permitted|extra inputs|not allowed"
    r"|does not support|invalid (?:argument|parameter)|property '",
    re.I,
)


def seconds_of(text: str) -> float | None:
    """`9m38.016s`, `20ms`, `7` or `7.5` in seconds; None for anything else."""
    text = text.strip()
    try:
        value = float(text)
    except ValueError:
        parts = _DURATION.findall(text)
        if not parts or _DURATION.sub("", text).strip():
            return None
        try:
            value = sum(float(number) * _UNIT[unit.lower()] for number, unit in parts)
        except ValueError:
            return None
    return value if math.isfinite(value) and value >= 0 else None


def error_object(body: Any) -> dict[str, Any]:
    """The object with message, type and code, whether or not it stands inside `{"error": …}` or a list."""
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        if isinstance(inner, Mapping):
            return dict(inner)
        return {**body, "message": str(inner)}
    return {}


def classify(status: int, body: Any, headers: Mapping[str, str] | None = None) -> ProviderFault:
    """The fault behind a refusal. body: parsed JSON, or text where it was none (a proxy's HTML page)."""
    error = error_object(body)
    message = _text(error.get("message") or error.get("detail"))[:MAX_MESSAGE]
    code, kind = _text(error.get("code")).lower(), _text(error.get("type")).lower()
    if not message:
        is_page = isinstance(body, str) and "<" in body
        message = f"HTTP {status}" + (" with a web page instead of an answer" if is_page else "")
    words = f"{code} {kind} {message}"
    limit = _limit_of(message)
    wait = _wait_of(headers or {}, message, limit)

    def fault(what: FaultKind, **more: Any) -> ProviderFault:
        return ProviderFault(what, message, status=status, **more)

    if status == 413 or _TOO_LARGE.search(message):
        return fault("too_large", limit=limit)
    output_cap = _too_much_output(error, message) if status in (400, 422) else 0
    if output_cap:  # before the context, which Groq's sentence about the output goes on to name
        return fault("output_cap", cap=output_cap)
    if status in (400, 404, 422) and ("context_length" in words or _CONTEXT.search(message)):
        size, counted = _CONTEXT_SIZE.search(message), _IN_PROMPT.search(message)
        return fault(
            "too_large",
            cap=int(size[1]) if size else 0,
            prompt_tokens=int(counted[1] or counted[2]) if counted else 0,
        )
    if "insufficient_quota" in words or "billing" in kind or "credit balance" in words or status == 402:
        return fault("billing")
    if status == 429 or "rate_limit" in code or kind == "rate_limit_error":
        return fault("rate_limit", limit=limit, wait=wait)
    if status in (408, 409, 498, 529) or status >= 500 or "overloaded" in words:
        return fault("server", wait=wait)
    if status == 401 or code == "invalid_api_key" or kind == "authentication_error":
        return fault("auth")
    if status == 403:
        return fault("permission")
    if status == 404 or code in ("model_not_found", "model_decommissioned"):
        return fault("not_found")
    if code in ("tool_use_failed", "json_validate_failed") or "failed_generation" in error:
        return fault("failed_generation", generated=_text(error.get("failed_generation")))
    return _bad_request(error, message, fault)


def _parameter_of(error: Mapping[str, Any], message: str) -> str:
    """The request field that a refusal is about, "" where it names none that is known."""
    return _text(error.get("param")) or next((p for p in _PARAMETERS if re.search(rf"\b{p}\b", message)), "")


def _too_much_output(error: Mapping[str, Any], message: str) -> int:
    """The most output tokens that a model may be asked for, where a refusal says so; else 0."""
    cap = _CAP.search(message)
    about_output = _parameter_of(error, message) in ("max_completion_tokens", "max_tokens")
    return int(cap[1]) if cap and about_output else 0


def _bad_request(error: Mapping[str, Any], message: str, fault: Any) -> ProviderFault:
    named = _parameter_of(error, message)
    if named in _PARAMETERS and (_UNSUPPORTED.search(message) or "unsupported" in _text(error.get("code"))):
        return fault("parameter", parameter=named)  # type: ignore[no-any-return]
    return fault("bad_request")  # type: ignore[no-any-return]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _limit_of(message: str) -> RateLimit | None:
    found = _LIMIT.search(message)
    if not found:
        return None
    numbers = [int((found[name] or "0").replace(",", "")) for name in ("limit", "used", "requested")]
    kind = (found["kind"] or "").upper()
    if not kind and re.search(r"tokens", message, re.I):
        kind = "TPD" if re.search(r"per day", message, re.I) else "TPM"
    return RateLimit(kind, *numbers)


def _seconds_until(date: str) -> float | None:
    """Seconds until an HTTP date, the other form that Retry-After may have."""
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - time.time())
    except ValueError:
        return None


def _wait_of(headers: Mapping[str, str], message: str, limit: RateLimit | None) -> float | None:
    """What the provider asks to wait: its header, its sentence, or what its figures come to; the longest of them."""
    again = _AGAIN.search(message)
    milliseconds = seconds_of(headers.get("retry-after-ms", ""))
    said = [
        seconds_of(headers.get("retry-after", "")) or _seconds_until(headers.get("retry-after", "")),
        milliseconds / 1_000 if milliseconds is not None else None,
        seconds_of(again[1]) if again else None,
        limit.wait() if limit and limit.requested else None,
    ]
    known = [seconds for seconds in said if seconds is not None]
    return max(known) if known else None
