"""Make the sample runs in this folder: `make samples`.

Each is a real run of the current code, offline and without memory: the trace as JSON and, for people, every thought,
action and observation, then the report. Times, durations and the run's random fence are blanked, so that the files
change only when the program does; a test makes them anew and compares.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from config import load_config  # noqa: E402
from m3.journal import Journal  # noqa: E402
from m3.trace import trace_header, trace_json  # noqa: E402
from m3_react_agent import build_llm_client, run_react_loop  # noqa: E402

QUESTION = "Compare Raptor RAG vs HyDE"
REPORT, TRACE = "sample_run_raptor_vs_hyde.md", "trace_raptor_vs_hyde.json"
_VOLATILE = (
    (re.compile(r'"(seconds|elapsed_seconds)": [\d.e-]+'), r'"\1": 0.0'),
    (re.compile(r'"(started_at|fetched_at)": "[^"]*"'), r'"\1": ""'),
    (re.compile(r"elapsed_seconds: [\d.]+"), "elapsed_seconds: 0.0"),
    (re.compile(r"\bdata-[0-9a-f]{8}\b"), "data-00000000"),
    (re.compile(r'"digest": "[0-9a-f]+"'), '"digest": ""'),
    (re.compile(r"(\d+) s left\]"), "0 s left]"),
    (re.compile(r"Today is \d{4}-\d\d-\d\d"), "Today is 0000-00-00"),
    (re.compile(r'("kind": "date",(?:\s*"\w+": "[^"]*",)*\s*"result": )"[^"]*"'), r'\1"0000-00-00"'),
)  # fmt: skip


def blanked(text: str) -> str:
    """The text without what differs from one run to the next."""
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return text


def make() -> Iterator[tuple[str, str]]:
    """The sample files as (name, text)."""
    config = load_config({"MEMORY_BACKEND": "none"})
    journal = Journal()
    model = build_llm_client(config).model
    output = run_react_loop(QUESTION, config=config, resume=journal)
    trace = blanked(trace_json(trace_header(QUESTION, config, model), journal, output))
    yield TRACE, trace
    lines = [
        f"A run of the offline mock, made by `make samples`: `--query {json.dumps(QUESTION)}`.",
        "No language model took part: the sentences are copied from the sources by a fixed rule.",
        "",
    ]
    for step in output.steps:
        lines += [
            f"**Thought {step.number}:** {step.thought}",
            f"**Action:** {step.tool} `{json.dumps(dict(step.args), ensure_ascii=False)}`",
            "",
            *(f"> {line}" for line in step.observation.splitlines()),
            "",
        ]
    yield REPORT, blanked("\n".join([*lines, "---", "", output.to_markdown()]))


if __name__ == "__main__":
    for name, text in make():
        (ROOT / "samples" / name).write_text(text, encoding="utf-8")
        print(f"samples/{name}: {len(text):,} characters")
