"""The parser, through its public surface: the catalogue of real outputs, shapes of our own, and properties."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from m3.lenient_json import Unreadable, read_json
from m3.react_parser import TOOLS, ParsedStep, Tool, canonical_turn, parse_thought_action
from tests.conftest import OWN_CASES
from tests.parser_shapes import GROUPS

CATALOGUE = json.loads((OWN_CASES / "react_outputs.json").read_text(encoding="utf-8"))
SMOLLM = json.loads((OWN_CASES / "smollm_outputs.json").read_text(encoding="utf-8"))["runs"]
SMOLLM_TOOLS = (
    Tool(
        "web_search",
        {"query": str},
        "",
        {"input": "query"},
        (("query",),),
        one_line=frozenset({"query"}),
        plain="query",
    ),
    Tool("read_page", {"url": str}, "", {"input": "url"}, (("url",),), one_line=frozenset({"url"}), plain="url"),
    TOOLS[-1],
)


def outcome(step: ParsedStep) -> dict[str, Any]:
    return {"error": step.error} if step.error else {"tool": step.tool, "args": step.args}


def assert_sound(step: ParsedStep, tools: tuple[Tool, ...] = TOOLS) -> None:
    """Exactly one of tool and error; the arguments fit the table; the canonical turn reads back as it was."""
    assert (step.tool is None) != (step.error is None)
    if step.error:
        assert step.error_detail and not step.args
        return
    tool = next(t for t in tools if t.name == step.tool)
    assert set(step.args) <= set(tool.args)
    for name, value in step.args.items():
        assert type(value) is tool.args[name]
        assert value not in ("", [])
        if isinstance(value, str):
            assert value == value.strip() and "\n" not in value
        if isinstance(value, list):
            assert all(isinstance(item, str) and item for item in value)
    for group in tool.required:
        assert any(name in step.args for name in group)
    turn = canonical_turn(step)
    again = parse_thought_action(turn, tools=tools)
    assert (again.thought, again.tool, again.args) == (step.thought, step.tool, step.args)
    assert canonical_turn(again) == turn


@pytest.mark.parametrize("case", CATALOGUE, ids=lambda case: case["shape_name"])
def test_an_output_of_the_catalogue_gives_its_action_or_its_error(case: dict[str, Any]) -> None:
    step = parse_thought_action(case["text"], case.get("finish_reason"))
    assert outcome(step) == case["expected"]
    assert_sound(step)


@pytest.mark.parametrize(
    ("text", "expected"),
    [pytest.param(*case, id=f"{name}-{i}") for name, cases in GROUPS.items() for i, case in enumerate(cases)],
)
def test_a_shape_of_our_own_gives_its_action_or_its_error(text: str, expected: tuple[Any, ...]) -> None:
    step = parse_thought_action(text, expected[2] if len(expected) > 2 else None)
    if len(expected) == 1 or expected[1] is None:
        assert step.error == expected[0], step
    else:
        assert (step.tool, step.args) == expected[:2], step
    assert_sound(step)


@pytest.mark.parametrize("reason", [None, "length"])
@pytest.mark.parametrize("tools", [TOOLS, SMOLLM_TOOLS], ids=["our_tools", "its_tools"])
def test_no_output_of_a_tiny_model_raises_or_gives_an_empty_or_cut_value(
    tools: tuple[Tool, ...], reason: str | None
) -> None:
    calls = 0
    for run in SMOLLM:
        text = run["output"]
        step = parse_thought_action(text, reason, tools)
        assert_sound(step, tools)
        for value in step.args.values():
            calls += 1
            at = text.index(str(value)) + len(str(value))
            assert text[at : at + 1] in ('"', ")", "\n"), (text, step)  # closed by the model, not by the end
    assert calls >= (40 if tools is SMOLLM_TOOLS else 0)


@pytest.mark.parametrize("text", [case["text"] for case in CATALOGUE if "tool" in case["expected"]])
def test_a_prefix_of_a_reply_never_gives_an_action_with_a_piece_of_a_value(text: str) -> None:
    whole = parse_thought_action(text)
    values = [v for value in whole.args.values() for v in (value if isinstance(value, list) else [value])]
    for end in range(len(text)):
        step = parse_thought_action(text[:end], "length")
        got = [v for value in step.args.values() for v in (value if isinstance(value, list) else [value])]
        for value in got:
            assert value in values, (text[:end], step)


NOISE = st.sampled_from(
    [*"{}[]()\"'`:,\\\n <>|*#", "Action:", "Action Input:", "Thought:", "Observation:", "Final Answer:", "search",
     "fetch", "finish", "extract",
     '{"query": "', '"}', "```json\n", "<think>", "</think>", "<tool_call>", "<|channel|>",
     "<|message|>", "to=functions.search", "query", "https://a.b/c", "R1", "&quot;", "//", "/*", "\u200b", "\u00a0",
     "\ud800", "<function=search>", "<parameter=query>", '"""', "“", "”", "[TOOL_CALLS]", "\\u12", "None", "="]
)  # fmt: skip
SHAPES = [case["text"] for case in CATALOGUE] + [text for cases in GROUPS.values() for text, _ in cases]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A known shape with pieces of it cut out, doubled or replaced by noise."""
    text = draw(st.sampled_from(SHAPES))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        end = min(len(text), at + draw(st.integers(0, 12)))
        text = text[:at] + draw(st.one_of(NOISE, st.just(text[at:end] * 2), st.text(max_size=5))) + text[end:]
    return text


ANY_TEXT = st.one_of(st.text(max_size=300), st.lists(NOISE, max_size=60).map("".join), damaged())


@settings(max_examples=1_500, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(ANY_TEXT, st.sampled_from([None, "stop", "length"]))
@example('Thought: Thought: <think>x\nAction: search\nAction Input: {"query": "\\u00a0 a\\u200b\\ud83d"}', None)
def test_any_text_gives_a_sound_step_and_its_canonical_turn_reads_back(text: str, reason: str | None) -> None:
    assert_sound(parse_thought_action(text, reason))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(st.one_of(st.lists(NOISE, min_size=1, max_size=8).map("".join), damaged()))
def test_twenty_kilobytes_of_anything_take_at_most_fifty_milliseconds(piece: str) -> None:
    text = (piece * (20_000 // max(1, len(piece)) + 1))[:20_000]
    parse_thought_action(text)  # patterns compiled
    best = min(_seconds(text) for _ in range(3))
    assert best < 0.05


ARGS = {
    "search": st.fixed_dictionaries({"query": st.text(min_size=1, max_size=60)}),
    "extract": st.fixed_dictionaries({"source": st.integers(-9, 999_999_999), "question": st.text(min_size=1)}),
    "finish": st.just({}),
}


@settings(max_examples=600, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(ARGS)).flatmap(lambda name: st.tuples(st.just(name), ARGS[name])), st.text(max_size=80))
def test_a_valid_call_is_read_as_it_was_meant_whatever_its_text(call: tuple[str, dict[str, Any]], thought: str) -> None:
    name, args = call
    text = f"Thought: t\nAction: {name}\nAction Input: {json.dumps(args)}"
    step = parse_thought_action(text)
    assert_sound(step)
    if step.error:
        assert step.error == "bad_args"  # a value of nothing but signs, or a placeholder
    else:
        assert step.tool == name


def test_a_tool_that_a_caller_adds_keeps_line_breaks_and_every_type_of_its_arguments() -> None:
    write = Tool(
        "write_file",
        {"name": str, "content": str, "lines": int, "ratio": float, "append": bool, "tags": list, "meta": dict},
        "…",
        required=(("name",), ("content",)),
    )
    args = {
        "name": "a.md", "content": "one\n  two\u00a0three\u200b ｜ <think> </think>\n", "lines": 3, "ratio": 0.5,
        "append": False, "tags": ["x", "y"], "meta": {"k": [1]},
    }  # fmt: skip
    step = parse_thought_action(canonical_turn(ParsedStep("t", "write_file", args)), tools=(*TOOLS, write))
    assert (step.tool, step.args) == ("write_file", args)


def test_what_follows_the_first_decision_is_dropped_and_named() -> None:
    text = (
        'Action: search\nAction Input: {"query": "a", "lang": "en",}\nObservation: invented\nAction: fetch\n'
        'Action Input: {"url": "https://a.b"}\nFinal Answer: x'
    )
    step = parse_thought_action(text)
    assert (step.tool, step.args) == ("search", {"query": "a"})
    notes = " | ".join(step.notes)
    for note in ("observation", "several actions", "answer beside", "unknown keys dropped: lang"):
        assert note in notes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Action: calculator\nAction Input: 1", ["calculator", "search", "fetch", "finish"]),
        ('Action: search\nAction Input: {"url": "x"}', ["query", "missing"]),
        ('Action: search\nAction Input: {"query": ""}', ["query", "no usable value"]),
        ('Action: search\nAction Input: {"query": "abc', ["cut off"]),
        ("I know the answer.", ["Action:"]),
        ("Action: fetch", ["Action Input", "results"]),
    ],
)
def test_an_error_names_the_exact_fault(text: str, words: list[str]) -> None:
    detail = parse_thought_action(text).error_detail
    assert all(word in detail for word in words), detail
    assert "\n" not in detail


def test_the_thought_is_what_the_model_said_before_its_action() -> None:
    text = 'Some preamble.\n**Thought:** I need\nmore data.\nAction: search\nAction Input: {"query": "a"}'
    assert parse_thought_action(text).thought == "I need more data."


def test_without_a_thought_label_the_thought_is_the_text_before_the_action() -> None:
    text = 'I look it up.\n\nAction: search\nAction Input: {"query": "a"}'
    assert parse_thought_action(text).thought == "I look it up."


def _seconds(text: str) -> float:
    started = time.process_time()
    parse_thought_action(text)
    return time.process_time() - started


MEGABYTE = 1_000_000
HOSTILE = {
    "braces": "{",
    "brackets": "[",
    "backticks": "`",
    "fence lines": "```\n",
    "Action lines": "Action:\n",
    "full Action lines": "Action: search\n",
    "quotes": "\"'",
    "quotes in an input": 'Action: search\nAction Input: {"query": "\0"a" ',
    "apostrophes in an input": "Action: search\nAction Input: {'query': '\0it's ",
    "escapes in an input": 'Action: search\nAction Input: {"query": "\0\\"',
    "nested objects": 'Action: search\nAction Input: \0{"input": ',
    "comments": "Action: search\nAction Input: [\0/*,",
    "think tags": "<think>",
    "think pairs": "<think>\n</think>\n",
    "channels": "<|channel|>x<|message|>y<|end|>",
    "tags": "<function=search><parameter=query>",
    "calls": "search(\n",
    "objects": "{x: 1}\n",
    "spaces": "x\0 ",
    "lines": "a\n",
    "links": "Action: fetch\nAction Input: \0[a](",
    "end tokens": "</s>",
    "headings": "# Action\n",
    "inline labels": "x Action: a ",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_grows_linearly_on_a_megabyte_of(name: str) -> None:
    head, _, unit = HOSTILE[name].rpartition("\0")
    big = head + unit * (MEGABYTE // len(unit))
    small = big[: MEGABYTE // 8]
    parse_thought_action(small)
    quick, slow = min(_seconds(small) for _ in range(3)), min(_seconds(big) for _ in range(2))
    assert slow < 1.5  # 0.5 s on a machine of its own; the ratio is the claim
    assert slow < 24 * quick + 0.3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.5, true, null], "b": {"c": "d"}}', {"a": [1, 2.5, True, None], "b": {"c": "d"}}),
        ("{'a': (1, 2), 'b': None, 'c': True}", {"a": [1, 2], "b": None, "c": True}),
        ("{a: 'x', /* c */ b: \"y\",}", {"a": "x", "b": "y"}),
        ('{"a": "x" "b": "y"}', {"a": "x", "b": "y"}),
        (r'{"p": "C:\new\Temp"}', {"p": r"C:\new\Temp"}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"a": "one" + "two"}', {"a": "onetwo"}),
    ],
)
def test_lenient_json_reads_what_models_write(text: str, value: Any) -> None:
    reading = read_json(text)
    assert reading.value == value and not reading.cut and reading.closed


@pytest.mark.parametrize(
    "text", ['{"a": "b', "{'a': 'it's", '{"a":', '{"a": [1,', '{"a": 12', "{a: b", '["a', "{", "["]
)
def test_lenient_json_reports_a_cut_value_and_never_completes_it(text: str) -> None:
    reading = read_json(text)
    assert reading.cut and reading.value is None


@pytest.mark.parametrize("text", ["word", "{1: 2}", "[" * 10_000 + "]", '{"a" "b"}'])
def test_lenient_json_refuses_what_is_no_json(text: str) -> None:
    with pytest.raises(Unreadable):
        read_json(text)
