"""Between the driver and the model: every call stays inside what the run may spend, and what it cost is booked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from config import ModelSettings, redact
from m3.budget import MIN_OUTPUT, TokenBudget, oddity
from m3.journal import Journal
from m3.pricing import cost_of, price_of
from m3.records import Completion, EventHook, LLMError, Message, RunControl, TextDelta, Usage
from m3.reply_text import VisibleStream, visible_text
from m3.worker import DeadlineReached

if TYPE_CHECKING:
    from m3.llm_clients import LLMClient

CHARACTERS_PER_TOKEN = 8  # of a reply; one longer than its tokens can be is cut
SHORTEST_CUT = 8_000  # characters


class OutOfBudgetError(LLMError):
    """The call was not made: it could have passed a bound, whose stop reason is in `kind`."""

    def __init__(self, bound: str) -> None:
        what = "money" if bound == "max_cost" else "tokens"
        super().__init__(f"no call fits into what is left of the {what}", kind=bound)


@dataclass
class Asking:
    """The model as one run may use it.

    asked: provider and model that answered last; providers: all that did; failover: what was said when another took
    over; prompt_limit: tokens a prompt may have there, window: tokens after which a server was seen to cut prompts,
    both 0 for unknown; warnings: the run's own list.
    """

    llm: LLMClient
    models: ModelSettings
    budget: TokenBudget
    journal: Journal
    control: RunControl  # of the whole run, for the report
    loop_control: RunControl
    emit: EventHook
    warnings: list[str]
    asked: tuple[str, str] = ("", "")
    providers: list[str] = field(default_factory=list)
    failover: list[str] = field(default_factory=list)
    prompt_limit: int = 0
    window: int = 0
    _last_prompt: list[Message] = field(default_factory=list)
    _streamed: bool = False  # something of the last reply was shown while it was written

    def __post_init__(self) -> None:
        self.asked = (getattr(self.llm, "provider", "custom"), getattr(self.llm, "model", "") or "")
        if self.models.max_cost_usd is not None and price_of(*self.asked) is None:
            self.warnings.append(f"MAX_COST_USD cannot be kept: the price of {' '.join(self.asked)} is unknown.")

    def room(self, messages: Sequence[Message], *, for_report: bool = False) -> tuple[int, str]:
        """Tokens that a reply to these messages may take without the run passing a bound, and that bound's name."""
        budget = self.budget
        prompt = budget.upper_estimate(messages)
        room = budget.left - (0 if for_report else budget.reserve) - prompt
        price = price_of(*self.asked)
        if budget.max_cost_usd is None or price is None:
            return room, "max_tokens"
        dollars = budget.cost_left - (0.0 if for_report else budget.cost_reserve)
        dollars -= prompt * max(price.prompt, price.cache_write) / 1e6
        affordable = int(dollars * 1e6 / price.completion) if price.completion else room
        return (affordable, "max_cost") if affordable < room else (room, "max_tokens")

    def exhausted(self, messages: Sequence[Message] | None) -> str:
        """The bound that forbids to go on, "" for none. messages: the next prompt, None when nothing will be asked."""
        if self.budget.cost_left <= self.budget.cost_reserve:
            return "max_cost"
        if self.budget.left <= self.budget.reserve:
            return "max_tokens"
        if messages is None:
            return ""
        room, bound = self.room(messages)
        return bound if room < MIN_OUTPUT else ""

    def ask(self, messages: Sequence[Message], *, for_report: bool = False, show: bool = True) -> Completion:
        """One model call inside the budget. Raises LLMError, whatever the client raises.

        for_report: may use what is reserved for the report; show: its text is the report and is shown as it comes.
        """
        # No key is in a prompt: not one that a page or a server's error echoes, nor one that the model wrote before.
        messages = [{**message, "content": redact(message["content"])} for message in messages]
        room, bound = self.room(messages, for_report=for_report)
        if room < MIN_OUTPUT:
            raise OutOfBudgetError(bound)
        most = min(self.models.max_output_tokens, room)
        allowance = room + self.budget.upper_estimate(messages)
        shared = _shared_prefix(self._last_prompt, messages)
        request = {"after": shared, "messages": list(messages[shared:])}
        self._last_prompt = list(messages)
        self._streamed = False
        try:
            reply = self.journal.perform(
                "model",
                request,
                Completion,
                lambda: self._complete(messages, most, allowance, for_report, show),
                self.control if for_report else self.loop_control,
            )
        except DeadlineReached:
            # What was sent is billed as a rule; how much, nobody says any more.
            self._book_waste(Usage(self.budget.counter.expected(messages), estimated=True))
            raise LLMError("the model did not answer before the run had to go on", kind="deadline") from None
        except LLMError as problem:
            self._book_waste(problem.usage)
            raise
        self._book(messages, reply)
        if for_report and show and not self._streamed:
            # From the record, or from a client that does not stream: the report is shown at once.
            text = visible_text(reply.text)
            if text:
                self.emit(TextDelta(text))
        return reply

    def overruns(self) -> list[str]:
        """What a provider counted beyond the bounds in spite of the estimates, one sentence for each bound."""
        budget, said = self.budget, []
        if budget.spent > budget.max_tokens:
            over = budget.spent - budget.max_tokens
            said.append(f"The provider counted {over:,} tokens more than MAX_TOKENS ({budget.max_tokens:,}) allows.")
        if budget.max_cost_usd is not None and budget.cost_usd > budget.max_cost_usd:
            over_usd = budget.cost_usd - budget.max_cost_usd
            said.append(
                f"The run cost {over_usd:.6f} US dollars more than MAX_COST_USD ({budget.max_cost_usd}) allows."
            )
        return said

    def _complete(
        self, messages: Sequence[Message], most: int, allowance: int, for_report: bool, show: bool
    ) -> Completion:
        """The call itself. allowance: tokens that all its attempts together may take."""
        more: dict[str, Any] = {"token_allowance": allowance} if getattr(self.llm, "takes_allowance", False) else {}
        shown = _ReportText(self.emit) if for_report and show else None
        try:
            reply = self.llm.complete(
                messages,
                max_output_tokens=most,
                control=self.control if for_report else self.loop_control,
                on_text=shown,
                **more,
            )
        except LLMError:
            raise
        except Exception as problem:  # a caller's own client may raise anything; the run must still end well
            raise LLMError(f"the model call failed: {type(problem).__name__}: {problem}") from problem
        if shown is not None:
            shown.close()
            self._streamed = shown.sent
        if not isinstance(reply, Completion) or not isinstance(reply.text, str):
            raise LLMError("the model call brought no text")
        longest = max(SHORTEST_CUT, most * CHARACTERS_PER_TOKEN)
        if len(reply.text) <= longest:
            return reply
        return replace(reply, text=reply.text[:longest], finish_reason="length" if for_report else None)

    def _book(self, messages: Sequence[Message], reply: Completion) -> None:
        """Count what a call cost, learn from it, and say what is odd about it."""
        self._book_waste(reply.wasted)
        self.asked = (reply.provider or self.asked[0], reply.model or self.asked[1])
        self.providers.append(self.asked[0])
        self.failover += reply.notes
        self.prompt_limit = min((bound for bound in (reply.prompt_limit, self.window) if bound), default=0)
        cost = cost_of(*self.asked, reply.usage)
        odd = oddity(self.budget.counter, messages, reply.usage)
        if odd and not any(warning.startswith(odd.warning[:20]) for warning in self.warnings):
            self.warnings.append(odd.warning)
        if odd and odd.window:
            self.budget.add(reply.usage, cost)  # a count of a part teaches nothing about the whole
            self.window = self.prompt_limit = min(self.prompt_limit or odd.window, odd.window)
        else:
            self.budget.book(messages, reply.usage, cost)

    def _book_waste(self, usage: Usage) -> None:
        if usage.total:
            self.budget.add(usage, cost_of(*self.asked, usage))


class _ReportText:
    """Shows the report while it is written: without the reasoning and the marks that no reader should see."""

    def __init__(self, emit: EventHook) -> None:
        self._emit, self._stream = emit, VisibleStream()
        self.sent = False

    def __call__(self, text: str) -> None:
        self._send(self._stream.feed(text))

    def close(self) -> None:
        self._send(self._stream.close())

    def _send(self, text: str) -> None:
        if text:
            self.sent = True
            self._emit(TextDelta(text))


def _shared_prefix(earlier: Sequence[Message], messages: Sequence[Message]) -> int:
    """How many messages the prompt has in common with the one before: the trace keeps only the rest."""
    count = 0
    for old, new in zip(earlier, messages, strict=False):
        if old != new:
            break
        count += 1
    return count
