"""The report inside whatever a model wraps it in."""

from __future__ import annotations

import pytest

from m3.draft import report_in

R = "Oolong is a tea that is partly oxidised. [Source 1]"
LONG = f"## Oolong\n\n{R}\n\n```python\nprint(1)\n```\n\nIt comes from Fujian. [Source 1]"
ACTION = 'Thought: more.\nAction: search\nAction Input: {"query": "oolong"}'


@pytest.mark.parametrize(
    ("reply", "report"),
    [
        (R, R),
        (LONG, LONG),
        ("Function: it warms. [Source 1]", "Function: it warms. [Source 1]"),
        ("Nothing was found about it.", "Nothing was found about it."),
        (f"```markdown\n{R}\n```", R),
        (f"Here is the report:\n\n```\n{R}\n```\n", R),
        (f"~~~\n{R}\n~~~", R),
        (f"```md\n{R}", R),
        (f"````markdown\n{LONG}\n````", LONG),
        (f"<answer>{R}</answer>", R),
        (f"<think>so</think>\n<report>\n{R}\n</report>", R),
        (f"Thought: I know it.\nFinal Answer: {R}", R),
        (f"**Final Answer:** {R}", R),
        (f"Thought: I know it.\n\n{R}", R),
        (f"Thought: {R}", R),
        (f"Action: finish\nAction Input: {{}}\n\n{R}", R),
        (f"Action: finish\n\n{R}", R),
        (f'Action: finish\nAction Input: {{"answer": "{R}"}}', R),
        (f"Action: finish\nAction Input: {R}", R),
        ("Action: finish\nAction Input: {}", ""),
        (ACTION, ""),
        ('{"name": "search", "arguments": {"query": "oolong"}}', ""),
        ('<tool_call>{"name": "search", "arguments": {"query": "oolong"}}</tool_call>', ""),
        ("", ""),
    ],
)
def test_the_report_is_found_in_its_wrapping_and_an_action_is_none(reply: str, report: str) -> None:
    assert report_in(reply) == report
