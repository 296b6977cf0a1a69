"""The pages of the loopback world: picked out of Debian's documentation packages, searched by BM25.

    apt-get install -y python3-doc sqlite3-doc git-doc
    python bench/world/corpus.py        # builds bench/world/corpus/, which git ignores

200 pages as they are shipped: SQLite (public domain), Python (PSF licence), Git (GPL-2.0); `corpus/LICENCES.md` names
them. Nothing of them is part of this repository.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"
DOCUMENTATION = Path("/usr/share/doc")
SMALLEST_TEXT, LARGEST_HTML = 1_500, 1_200_000  # characters: neither stubs nor whole books


@dataclass(frozen=True)
class Package:
    """Where a Debian package keeps its HTML (the first folder of `folders` that is there), and what is taken.

    most: pages taken; first: pages that the usual question needs, taken before those of the pattern `others`.
    """

    name: str
    folders: str
    others: str
    licence: str
    most: int
    first: tuple[str, ...]


def _pages(stem: str, names: str) -> tuple[str, ...]:
    return tuple(f"{stem}{name}.html" for name in names.split())


PACKAGES = (
    Package(
        "sqlite3-doc", "sqlite3", "*.html", "public domain", 80,
        _pages("", "wal walformat pragma lockingv3 isolation atomiccommit tempfiles howtocorrupt faq whentouse "
                   "fts5 json1 lang_transaction threadsafe sharedcache limits fileformat2 backup cli mmap security"),
    ),
    Package(
        "python3-doc", "python3*/html", "library/*.html", "PSF License Version 2; examples Zero-clause BSD", 85,
        _pages("library/", "sqlite3 asyncio-task threading multiprocessing queue socket ssl http.client urllib.request "
                           "html.parser json csv pickle shelve dbm zlib re difflib string struct datetime collections "
                           "itertools functools pathlib tempfile shutil logging argparse hashlib contextlib typing")
        + ("whatsnew/3.11.html", "whatsnew/3.10.html", "howto/logging.html", "howto/regex.html", "glossary.html"),
    ),
    Package(
        "git-doc", "git/html", "*.html", "GPL-2.0", 35,
        _pages("git-", "rebase merge commit bisect stash worktree reflog gc log fetch clone reset tag submodule"),
    ),
)  # fmt: skip

_WORD = re.compile(r"[a-z0-9_]+")
_STOP = frozenset(
    "a an and are as at be been but by can could did do does for from had has have how i if in into is it its may me "
    "might must my of on or our shall should so such than that the their them then there these they this those to too "
    "us was we were what when where which who why will with would you your about compared compare explain using use "
    "used work works please tell between".split()
)


def words(text: str) -> list[str]:
    """The words of a text that tell something, in order."""
    return [word for word in _WORD.findall(text.lower()) if word not in _STOP and len(word) > 1]


class _Text(HTMLParser):
    """Visible text and title, a line a block."""

    SKIPPED = frozenset("script style head nav svg noscript".split())
    BLOCKS = frozenset("p div li h1 h2 h3 h4 h5 tr dt dd pre br table ul ol section".split())

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title = ""
        self._open: Counter[str] = Counter()
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._open[tag] += 1
        self._skipped += tag in self.SKIPPED
        if tag in self.BLOCKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._open[tag] = max(0, self._open[tag] - 1)
        self._skipped = max(0, self._skipped - (tag in self.SKIPPED))
        if tag in self.BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if self._open["title"]:
            self.title += data
        elif not self._skipped:
            self.parts.append(data if self._open["pre"] else data.replace("\n", " "))


def text_of(html: str) -> tuple[str, str]:
    """`(title, text)` of a page."""
    parser = _Text()
    parser.feed(html)
    lines = (" ".join(line.split()) for line in "".join(parser.parts).replace("\u00b6", "").split("\n"))
    return " ".join(parser.title.split()), "\n".join(line for line in lines if line)


# --- building -------------------------------------------------------------------------------------------


def build(folder: Path = FOLDER) -> int:
    """Copy the pages and write their index; the number of pages. Raises FileNotFoundError without the packages."""
    found: list[tuple[Package, Path, Path]] = []
    for package in PACKAGES:
        root = next((p for p in sorted(DOCUMENTATION.glob(package.folders)) if p.is_dir()), None)
        if root is None:
            raise FileNotFoundError(f"the documentation of {package.name} is not installed")
        others = sorted(str(path.relative_to(root)) for path in root.glob(package.others))
        found += [(package, root, root / name) for name in dict.fromkeys((*package.first, *others))]
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "pages").mkdir(parents=True)
    taken: Counter[str] = Counter()
    with (folder / "index.jsonl").open("w", encoding="utf-8") as index:
        for package, root, path in found:
            if taken[package.name] >= package.most or not path.is_file() or "index" in path.name:
                continue
            html = path.read_text(encoding="utf-8", errors="replace")
            title, text = text_of(html)
            if len(text) < SMALLEST_TEXT or len(html) > LARGEST_HTML:
                continue
            number = taken.total()
            shutil.copyfile(path, folder / "pages" / f"{number}.html")
            row = {"title": title or path.name, "source": f"{package.name}: {path.relative_to(root)}", "text": text}
            index.write(json.dumps(row) + "\n")
            taken[package.name] += 1
    rights = [f"- {package.name}: {package.licence}; /usr/share/doc/{package.name}/copyright" for package in PACKAGES]
    (folder / "LICENCES.md").write_text("Pages copied unchanged from Debian packages:\n\n" + "\n".join(rights) + "\n")
    return taken.total()


def missing() -> str:
    """What keeps the corpus from being built, as a line for people; "" for nothing."""
    absent = [p.name for p in PACKAGES if not any(q.is_dir() for q in DOCUMENTATION.glob(p.folders))]
    return f"Debian packages are missing: {' '.join(absent)}" if absent else ""


# --- searching ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WebPage:
    """One page of the world: its title, the bytes that are served, its text for the search and the policy."""

    title: str
    html: bytes
    text: str


class Corpus:
    """Numbered pages and a BM25 search over them (title words count eightfold)."""

    def __init__(self, pages: Sequence[WebPage]) -> None:
        self.pages = pages
        self._counts = [Counter(words((page.title + " ") * 8 + page.text)) for page in pages]
        self._lengths = [counts.total() for counts in self._counts]
        self._average = sum(self._lengths) / max(1, len(pages))
        self._documents = Counter(word for counts in self._counts for word in counts)
        self.sentences: Callable[[int], list[str]] = cache(self._sentences)

    @classmethod
    def load(cls, folder: Path = FOLDER) -> Corpus:
        """The built corpus, built first where it is missing. Raises FileNotFoundError without the packages."""
        if not (folder / "index.jsonl").exists():
            build(folder)
        rows = [json.loads(line) for line in (folder / "index.jsonl").read_text(encoding="utf-8").splitlines()]
        bodies = [(folder / "pages" / f"{number}.html").read_bytes() for number in range(len(rows))]
        return cls([WebPage(row["title"], body, row["text"]) for row, body in zip(rows, bodies, strict=True)])

    @classmethod
    def of_files(cls, paths: Iterable[Path]) -> Corpus:
        """A small corpus of HTML files."""
        pages = []
        for path in paths:
            body = path.read_bytes()
            title, text = text_of(body.decode("utf-8", "replace"))
            pages.append(WebPage(title or path.name, body, text))
        return cls(pages)

    def search(self, query: str, most: int) -> list[tuple[float, int]]:
        """`(score, page)` of the best pages, best first."""
        found = []
        for number, counts in enumerate(self._counts):
            score = 0.0
            for word in set(words(query)):
                if often := counts.get(word, 0):
                    having = self._documents[word]
                    rarity = math.log(1 + (len(self.pages) - having + 0.5) / (having + 0.5))
                    score += (
                        rarity * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * self._lengths[number] / self._average))
                    )
            if score > 0:
                found.append((score, number))
        return sorted(found, key=lambda pair: (-pair[0], pair[1]))[:most]

    def snippet(self, number: int, query: str, width: int = 350) -> str:
        """The stretch of a page that holds most words of the query."""
        wanted, text = set(words(query)), self.pages[number].text
        starts = range(0, max(1, min(len(text), 60_000)), 200)
        best = max(starts, key=lambda at: len(wanted & set(words(text[at : at + width]))))
        return " ".join(text[best : best + width].split())

    def _sentences(self, number: int) -> list[str]:
        return sentences_in(self.pages[number].text)


def sentences_in(text: str) -> list[str]:
    """The sentences of a text that a report could quote."""
    parts = (" ".join(part.split()) for part in re.split(r"(?<=[.!?])\s+|\n+", text))
    return [part for part in parts if 50 <= len(part) <= 400 and part[-1] in ".!?"]


if __name__ == "__main__":
    if fault := missing():
        sys.exit(fault)
    print(f"{build()} pages in {FOLDER}")
