"""From bytes to a reply: the JSON bodies and event streams of the chat and messages interfaces.

The SDKs make the request; the body is read here, because they hand out what does not fit their types unchecked, stop
silently where a stream is cut, and have no bound on size or on the time of the whole reading.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from m3.llm_errors import ProviderFault, classify
from m3.records import Usage

MAX_BODY = 8_000_000  # bytes; a completion of 65,536 tokens with its reasoning is far below
MAX_TEXT = 100_000  # characters of one reply that are kept; the rest of a longer one is cut off


class Reply:
    """One reply in normal form. usage is None where the server counted nothing.

    finish_reason: `stop`, `length`, `tool_calls`, `refusal`, another word of the server's, or None: it broke off.
    """

    def __init__(self) -> None:
        self.text = ""
        self.reasoning = ""
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.model = ""
        self.calls: list[dict[str, str]] = []  # native tool calls: name, arguments (JSON text)


class Reader(Protocol):
    """Takes the events of a stream, or one whole body, and builds the reply."""

    reply: Reply

    def event(self, data: Mapping[str, Any]) -> str:
        """Take one streamed object; return the text it added."""
        ...

    def whole(self, data: Mapping[str, Any]) -> None:
        """Take a whole body."""
        ...


def read_reply(
    chunks: Iterable[bytes], content_type: str, reader: Reader, on_text: Callable[[str], None] | None = None
) -> Reply:
    """Read a body to its end. Raises ProviderFault `broken_reply` for what is no reply, or the fault inside it."""
    if "event-stream" in content_type:
        for data in _events(chunks):
            piece = reader.event(_checked(data))
            if piece and on_text is not None:
                on_text(piece)
            if len(reader.reply.text) + len(reader.reply.reasoning) > MAX_TEXT:
                reader.reply.finish_reason = "length"  # it does not keep to what it was asked for: read no further
                break
    else:
        reader.whole(_checked(_json(_limited(chunks), content_type)))
    reply = reader.reply
    if reply.finish_reason is None:
        raise ProviderFault("broken_reply", "the reply broke off: it has no finish_reason", usage=reply.usage)
    if reply.finish_reason == "error":
        raise ProviderFault("broken_reply", "the provider ended the reply with an error", usage=reply.usage)
    reply.text, reply.reasoning = reply.text[:MAX_TEXT], reply.reasoning[:MAX_TEXT]
    return reply


def _limited(chunks: Iterable[bytes]) -> bytes:
    body = bytearray()
    for chunk in chunks:
        body += chunk
        if len(body) > MAX_BODY:
            raise ProviderFault("broken_reply", f"the reply is larger than {MAX_BODY // 1_000_000} MB")
    return bytes(body)


def _json(body: bytes, content_type: str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        start = body[:200].lstrip().lower()
        is_page = "html" in content_type or start.startswith((b"<!doctype", b"<html"))
        what = "a web page" if is_page else "an empty body" if not body.strip() else "something that is not JSON"
        raise ProviderFault("broken_reply", f"the server answered with {what}; is the address right?") from None


def _checked(data: Any) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise ProviderFault("broken_reply", f"the server answered with a JSON {type(data).__name__}, not an object")
    error = data.get("error")
    if error is None and data.get("type") == "error":
        error = data
    if error:
        fields = error if isinstance(error, Mapping) else {}
        code = next((c for c in (fields.get("code"), fields.get("status")) if _is_status(c)), None)
        fault = classify(200 if code is None else int(code), data)
        if fault.kind == "bad_request" and code is None:
            raise ProviderFault("broken_reply", f"the reply holds an error: {fault}")
        raise fault
    return data


def _is_status(code: Any) -> bool:
    return isinstance(code, (int, str)) and str(code).isdigit() and 400 <= int(code) <= 599


def _events(chunks: Iterable[bytes]) -> Iterator[Any]:
    """The JSON objects of a server-sent event stream, until `[DONE]` or the end."""
    data: list[bytes] = []
    for line in _lines(chunks):
        if line.startswith(b"data:"):
            data.append(line[5:].strip())
        elif not line and data:
            text, data = b"\n".join(data), []
            if text == b"[DONE]":
                return
            try:
                yield json.loads(text)
            except ValueError:
                raise ProviderFault("broken_reply", "the stream holds something that is not JSON") from None


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest, size = b"", 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_BODY:
            raise ProviderFault("broken_reply", f"the reply is larger than {MAX_BODY // 1_000_000} MB")
        *lines, rest = (rest + chunk).replace(b"\r\n", b"\n").split(b"\n")
        yield from lines
    yield rest
    yield b""


# --- chat completions (Groq, OpenAI and all that speak like them) -----------------------------------------


class ChatReader:
    """Reads chat completions, whole or streamed."""

    def __init__(self) -> None:
        self.reply = Reply()

    def whole(self, data: Mapping[str, Any]) -> None:
        usage = chat_usage(data.get("usage"))
        self.reply.usage = usage
        self.reply.model = str(data.get("model") or "")
        choices = data.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, Mapping) else None
        if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
            raise ProviderFault("broken_reply", "the reply has no choices with a message", usage=usage)
        self._take(message)
        self._finish(choice.get("finish_reason"))

    def event(self, data: Mapping[str, Any]) -> str:
        extra = data.get("x_groq")
        extra = extra if isinstance(extra, Mapping) else {}
        if extra.get("error"):
            raise ProviderFault("server", f"the stream ended with an error: {extra['error']}")
        usage = chat_usage(data.get("usage")) or chat_usage(extra.get("usage"))
        self.reply.usage = usage or self.reply.usage
        self.reply.model = self.reply.model or str(data.get("model") or "")
        choices = data.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else {}
        if not isinstance(choice, Mapping):
            raise ProviderFault("broken_reply", "the stream holds a choice that is no object")
        before = len(self.reply.text)
        delta = choice.get("delta")
        if isinstance(delta, Mapping):
            self._take(delta)
        self._finish(choice.get("finish_reason"))
        return self.reply.text[before:]

    def _finish(self, reason: Any) -> None:
        if reason and self.reply.finish_reason != "refusal":  # a refusal may end with `stop`, like any text
            words = {"content_filter": "refusal", "function_call": "tool_calls", "max_tokens": "length"}
            self.reply.finish_reason = words.get(str(reason), str(reason))

    def _take(self, message: Mapping[str, Any]) -> None:
        content = message.get("content")
        if content is not None and not isinstance(content, str):
            raise ProviderFault(
                "broken_reply", "the content of the reply is a list of parts, not text", usage=self.reply.usage
            )
        self.reply.text += content or ""
        for name in ("reasoning", "reasoning_content"):
            if isinstance(message.get(name), str):
                self.reply.reasoning += message[name]
                break
        if message.get("refusal"):
            self.reply.finish_reason = "refusal"
        for call in message.get("tool_calls") or ():
            self._call(call)

    def _call(self, call: Any) -> None:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            return
        index = call.get("index", len(self.reply.calls))
        if not isinstance(index, int) or index >= len(self.reply.calls):
            self.reply.calls.append({"name": "", "arguments": ""})
            index = -1
        arguments = function.get("arguments") or ""
        entry = self.reply.calls[index]
        entry["name"] += str(function.get("name") or "")
        entry["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def chat_usage(data: Any) -> Usage | None:
    """The usage of a chat completion in normal form, None where the server did not count prompt and completion."""
    if not isinstance(data, Mapping):
        return None
    prompt, completion = _count(data.get("prompt_tokens")), _count(data.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    prompt_details, completion_details = data.get("prompt_tokens_details"), data.get("completion_tokens_details")
    read = prompt_details if isinstance(prompt_details, Mapping) else {}
    wrote = completion_details if isinstance(completion_details, Mapping) else {}
    return Usage(
        prompt,
        completion,
        cached=min(prompt, _count(read.get("cached_tokens")) or 0),
        reasoning=min(completion, _count(wrote.get("reasoning_tokens")) or 0),
        cache_write=min(prompt, _count(read.get("cache_write_tokens")) or 0),
    )


def _count(value: Any) -> int | None:
    whole = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e12
    return int(value) if whole else None


# --- messages (Anthropic) ---------------------------------------------------------------------------------

_STOPS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


class MessagesReader:
    """Reads Anthropic messages, whole or streamed."""

    def __init__(self) -> None:
        self.reply = Reply()
        self._usage: dict[str, Any] = {}

    def whole(self, data: Mapping[str, Any]) -> None:
        self.reply.model = str(data.get("model") or "")
        self._count_usage(data.get("usage"))
        content = data.get("content")
        if not isinstance(content, list):
            raise ProviderFault("broken_reply", "the reply has no content", usage=self.reply.usage)
        for block in content:
            self._start(block)
        self._finish(data.get("stop_reason"))

    def event(self, data: Mapping[str, Any]) -> str:
        before = len(self.reply.text)
        kind = data.get("type")
        if kind == "message_start" and isinstance(data.get("message"), Mapping):
            self.reply.model = str(data["message"].get("model") or "")
            self._count_usage(data["message"].get("usage"))
        elif kind == "content_block_start":
            self._start(data.get("content_block"))
        elif kind == "content_block_delta" and isinstance(data.get("delta"), Mapping):
            delta = data["delta"]
            self.reply.text += str(delta.get("text") or "")
            self.reply.reasoning += str(delta.get("thinking") or "")
            if delta.get("partial_json") and self.reply.calls:
                self.reply.calls[-1]["arguments"] += str(delta["partial_json"])
        elif kind == "message_delta":
            self._count_usage(data.get("usage"))
            delta = data.get("delta")
            self._finish(delta.get("stop_reason") if isinstance(delta, Mapping) else None)
        return self.reply.text[before:]

    def _start(self, block: Any) -> None:
        if not isinstance(block, Mapping):
            raise ProviderFault("broken_reply", "the content holds something that is no block", usage=self.reply.usage)
        if block.get("type") == "text":
            self.reply.text += str(block.get("text") or "")
        elif block.get("type") == "thinking":
            self.reply.reasoning += str(block.get("thinking") or "")
        elif block.get("type") == "tool_use":
            given = block.get("input")
            arguments = json.dumps(given, ensure_ascii=False) if given else ""
            self.reply.calls.append({"name": str(block.get("name") or ""), "arguments": arguments})

    def _finish(self, reason: Any) -> None:
        if reason:
            self.reply.finish_reason = _STOPS.get(str(reason), str(reason))

    def _count_usage(self, data: Any) -> None:
        """Anthropic's input_tokens leave out what the cache read and wrote; the normal form includes them."""
        if not isinstance(data, Mapping):
            return
        self._usage |= {name: value for name, value in data.items() if value is not None}
        fresh, completion = _count(self._usage.get("input_tokens")), _count(self._usage.get("output_tokens"))
        if fresh is None or completion is None:
            return
        wrote = _count(self._usage.get("cache_creation_input_tokens")) or 0
        read = _count(self._usage.get("cache_read_input_tokens")) or 0
        details = self._usage.get("output_tokens_details")
        thinking = _count(details.get("thinking_tokens")) if isinstance(details, Mapping) else None
        self.reply.usage = Usage(
            fresh + wrote + read, completion, cached=read, reasoning=min(completion, thinking or 0), cache_write=wrote
        )
