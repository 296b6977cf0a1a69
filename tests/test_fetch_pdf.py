"""PDF text: page numbers kept, damage and bombs ended in the child."""

from __future__ import annotations

import time

import pytest

from m3.child import ChildLimits
from m3.pdf import MAX_PAGES, _joined, read_pdf
from m3.records import RunControl
from tests import pdfs

PAPER = [
    ["Proceedings of Testing 2026 1", "On the Speed of Kettles", "1 Introduction", "Water boils at 100 degrees at sea",
     "level, and the efficient kettle is the kettle that stops there; the experi-", "ment below shows it."],
    ["Proceedings of Testing 2026 2", "2 Method", "We boiled water (one litre) in 12 kettles.", "• a glass kettle"],
    ["Proceedings of Testing 2026 3", "3 Results", "The fastest kettle took 131 seconds."],
]  # fmt: skip


def test_each_block_knows_its_page_and_its_place() -> None:
    fetched = read_pdf(
        pdfs.pdf(PAPER, info="/Title (On the Speed of Kettles) /Author (A. Tester)"), "https://x.example/k.pdf"
    )
    assert fetched.kind == "ok" and fetched.page is not None
    page = fetched.page
    assert (page.title, page.author, page.kind) == ("On the Speed of Kettles", "A. Tester", "pdf")
    assert all(page.text[b.start : b.end] == b.text for b in page.blocks)
    where = {b.text: (b.kind, b.page_number) for b in page.blocks}
    assert where["2 Method"] == ("heading", 2)
    assert where["The fastest kettle took 131 seconds."] == ("paragraph", 3)
    assert where["a glass kettle"] == ("list_item", 2)
    assert "the experiment below shows it." in page.text  # the parted word is whole again
    assert "Proceedings" not in page.text  # the running header is no text


def test_more_pages_than_the_limit_are_cut_and_said() -> None:
    fetched = read_pdf(pdfs.pdf([[f"Page number {n} of many."] for n in range(MAX_PAGES + 5)]), "u")
    assert fetched.kind == "ok" and fetched.truncated
    assert fetched.page is not None and f"first {MAX_PAGES} of {MAX_PAGES + 5}" in fetched.page.notes[0]


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        (pdfs.page_loop(), {"unsupported_type", "empty"}),
        (pdfs.nested(), {"unsupported_type", "ok", "timeout"}),
        (pdfs.xref_loop(), {"unsupported_type", "ok"}),
        (pdfs.encrypted(), {"unsupported_type"}),
        (pdfs.pdf([["some text"]])[:300], {"unsupported_type"}),
        (b"%PDF-1.7\n" + bytes(range(256)) * 40, {"unsupported_type"}),
        (b"%PDF-", {"unsupported_type"}),
        (pdfs.pdf([[]]), {"empty"}),
    ],
    ids=["page loop", "deep nesting", "xref loop", "encrypted", "cut", "garbage", "only the mark", "no text"],
)
def test_a_damaged_pdf_is_a_class_and_never_an_exception(data: bytes, kinds: set[str]) -> None:
    fetched = read_pdf(data, "https://x.example/a.pdf")
    assert fetched.kind in kinds
    assert fetched.kind == "ok" or fetched.error


def test_a_stream_that_unpacks_to_a_hundred_megabytes_ends_within_the_limits() -> None:
    bomb = pdfs.flate_bomb()
    assert len(bomb) < 1_000_000
    started = time.monotonic()
    fetched = read_pdf(bomb, "u", limits=ChildLimits(seconds=4, cpu_s=2))
    assert fetched.kind in ("too_large", "timeout", "ok", "unsupported_type")
    assert time.monotonic() - started < 6


def test_a_stop_of_the_run_ends_the_child() -> None:
    control = RunControl(max_seconds=0.3)
    started = time.monotonic()
    assert read_pdf(pdfs.flate_bomb(20), "u", control=control).kind in ("timeout", "too_large")
    assert time.monotonic() - started < 3


def test_a_document_without_a_title_is_called_by_its_file_or_by_its_first_sentence() -> None:
    data = pdfs.pdf([["The bridge was opened in 1932.", "It spans 898 metres."]])
    own, of_the_web = read_pdf(data, "docs/bridge.pdf").page, read_pdf(data, "https://b.example/x").page
    assert own is not None and own.title == "bridge.pdf"
    assert of_the_web is not None and of_the_web.title == "The bridge was opened in 1932."
    long = read_pdf(pdfs.pdf([["The bridge of many words goes on and on over"] * 6]), "https://b.example/y")
    assert long.page is not None and len(long.page.title) <= 102 and long.page.title.endswith(" …")


def test_a_paragraph_of_any_number_of_lines_is_joined_in_linear_time() -> None:
    times = []
    for lines in (4_000, 16_000):
        started = time.process_time()
        text = _joined(
            ["a line without any end that goes on and on, exam-", *["ples of lines of it and exam-"] * lines]
        )
        times.append(time.process_time() - started)
        assert "examples of lines" in text
    assert times[1] < 8 * times[0] + 0.1
