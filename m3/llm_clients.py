"""Language models behind one protocol: Groq, OpenAI and all that speak like it, Anthropic, and the offline mock.

Here is what differs between providers: the request, the SDK that sends it, the words for a person. What is the same
for all of them (pacing, retries, reading replies) is in `llm_call`, `llm_errors`, `llm_wire` and `pacing`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from config import DEFAULT_MODELS, Config, ConfigError, redact
from m3.budget import PromptCounter
from m3.llm_call import Answer, ModelCall, Request
from m3.llm_errors import ProviderFault, classify
from m3.llm_wire import ChatReader, MessagesReader, Reader, read_reply
from m3.pacing import ModelFacts, facts_of
from m3.patterns import lazy_pattern
from m3.prompts import is_react_prompt
from m3.records import Completion, LLMError, Message, RunControl, Usage
from m3.untrusted import safe_line
from m3.worker import DeadlineReached, call_within

__all__ = [
    "AnthropicLLMClient",
    "FallbackLLMClient",
    "GroqLLMClient",
    "LLMClient",
    "OpenAILLMClient",
    "ProviderClient",
    "TextHook",
]

TextHook = Callable[[str], None]
STOP = "\nObservation:"  # what follows it would be an invented observation
TEMPERATURE = 0.2  # for models that take one: the format matters more than variety
CONNECT_SECONDS = 10.0
MODEL_LIST_SECONDS = 10.0
# Models that think before they write. They take no temperature and no stop words at OpenAI, and where a server
# matches stop words inside the reasoning as well, the reply comes out empty.
REASONING = lazy_pattern(r"(?:^|/)(?:o\d|gpt-[5-9]|gpt-oss|grok-|deepseek-r|qwen3|magistral)", re.I)


def _why_not_connected(problem: BaseException) -> str:
    """What kept a connection from being made, in words where it is one of the common causes."""
    cause: BaseException | None = problem
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return "its name could not be resolved"
        if isinstance(cause, ConnectionRefusedError):
            return "it was refused"
        cause = cause.__cause__ or cause.__context__
    return str(problem.__cause__ or problem)


class LLMClient(Protocol):
    """A language model. `provider` and `model` are named in the report."""

    @property
    def provider(self) -> str: ...

    @property
    def model(self) -> str: ...

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_output_tokens: int,
        control: RunControl,
        on_text: TextHook | None = None,
    ) -> Completion:
        """One reply, or LLMError. Ends by `control`'s deadline. `on_text` receives the text as it is written."""
        ...


class ProviderClient:
    """What the clients of all providers share. `complete` may be called from several threads; a call that is given up
    ends the connections of all calls of its client, so concurrent runs had better have a client each.

    facts: what is known of the model's limits; None shares it with all clients of this process. jitter: the random
    numbers of the back-off.
    """

    provider: str
    title: str
    package: str
    takes_allowance = True  # `complete` has `token_allowance`

    def __init__(
        self,
        api_key: str | None,
        model: str | None = None,
        *,
        base_url: str | None = None,
        facts: ModelFacts | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        if importlib.util.find_spec(self.package) is None:
            raise ConfigError(
                f"the model provider {self.provider} needs the package {self.package}; "
                f"install it: pip install {self.package}"
            )
        self._base_url = self._clean_base_url(base_url)
        self._key = self._clean_key(api_key)
        self.model = model or DEFAULT_MODELS[self.provider]
        self.facts = facts or facts_of(self.provider, self._base_url, self.model)
        self.jitter = jitter or random.Random()
        self.counter = PromptCounter()
        self._connections = _Connections()

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_output_tokens: int,
        control: RunControl,
        on_text: TextHook | None = None,
        token_allowance: int | None = None,
    ) -> Completion:
        """One reply, or LLMError. token_allowance: tokens that all attempts together may take, None for any."""
        call = ModelCall(
            self,
            messages,
            max_output_tokens=max_output_tokens,
            control=control,
            on_text=on_text,
            token_allowance=token_allowance,
            react=is_react_prompt(messages),
        )
        return call.run()

    # --- one attempt

    def attempt(self, request: Request, control: RunControl, on_text: TextHook | None) -> Answer:
        """Send one request and read its reply. Raises ProviderFault or DeadlineReached, and nothing else."""
        seconds = control.timeout(3_600.0) + 1.0

        def send(put_text: TextHook) -> Answer:
            try:
                return self._send(request, seconds, put_text if request.stream else None, control)
            except (ProviderFault, DeadlineReached):
                raise
            except Exception as problem:  # noqa: BLE001  every fault becomes one of ours, raised below
                fault = self._fault(problem)
            # Not from within: the SDK's exception holds the request with its key, for any traceback to show.
            raise fault

        return call_within(send, control, abort=self._abandon, on_text=on_text)

    def _send(self, request: Request, seconds: float, on_text: TextHook | None, control: RunControl) -> Answer:
        sdk = importlib.import_module(self.package)
        create, arguments = self._request(self._client(sdk), request)
        arguments["timeout"] = sdk.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))
        self._connections.when_sent(control.waiting)
        with create(**arguments) as response:
            headers = {name.lower(): value for name, value in response.headers.items()}
            chunks: Iterator[bytes] = response.iter_bytes()
            reply = read_reply(chunks, headers.get("content-type", ""), self._reader(), on_text)
        return Answer(reply, headers)

    def _client(self, sdk: Any) -> Any:
        """The SDK's client, made at the first call; its own retries are off, because they know no deadline."""
        connections = self._connections
        if connections.client is None:
            http = sdk.DefaultHttpxClient(event_hooks={"request": [connections.watch]})
            connections.client = self._make_client(sdk, http)
        return connections.client

    def _abandon(self) -> None:
        """End every connection of this client: the reader in the abandoned thread then ends too."""
        connections, self._connections = self._connections, _Connections()
        connections.end()

    def _fault(self, problem: Exception) -> ProviderFault:
        """The fault behind an exception of the SDK, or of what it is built on."""
        sdk = importlib.import_module(self.package)
        if isinstance(problem, sdk.APIStatusError):
            body = problem.body if problem.body is not None else _body_of(problem.response)
            return classify(problem.status_code, body, dict(problem.response.headers))
        if isinstance(problem, sdk.APITimeoutError) or "Timeout" in type(problem).__name__:
            return ProviderFault("timeout", "no answer in time")
        if isinstance(problem, sdk.APIConnectionError):
            return ProviderFault("connection", f"no connection: {_why_not_connected(problem)}")
        if type(problem).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2"):
            return ProviderFault("broken_reply", f"the connection broke: {problem}")
        return ProviderFault("bad_request", f"the call failed: {type(problem).__name__}: {problem}")

    # --- for people

    def advice(self, fault: ProviderFault) -> str:
        """One line: what was refused, and which setting mends it."""
        name = self.provider.upper()
        said = redact(str(fault))
        status = f"{fault.status}" if fault.status else "refused"
        default = f"the current default is {DEFAULT_MODELS[self.provider]}"
        if fault.kind == "auth":
            return f"{self.title} does not accept the key ({status}; model {self.model}): check {name}_API_KEY. {said}"
        if fault.kind == "billing":
            account = f"check the account of {name}_API_KEY"
            return f"{self.title} wants payment ({status}; model {self.model}): {account}. {said}"
        if fault.kind == "permission":
            return (
                f"{self.title} refuses access ({status}) to model {self.model}: check {name}_API_KEY and {name}_MODEL "
                f"({default}). {said}"
            )
        return f"{self.title} has no model {self.model} ({status}): set {name}_MODEL ({default}). {said}"

    # --- what each provider gives

    def _clean_base_url(self, base_url: str | None) -> str:
        raise NotImplementedError

    def _clean_key(self, api_key: str | None) -> str:
        key = (api_key or "").strip()
        if not key:
            raise ConfigError(
                f"the model provider {self.provider} needs {self.provider.upper()}_API_KEY, which is not set"
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ConfigError(f"{self.provider.upper()}_API_KEY holds characters that no key has; copy it again")
        return key

    def _make_client(self, sdk: Any, http: Any) -> Any:
        raise NotImplementedError

    def _reader(self) -> Reader:
        return ChatReader()

    def _request(self, client: Any, request: Request) -> tuple[Callable[..., Any], dict[str, Any]]:
        raise NotImplementedError

    def _kept(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Without the fields that this model was found to refuse."""
        return {name: value for name, value in fields.items() if name not in self.facts.dropped}

    def _chat_fields(self, request: Request, size: str, *, takes_effort: bool) -> dict[str, Any]:
        """The fields of a chat completion beside model and messages; size: the name of the output bound."""
        fields: dict[str, Any] = {size: request.max_output_tokens}
        if takes_effort:
            fields["reasoning_effort"] = "low"
        if not self._reasons:
            fields["temperature"] = TEMPERATURE
            if request.react and request.use_stop:
                fields["stop"] = [STOP]
        if request.stream:
            fields["stream"] = True
            fields["stream_options"] = {"include_usage": True}
        return self._kept(_renamed(fields, self.facts.dropped))

    @property
    def _reasons(self) -> bool:
        return REASONING.search(self.model) is not None


def _nothing() -> None:
    """What is done once a request is sent that nobody waits with."""


class _Connections:
    """An SDK client and the sockets it opened, so that a call that is given up can be ended under its reader.

    Closing the client would not do: a thread that waits for bytes does not notice. Shutting its socket wakes it.
    """

    def __init__(self) -> None:
        self.client: Any = None
        self._sockets: list[Any] = []
        self._here = threading.local()  # what is to be done in this thread once its request is sent
        self._ended = False
        self._lock = threading.Lock()

    def when_sent(self, do: Callable[[], object]) -> None:
        """What is to be done when the next request of this thread has gone out. Sooner, it would delay the request."""
        self._here.sent = do

    def watch(self, request: Any) -> None:
        """A hook for each request: learn of the connection that is opened for it, and when it is sent."""

        def trace(name: str, info: dict[str, Any]) -> None:
            if name.endswith(".receive_response_headers.started"):
                getattr(self._here, "sent", _nothing)()
            if name in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
                self._opened(info["return_value"].get_extra_info("socket"))

        request.extensions["trace"] = trace

    def _opened(self, sock: Any) -> None:
        with self._lock:
            self._sockets = [known for known in self._sockets if known.fileno() >= 0] + [sock]
            ended = self._ended
        if ended:  # the call was given up while it was connecting
            _shut(sock)

    def end(self) -> None:
        with self._lock:
            self._ended = True
            sockets = list(self._sockets)
        for sock in sockets:
            _shut(sock)


def _shut(sock: Any) -> None:
    with contextlib.suppress(OSError):  # it was closed already
        sock.shutdown(socket.SHUT_RDWR)


class GroqLLMClient(ProviderClient):
    """Models at Groq, through the `groq` package."""

    provider = "groq"
    title = "Groq"
    package = "groq"

    def _clean_base_url(self, base_url: str | None) -> str:
        """The SDK appends /openai/v1 itself; people copy addresses that end in it."""
        url = (base_url or "https://api.groq.com").rstrip("/")
        return re.sub(r"/openai(?:/v1)?$", "", url)

    def _make_client(self, sdk: Any, http: Any) -> Any:
        return sdk.Groq(api_key=self._key, base_url=self._base_url, max_retries=0, http_client=http)

    def _request(self, client: Any, request: Request) -> tuple[Callable[..., Any], dict[str, Any]]:
        # No `name`, no tool messages, no reasoning in the history: Groq refuses or misreads them.
        fields = self._chat_fields(request, "max_completion_tokens", takes_effort="gpt-oss" in self.model)
        options = fields.pop("stream_options", None)
        if options:
            fields["extra_body"] = {"stream_options": options}  # no argument of this SDK
        return client.chat.completions.with_streaming_response.create, {
            "model": self.model,
            "messages": list(request.messages),
            **fields,
        }


class OpenAILLMClient(ProviderClient):
    """Models at OpenAI, or at any server that speaks like it, through the `openai` package.

    With a base URL a key is optional. Without a model the server is asked: raises ConfigError unless it has exactly
    one. control: bounds that question.
    """

    provider = "openai"
    package = "openai"

    def __init__(
        self,
        api_key: str | None,
        model: str | None = None,
        *,
        base_url: str | None = None,
        facts: ModelFacts | None = None,
        jitter: random.Random | None = None,
        control: RunControl | None = None,
    ) -> None:
        self._is_own_server = bool(base_url)
        super().__init__(api_key, model, base_url=base_url, facts=facts, jitter=jitter)
        if self._is_own_server:
            self.title = "the server at " + re.sub(r"//[^/@]*@", "//", self._base_url)  # without a password
            if not model:
                self.model = self._only_model(control or RunControl())
                self.facts = facts or facts_of(self.provider, self._base_url, self.model)

    title = "OpenAI"

    def advice(self, fault: ProviderFault) -> str:
        if fault.kind == "not_found" and self._is_own_server:
            return (
                f"{self.title} has no model {self.model} ({fault.status}): set OPENAI_MODEL, or check OPENAI_BASE_URL, "
                f"which ends in /v1 as a rule. {redact(str(fault))}"
            )
        return super().advice(fault)

    def _clean_base_url(self, base_url: str | None) -> str:
        url = (base_url or "https://api.openai.com/v1").rstrip("/")
        return re.sub(r"/chat/completions$", "", url)

    def _clean_key(self, api_key: str | None) -> str:
        # The SDK refuses an empty key even for servers that want none.
        return "none" if self._is_own_server and not (api_key or "").strip() else super()._clean_key(api_key)

    def _make_client(self, sdk: Any, http: Any) -> Any:
        return sdk.OpenAI(api_key=self._key, base_url=self._base_url, max_retries=0, http_client=http)

    def _only_model(self, control: RunControl) -> str:
        """The one model that the server has."""
        bound = control.within(MODEL_LIST_SECONDS)

        def ask(_: TextHook) -> list[str]:
            client = self._client(importlib.import_module(self.package))
            listing = client.models.list(timeout=bound.timeout(MODEL_LIST_SECONDS) + 1.0)
            data = getattr(listing, "data", None)
            return [str(model.id) for model in data or () if getattr(model, "id", None)]

        try:
            names = call_within(ask, bound, abort=self._abandon)
        except DeadlineReached:
            raise self._no_list("it does not answer") from None
        except (AttributeError, TypeError, ValueError):  # what the SDK makes of a body of another shape
            names, why = [], "its answer is no list of models"
        except Exception as problem:  # noqa: BLE001  as above
            names, why = [], str(self._fault(problem))
        else:
            why = ""
        if why:
            raise self._no_list(why)
        if len(names) == 1:
            return names[0]
        if not names:
            raise ConfigError(f"OPENAI_MODEL is not set and {self.title} has no model; load one there and name it")
        found = safe_line(", ".join(sorted(names)[:30]), 600)
        raise ConfigError(
            f"OPENAI_MODEL is not set and {self.title} has {len(names)} models; set it to one of: {found}"
        )

    def _no_list(self, why: str) -> ConfigError:
        return ConfigError(
            f"OPENAI_MODEL is not set and {self.title} cannot be asked for its models: {why}; "
            "check that it runs and that OPENAI_BASE_URL is its address, which ends in /v1 as a rule"
        )

    def _request(self, client: Any, request: Request) -> tuple[Callable[..., Any], dict[str, Any]]:
        # Older servers ignore max_completion_tokens without a word, which would leave the reply unbounded.
        size = "max_tokens" if self._is_own_server else "max_completion_tokens"
        fields = self._chat_fields(request, size, takes_effort=self._reasons and not self._is_own_server)
        return client.chat.completions.with_streaming_response.create, {
            "model": self.model,
            "messages": list(request.messages),
            **fields,
        }


class AnthropicLLMClient(ProviderClient):
    """Models at Anthropic, through the `anthropic` package."""

    provider = "anthropic"
    title = "Anthropic"
    package = "anthropic"

    def _clean_base_url(self, base_url: str | None) -> str:
        return re.sub(r"/v1(?:/messages)?$", "", (base_url or "https://api.anthropic.com").rstrip("/"))

    def _make_client(self, sdk: Any, http: Any) -> Any:
        return sdk.Anthropic(api_key=self._key, base_url=self._base_url, max_retries=0, http_client=http)

    def _reader(self) -> Reader:
        return MessagesReader()

    def _request(self, client: Any, request: Request) -> tuple[Callable[..., Any], dict[str, Any]]:
        system = "\n\n".join(m["content"] for m in request.messages if m["role"] == "system")
        # Never a temperature: recent models refuse it. The cache mark moves with the end of the conversation; a
        # report's prompt is asked once only, and writing it to the cache would cost more than it brings.
        fields: dict[str, Any] = {"max_tokens": request.max_output_tokens}
        if request.react:
            fields["cache_control"] = {"type": "ephemeral"}
            if request.use_stop:
                fields["stop_sequences"] = [STOP]
        if request.stream:
            fields["stream"] = True
        if system:
            fields["system"] = system
        return client.messages.with_streaming_response.create, {
            "model": self.model,
            "messages": _alternating(request.messages),
            **self._kept(fields),
        }


class FallbackLLMClient:
    """Several clients in order: when one cannot go on, the next does, for the rest of the run.

    provider and model are those of the client in use. A switch is said in the reply's `notes`.
    """

    takes_allowance = True
    # A prompt that is too large is the caller's to shrink; a run that is over is over everywhere.
    _CALLERS_FAULTS = frozenset(("prompt_too_large", "deadline", "interrupted", "refusal"))

    def __init__(self, clients: Sequence[ProviderClient]) -> None:
        self._clients = list(clients)
        self._at = 0

    @property
    def _client(self) -> ProviderClient:
        return self._clients[self._at]

    @property
    def provider(self) -> str:
        return self._client.provider

    @property
    def model(self) -> str:
        return self._client.model

    def complete(
        self,
        messages: Sequence[Message],
        *,
        max_output_tokens: int,
        control: RunControl,
        on_text: TextHook | None = None,
        token_allowance: int | None = None,
    ) -> Completion:
        """As `ProviderClient.complete`; what a client spent before it failed is in the reply's `wasted`."""
        wasted = Usage()
        notes: tuple[str, ...] = ()
        while True:
            try:
                reply = self._client.complete(
                    messages,
                    max_output_tokens=max_output_tokens,
                    control=control,
                    on_text=on_text,
                    token_allowance=None if token_allowance is None else token_allowance - wasted.total,
                )
            except LLMError as problem:
                wasted = problem.usage = wasted + problem.usage
                if problem.kind in self._CALLERS_FAULTS or self._at + 1 >= len(self._clients) or control.expired:
                    problem.args = (" Before that: ".join([str(problem), *notes]),)
                    raise
                notes = (*notes, self._switch(problem))
                control.tell(notes[-1])
            else:
                return replace(reply, wasted=reply.wasted + wasted, notes=(*reply.notes, *notes))

    def _switch(self, problem: LLMError) -> str:
        before = f"{self.provider} ({self.model})"
        self._at += 1
        return f"{before} could not go on, {self.provider} ({self.model}) took over: {problem}"


def build_client(config: Config, control: RunControl | None = None) -> LLMClient:
    """The configured client, with those of LLM_FALLBACK behind it. Raises ConfigError.

    control: bounds the question to an OpenAI-compatible server which model it has.
    """
    if config.llm_provider == "mock":
        from m3.mock_llm import MockLLMClient

        return MockLLMClient()
    names = dict.fromkeys((config.llm_provider, *config.models.fallback))
    clients = [_client_of(config, name, control) for name in names]
    return FallbackLLMClient(clients) if len(clients) > 1 else clients[0]


def _client_of(config: Config, name: str, control: RunControl | None) -> ProviderClient:
    keys, models = config.keys, config.models
    if name == "groq":
        return GroqLLMClient(keys.groq_api_key, models.groq_model, base_url=models.groq_base_url)
    if name == "anthropic":
        return AnthropicLLMClient(keys.anthropic_api_key, models.anthropic_model, base_url=models.anthropic_base_url)
    return OpenAILLMClient(keys.openai_api_key, models.openai_model, base_url=models.openai_base_url, control=control)


def _renamed(fields: dict[str, Any], dropped: set[str]) -> dict[str, Any]:
    """The size of the reply has two names; a server that refuses one gets the other."""
    names = ("max_completion_tokens", "max_tokens")
    for name, other in (names, names[::-1]):
        if name in fields and name in dropped and other not in dropped:
            fields[other] = fields.pop(name)
            break
    return fields


def _alternating(messages: Sequence[Message]) -> list[Message]:
    """User and assistant in turn, user first: neighbours of one role are joined, empty texts left out."""
    joined: list[Message] = []
    for message in messages:
        if message["role"] == "system" or not message["content"].strip():
            continue
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {**message, "content": f"{joined[-1]['content']}\n\n{message['content']}"}
        else:
            joined.append(dict(message))
    if joined and joined[0]["role"] == "assistant":
        joined.insert(0, {"role": "user", "content": "Go on."})
    return joined


def _body_of(response: Any) -> str:
    try:
        return str(response.text)[:10_000]
    except Exception as problem:  # noqa: BLE001  the body was never read; its status says enough
        return f"(no body: {type(problem).__name__})"
