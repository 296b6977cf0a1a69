"""What a run prepares while it waits, and what starts without it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading

import pytest
import snowballstemmer

from m3 import page_reading
from m3.ahead import Ahead
from m3.child import ChildError
from m3.llm_clients import OpenAILLMClient
from m3.page_reading import read_body
from m3.patterns import lazy_pattern
from m3.records import LLMError, Message, RunControl
from m3.stemmers import stemmer
from m3.words import stem, stems_among
from tests.conftest import ROOT
from tests.provider import Asked, Play, chat, provider


def test_work_is_done_in_order_by_one_thread_and_a_failure_stops_nothing() -> None:
    ahead, done, threads, over = Ahead(), [], set(), threading.Event()

    def step(name: str) -> None:
        threads.add(threading.get_ident())
        done.append(name)
        if name == "bad":
            raise ValueError(name)
        if name == "last":
            over.set()

    for name in ("first", "bad", "last"):
        ahead._work.append(lambda name=name: step(name))
    ahead.start()
    ahead.start()
    assert over.wait(10)
    assert done == ["first", "bad", "last"]
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_work_added_after_the_end_waits_for_the_next_start() -> None:
    ahead, done = Ahead(), [threading.Event(), threading.Event()]
    ahead._work.append(done[0].set)
    ahead.start()
    assert done[0].wait(10)
    ahead._work.append(done[1].set)
    while not done[1].wait(0.01):  # the first thread may still be ending
        ahead.start()


ASKED: list[Message] = [{"role": "user", "content": "What is oolong tea?"}]


def test_work_ahead_begins_while_the_model_answers() -> None:
    began = threading.Event()

    def answer(asked: Asked) -> Play:
        return Play(chat("fine" if began.wait(10) else "nothing had begun"))

    with provider(answer) as server:
        control = RunControl(30)
        control.idle = began.set
        client = OpenAILLMClient(None, "local-model", base_url=f"{server.url}/v1")
        assert client.complete(ASKED, max_output_tokens=64, control=control).text == "fine"


def test_work_ahead_does_not_begin_before_the_request_has_gone_out() -> None:
    with provider([Play(chat("fine"))]) as server:
        url = server.url
    control, began = RunControl(0.5), threading.Event()
    control.idle = began.set
    with pytest.raises(LLMError):  # nobody listens there any more
        OpenAILLMClient(None, "local-model", base_url=f"{url}/v1").complete(
            ASKED, max_output_tokens=64, control=control
        )
    assert not began.is_set()


@pytest.mark.parametrize("web", [True, False])
def test_what_is_tried_out_ahead_raises_nothing(web: bool) -> None:
    ahead = Ahead()
    ahead.add_run(web=web)
    for work in ahead._work:
        work()  # its thread would swallow what this raises


@pytest.mark.parametrize(
    ("settings", "absent"),
    [
        ('{"SEARXNG_BASE_URL": "http://127.0.0.1:9"}', {"bs4", "selectolax", "lxml", "m3.grounding.verifier"}),
        ('{"DOCS_DIR": "tests"}', {"bs4", "selectolax", "requests", "m3.grounding.verifier"}),
    ],
)
def test_what_reads_pages_and_checks_reports_is_not_loaded_before_the_model_is_asked(
    settings: str, absent: set[str]
) -> None:
    code = (
        "import sys; import m3_react_agent; from config import load_config; from tools import build_tools\n"
        f"build_tools(load_config({settings}))\n"
        f"print(sorted({absent!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("from m3.words import stem; stem('glaciers'), stem('ледники')", "snowballstemmer m3.stemmers.german_stemmer"),
        (
            "import memory_integration, config; "
            "memory_integration.build_memory(config.load_config({'MEMORY_BACKEND': 'none'}))",
            "m3.long_term_redis m3.long_term_sqlite m3.questions sqlite3 requests",
        ),
        (
            "from m3.extract import ContentExtractor; "
            "assert ContentExtractor().extract('<p>A short page of one paragraph.</p>', 'https://a.example/').text",
            "multiprocessing resource",
        ),
    ],
)
def test_what_is_not_used_is_not_loaded(code: str, absent: str) -> None:
    code += f"; import sys; print(sorted({{*{absent.split()!r}}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("language", ["english", "russian", "german", "dutch_porter"])  # the last loads with all others
def test_a_stemmer_that_loads_alone_is_the_one_of_the_library(language: str) -> None:
    text = "relational running häuser möglichkeiten ледниками бегущий lopende mogelijkheden naïve i’ll 2024"
    mine, theirs = stemmer(language), snowballstemmer.stemmer(language)
    assert [mine.stemWord(word) for word in text.split()] == [theirs.stemWord(word) for word in text.split()]


def test_a_language_without_a_stemmer_is_refused_as_the_library_refuses_it() -> None:
    with pytest.raises(KeyError, match="klingon"):
        stemmer("klingon")


def test_the_selectors_of_beautifulsoup_load_when_they_are_used_and_not_before() -> None:
    code = (
        "import sys; from m3.extract import ContentExtractor\n"
        "page = ContentExtractor().extract('<p>A paragraph of text that is long enough to be one.</p>', 'https://a.example/')\n"
        "assert page.text and 'soupsieve.css_parser' not in sys.modules\n"
        "import bs4; soup = bs4.BeautifulSoup('<p class=x>one</p><p>two</p>', 'html.parser')\n"
        "assert [p.text for p in soup.select('p.x')] == ['one'] and 'soupsieve.css_parser' in sys.modules\n"
        "import soupsieve, soupsieve.css_types; from soupsieve import SelectorSyntaxError, compile\n"
        "try: soup.select('p[')\n"
        "except SelectorSyntaxError: print(soupsieve.select_one('p', soup).text, compile('p').pattern)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["one", "p"], done.stderr


@pytest.mark.parametrize("call", ["search", "match", "fullmatch", "finditer", "findall", "split"])
def test_a_lazy_pattern_does_what_a_compiled_one_does(call: str) -> None:
    source, text = r"(\d+)\s*(km|mi)", "12 km and 7 MI"
    one, other = lazy_pattern(source, re.I), re.compile(source, re.I)
    for _ in range(2):  # before and after it was compiled
        plain = [
            [m.groups() for m in found]
            if call == "finditer"
            else (found.groups() if isinstance(found, re.Match) else found)
            for found in (getattr(one, call)(text), getattr(other, call)(text))
        ]
        assert plain[0] == plain[1]
    assert one.sub("x", text) == "x and x"
    assert (one.pattern, one.flags) == (other.pattern, other.flags)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("lie journal limitations", "lying lies limits limited journals journaling lily"),
        ("die tie sky", "dying tying skies skis died tied"),
        ("ёлка лететь", "елки ёлками летел летать лёт"),
        ("ё2 полёт-3", "ё2 е2 полёт 3"),
        ("a7 x 2024", "a7 x x7 2024 2025"),
    ],
)
def test_only_words_that_could_match_are_stemmed_and_none_that_matches_is_missed(asked: str, found: str) -> None:
    wanted = {stem(word) for word in asked.split()}
    assert stems_among(found.split(), wanted) == {word: stem(word) for word in found.split() if stem(word) in wanted}


@pytest.mark.parametrize(("media", "in_a_child"), [("html", False), ("text", True)])
def test_ordinary_html_is_read_here_up_to_300_000_characters_and_plain_text_up_to_150_000(
    media: page_reading.MediaKind, in_a_child: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run_child(function: str, *more: object, **options: object) -> None:
        asked.append(function)
        raise ChildError("crashed")

    monkeypatch.setattr(page_reading, "run_child", run_child)
    sentence = "The harbour froze over in the cold winter of that year, and ships stayed away. "
    text = "<p>" + "</p>\n<p>".join([sentence * 5] * 500) + "</p>"
    assert 150_000 < len(text) < 300_000
    page = read_body(text.encode(), media, f"text/{'html' if media == 'html' else 'plain'}", "https://a.example/x")
    assert page.kind == "ok" and bool(asked) == in_a_child and page.truncated == in_a_child
