"""What the extractor keeps of a page, leaves out, and says about it; small hand-made pages, one habit each."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from m3.extract import ContentExtractor
from m3.records import Page
from tests.conftest import CASES

URL = "https://example.org/2024/05/17/tea-prices"
PROSE = (
    "Tea prices rose by eleven per cent in the spring, the exchange said on Friday, and traders in three ports "
    "expect the summer harvest to stay below that of the year before."
)
MORE = (
    "Growers in the hills blame a dry winter and the cost of fertiliser, which has doubled since the first quarter; "
    "the ministry disagrees and points to exports that were never higher than in this season."
)


def read(body: str, head: str = "", url: str = URL) -> Page:
    return ContentExtractor().extract(f"<html><head>{head}</head><body>{body}</body></html>", url)


def article(inner: str, **kwargs: str) -> Page:
    body = f"<article><h1>Tea prices rise</h1><p>{PROSE}</p>{inner}<p>{MORE}</p></article>"
    return read(
        body, '<title>Tea prices rise</title><meta property="og:type" content="article">' + kwargs.get("head", "")
    )


@pytest.mark.parametrize(
    "chrome",
    [
        ("<nav><a href=/a>Zebra news</a> <a href=/b>Zebra sport</a></nav>"),
        ("<footer><p>Zebra Media Ltd, all rights reserved.</p></footer>"),
        ("<div class='cookie-consent'><p>Zebra uses cookies to improve what you see on this site.</p></div>"),
        ("<div class='share-bar'>Share Zebra on <a href=#>Mail</a></div>"),
        ("<script>var zebra = 'Zebra';</script><style>.Zebra{}</style>"),
        ("<!-- Zebra --><template><p>Zebra</p></template><svg><text>Zebra</text></svg>"),
        ("<p style='display: none'>Zebra is a hidden sentence of some length in the page.</p>"),
        ("<p hidden>Zebra is a hidden sentence of some length in the page.</p>"),
        ("<span aria-hidden=true>Zebra is a hidden sentence of some length in the page.</span>"),
        ("<div class='related-articles'><h3>Related</h3><ul><li><a href=/z>Zebra crosses road</a></ul></div>"),
        ("<ul class='x'><li><a href=/1>Zebra one</a></li><li><a href=/2>Zebra two</a></li></ul>"),
        ("<div id='comments'><p>Zebra wrote: I do not think that this is how prices are made at all.</p></div>"),
        ("<figure><img src=x><figcaption>Zebra at the port, by an agency.</figcaption></figure>"),
    ],
)  # fmt: skip
def test_what_stands_around_an_article_is_left_out_and_the_article_stays(chrome: str) -> None:
    page = article(chrome)
    assert "Zebra" not in page.text
    assert PROSE in page.text and MORE in page.text


@pytest.mark.parametrize(
    "style",
    [
        "display : none", "visibility:hidden", "visibility:collapse", "opacity:0", "opacity: 0.0;",
        "filter:opacity(0%)",
        "font-size:0", "font-size:0.01em", "font-size:1px", "position:absolute;clip:rect(0,0,0,0)",
        "clip-path:inset(100%)", "transform:scale(0)", "transform: translateX(-9999px)",
        "position:absolute;left:-9999px",
        "text-indent:-9999px", "height:1px;width:1px;overflow:hidden", "max-height:0;overflow:hidden",
    ],
)  # fmt: skip
def test_text_that_its_style_hides_is_not_read(style: str) -> None:
    page = article(f"<p style='{style}'>Zebra is a hidden sentence of some length in the page.</p>")
    assert "Zebra" not in page.text and PROSE in page.text and MORE in page.text


@pytest.mark.parametrize(
    "style",
    ["opacity:0.9", "font-size:10px", "font-size:1.1em", "height:100px;overflow:hidden", "left:-10px", "display:block",
     "max-width:1000px", "max-height:0.5em", "transform:scale(0.9)", "line-height:1", "border-left:-9px"],
)  # fmt: skip
def test_text_that_a_style_only_shapes_is_read(style: str) -> None:
    assert "Zebra" in article(f"<p style='{style}'>Zebra is a visible sentence of some length in the page.</p>").text


def test_a_page_that_a_script_shows_is_read_although_it_is_hidden_at_first() -> None:
    page = read(f"<p>Loading</p><div style='display:none'><p>{PROSE}</p><p>{MORE}</p></div>")
    assert PROSE in page.text and MORE in page.text


@pytest.mark.parametrize(
    "wrapper",
    [
        "<form id=aspnetForm>{}</form>",
        "<header>{}</header>",
        "<div class='has-sidebar overflow-hidden no-comments md:hidden'>{}</div>",
        "<header><div>menu<div>{}",  # never closed
        "<div class=footer-template-default><span>{}</span></div>",
        "<table><tr><td>{}</td></tr></table>",
        "<noscript>{}</noscript>",
    ],
)
def test_a_wrapper_of_the_whole_page_never_takes_the_text_with_it(wrapper: str) -> None:
    page = read(wrapper.format(f"<p>{PROSE}</p>" * 6 + f"<p>{MORE}</p>"))
    assert PROSE in page.text and MORE in page.text


def test_text_that_stands_in_no_paragraph_is_read() -> None:
    page = read(f"<div id=c>{PROSE}<br><br>{MORE}<br>{PROSE}</div>")
    assert [b.text for b in page.blocks] == [PROSE, f"{MORE}\n{PROSE}"]


def test_every_block_is_the_text_at_its_offsets_and_kinds_are_kept() -> None:
    page = article(
        "<h2>Why <a class=headerlink href=#why>¶</a></h2>"
        "<ul><li>dry <b>w</b>inter</li><li>dear fertiliser<ol><li>since March</li></ol></li></ul>"
        "<table><thead><tr><th>Port</th><th>Price</th></tr></thead><tr><td>North</td><td>2.10</td></tr></table>"
        "<pre>def price():\n    return 2.10   \n\nprint(price())</pre>"
        "<blockquote><p>Prices are what they are.</p></blockquote>"
    )
    assert all(page.text[b.start : b.end] == b.text for b in page.blocks)
    found = [(b.kind, b.text, b.level) for b in page.blocks]
    assert found[1:-1] == [
        ("heading", "Why", 2),
        ("list_item", "dry winter", 0),
        ("list_item", "dear fertiliser", 0),
        ("list_item", "since March", 1),
        ("table_row", "Port | Price", 0),
        ("table_row", "North | 2.10", 0),
        ("code", "def price():\n    return 2.10\n\nprint(price())", 0),
        ("quote", "Prices are what they are.", 0),
    ]


@pytest.mark.parametrize(
    ("html", "code"),
    [
        ("<pre>a<br>  b</pre>", "a\n  b"),
        ("<pre><code><span class=line>a</span><span class=line>  b</span></code></pre>", "a\n  b"),
        ("<pre><div>a</div><div>  b</div></pre>", "a\n  b"),
        ("<pre><span class=lineno>1</span>a\n<span class=lineno>2</span>  b</pre>", "a\n  b"),
        ("<pre><button>Copy</button>a\n  b</pre>", "a\n  b"),
        (
            "<table><tr><td class=gutter><pre>1\n2</pre></td><td class=code><pre>a\n  b</pre></td></tr></table>",
            "a\n  b",
        ),
    ],
)
def test_code_is_kept_verbatim_without_its_gutter(html: str, code: str) -> None:
    assert [b.text for b in article(html).blocks if b.kind == "code"] == [code]


@pytest.mark.parametrize(
    "html",
    [
        "<math alttext='x^2'><mi>x</mi><mn>2</mn></math>",
        "<span class=katex><span class=katex-mathml><math><semantics><mi>x</mi>"
        "<annotation encoding='application/x-tex'>x^2</annotation></semantics>"
        "</math></span><span class=katex-html aria-hidden=true>x2</span></span>",
        "<span class=mwe-math-element><span style='display:none'><math alttext='{\\displaystyle x^2}'><mi>x</mi></math>"
        "</span><img class=mwe-math-fallback-image alt='{\\displaystyle x^2}' aria-hidden=true></span>",
        "<span class=MathJax>x2</span><script type='math/tex'>x^2</script>",
    ],
)
def test_a_formula_is_written_once_as_tex(html: str) -> None:
    page = article(f"<p>The square {html} of it.</p>")
    assert "The square $x^2$ of it." in page.text


def test_a_table_that_only_places_things_is_no_table() -> None:
    page = read(f"<table><tr><td><p>{PROSE}</p><p>{MORE}</p></td><td><a href=/>Home</a></td></tr></table>")
    assert {b.kind for b in page.blocks} == {"paragraph"}


def test_a_thread_gives_its_posts_without_signatures_and_repeated_quotations() -> None:
    post = "<article class=message><div class=name>user{0}</div>"
    post += "<div class=message-body><div class=bbWrapper>{1}</div></div>"
    post += "<aside class=message-signature><div class=bbWrapper>Sent from my kettle</div></aside></article>"
    quote = f"<blockquote class='bbCodeBlock bbCodeBlock--quote'>user1 said: {PROSE}</blockquote>"
    page = read(post.format(1, PROSE) + post.format(2, quote + MORE), url="https://example.org/threads/tea.12/")
    assert (page.kind, [b.kind for b in page.blocks]) == ("forum", ["post", "post"])
    assert [b.text for b in page.blocks] == [PROSE, MORE]


def test_a_listing_keeps_its_cards() -> None:
    cards = "".join(f"<article><h3><a href=/p/{n}>Teapot {n}</a></h3><p>{n} euro</p></article>" for n in range(9))
    page = read(f"<nav><a href=/>Shop</a></nav><main>{cards}</main>", url="https://example.org/collections/pots")
    assert all(f"Teapot {n}" in page.text for n in range(9)) and "Shop" not in page.text
    assert page.links == tuple(f"https://example.org/p/{n}" for n in range(9))


LD = """<script type="application/ld+json">
<!--//--><![CDATA[//><!--
{"@context":"https://schema.org","@graph":[{"@type":"WebSite","name":"The Leaf"},
 {"@type":"NewsArticle","headline":"Tea prices rise","datePublished":"2024-05-17T23:30:00-05:00",
  "dateModified":"2024-05-18","author":{"@id":"#p"}},{"@type":"Person","@id":"#p","name":"Ada Green"}]};
</script>"""


@pytest.mark.parametrize(
    ("head", "body", "expected"),
    [
        (LD, "", {"author": "Ada Green", "published": "2024-05-17", "modified": "2024-05-18", "site": "The Leaf"}),
        ("<meta name=author content='By Ada Green'>", "", {"author": "Ada Green"}),
        ("<meta name=author content=admin>", "", {"author": ""}),
        ("<meta name=author content='https://example.org/ada'>", "", {"author": ""}),
        ("", "<a rel=author href=/ada>Ada Green</a>", {"author": "Ada Green"}),
        ("", "<p class=byline>By Ada Green</p>", {"author": "Ada Green"}),
        ("", "<p class=byline>Last updated 3 hours ago by our staff and others</p>", {"author": ""}),
        ("<meta property=article:published_time content=2024-05-16T10:00:00Z>", "", {"published": "2024-05-16"}),
        ("", "", {"published": "2024-05-17"}),  # from the address
        ("<meta name=citation_title content='On tea'><meta name=citation_author content='Green, A.'>"
         "<meta name=citation_author content='Brown, B.'><meta name=citation_date content=2023/02/01>", "",
         {"title": "On tea", "author": "Green, A., Brown, B.", "published": "2023-02-01", "kind": "paper"}),
        ("<link rel=canonical href=/tea>", "", {"canonical_url": "https://example.org/tea"}),
        ("<link rel=canonical href=https://other.example/tea>", "", {"canonical_url": ""}),
        ("<link rel=canonical href=https://example.org/>", "", {"canonical_url": ""}),
        ("<title>Tea prices rise | The Leaf</title><meta property=og:site_name content='The Leaf'>", "",
         {"title": "Tea prices rise", "site": "The Leaf"}),
        ("<title>Tea &amp; more &ndash; The Leaf</title><meta property=og:title content='Tea &amp;amp; more'>", "",
         {"title": "Tea & more"}),
    ],
)  # fmt: skip
def test_metadata_are_read_where_the_page_states_them(head: str, body: str, expected: dict[str, str]) -> None:
    page = read(
        f"<h1>Tea prices rise</h1>{body}<p>{PROSE}</p><p>{MORE}</p>" if "more" not in head else f"<p>{PROSE}", head
    )
    assert {key: getattr(page, key) for key in expected} == expected


@pytest.mark.parametrize(
    ("line", "day"),
    [
        ("<time datetime=2023-11-02T08:00>Thursday</time>", "2023-11-02"),
        ("<span class=date>November 2, 2023</span>", "2023-11-02"),
        ("<span class=date>2. November 2023</span>", "2023-11-02"),
        ("<span class=date>2 novembre 2023</span>", "2023-11-02"),
        ("<span class=date>02.11.2023, 10:15 Uhr</span>", "2023-11-02"),
        ("<span class=date>2023年11月2日</span>", "2023-11-02"),
        ("<span class=date>Last updated November 2, 2023</span>", ""),
        ("<p>Nothing here says when.</p>", ""),
        ("<span class=date>2099-01-01</span>", ""),
    ],
)
def test_a_date_near_the_headline_is_read_and_none_is_invented(line: str, day: str) -> None:
    body = f"<article><h1>Tea prices rise</h1>{line}<p>{PROSE}</p><p>{MORE}</p></article>"
    assert read(body, url="https://example.org/tea").published == day


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("<p>caf\u00e9 cr\u00e8me</p>".encode("cp1252"), "caf\u00e9 cr\u00e8me"),
        (b"\xff\xfe" + "<p>caf\u00e9 cr\u00e8me</p>".encode("utf-16-le"), "caf\u00e9 cr\u00e8me"),
        ("<meta charset=gb2312><p>\u8336\u53f6\u4ef7\u683c</p>".encode("gbk"), "\u8336\u53f6\u4ef7\u683c"),
        ("<meta charset=nonsense><p>caf\u00e9</p>".encode("cp1252"), "caf\u00e9"),
        ("<meta charset=latin-1><p>\u201ctea\u201d</p>".encode("cp1252"), "\u201ctea\u201d"),
    ],
)
def test_bytes_are_decoded_as_a_browser_would(raw: bytes, text: str) -> None:
    assert ContentExtractor().extract(raw, "tea.html").text == text


def test_a_page_without_text_gives_what_its_data_say() -> None:
    page = read("<div id=app></div>", '<script type="application/ld+json">{"@type":"Article","articleBody":"'
                + f"{PROSE} <p>{MORE}" + '"}</script>')  # fmt: skip
    assert PROSE in page.text and MORE in page.text and page.notes


SAMPLE = ("scrapinghub-181", "wcxb-dev-240", "defuddle-208")


@pytest.mark.parametrize("name", SAMPLE)
def test_on_public_pages_offsets_hold_and_no_page_raises(name: str) -> None:
    folder = Path(CASES, "extraction", name)
    if not folder.exists():
        pytest.skip(f"{folder} is not here")
    truth = json.loads((folder / "ground-truth.json").read_text("utf-8"))
    for page_id in sorted(truth)[::12]:
        raw = gzip.decompress((folder / "html" / f"{page_id}.html.gz").read_bytes())
        page = ContentExtractor().extract(raw, truth[page_id]["url"])
        assert all(page.text[b.start : b.end] == b.text for b in page.blocks), page_id
        assert not any("could not be read" in note for note in page.notes), page_id


@pytest.mark.parametrize(
    "line, url, day",
    [
        ("<p class=date>3 мая 2019 г.</p>", "https://example.org/a", "2019-05-03"),
        ("<p class=meta>Phys Act Nutr. 2024 Jun 30;28(2):43-51.</p>", "https://example.org/a", "2024-06-30"),
        ("<p class=joined>Joined: 04 Jul 2012</p>", "https://example.org/a", ""),
        ("<p>Зарегистрирован: 04.07.2012</p>", "https://example.org/a", ""),
        ("", "https://example.org/blog/2023/october/03/how", "2023-10-03"),
        ("", "https://example.org/articles/2025-12-15+Rust+notes", "2025-12-15"),
    ],
)
def test_dates_of_other_shapes_and_languages_are_read_and_those_of_members_are_not(
    line: str, url: str, day: str
) -> None:
    assert read(f"<h1>Tea prices</h1>{line}<p>{PROSE}</p><p>{MORE}</p>", url=url).published == day


def test_the_only_date_of_a_page_may_stand_far_from_its_headline() -> None:
    far = "".join(f"<p>{PROSE} {n}</p>" for n in range(100))
    html = f"<h1>Tea prices</h1>{far}<div class=dateline><p class=date>Feb 2, 2023</p></div>"
    assert read(html, url="https://example.org/a").published == "2023-02-02"


def test_a_thread_that_is_also_quoted_in_one_attribute_is_read_as_html() -> None:
    words = "so the =first= reply &quot;said&quot; " * 3_000
    page = read(f'<div data-preloaded="{words}"></div><article><h1>Tea</h1><p>{PROSE}</p><p>{MORE}</p></article>')
    assert not page.notes
    assert page.title == "Tea"


CHINESE = (
    "市议会周二晚上投票决定关闭旧渡轮码头，结束了关于这座建筑未来的长达数月的争论，两千名通勤者必须寻找其他过河的方式。",
    "官员们表示，2024年1月8日的暴风雨之后，这座建筑已经变得不安全，当时水涨到了售票大厅，暖气连续十一天无法使用。",
    "反对该计划的人希望对码头进行维修，并已收集了九千个签名，他们打算在下一次公开会议上提交这些签名，请求重新表决。",
)


def test_a_short_chinese_article_is_read_as_one_and_a_paragraph_with_a_date_is_no_byline() -> None:
    text = "".join(f"<p>{t}</p>" for t in CHINESE)
    related = "<h3>相关阅读</h3><ul>" + "".join(f"<li><a href=/{n}>Zebra {n}</a></li>" for n in range(3)) + "</ul>"
    page = read(
        f"<h1>码头关闭</h1><p>作者：王小明</p>{text}{related}", "<title>码头关闭</title>", "https://example.org/a"
    )
    assert all(t in page.text for t in CHINESE)
    assert "Zebra" not in page.text
    assert page.author == "王小明"


@pytest.mark.parametrize(
    "line, author",
    [
        ("Von Anna Schmidt", "Anna Schmidt"),
        ("Par Claire Dubois", "Claire Dubois"),
        ("Автор: Анна Иванова", "Анна Иванова"),
        ("بقلم: أحمد علي", "أحمد علي"),
        ("Von Kopf bis Fuß neu eingekleidet", ""),
    ],
)
def test_a_byline_is_read_in_other_languages(line: str, author: str) -> None:
    assert read(f"<h1>Tea prices</h1><p>{line}</p><p>{PROSE}</p><p>{MORE}</p>").author == author


@pytest.mark.parametrize("language, day", [("en", "2024-05-03"), ("en-GB", "2024-03-05"), ("es", "2024-03-05")])
def test_a_slashed_date_is_read_as_the_language_of_the_page_writes_it(language: str, day: str) -> None:
    html = f"<html lang={language}><body><h1>Tea</h1><span class=date>05/03/2024</span><p>{PROSE}</p></body></html>"
    assert ContentExtractor().extract(html, "https://example.org/a").published == day
