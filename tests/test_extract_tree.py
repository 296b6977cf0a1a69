"""The tree of a page: BeautifulSoup's own, whatever the markup, and measures that agree with what was dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bs4 import BeautifulSoup
from bs4.element import NavigableString, Tag
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from m3.extract.dom import MAX_DEPTH, Element, parse
from m3.extract.measure import measure

PIECES = st.lists(
    st.sampled_from(
        "<div> </div> <p> </p> <b> </b> <pre> </pre> <table> <tr> <td> </table> <ul> <li> </ul> <br> <img> "
        "<nav> </nav> <script>x</script> <style>p{}</style> <!--c--> <textarea>t</textarea> <math> </math> "
        "<svg><a></svg> word &nbsp;".split()
        + [" ", "\n", "  two words ", "\t\n"]
    ),
    max_size=40,
).map("".join)


def walk(tag: Any) -> Iterator[Any]:
    for child in tag.contents:
        yield child
        if isinstance(child, Tag):
            yield from walk(child)


@given(PIECES)
def test_a_tree_is_linked_as_beautifulsoup_links_one(html: str) -> None:
    body = parse(html).body
    nodes = list(walk(body))
    assert list(map(id, body.descendants)) == list(map(id, nodes))
    assert [id(e) for e in body.descend()] == [id(n) for n in nodes if isinstance(n, Tag)]
    for before, after in zip([body, *nodes], nodes, strict=False):
        assert before.next_element is after and after.previous_element is before
    for tag in [body, *(n for n in nodes if isinstance(n, Tag))]:
        assert all(child.parent is tag for child in tag.contents)
        assert [id(c) for c in tag.children] == [id(c) for c in tag.contents]
        if tag.contents:
            siblings = [tag.contents[0], *tag.contents[0].next_siblings]
            assert list(map(id, siblings)) == list(map(id, tag.contents))
            back = [tag.contents[-1], *tag.contents[-1].previous_siblings]
            assert list(map(id, back)) == list(map(id, reversed(tag.contents)))


@given(PIECES)
def test_a_tree_holds_what_beautifulsoup_reads_from_the_same_markup(html: str) -> None:
    normal = LexborHTMLParser(html).body  # what is broken is mended by the HTML5 parser in both
    assert normal is not None
    other: Any = BeautifulSoup(normal.html or "", "html.parser", multi_valued_attributes=None)
    for left_out in other.find_all(["script", "style", "svg", "textarea"]):
        left_out.decompose()
    body = parse(html).body
    assert [t.name for t in body.find_all(True)] == [t.name for t in other.body.find_all(True)]
    assert body.get_text().split() == other.body.get_text().split()


def test_the_texts_of_what_is_nested_too_deeply_stay_in_the_deepest_tag() -> None:
    body = parse("a<div>" * (2 * MAX_DEPTH) + "end").body
    assert body.get_text() == "a" * 2 * MAX_DEPTH + "end"
    assert len(body.find_all("div")) == MAX_DEPTH - 2


@given(PIECES, st.integers(0, 40))
def test_what_is_dropped_leaves_the_walk_and_the_measures_of_all_above_it(html: str, number: int) -> None:
    body = parse(html).body
    measure(body)
    elements = list(body.descend())
    if not elements:
        return
    victim = elements[number % len(elements)]
    inside = {id(victim), *(id(e) for e in victim.descend())}
    victim.drop()
    victim.drop()  # twice is once
    assert [id(e) for e in body.descend()] == [id(e) for e in elements if id(e) not in inside]
    kept = [(e.chars, e.link_chars) for e in (body, *body.descend())]
    measure(body)
    assert [(e.chars, e.link_chars) for e in (body, *body.descend())] == kept


def test_a_tree_that_was_released_holds_nothing_together() -> None:
    document = parse("<div><p>one<b>two</b></p></div>")
    nodes = list(walk(document.body))
    document.release()
    assert not document.body.contents and not list(document.body.descend())
    for node in nodes:
        assert node.next_element is node.previous_element is node.next_sibling is node.previous_sibling is None
        assert not isinstance(node, Element) or not node.contents
        assert isinstance(node, Element | NavigableString)
