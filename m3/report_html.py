"""The report as one self-contained HTML file: every sentence opens the stored passage behind it.

Without any script: a click sets the page's `#fragment`, and CSS `:target` shows the evidence. Everything foreign is
escaped and the content security policy allows nothing but the file's own style, so that page text stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from config import redact
from m3.grounding.claims import BlockKind, markdown_blocks
from m3.grounding.language import content_words
from m3.grounding.tags import TAG, tag_numbers
from m3.grounding.verifier import NOTE, Statement
from m3.records import Check, Passage, Source
from m3.report import VERDICT_WORDS, FinalOutput, heading_of
from m3.untrusted import LONGEST_SECRET, safe_line

CONTEXT = 280  # characters of stored text shown before and after a passage
MOST_PASSAGES = 3


def to_html(output: FinalOutput) -> str:
    """The whole report as an HTML document."""
    body = "\n".join(
        part
        for part in (
            _head(output),
            f'<main><article class="summary">{"".join(_summary(output))}</article>{_counts(output)}</main>',
            _evidence(output),
            _sources(output),
            _disagreements(output),
            _listing("Could not be read", [f"{f.url}: {f.error}" for f in output.unreadable]),
            _listing("Notes", [*output.warnings, *output.notes()]),
            _timeline(output),
            _metadata(output),
        )
        if part
    )
    style = resources.files("m3").joinpath("report.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="und">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline';"
        " base-uri 'none'; form-action 'none'\">\n"
        '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(heading_of(output.query)[0])}</title>\n<style>\n{style}</style>\n</head>\n"
        f'<body id="top">\n{body}\n</body>\n</html>\n'
    )


def _text(text: str, limit: int = 2_000) -> str:
    """Foreign text, on one line, as HTML text or attribute."""
    return escape(safe_line(text, limit), quote=True)


def _time(stamp: str) -> str:
    """`2026-11-30T12:00:00+00:00` as `2026-11-30 12:00 UTC`."""
    match = re.match(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)", stamp)
    return f"{match[1]} {match[2]} UTC" if match else _text(stamp, 40)


def _head(output: FinalOutput) -> str:
    asked = ", ".join(output.services) if output.services else "nobody; this run opened no connection to a service"
    mock = (
        '<p class="warning">Offline mock model: the sentences are copied by a fixed rule, not written.</p>'
        if output.llm_provider == "mock"
        else ""
    )
    heading, whole = heading_of(output.query)
    question = f'<p class="question">{_text(whole, len(whole))}</p>' if whole else ""
    return (
        f"<header><h1>{_text(heading)}</h1>{question}"
        f'<p class="outcome"><strong>{output.outcome}</strong> ({_text(output.stop_reason)}).'
        f" The question was sent to: {_text(asked)}.</p>{mock}</header>"
    )


def _counts(output: FinalOutput) -> str:
    if not output.grounding.statements:
        return ""
    legend = " ".join(f'<span class="s {v}">{_text(words)}</span>' for v, words in VERDICT_WORDS.items())
    return (
        f'<p class="counts">Citations: {_text(output.citations_line())}. {NOTE}'
        " Click a sentence to see its passage.</p>"
        f'<p class="legend">{legend}</p>'
    )


# --- the summary ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Block:
    kind: BlockKind
    start: int
    end: int
    ordered: bool
    depth: int


def _summary(output: FinalOutput) -> Iterator[str]:
    """The summary's Markdown as HTML, each checked sentence a link to its evidence."""
    text = output.summary
    statements = list(enumerate(output.grounding.statements)) if output.sources else []
    open_list = ""
    open_table = False
    for block in _blocks(text):
        wanted = ("ol" if block.ordered else "ul") if block.kind == "item" else ""
        if open_list and open_list != wanted:
            yield f"</{open_list}>"
        if wanted and open_list != wanted:
            yield f"<{wanted}>"
        open_list = wanted
        is_row = block.kind in ("row", "header_row")
        if open_table and not is_row:
            yield "</table></div>"
        if is_row and not open_table:
            yield '<div class="wide"><table>'
        open_table = is_row
        yield _block(text, block, statements)
    yield f"</{open_list}>" if open_list else ""
    yield "</table></div>" if open_table else ""


def _blocks(text: str) -> Iterator[_Block]:
    for kind, start, end in markdown_blocks(text):
        mark = text[text.rfind("\n", 0, start) + 1 : start]
        yield _Block(kind, start, end, bool(re.search(r"\d", mark)), min(3, len(re.match(r"\s*", mark)[0]) // 2))  # type: ignore[index]


def _block(text: str, block: _Block, statements: Sequence[tuple[int, Statement]]) -> str:
    raw = text[block.start : block.end]
    if block.kind == "code":
        return "" if raw.strip().startswith(("```", "~~~")) else f"<pre>{escape(raw)}</pre>"
    if block.kind == "heading":
        level = min(4, len(re.match(r"\s*(#*)", raw)[1]) + 1 if raw.strip().startswith("#") else 3)  # type: ignore[index]
        return f"<h{level}>{_inline(re.sub(r'^[ ]*#+[ ]*|[ ]*#*$', '', raw).strip().strip('*'))}</h{level}>"
    inner = "".join(_pieces(text, block.start, block.end, statements))
    if block.kind in ("row", "header_row"):
        cell = "th" if block.kind == "header_row" else "td"
        cells = "".join(f"<{cell}>{_with_tags(c.strip())}</{cell}>" for c in raw.strip().strip("|").split("|"))
        found = next(((n + 1, s) for n, s in statements if s.start >= block.start and s.end <= block.end), None)
        link = ""
        if found is not None:
            number, statement = found
            title = VERDICT_WORDS[statement.verdict]
            link = f'<a class="s {statement.verdict}" id="s{number}" href="#e{number}" title="{title}">passage</a>'
        return f"<tr>{cells}<{cell}>{link}</{cell}></tr>"
    if block.kind == "item":
        return f'<li class="depth{block.depth}">{inner}</li>'
    quote = raw.lstrip().startswith(">")
    return f"<blockquote>{inner}</blockquote>" if quote else f"<p>{inner}</p>"


def _pieces(text: str, start: int, end: int, statements: Sequence[tuple[int, Statement]]) -> Iterator[str]:
    at = start
    for number, statement in statements:
        if statement.start < at or statement.end > end:
            continue
        yield _inline(re.sub(r"^\s*>\s?", "", text[at : statement.start]))
        yield _sentence(text[statement.start : statement.end], number + 1, statement)
        at = statement.end
    yield _with_tags(text[at:end])


def _sentence(raw: str, number: int, statement: Statement) -> str:
    """One statement: its words link to the evidence, its tags to the sources."""
    parts, at = [f'<span id="s{number}"></span>'], 0
    for tag in TAG.finditer(raw):
        parts += [_link(raw[at : tag.start()], number, statement), _tag(tag[0])]
        at = tag.end()
    parts.append(_link(raw[at:], number, statement))
    return "".join(parts)


def _with_tags(raw: str) -> str:
    parts, at = [], 0
    for tag in TAG.finditer(raw):
        parts += [_inline(raw[at : tag.start()]), _tag(tag[0])]
        at = tag.end()
    return "".join(parts) + _inline(raw[at:])


def _link(raw: str, number: int, statement: Statement) -> str:
    if not any(c.isalnum() for c in raw):
        return escape(raw)
    body = raw.strip()
    lead, trail = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :]
    title = VERDICT_WORDS[statement.verdict]
    return f'{lead}<a class="s {statement.verdict}" href="#e{number}" title="{title}">{_inline(body)}</a>{trail}'


def _tag(tag: str) -> str:
    return "".join(f'<a class="tag" href="#source-{n}">[{n}]</a>' for n in tag_numbers(tag))


def _inline(raw: str) -> str:
    """Emphasis and code of one line of Markdown; everything else is text."""
    text = escape(raw)
    text = re.sub(r"`([^`\n]+)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*(?=\S)([^*\n]+?)(?<=\S)\*\*", r"<strong>\1</strong>", text)
    return re.sub(r"(?<![\w*])\*(?=\S)([^*\n]+?)(?<=\S)\*(?![\w*])", r"<em>\1</em>", text)


# --- the evidence ---------------------------------------------------------------------------------------


def _evidence(output: FinalOutput) -> str:
    if not output.sources:
        return ""
    by_number = {source.number: source for source in output.sources}
    cards = []
    for number, statement in enumerate(output.grounding.statements, 1):
        checks = [c for c in output.grounding if (c.start, c.end) == (statement.start, statement.end)]
        inner = "".join(_check(check, by_number.get(check.source or 0)) for check in checks)
        cards.append(
            f'<section class="card" id="e{number}"><p class="claim">{_text(statement.text)}</p>{inner}'
            f'<p class="close"><a href="#s{number}">close</a></p></section>'
        )
    return f'<aside class="evidence"><h2>Evidence, sentence by sentence</h2>{"".join(cards)}</aside>' if cards else ""


def _check(check: Check, source: Source | None) -> str:
    named = f" · Source {check.source}: {_text(source.title, 160)}" if source else ""
    parts = [f'<p class="verdict {check.verdict}"><strong>{VERDICT_WORDS[check.verdict]}</strong>{named}</p>']
    if check.why:
        parts.append(f'<p class="why">{_text(check.why)}</p>')
    if source is not None:
        if check.verdict == "not_found" and check.passages:
            parts.append('<p class="why">The closest words on the page:</p>')
        parts += [_passage(p, source, check.claim) for p in check.passages[:MOST_PASSAGES]]
    return "".join(parts)


def _passage(passage: Passage, source: Source, claim: str) -> str:
    """The stored text around a passage, the passage marked, the claim's words in it bold."""
    text = source.page.text
    start, end = max(0, passage.start - CONTEXT), min(len(text), passage.end + CONTEXT)
    around = text[max(0, start - LONGEST_SECRET) : end + LONGEST_SECRET]
    if redact(around) != around:  # a secret might be cut in two here, and half of one is not known for one
        start, end = passage.start, passage.end
    before = ("…" if start else "") + _text(text[start : passage.start], CONTEXT)
    after = _text(text[passage.end : end], CONTEXT) + ("…" if end < len(text) else "")
    wanted = set(content_words(claim)) | set(re.findall(r"\d[\d.,]*\d|\d", claim))
    link = _anchor(passage.link or source.page.url, "open the page at these words")
    fetched = f"as fetched {_time(source.page.fetched_at)}" if source.page.fetched_at else "as stored"
    where = f" · page {passage.page_number}" if passage.page_number else ""
    return (
        f'<blockquote class="stored"><span class="around">{before} </span>'
        f"<mark>{_marked(passage.quote, wanted)}</mark>"
        f'<span class="around"> {after}</span></blockquote>'
        f'<p class="where">{link} · {fetched}{where} · characters {passage.start} to {passage.end}</p>'
    )


def _marked(quote: str, wanted: set[str]) -> str:
    def one(match: re.Match[str]) -> str:
        word = match[0]
        hit = word in wanted or any(stem in wanted for stem in content_words(word))
        return f"<b>{_text(word)}</b>" if hit else _text(word)

    line = safe_line(quote, 2_000)
    parts, at = [], 0
    for match in re.finditer(r"\w+(?:[.,]\d+)*", line):
        parts += [escape(line[at : match.start()]), one(match)]
        at = match.end()
    return "".join(parts) + escape(line[at:])


def _anchor(url: str, label: str) -> str:
    """A link where the address is one of the web; else the address as text."""
    shown = "".join(c for c in redact(url) if c.isprintable() and not c.isspace())
    if not shown.startswith(("http://", "https://")):
        return _text(url, 300)
    href = escape(shown, quote=True)
    return f'<a class="out" href="{href}" rel="noopener noreferrer nofollow" target="_blank">{label}</a>'


# --- the rest -------------------------------------------------------------------------------------------


def _sources(output: FinalOutput) -> str:
    if not output.sources:
        return ""
    rows = []
    for source in output.sources:
        page, checks = source.page, output.checks_of(source.number)
        first = next((c.passages[0].link for c in checks if c.verdict in ("matched", "partly") and c.passages), "")
        facts = [_text(page.site or page.url, 200), _text(page.author, 120), _text(page.published, 40)]
        facts.append(f"fetched {_time(page.fetched_at)}" if page.fetched_at else "")
        counted = ", ".join(
            f"{sum(c.verdict == v for c in checks)} {words}"
            for v, words in VERDICT_WORDS.items()
            if any(c.verdict == v for c in checks)
        )
        notes = "".join(f"<br>{_text(note, 300)}" for note in page.notes)
        rows.append(
            f'<li id="source-{source.number}" value="{source.number}"><strong>{_text(source.title, 300)}</strong><br>'
            f"{' · '.join(fact for fact in facts if fact)}<br>{_anchor(first or page.url, _text(page.url, 160))}"
            f'{notes}<br><span class="why">{_text(counted)}</span></li>'
        )
    return f'<section><h2>Sources</h2><ol class="sources">{"".join(rows)}</ol></section>'


def _disagreements(output: FinalOutput) -> str:
    rows = []
    for one in output.disagreements:
        for figure in one.figures:
            cells = (
                _text(one.claim, 300),
                f"Source {figure.source}",
                _text(figure.published or "unknown", 40),
                f"<strong>{_text(figure.value, 60)}</strong>",
                _text(figure.quote, 300),
            )
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    if not rows:
        return ""
    head = "<tr><th>Statement</th><th>Source</th><th>Date</th><th>Figure</th><th>Its words</th></tr>"
    table = f'<div class="wide"><table>{head}{"".join(rows)}</table></div>'
    return f"<section><h2>Sources give different figures</h2>{table}</section>"


def _listing(title: str, lines: Iterable[str]) -> str:
    items = "".join(f"<li>{_text(line, 1_000)}</li>" for line in lines)
    return f"<section><h2>{title}</h2><ul>{items}</ul></section>" if items else ""


def _timeline(output: FinalOutput) -> str:
    """The run step by step: what was thought and done, and bars of the tokens and seconds that each step took."""
    if not output.steps:
        return ""
    most_tokens = max((step.tokens for step in output.steps), default=0) or 1
    most_seconds = max((step.seconds for step in output.steps), default=0.0) or 1.0
    rows = []
    for step in output.steps:
        args = _text(json.dumps(dict(step.args), ensure_ascii=False), 400) if step.args else ""
        rows.append(
            f'<tr><td class="n">{step.number}</td><td><strong>{_text(step.tool or "(unreadable)", 60)}</strong> '
            f'<code>{args}</code><br><span class="why">{_text(step.thought, 600)}</span></td>'
            f"<td>{_bar(step.tokens / most_tokens, 'tokens')}{step.tokens:,}</td>"
            f"<td>{_bar(step.seconds / most_seconds, 'seconds')}{step.seconds:.1f} s</td></tr>"
        )
    head = "<tr><th>Step</th><th>Thought and action</th><th>Tokens</th><th>Time</th></tr>"
    return (
        f'<section class="run"><h2>The run</h2><div class="wide"><table>{head}{"".join(rows)}</table></div></section>'
    )


def _bar(share: float, kind: str) -> str:
    width = max(1, round(70 * min(1.0, max(0.0, share))))
    return (
        f'<svg class="bar {kind}" width="72" height="8" role="img" aria-hidden="true">'
        f'<rect width="{width}" height="8" rx="2"></rect></svg>'
    )


def _metadata(output: FinalOutput) -> str:
    rows = "".join(f"<dt>{_text(k)}</dt><dd>{_text(str(v))}</dd>" for k, v in output.metadata().items())
    return f'<footer><h2>Figures</h2><dl class="figures">{rows}</dl></footer>'
