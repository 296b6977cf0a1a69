"""One model call from start to end: pacing, the attempts, and the one policy of what is tried again.

What a provider can do is in `Endpoint`; everything here is the same for all of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from m3.budget import MIN_OUTPUT, PromptCounter
from m3.llm_errors import BILLED, FATAL, RETRIED, ProviderFault, RateLimit
from m3.llm_wire import Reply
from m3.pacing import TURN_OUTPUT, ModelFacts
from m3.records import Completion, LLMError, Message, RunControl, Usage
from m3.words import estimate_tokens
from m3.worker import DeadlineReached

ATTEMPTS = 5  # of one call, counting only those that failed for no reason of ours
BILLED_ATTEMPTS = 3  # of them, those that the provider may have billed
BACKOFF_FIRST, BACKOFF_MOST = 0.5, 20.0  # seconds; the upper ends of the jitter
ATTEMPT_SECONDS = 120.0  # one attempt; a silent server must leave time for another
COUNTDOWN = 10.0  # seconds between two lines about a wait


class Endpoint(Protocol):
    """One model at one address, as the client of its provider presents it."""

    provider: str
    title: str  # for people: `Groq`, `the server at http://…`
    model: str
    facts: ModelFacts
    counter: PromptCounter
    jitter: random.Random

    def attempt(self, request: Request, control: RunControl, on_text: Callable[[str], None] | None) -> Answer:
        """Send one request. Raises ProviderFault or DeadlineReached."""
        ...

    def advice(self, fault: ProviderFault) -> str:
        """The sentence that tells a person how to mend a fatal fault."""
        ...


class Request(NamedTuple):
    """What one attempt asks for. react: a turn of the loop, not a report; use_stop: end it before an observation."""

    messages: tuple[Message, ...]
    max_output_tokens: int
    react: bool
    stream: bool
    use_stop: bool = True


class Answer(NamedTuple):
    """What one attempt brought: the reply, and the headers of the response."""

    reply: Reply
    headers: Mapping[str, str]


class ModelCall:
    """The attempts of one call. Ends with a Completion or an LLMError, never after the control's deadline."""

    def __init__(
        self,
        endpoint: Endpoint,
        messages: Sequence[Message],
        *,
        max_output_tokens: int,
        control: RunControl,
        on_text: Callable[[str], None] | None,
        token_allowance: int | None,
        react: bool,
    ) -> None:
        self._endpoint, self._facts, self._control = endpoint, endpoint.facts, control
        self._messages = tuple(messages)
        self._most_output = max_output_tokens
        self._on_text, self._allowance, self._react = on_text, token_allowance, react
        self._use_stop = True
        self._raised_output = False
        self._shown = False
        self._failures = self._billed_failures = self._mended = 0
        self._wasted = Usage()

    def run(self) -> Completion:
        """Try until there is a reply that can be used, or a reason to give up."""
        while True:
            if self._control.expired:
                raise self._late(in_flight=False)
            output = self._pace(self._output_that_fits())
            request = Request(self._messages, output, self._react, self._on_text is not None, self._use_stop)
            reserved = self._prompt_tokens() + output
            self._facts.ledger.reserve(reserved, self._control.clock())
            try:
                answer = self._endpoint.attempt(request, self._control.within(ATTEMPT_SECONDS), self._show)
            except DeadlineReached:  # what was reserved stays so: the provider may be at work on it
                fault = ProviderFault("timeout", f"no complete reply within {ATTEMPT_SECONDS:.0f} s")
                if self._control.expired:
                    raise self._late(in_flight=True) from None
                self._after(fault, reserved, output)
            except ProviderFault as fault:
                done = self._after(fault, reserved, output)
                if done is not None:
                    return done
            else:
                completion = self._judge(answer, reserved, output)
                if completion is not None:
                    return completion

    def _show(self, text: str) -> None:
        if self._on_text is not None:
            self._shown = True
            self._on_text(text)

    # --- sizes and pacing

    def _prompt_tokens(self) -> int:
        return self._endpoint.counter.expected(self._messages)

    def _output_that_fits(self) -> int:
        """Tokens the reply may take, or LLMError `prompt_too_large` where the prompt leaves it no room."""
        facts, output = self._facts, self._most_output
        if facts.output_cap:
            output = min(output, facts.output_cap)
        if self._allowance is not None and self._wasted.total:
            output = max(MIN_OUTPUT, min(output, self._allowance - self._wasted.total - self._prompt_tokens()))
        bounds = [bound for bound in (facts.ledger.limit, facts.context) if bound]
        if not bounds:
            return output
        room = min(bounds)
        least = min(MIN_OUTPUT, output)
        left = room - self._endpoint.counter.likely_most(self._messages)
        if left < least:
            raise self._too_large(room - max(least, min(output, TURN_OUTPUT)), f"{room:,} tokens")
        return min(output, left)

    def _too_large(self, fits: int, bound: str) -> LLMError:
        text = f"the prompt of about {self._prompt_tokens():,} tokens cannot run at {self._endpoint.title}"
        return LLMError(
            f"{text}: a request may have {bound} there", kind="prompt_too_large", fits=max(1, fits), usage=self._wasted
        )

    def _pace(self, output: int) -> int:
        """Wait until the ledger has room; return the output to ask for. A turn rather takes less than a wait."""
        ledger, now = self._facts.ledger, self._control.clock()
        prompt = self._endpoint.counter.likely_most(self._messages)
        if self._react and ledger.limit:
            free = int(ledger.limit - ledger.used(now)) - prompt
            output = min(output, max(free, TURN_OUTPUT))
        self._wait_for_limit(*ledger.wait(prompt + output, now))
        return output

    def _wait_for_limit(self, wait: float, limit: RateLimit | None) -> None:
        if wait <= 0:
            return
        title = self._endpoint.title
        of = f"{title}'s limit of {limit}" if limit else f"{title}'s rate limit"
        left = self._control.remaining()
        if wait >= left:
            raise LLMError(
                f"{of} would need a wait of {wait:.0f} s; the run has {left:.0f} s left",
                kind="rate_limit",
                usage=self._wasted,
            )
        if not self._sleep(wait, f"for {of}"):
            raise self._late(in_flight=False)

    def _sleep(self, seconds: float, why: str) -> bool:
        """Wait with a visible countdown. False when the run ended meanwhile."""
        left = seconds
        while left > 0:
            if left >= 1:
                self._control.tell(f"waiting {left:.0f} s {why}")
            step = min(COUNTDOWN, left)
            if not self._control.sleep(step):
                return False
            left -= step
        return True

    def _late(self, *, in_flight: bool) -> LLMError:
        """The run is over. What was sent may be billed although no reply was read."""
        kind = "interrupted" if self._control.stopped else "deadline"
        cause = "the run was stopped" if self._control.stopped else "the run's time was over"
        usage = self._wasted + (Usage(self._prompt_tokens(), estimated=True) if in_flight else Usage())
        return LLMError(f"{self._endpoint.title} had not answered when {cause}", kind=kind, usage=usage)

    # --- after an attempt

    def _after(self, fault: ProviderFault, reserved: int, output: int) -> Completion | None:
        """Mend or wait, so that the next attempt may go on; or return the text in the refusal; or raise."""
        if self._shown:
            self._on_text = None  # people have seen a part of it already; the whole comes at the end
        now = self._control.clock()
        self._facts.ledger.refused(reserved if fault.kind not in BILLED else 0, fault.limit, fault.wait, now)
        if fault.kind == "failed_generation" and fault.generated.strip():
            return self._from_refusal(fault.generated)
        if fault.kind in BILLED:
            self._waste(fault.usage or Usage(self._prompt_tokens(), estimated=True))
        if fault.kind in FATAL:
            raise LLMError(self._endpoint.advice(fault), fatal=True, kind=fault.kind, usage=self._wasted)
        if fault.kind == "too_large":
            self._mend_size(fault, output)
        elif fault.kind == "output_cap":
            self._mend(not self._facts.output_cap or fault.cap < self._facts.output_cap, fault)
            self._facts.output_cap = fault.cap
        elif fault.kind == "parameter":
            self._mend(fault.parameter not in self._facts.dropped, fault)
            self._facts.dropped.add(fault.parameter)
        elif fault.kind == "rate_limit":
            self._rate_limited(fault)
        elif fault.kind in RETRIED:
            self._back_off(fault)
        else:
            raise self._given_up(fault)
        return None

    def _mend(self, is_new: bool, fault: ProviderFault) -> None:
        """Allow one more attempt at once for a request that was changed; give up where the change did not help."""
        self._mended += 1
        if not is_new or self._mended > 8:
            raise self._given_up(fault)

    def _mend_size(self, fault: ProviderFault, output: int) -> None:
        """A request too large never waits: learn the bound, then shrink the reply, or have the prompt shrunk."""
        limit = fault.limit
        if limit and limit.kind == "OTPM" and limit.limit:
            self._mend(not self._facts.output_cap or limit.limit < self._facts.output_cap, fault)
            self._facts.output_cap = limit.limit
            return
        counted = fault.prompt_tokens or (limit.requested - output if limit else 0)
        if counted > 0:
            self._endpoint.counter.learn(self._messages, counted)
        if fault.cap:
            self._facts.context = fault.cap
        if not (limit and limit.limit) and not fault.cap:
            raise self._too_large(self._prompt_tokens() // 2, "fewer tokens, it does not say how many,")
        self._mend(self._mended == 0 or self._output_that_fits() < output, fault)

    def _rate_limited(self, fault: ProviderFault) -> None:
        self._failures += 1
        if self._failures >= ATTEMPTS:
            raise self._given_up(fault, kind="rate_limit")
        if fault.wait is None:
            self._back_off_for(self._backoff(), fault)
        else:
            self._wait_for_limit(fault.wait + self._endpoint.jitter.uniform(0, 0.25), fault.limit)

    def _back_off(self, fault: ProviderFault) -> None:
        self._failures += 1
        self._billed_failures += fault.kind in BILLED
        if self._failures >= ATTEMPTS or self._billed_failures >= BILLED_ATTEMPTS or not self._affordable():
            raise self._given_up(fault)
        self._back_off_for(max(fault.wait or 0.0, self._backoff()), fault)

    def _back_off_for(self, wait: float, fault: ProviderFault) -> None:
        if wait >= self._control.remaining():
            raise self._given_up(fault)
        when = f" in {wait:.1f} s" if wait >= 0.05 else ""
        self._control.tell(f"{self._endpoint.title}: {fault}; trying again{when}")
        if not self._sleep(wait, "before the next attempt") or self._control.expired:
            raise self._late(in_flight=False)

    def _backoff(self) -> float:
        """Full jitter: uniform between 0 and a bound that doubles with each failure."""
        return self._endpoint.jitter.uniform(0, min(BACKOFF_MOST, BACKOFF_FIRST * 2**self._failures))

    def _affordable(self) -> bool:
        """Whether another attempt keeps the call inside what the run allows it."""
        return self._allowance is None or self._wasted.total + self._prompt_tokens() + MIN_OUTPUT <= self._allowance

    def _given_up(self, fault: ProviderFault, kind: str = "") -> LLMError:
        tries = f" ({self._failures} attempts)" if self._failures > 1 else ""
        what = f" {fault.limit}" if fault.limit else ""
        status = f" {fault.status}" if fault.status else ""
        kind_of_fault = "" if fault.kind == "connection" else f"{fault.kind.replace('_', ' ')}{status}{what}: "
        return LLMError(
            f"{self._endpoint.title}, model {self._endpoint.model}: {kind_of_fault}{fault}{tries}",
            kind=kind or fault.kind,
            usage=self._wasted,
        )

    def _waste(self, usage: Usage) -> None:
        self._wasted = self._wasted + usage

    # --- a reply

    def _judge(self, answer: Answer, reserved: int, output: int) -> Completion | None:
        """The completion, or None when the reply cannot be used and another attempt is worth it."""
        reply, usage = answer.reply, self._usage_of(answer.reply)
        self._facts.ledger.settle(reserved, usage.total, answer.headers, self._control.clock())
        if not usage.estimated:
            self._endpoint.counter.learn(self._messages, usage.prompt)
        if reply.finish_reason == "refusal":
            raise LLMError(
                f"{self._endpoint.title} declined to answer this prompt", kind="refusal", usage=self._wasted + usage
            )
        text = reply_text(reply)
        if not reply.text.strip() and not reply.calls and self._worth_another(reply, output, usage):
            self._waste(usage)
            return None
        return self._completion(text, reply.finish_reason, usage)

    def _worth_another(self, reply: Reply, output: int, usage: Usage) -> bool:
        """An empty reply is asked for again once: with more room if reasoning used it up, else without stop words."""
        if self._raised_output:
            return False
        self._raised_output = True
        if reply.finish_reason == "length":
            more = output * 2
            cost = self._wasted.total + usage.total + self._prompt_tokens() + more
            if self._allowance is not None and cost > self._allowance:
                return False
            self._most_output = more
            return True
        self._use_stop = False
        return self._affordable()

    def _usage_of(self, reply: Reply) -> Usage:
        if reply.usage is not None and reply.usage.prompt:
            return reply.usage
        return Usage(self._prompt_tokens(), estimate_tokens(reply.text + reply.reasoning), estimated=True)

    def _from_refusal(self, generated: str) -> Completion:
        """The turn that the server could not read: it goes the same way as any other."""
        usage = Usage(self._prompt_tokens(), estimate_tokens(generated), estimated=True)
        text = call_text(_named_call(generated)) or generated
        return self._completion(text, "stop", usage)

    def _completion(self, text: str, finish_reason: str | None, usage: Usage) -> Completion:
        endpoint = self._endpoint
        limit = self._facts.max_prompt_tokens()
        return Completion(text, finish_reason, usage, endpoint.model, self._wasted, endpoint.provider, limit)


def reply_text(reply: Reply) -> str:
    """What the parser reads: the text, else the native tool call, else the reasoning inside its own mark."""
    if reply.calls:
        call = call_text(reply.calls[0])
        if call and "Action:" not in reply.text:
            return f"{reply.text.strip()}\n{call}" if reply.text.strip() else call
    if not reply.text.strip() and reply.reasoning.strip():
        return f"<think>{reply.reasoning}</think>"
    return reply.text


def call_text(call: Mapping[str, str] | None) -> str:
    """A native tool call in the words of the loop's own format; "" for none."""
    if not call or not call.get("name"):
        return ""
    return f"Action: {call['name']}\nAction Input: {call['arguments'] or '{}'}"


def _named_call(generated: str) -> dict[str, str] | None:
    """The call inside a `failed_generation`: `{"name": …, "arguments": …}`; None where it is free text."""
    try:
        data = json.loads(generated)
    except ValueError:
        return None
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        return None
    arguments = data.get("arguments", data.get("parameters", {}))
    return {
        "name": data["name"],
        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
    }
