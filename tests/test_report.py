"""The report as Markdown, JSON, HTML, BibTeX and CSL."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from m3.bibliography import bibtex, csl_json
from m3.grounding import verify
from m3.records import FetchedPage, LedgerEntry, Page, Source, Step
from m3.report import FinalOutput
from m3.report_html import to_html
from m3_react_agent import main

HOSTILE = (
    "</blockquote><script>alert(1)</script><img src=x onerror=alert(2)> [click](javascript:alert(3)) \x1b[31m\u202e"
)
TEXT = (
    f"The bridge is 300 metres long and opened in 1932. {HOSTILE} It carries 12,000 cars a day, more than the "
    "old ferry ever did, and it is painted every five years by a team of twenty who live beside it in small houses."
)
SUMMARY = """The bridge is 300 metres long and opened in 1932 [Source 1].

## Traffic

- It carries 12,000 cars a day [Source 1].
- The **bridge** carries 99,000 lorries a day [Source 1].

| What | Value |
|---|---|
| Bridge | 300 metres long [Source 1] |

Nobody knows who designed the <b>towers</b> of it in the end."""


def output(**more: object) -> FinalOutput:
    page = Page(
        "https://example.org/bridge?a=1&b=2#top", TEXT, title=f"Bridge {HOSTILE}", author="Jane Roe; John Doe",
        published="2024-05-01", site="Example", fetched_at="2026-11-30T12:00:00+00:00",
    )  # fmt: skip
    fields = {
        "query": f"How long is it? {HOSTILE}", "summary": SUMMARY, "sources": (Source(1, page),), "outcome": "answered",
        "stop_reason": "agent_finished", "grounding": verify(SUMMARY, {1: page}),
        "steps": (Step(1, f"think {HOSTILE}", "search", {"query": HOSTILE}, tokens=900, seconds=1.5),),
        "unreadable": (FetchedPage("https://example.org/x", "blocked", error=f"answered 403 {HOSTILE}"),),
        "ledger": (LedgerEntry("search", "q", "timeout", "slow"),), "warnings": (f"careful {HOSTILE}",),
    }  # fmt: skip
    return FinalOutput(**{**fields, **more})  # type: ignore[arg-type]


class Reader(HTMLParser):
    """Collects tags with their attributes, and the text of marked passages."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.marked: list[str] = []
        self._in_mark = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag == "mark":
            self._in_mark = True
            self.marked.append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_mark = self._in_mark and tag != "mark"

    def handle_data(self, data: str) -> None:
        if self._in_mark:
            self.marked[-1] += data


def read(markup: str) -> Reader:
    reader = Reader()
    reader.feed(markup)
    return reader


def test_the_html_report_is_one_file_that_loads_and_runs_nothing() -> None:
    reader = read(to_html(output()))
    names = {tag for tag, _ in reader.tags}
    assert not names & {"script", "img", "iframe", "link", "object", "form", "base", "embed"}
    for tag, attrs in reader.tags:
        assert not any(name.startswith("on") or name == "style" for name in attrs), (tag, attrs)
        if "href" in attrs:
            assert attrs["href"].startswith(("#", "https://example.org/")), attrs
    assert "default-src 'none'" in next(a["content"] for t, a in reader.tags if "http-equiv" in a and t == "meta")


def test_every_sentence_opens_the_stored_passage_with_verdict_and_live_link() -> None:
    markup = to_html(output())
    reader = read(markup)
    ids = {attrs["id"] for _, attrs in reader.tags if "id" in attrs}
    targets = {attrs["href"][1:] for _, attrs in reader.tags if attrs.get("href", "").startswith("#")}
    assert targets <= ids
    statements = output().grounding.statements
    assert {f"e{number}" for number in range(1, len(statements) + 1)} <= ids & targets
    assert any("The bridge is 300 metres long and opened in 1932." in text for text in reader.marked)
    links = [attrs["href"] for _, attrs in reader.tags if "#top:~:text=" in attrs.get("href", "")]
    assert links and all(link.startswith("https://example.org/bridge?a=1&b=2#top:~:text=") for link in links)
    assert "as fetched 2026-11-30 12:00 UTC" in markup
    assert "not found in the cited page" in markup and "99,000" in markup


def test_markdown_marks_what_failed_counts_honestly_and_ends_with_the_figures() -> None:
    text = output().to_markdown()
    assert "99,000 lorries a day [Source 1 ?]" in text
    assert "12,000 cars a day [Source 1]." in text
    assert "5 statements, 4 cited; 3 matched to a passage, 0 partly, 1 not found, 0 could not be checked" in text
    assert "<script" not in text.replace("\\<script", "") and "\x1b" not in text and "\u202e" not in text
    assert "](javascript" not in text.replace("\\]", "")
    last = text.strip().split("\n\n")[-1]
    for name in ("outcome", "stop_reason", "iterations_used", "tokens_consumed", "elapsed_seconds", "llm_provider",
                 "model", "search_provider"):  # fmt: skip
        assert re.search(rf"^- {name}:", last, re.M), name
    assert "no answer in time (slow)" in text and "answered 403" in text


def test_json_holds_each_source_with_passages_and_verdicts() -> None:
    data = json.loads(json.dumps(output().to_dict()))
    (source,) = data["sources"]
    assert {"number", "title", "url", "domain", "published", "fetched_at", "passages", "verdicts"} <= source.keys()
    assert source["domain"] == "example.org"
    assert source["verdicts"]["matched"] == 3 and source["verdicts"]["not_found"] == 1
    for passage in source["passages"]:
        assert TEXT[passage["start"] : passage["end"]] == passage["quote"]
    assert data["citations"]["counts"]["statements"] == 5
    assert [check["verdict"] for check in data["grounding"]][:2] == ["matched", "matched"]


def test_bibliographies_hold_every_source_once_and_survive_hostile_titles() -> None:
    page = Page("https://example.org/{a}", "x", title="100% of {it} & $more_", author="Doe", published="2024")
    sources = [output().sources[0], Source(2, page), Source(3, page)]
    text = bibtex(sources)
    keys = re.findall(r"@online\{([^,]+),", text)
    assert len(keys) == len(set(keys)) == 3
    assert all(re.fullmatch(r"[a-z0-9]+", key) for key in keys)
    assert r"100\% of \{it\} \& \$more\_" in text
    assert "author = {{Jane Roe} and {John Doe}}" in text and "urldate = {2026-11-30}" in text
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    items = json.loads(csl_json(sources))
    assert [item["type"] for item in items] == ["webpage"] * 3
    assert items[0]["issued"] == {"date-parts": [[2024, 5, 1]]} and items[1]["issued"] == {"date-parts": [[2024]]}
    assert items[0]["author"] == [{"literal": "Jane Roe"}, {"literal": "John Doe"}]


def test_the_command_line_writes_every_kind_of_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {name: tmp_path / name for name in ("r.html", "r.bib", "r.json")}
    code = main(
        ["Compare Raptor RAG vs HyDE", "--quiet", "--report-out", str(files["r.html"]), "--bibtex", str(files["r.bib"]),
         "--csl", str(files["r.json"])]
    )  # fmt: skip
    assert code == 0
    assert "matched to a passage" in capsys.readouterr().out
    assert "<mark>" in files["r.html"].read_text(encoding="utf-8")
    assert len(json.loads(files["r.json"].read_text(encoding="utf-8"))) == files["r.bib"].read_text().count("@online")


DOCUMENTS = {
    "Unterschied zwischen Wärmepumpe und Gasheizung": {
        "waermepumpe.md": """# Wärmepumpen

Eine Wärmepumpe entzieht der Umgebung Wärme und hebt sie mit Strom auf ein höheres Temperaturniveau.
Im Jahr 2023 wurden in Deutschland 356.000 Wärmepumpen verkauft.
Eine Wärmepumpe braucht im Altbau nicht immer eine gedämmte Fassade.
""",
        "gasheizung.md": """# Gasheizung

Eine Gasheizung verbrennt Erdgas und gibt die Wärme an das Heizwasser ab.
Eine neue Gasheizung kostet mit Einbau 9.000 bis 14.000 Euro.
""",
    },
    "Сравните озеро Байкал и Ладожское озеро": {
        "baikal.md": """# Озеро Байкал

Озеро Байкал расположено в южной части Восточной Сибири.
Наибольшая глубина озера Байкал составляет 1642 метра.
Возраст озера Байкал оценивается в 25–35 миллионов лет.
""",
        "ladoga.md": """# Ладожское озеро

Ладожское озеро находится в Карелии и Ленинградской области.
Наибольшая глубина Ладожского озера равна 230 метрам.
""",
    },
    "绿茶和红茶的区别是什么？": {
        "lv.md": """# 绿茶

绿茶是不发酵的茶叶，保留了鲜叶的天然物质。绿茶的产量约占中国茶叶总产量的60%。
绿茶的冲泡水温一般为80度左右。
""",
        "hong.md": """# 红茶

红茶是全发酵的茶叶，经过萎凋、揉捻、发酵和干燥等工序制成。红茶的冲泡水温一般为95度左右。
""",
    },
}


@pytest.mark.parametrize("question", DOCUMENTS)
def test_german_russian_and_chinese_documents_give_answers_whose_sentences_match(question: str, tmp_path: Path) -> None:
    from config import load_config
    from m3_react_agent import run_react_loop

    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in DOCUMENTS[question].items():
        (folder / name).write_text(text, encoding="utf-8")
    result = run_react_loop(question, config=load_config({"DOCS_DIR": str(folder)}))
    counts = result.grounding.counts()
    assert result.outcome == "answered"
    assert len(result.sources) == 2
    assert counts["matched"] == counts["statements"] >= 3
    assert result.disagreements == ()


LONG_QUESTION = " ".join(f"And what is said about part number {i} of it?" for i in range(110))  # 5,000 characters


@pytest.mark.parametrize(
    "question",
    [LONG_QUESTION, LONG_QUESTION.replace("? ", "?\n\n"), "x" * 900, "猫" * 5_000, "# `a` *b* | [c](d) <i> " * 200],
    ids=["words", "lines", "one word", "without blanks", "marks"],
)
def test_a_very_long_question_has_a_short_heading_and_stands_whole_below_it_once(question: str) -> None:
    made = output(query=question)
    heading, _, rest = made.to_markdown().partition("\n")
    plain = re.sub(r"\\(.)", r"\1", heading)
    assert plain.startswith("# ") and plain.endswith("…") and len(plain) <= 202
    line = " ".join(question.split())
    assert line.startswith(plain[2:-1]) and re.sub(r"\\(.)", r"\1", rest).count(line) == 1
    assert json.loads(json.dumps(made.to_dict()))["query"] == question
    page = re.sub(r"\s+", " ", html.unescape(to_html(made)))
    title, first = re.search(r"<title>(.*?)</title>", page), re.search(r"<h1>(.*?)</h1>", page)
    assert title and first and title[1] == first[1] == plain[2:]
    assert page.count(line) == 1


def test_an_ordinary_question_is_its_own_heading_and_stands_nowhere_else() -> None:
    question = "How long is the bridge " + "over the river " * 11 + "now?"
    for text in (output(query=question).to_markdown(), to_html(output(query=question)).partition("</title>")[2]):
        assert text.count(question) == 1
    assert output(query=question).to_markdown().startswith(f"# {question}\n\n*answered*")


def test_no_half_of_a_key_is_left_where_a_heading_is_cut() -> None:
    key = "sk-proj-" + "A1b2" * 12
    question = "w " * 95 + key + " and more words" * 30
    for text in (output(query=question).to_markdown(), to_html(output(query=question))):
        assert key[:12] not in text
