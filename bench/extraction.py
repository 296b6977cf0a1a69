"""Main-content extraction beside trafilatura, readability-lxml and resiliparse, on the public sets of M3_CASES.

    python bench/extraction.py [--json] [--sets NAME,…] [--peers NAME,…] [--limit N]

The peers live in an environment of the bench's own (`.venv-bench-extraction/`, made at the first run). Every tool runs
in a process of its own over the same pages; speed is CPU seconds inside the call, so compare tools of one run only.

Scores: `shingle` is the F1 of the mean precision and mean recall over runs of four words; `word` the mean F1 of the
bags of lower-cased words; `structure` the share of the page's code lines, table rows and list items that stand whole
in the output, for those that the truth holds; title, author and date the share right where the truth has one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CASES = Path(os.environ.get("M3_CASES", ROOT.parent / "shared" / "cases")) / "extraction"
VENV = ROOT / ".venv-bench-extraction"
PEER_PACKAGES = ["trafilatura==2.3.1", "readability-lxml==0.9", "resiliparse==2.0.1", "lxml_html_clean"]
PEERS = ("trafilatura", "readability", "resiliparse")
SETS = ("scrapinghub-181", "wcxb-dev-240", "defuddle-208")
WORD = re.compile(r"\w+")

# --- the tools -------------------------------------------------------------------------------------------


def _m3() -> Callable[[str, str], dict[str, str]]:
    sys.path.insert(0, str(ROOT))
    from m3.extract import ContentExtractor

    extractor = ContentExtractor()

    def run(html: str, url: str) -> dict[str, str]:
        page = extractor.extract(html, url)
        return {"text": page.text, "title": page.title, "author": page.author, "date": page.published}

    return run


def _trafilatura() -> Callable[[str, str], dict[str, str]]:
    import trafilatura  # type: ignore[import-not-found]

    def run(html: str, url: str) -> dict[str, str]:
        return {"text": trafilatura.extract(html, url=url, include_comments=False) or ""}

    return run


def _trafilatura_metadata() -> Callable[[str, str], dict[str, str]]:
    from trafilatura import bare_extraction

    def run(html: str, url: str) -> dict[str, str]:
        found = bare_extraction(html, url=url, include_comments=False, with_metadata=True)
        return {k: getattr(found, k) or "" for k in ("text", "title", "author", "date")} if found else {"text": ""}

    return run


def _readability() -> Callable[[str, str], dict[str, str]]:
    from lxml import html as lxml_html
    from readability import Document  # type: ignore[import-not-found]

    def run(html: str, url: str) -> dict[str, str]:
        summary = lxml_html.fromstring(Document(html).summary())
        return {"text": "\n".join(t for t in summary.itertext() if t.strip())}

    return run


def _resiliparse() -> Callable[[str, str], dict[str, str]]:
    from resiliparse.extract.html2text import extract_plain_text  # type: ignore[import-not-found]

    def run(html: str, url: str) -> dict[str, str]:
        return {"text": extract_plain_text(html, main_content=True)}

    return run


TOOLS: dict[str, Callable[[], Callable[[str, str], dict[str, str]]]] = {
    "m3": _m3, "trafilatura": _trafilatura, "trafilatura+metadata": _trafilatura_metadata,
    "readability": _readability, "resiliparse": _resiliparse,
}  # fmt: skip


# --- pages and scores ------------------------------------------------------------------------------------


def load(name: str, limit: int = 0) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The pages of one set: (id, HTML as text, truth)."""
    folder = CASES / name
    truth = json.loads((folder / "ground-truth.json").read_text("utf-8"))
    for page_id in sorted(truth)[: limit or None]:
        raw = gzip.decompress((folder / "html" / f"{page_id}.html.gz").read_bytes())
        yield page_id, _decode(raw), truth[page_id]


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        found = re.search(rb"charset\s*=\s*[\"']?\s*([\w-]+)", raw[:4096])
        return raw.decode(found[1].decode() if found else "cp1252", "replace")


def _shared(want: Counter[Any], got: Counter[Any]) -> tuple[float | None, float | None]:
    hits = (want & got).total()
    return (hits / got.total() if got else None), (hits / want.total() if want else None)


def _f1(p: float, r: float) -> float:
    return 2 * p * r / (p + r) if p + r else 0.0


def _shingles(text: str) -> Counter[tuple[str, ...]]:
    words = WORD.findall(text)
    return Counter(tuple(words[i : i + 4]) for i in range(max(1, len(words) - 3))) if words else Counter()


def _mean(values: list[float | None]) -> float:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else 0.0


def word_f1(truth: str, text: str) -> float:
    want, got = Counter(WORD.findall(truth.lower())), Counter(WORD.findall(text.lower()))
    p, r = _shared(want, got)
    return 1.0 if not want and not got else _f1(p or 0.0, r or 0.0)


def _same(name: str, want: str, got: str) -> bool:
    if name == "date":
        days = [re.search(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})", s) for s in (want, got)]
        return all(days) and [int(n) for n in days[0].groups()] == [int(n) for n in days[1].groups()]  # type: ignore[union-attr]
    a, b = (" ".join(WORD.findall(s.lower())) for s in (want, got))
    return a == b or name == "author" and bool(a) and set(a.split()) <= set(b.split())


def score(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The figures of one tool on one set; a row holds id, truth, output and CPU seconds."""
    pairs = [_shared(_shingles(r["truth"].get("articleBody", "")), _shingles(r["text"])) for r in rows]
    out = {"shingle_f1": _f1(_mean([p for p, _ in pairs]), _mean([r for _, r in pairs]))}
    out["word_f1"] = _mean([word_f1(r["truth"].get("articleBody", ""), r["text"]) for r in rows])
    out["empty"] = sum(not r["text"].strip() for r in rows)
    for kind in sorted({r["truth"].get("page_type", "") for r in rows if r["truth"].get("with")}):
        own = [r for r in rows if r["truth"].get("page_type") == kind]
        out[f"word_f1_{kind}"] = _mean([word_f1(r["truth"]["articleBody"], r["text"]) for r in own])
    for name in ("title", "author", "date"):
        known = [r for r in rows if r["truth"].get(name) and name in r]
        if known:
            out[f"{name}_right"] = sum(_same(name, r["truth"][name], r[name]) for r in known) / len(known)
    return out


# --- structure -------------------------------------------------------------------------------------------


def structure(rows: list[dict[str, Any]], html: dict[str, str]) -> dict[str, float]:
    """The share of code lines, table rows and list items of documentation pages that the output keeps whole."""
    kept: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for row in rows:
        if row["truth"].get("page_type") != "documentation":
            continue
        lines = [line.rstrip() for line in row["text"].split("\n")]
        exact, folded = set(lines), [" ".join(line.split()) for line in lines]
        for kind, item in wanted(html[row["id"]], " ".join(row["truth"]["articleBody"].split())):
            seen[kind] += 1
            if kind == "code_lines":
                kept[kind] += item[0] in exact
            else:
                kept[kind] += any(all(cell in line for cell in item) for line in folded)
    return {f"{kind}_kept": kept[kind] / seen[kind] for kind in sorted(seen)} | {
        f"{kind}_counted": float(seen[kind]) for kind in sorted(seen)
    }


def wanted(html: str, truth: str) -> Iterator[tuple[str, list[str]]]:
    """What a page marks up as code, rows and items, as far as the truth holds it; read with lxml, not with m3."""
    from lxml import html as lxml_html

    root = lxml_html.fromstring(html.encode(), parser=lxml_html.HTMLParser(encoding="utf-8"))

    def fold(node: Any) -> str:
        return " ".join(node.text_content().split())

    for pre in root.iter("pre"):
        for br in pre.iter("br"):
            br.tail = "\n" + (br.tail or "")
        lines = [line.rstrip() for line in pre.text_content().split("\n") if line.strip()]
        if len(lines) >= 2 and " ".join(lines[0].split())[:40] in truth:
            yield from (("code_lines", [line]) for line in lines)
    for row in root.iter("tr"):
        cells = [text for cell in row if cell.tag in ("td", "th") and (text := fold(cell))]
        if 2 <= len(cells) <= 8 and all(len(cell) < 80 and cell in truth for cell in cells):
            yield "table_rows", cells
    for item in root.iter("li"):
        text = fold(item)
        if 20 < len(text) < 200 and text in truth:
            yield "list_items", [text]


# --- running ---------------------------------------------------------------------------------------------


def run_tool(tool: str, name: str, limit: int) -> None:
    """Run one tool over one set and print its rows as JSON lines, then its speed and memory. (In a child process.)"""
    pages = list(load(name, limit))
    func = TOOLS[tool]()
    func("<html><body><p>warm up</p></body></html>", "http://localhost/")  # lazy imports are not the pages' cost
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu = 0.0
    for page_id, html, truth in pages:
        started = time.process_time()
        try:
            found = func(html, truth.get("url") or "")
        except Exception as problem:  # noqa: BLE001 - a peer's crash is a miss, and is named
            found = {"text": "", "error": f"{type(problem).__name__}: {problem}"[:200]}
        cpu += time.process_time() - started
        print(json.dumps({"id": page_id, **found}))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"pages_per_cpu_s": len(pages) / cpu, "peak_mib_over_start": (peak - before) / 1024}))


def child(tool: str, name: str, limit: int) -> tuple[list[dict[str, Any]], dict[str, float]]:
    python = sys.executable if tool == "m3" else str(VENV / "bin" / "python")
    command = [python, __file__, "--run", tool, "--sets", name, "--limit", str(limit)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    return rows[:-1], rows[-1]


def install_peers() -> None:
    if not (VENV / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--upgrade", "pip"], check=True)  # pip 23 fails on an extra that is named twice
    subprocess.run([*pip, *PEER_PACKAGES], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--limit", type=int, default=0, help="only the first N pages of each set")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        run_tool(args.run, args.sets, args.limit)
        return 0
    names = [name for name in args.sets.split(",") if (CASES / name / "ground-truth.json").exists()]
    if not names:
        print(f"bench/extraction.py: no page sets in {CASES}; set M3_CASES to the folder of cases", file=sys.stderr)
        return 0
    peers = [peer for peer in args.peers.split(",") if peer]
    if peers:
        install_peers()
    figures: dict[str, float] = {}
    for name in names:
        sources = {page_id: (html, truth) for page_id, html, truth in load(name, args.limit)}
        tools = ["m3", *peers, *(["trafilatura+metadata"] if "trafilatura" in peers and "wcxb" in name else [])]
        for tool in tools:
            rows, speed = child(tool, name, args.limit)
            for row in rows:
                row["truth"] = sources[row["id"]][1]
            found = score(rows) | speed
            if "wcxb" in name:
                found |= structure(rows, {page_id: html for page_id, (html, _) in sources.items()})
            figures |= {f"{name}.{tool}.{key}": round(value, 4) for key, value in found.items()}
            if not args.json:
                print(f"{name}  {tool}")
                print("   " + "  ".join(f"{key} {value:.3f}" for key, value in found.items()), flush=True)
    if args.json:
        print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
