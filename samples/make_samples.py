"""Make the sample runs in this folder: `make samples`.

Each is a real run of the current code without memory: the trace as JSON and, for people, every thought, action and
observation, then the report. Times, durations, ports and the run's random fence are blanked, so that the files change
only when the program does; a test makes them anew and compares.

Two of them read pages of Debian's python3-doc and are made where that is installed. A file says which pages those were
(`pages <digest>`): of another release of Python the same code makes another sample.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.world.corpus import Corpus  # noqa: E402
from bench.world.server import MODEL, Latency, resolve, running  # noqa: E402
from config import load_config  # noqa: E402
from m3.fetch import PageFetchTool  # noqa: E402
from m3.journal import Journal  # noqa: E402
from m3.report import FinalOutput  # noqa: E402
from m3.safe_http import SafeClient  # noqa: E402
from m3.trace import trace_header, trace_json  # noqa: E402
from m3_react_agent import build_llm_client, run_react_loop  # noqa: E402

QUESTION = "Compare Raptor RAG vs HyDE"
REPORT, TRACE = "sample_run_raptor_vs_hyde.md", "trace_raptor_vs_hyde.json"
DOCUMENTS, DOCUMENTS_QUESTION = "sample_run_documents.md", "Compare pickle vs json"
GROQ, GROQ_QUESTION = "sample_run_groq_loopback.md", "When is Python's pickle unsafe, and how does shelve use it?"
PYTHON_PAGES = ("csv", "dbm", "json", "marshal", "pickle", "shelve")
NOTICE = "Passages are quoted from the Python documentation, © Python Software Foundation, PSF License Version 2."
_VOLATILE = (
    (re.compile(r'"(seconds|elapsed_seconds)": [\d.e-]+'), r'"\1": 0.0'),
    (re.compile(r'"(started_at|fetched_at)": "[^"]*"'), r'"\1": ""'),
    (re.compile(r"elapsed_seconds: [\d.]+"), "elapsed_seconds: 0.0"),
    (re.compile(r"\bdata-[0-9a-f]{8}\b"), "data-00000000"),
    (re.compile(r'"digest": "[0-9a-f]+"'), '"digest": ""'),
    (re.compile(r"(\d+) s left\]"), "0 s left]"),
    (re.compile(r"Today is \d{4}-\d\d-\d\d"), "Today is 0000-00-00"),
    (re.compile(r"\(as fetched \d{4}-\d\d-\d\d\)"), "(as fetched 0000-00-00)"),
    (re.compile(r"\.docs\.example:\d+"), ".docs.example:00000"),
    (re.compile(r'("kind": "date",(?:\s*"\w+": "[^"]*",)*\s*"result": )"[^"]*"'), r'\1"0000-00-00"'),
)  # fmt: skip


def blanked(text: str) -> str:
    """The text without what differs from one run to the next."""
    for pattern, replacement in _VOLATILE:
        text = pattern.sub(replacement, text)
    return text


def story(output: FinalOutput, *introduction: str) -> str:
    """A run for people: every thought, action and observation, then the report."""
    lines = [*introduction, ""]
    for step in output.steps:
        lines += [
            f"**Thought {step.number}:** {step.thought}",
            f"**Action:** {step.tool} `{json.dumps(dict(step.args), ensure_ascii=False)}`",
            "",
            *(f"> {line}" for line in step.observation.splitlines()),
            "",
        ]
    return blanked("\n".join([*lines, "---", "", output.to_markdown()]))


def make() -> Iterator[tuple[str, str]]:
    """The offline run as (name, text): its trace, and its story."""
    config = load_config({"MEMORY_BACKEND": "none"})
    journal = Journal()
    model = build_llm_client(config).model
    output = run_react_loop(QUESTION, config=config, resume=journal)
    yield TRACE, blanked(trace_json(trace_header(QUESTION, config, model), journal, output))
    yield (
        REPORT,
        story(
            output,
            f"A run of the offline mock, made by `make samples`: `--query {json.dumps(QUESTION)}`.",
            "No language model took part: the sentences are copied from the sources by a fixed rule.",
        ),
    )


def python_pages() -> list[Path]:
    """The pages of the Python documentation that the other samples read; none where it is not installed."""
    for folder in sorted(Path("/usr/share/doc").glob("python3*/html/library")):
        pages = [folder / f"{name}.html" for name in PYTHON_PAGES]
        if all(page.is_file() for page in pages):
            return pages
    return []


def digest_of(pages: Sequence[Path]) -> str:
    """`pages <digest>`: which pages they are, by their bytes."""
    return "pages " + hashlib.sha256(b"".join(page.read_bytes() for page in pages)).hexdigest()[:12]


def make_documents(pages: Sequence[Path]) -> str:
    """The story of a run over a folder of documents."""
    with tempfile.TemporaryDirectory() as own:
        folder = Path(own) / "library"
        folder.mkdir()
        for page in pages:
            shutil.copy(page, folder)
        config = load_config({"MEMORY_BACKEND": "none", "DOCS_DIR": str(folder)})
        output = run_react_loop(DOCUMENTS_QUESTION, config=config)
    return story(
        output,
        f"A run over a folder of documents, made by `make samples`: `--docs DIR --query "
        f"{json.dumps(DOCUMENTS_QUESTION)}`; no model is set, so the offline mock answers.",
        f"The folder holds six pages of the Python documentation ({digest_of(pages)}). {NOTICE}",
    )


def make_groq(pages: Sequence[Path]) -> str:
    """The story of a run with the Groq client over HTTP, on the loopback world of `bench/world/`."""
    no_time = Latency(0.0, 0.0, 0.0, 0.0)
    with running(Corpus.of_files(pages), question=GROQ_QUESTION, latency=no_time) as world:
        settings = {
            "GROQ_API_KEY": "gsk_loopback", "GROQ_BASE_URL": world.address, "GROQ_MODEL": MODEL,
            "SEARXNG_BASE_URL": f"{world.address}/named", "MEMORY_BACKEND": "none",
        }  # fmt: skip
        fetcher = PageFetchTool(client=SafeClient(resolver=resolve, allow_loopback=True))
        output = run_react_loop(GROQ_QUESTION, config=load_config(settings), fetcher=fetcher)
    return story(
        output,
        "A run with the client for Groq over HTTP, made by `make samples` on the loopback world of `bench/world/`.",
        "Search engine and pages are real HTTP too; the model is a fixed policy that quotes its prompt, no language"
        f" model. The pages are six of the Python documentation ({digest_of(pages)}). {NOTICE}",
    )


def main() -> None:
    found = dict(make())
    pages = python_pages()
    if pages:
        found |= {DOCUMENTS: make_documents(pages), GROQ: make_groq(pages)}
    else:
        print("samples: python3-doc is not installed, so two samples stay as they are", file=sys.stderr)
    for name, text in found.items():
        (ROOT / "samples" / name).write_text(text, encoding="utf-8")
        print(f"samples/{name}: {len(text):,} characters")


if __name__ == "__main__":
    main()
