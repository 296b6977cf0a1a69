"""A folder of documents: what is found, what is read again, and what happens when the index or the folder breaks."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from config import PROGRAM_DIR, cache_folder
from m3 import documents
from m3.documents import LocalDocuments
from m3.records import FetchedPage, RunControl, SearchOutcome
from tests.pdfs import pdf


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three documents, an hour old."""
    here = tmp_path / "papers"
    (here / "sub").mkdir(parents=True)
    write(here / "ice.md", "# Ice\n\nA glacier is a river of ice that flows downhill under its own weight.\n")
    write(here / "lava.txt", "Lava is molten rock which a volcano expels during an eruption.\n")
    write(
        here / "sub" / "sea.html", "<html><title>Sea</title><body><p>The tide is the rise of the sea.</p></body></html>"
    )
    return here


def write(path: Path, text: str | bytes, *, age: float = 3_600) -> None:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(path, (time.time() - age, time.time() - age))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the documents that were parsed, in order."""
    names: list[str] = []
    for suffix, reader in list(documents.READERS.items()):

        def counting(data: bytes, name: str, control: RunControl, reader: documents.Reader = reader) -> FetchedPage:
            names.append(name)
            return reader(data, name, control)

        monkeypatch.setitem(documents.READERS, suffix, counting)
    return names


def names_of(outcome: SearchOutcome) -> list[str]:
    assert outcome.status in ("ok", "no_results"), outcome.detail
    return [result.url for result in outcome.results]


def index_file() -> Path:
    (found,) = cache_folder().glob("documents-*.sqlite")
    return found


# --- finding ---------------------------------------------------------------------------------------------


def test_documents_of_every_kind_are_found_and_read_by_name(folder: Path) -> None:
    write(folder / "melt.csv", "year,melt\n2001,12 gigatonnes\n")
    write(folder / "moraine.pdf", pdf([["A moraine is debris that a glacier leaves behind."]]))
    write(folder / "note.md", "Gletscher in der Schweiz: Größe".encode("cp1252"))
    write(folder / "wide.txt", "Permafrost thaws".encode("utf-16"))
    local = LocalDocuments(folder)
    for query, name in {
        "volcano eruption": "papers/lava.txt", "tide": "papers/sub/sea.html", "gigatonnes": "papers/melt.csv",
        "moraine debris": "papers/moraine.pdf", "Größe Gletscher": "papers/note.md", "permafrost": "papers/wide.txt",
    }.items():  # fmt: skip
        outcome = local.search(query)
        assert names_of(outcome)[0] == name
        page = local.read(name)
        assert page is not None and page.kind == "ok" and page.page is not None
        assert all(page.text[b.start : b.end] == b.text for b in page.page.blocks)
    assert local.search("quasar").status == "no_results"
    assert local.search("the of ???").status == "bad_query"


@pytest.mark.parametrize("encoding", ["cp1251", "koi8-r", "utf-16", "utf-8-sig"])
def test_old_notes_in_another_script_are_read_as_it(folder: Path, encoding: str) -> None:
    text = "Насосная станция в Казани была построена в 1987 году. Её мощность составляет 320 киловатт.\n"
    write(folder / "станция.txt", text.encode(encoding))
    page = LocalDocuments(folder).read("papers/станция.txt")
    assert page is not None and page.text == text.strip()


@pytest.mark.parametrize(("name", "data"), [
    ("program.txt", b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 40),
    ("picture.md", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40),
    ("table.csv", b"PK\x03\x04" + bytes(range(256)) * 40),
    ("noise.txt", bytes(range(256)) * 40),
    ("scan.txt", b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"),
])  # fmt: skip
def test_a_file_that_only_calls_itself_text_is_left_out_and_named(folder: Path, name: str, data: bytes) -> None:
    write(folder / name, data + b" glacier ")
    local = LocalDocuments(folder)
    outcome = local.search("glacier")
    assert f"papers/{name}" not in names_of(outcome) and local.skipped[f"papers/{name}"].startswith("is no text")
    assert f"papers/{name}" in outcome.detail


@pytest.mark.parametrize("text", ["ID3 tags name a song and its glacier.", "%PDF-1.4 is how a glacier PDF begins."])
def test_a_text_may_begin_as_other_kinds_of_files_do(folder: Path, text: str) -> None:
    write(folder / "formats.txt", text)
    assert "papers/formats.txt" in names_of(LocalDocuments(folder).search("glacier"))


def test_a_folder_without_a_document_is_said_to_be_one(tmp_path: Path) -> None:
    folder = tmp_path / "theses"
    folder.mkdir()
    write(folder / "thesis.docx", b"PK")
    local = LocalDocuments(folder)
    outcome = local.search("glacier")
    assert outcome.status == "no_results" and str(folder) in outcome.detail and ".pdf" in outcome.detail
    write(folder / "note.md", "The glacier melts.")
    assert local.search("glacier").detail == "" and local.search("quasar").detail == ""


def test_a_pdf_is_parsed_once_and_keeps_its_page_numbers(folder: Path, reads: list[str]) -> None:
    write(folder / "moraine.pdf", pdf([["First page on snow."], ["A moraine is debris that a glacier leaves."]]))
    LocalDocuments(folder).search("moraine")
    page = LocalDocuments(folder).read("papers/moraine.pdf")
    assert page is not None and page.page is not None
    assert {b.page_number for b in page.page.blocks if "moraine" in b.text} == {2}
    assert reads.count("papers/moraine.pdf") == 1


def test_one_file_can_be_the_whole_collection(folder: Path) -> None:
    local = LocalDocuments(folder / "ice.md")
    assert names_of(local.search("glacier volcano tide")) == ["papers/ice.md"]
    assert local.read("papers/lava.txt") is None


@pytest.mark.parametrize("name", [
    "papers/../secret.md", "papers//etc/hosts.txt", "../papers/ice.md", "papers/out.md", "papers/loop.md", "papers",
    "papers/", "papers/.h/../../secret.md", "papers/a\0b.md", "papers/" + "x" * 5_000 + ".md", "",
    "https://papers/ice.md", "papers/ice.sqlite",
])  # fmt: skip
def test_no_name_leads_out_of_the_folder(folder: Path, name: str) -> None:
    write(folder.parent / "secret.md", "glacier password")
    (folder / "out.md").symlink_to(folder.parent / "secret.md")
    (folder / "loop.md").symlink_to(folder / "loop.md")
    local = LocalDocuments(folder)
    assert local.read(name) is None
    assert names_of(local.search("password")) == []


# --- only what changed -----------------------------------------------------------------------------------


def test_only_new_and_changed_files_are_read_again(folder: Path, reads: list[str]) -> None:
    assert len(names_of(LocalDocuments(folder).search("glacier volcano tide"))) == 3
    assert sorted(reads) == ["papers/ice.md", "papers/lava.txt", "papers/sub/sea.html"]
    reads.clear()
    write(folder / "lava.txt", "Basalt is what lava turns into.\n", age=1_800)
    write(folder / "new.md", "Basalt columns are hexagonal.\n")
    (folder / "ice.md").unlink()
    local = LocalDocuments(folder)
    assert sorted(names_of(local.search("basalt glacier eruption"))) == ["papers/lava.txt", "papers/new.md"]
    assert sorted(reads) == ["papers/lava.txt", "papers/new.md"]
    reads.clear()
    local.search("basalt")
    local.read("papers/new.md")
    assert reads == []


def test_a_change_that_leaves_the_same_time_stamp_and_size_is_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A tick of the file system's clock that is as long as a slow machine may need for this test.
    monkeypatch.setattr(documents, "RACY_NANOSECONDS", 60_000_000_000)
    local, path, now = LocalDocuments(folder), folder / "quick.txt", time.time_ns()
    for word in ("aaaaaa", "bbbbbb", "cccccc"):
        path.write_text(f"The word is {word}.")
        os.utime(path, ns=(now, now))
        assert names_of(local.search(word)) == ["papers/quick.txt"]


def test_two_folders_of_one_name_have_two_indexes(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "papers"
    other.mkdir(parents=True)
    write(other / "ice.md", "Sorbet is a dessert.")
    assert names_of(LocalDocuments(folder).search("glacier sorbet")) == ["papers/ice.md"]
    page = LocalDocuments(other).read("papers/ice.md")
    assert page is not None and "Sorbet" in page.text


# --- a broken, locked or impossible index ----------------------------------------------------------------


def garbage(path: Path) -> None:
    path.write_bytes(b"this is not a database" * 1_000)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5_000])


def scribbled(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4_096:] = b"\xa5" * (len(data) - 4_096)
    path.write_bytes(data)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def of_another_shape(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE documents(x)")
        db.execute("CREATE TABLE words(y)")
    db.close()


def of_another_version(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 7")
    db.close()


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage", [garbage, truncated, scribbled, emptied, of_another_shape, of_another_version, a_folder]
)
def test_a_broken_index_is_made_anew(folder: Path, damage: object, reads: list[str]) -> None:
    LocalDocuments(folder).search("glacier")
    path = index_file()
    damage(path)  # type: ignore[operator]
    reads.clear()
    assert names_of(LocalDocuments(folder).search("glacier")) == ["papers/ice.md"]
    assert len(reads) == 3
    if damage is not a_folder:
        reads.clear()
        assert names_of(LocalDocuments(folder).search("glacier")) == ["papers/ice.md"]
        assert reads == []


def test_an_index_that_breaks_while_it_is_open_is_made_anew(folder: Path) -> None:
    local = LocalDocuments(folder)
    local.search("glacier")
    db = sqlite3.connect(index_file())
    db.execute("DROP TABLE words")
    db.commit()
    db.close()
    assert names_of(local.search("glacier")) == ["papers/ice.md"]
    index_file().unlink()
    write(folder / "new.md", "Firn is old snow.")
    assert names_of(local.search("firn")) == ["papers/new.md"]


@pytest.mark.parametrize(
    ("lock", "read_again"),
    [
        ("IMMEDIATE", ["papers/new.md"]),
        ("EXCLUSIVE", ["papers/ice.md", "papers/lava.txt", "papers/new.md", "papers/sub/sea.html"]),
    ],
)
def test_a_locked_index_costs_a_moment_and_never_the_answer(
    folder: Path, lock: str, read_again: list[str], reads: list[str]
) -> None:
    LocalDocuments(folder).search("glacier")
    write(folder / "new.md", "Firn is old snow.")
    reads.clear()
    holder = sqlite3.connect(index_file(), isolation_level=None)
    holder.execute(f"BEGIN {lock}")
    try:
        local = LocalDocuments(folder)
        started = time.monotonic()
        assert names_of(local.search("firn")) == ["papers/new.md"]
        assert names_of(local.search("glacier")) == ["papers/ice.md"]
        assert time.monotonic() - started < 10.0
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    assert sorted(set(reads)) == read_again


def test_where_nothing_can_be_written_the_index_lives_in_memory(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    local = LocalDocuments(folder, cache_dir=tmp_path / "file" / "cache")
    assert names_of(local.search("glacier")) == ["papers/ice.md"]
    assert names_of(local.search("volcano")) == ["papers/lava.txt"]


def test_the_index_is_readable_by_its_owner_alone(folder: Path) -> None:
    LocalDocuments(folder).search("glacier")
    for path in cache_folder().iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


# --- several at once -------------------------------------------------------------------------------------

SEARCHER = """
import sys
from m3.documents import LocalDocuments
local = LocalDocuments(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for query in ("glacier", "number 7", "glacier"):
    outcome = local.search(query, max_results=3)
    print(outcome.status, *[r.url for r in outcome.results], outcome.detail, flush=True)
"""


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM_DIR)}
    return subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment, cwd=PROGRAM_DIR,
    )  # fmt: skip


def test_processes_that_index_one_folder_at_once_agree(folder: Path) -> None:
    for i in range(60):
        write(folder / f"n{i}.md", f"# Number {i}\n\nThis is text number {i} on sediments.\n")
    processes = [start(SEARCHER, folder) for _ in range(4)]
    try:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        outputs = [process.communicate("\n", timeout=60)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert len(set(outputs)) == 1, outputs
    assert outputs[0].splitlines()[0].split() == ["ok", "papers/ice.md"]
    assert outputs[0].splitlines()[1].split()[1] == "papers/n7.md"
    db = sqlite3.connect(index_file())
    assert db.execute("SELECT count(*) FROM documents").fetchone() == (63,)
    assert db.execute("SELECT count(*) FROM words").fetchone() == (63,)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


KILLED = """
import sys
from m3 import documents
count = 0
reader = documents.READERS[".md"]
def slow(data, name, control):
    global count
    count += 1
    if count == 50:
        print("fifty", flush=True)
        sys.stdin.readline()
    return reader(data, name, control)
documents.READERS[".md"] = slow
documents.LocalDocuments(sys.argv[1]).search("glacier")
"""


def test_a_process_that_is_killed_while_it_indexes_leaves_its_batches_and_no_damage(
    folder: Path, reads: list[str]
) -> None:
    for i in range(80):
        write(folder / f"n{i:02}.md", f"# Number {i}\n\nThis is text number {i} on sediments.\n")
    process = start(KILLED, folder)
    assert process.stdout is not None and process.stdout.readline() == "fifty\n"
    process.kill()
    process.wait(10)
    process.communicate()
    assert names_of(LocalDocuments(folder).search("glacier")) == ["papers/ice.md"]
    assert 83 - 50 <= len(reads) <= 83 - documents.BATCH_FILES


def test_threads_may_share_one_folder(folder: Path) -> None:
    local = LocalDocuments(folder)
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(names_of(local.search("glacier")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [["papers/ice.md"]] * 8


# --- folders and files that fail -------------------------------------------------------------------------


def test_a_folder_that_is_gone_is_an_outage_and_its_index_is_kept(folder: Path, reads: list[str]) -> None:
    local = LocalDocuments(folder)
    local.search("glacier")
    folder.rename(folder.parent / "away")
    outcome = local.search("glacier")
    assert outcome.status == "unavailable" and "not there any more" in outcome.detail
    assert local.read("papers/ice.md") is None
    (folder.parent / "away").rename(folder)
    reads.clear()
    assert names_of(local.search("glacier")) == ["papers/ice.md"]
    assert reads == []
    shutil.rmtree(folder)
    assert LocalDocuments(folder).search("glacier").status == "unavailable"


def test_documents_that_cannot_be_searched_are_named_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 10_000)
    (folder / "out.md").symlink_to("/etc/hostname")
    (folder / "dangling.md").symlink_to(folder / "nothing")
    (folder / "folder.md").mkdir()
    write(folder / "broken.pdf", b"%PDF-1.4 nothing of the kind")
    write(folder / "empty.txt", "  \n")
    write(folder / "huge.txt", "glacier " * 5_000)
    try:
        (folder / "bad-\udcff.md").write_text("glacier")
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    local = LocalDocuments(folder)
    assert names_of(local.search("glacier")) == ["papers/ice.md"]
    reasons = {
        "papers/out.md": "leads out", "papers/dangling.md": "leads nowhere", "papers/broken.pdf": "damaged",
        "papers/empty.txt": "no text", "papers/huge.txt": "larger than", "papers/bad-?.md": "not valid text",
    }  # fmt: skip
    for name, reason in reasons.items():
        assert reason in local.skipped.pop(name), name
    assert local.skipped == {}
    detail = LocalDocuments(folder).search("glacier").detail
    assert detail.startswith("6 documents cannot be searched") and "and 3 more" in detail


def test_a_file_that_may_not_be_read_is_tried_again_the_next_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = documents.READERS[".txt"]

    def refused(data: bytes, name: str, control: RunControl) -> FetchedPage:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setitem(documents.READERS, ".txt", refused)
    local = LocalDocuments(folder)
    assert names_of(local.search("volcano")) == []
    assert "Permission denied" in local.skipped["papers/lava.txt"]
    page = local.read("papers/lava.txt")
    assert page is not None and page.kind == "network" and "Permission denied" in page.error
    monkeypatch.setitem(documents.READERS, ".txt", plain)
    assert names_of(local.search("volcano")) == ["papers/lava.txt"]
    assert local.skipped == {}


class SlowReader:
    """Every file takes ten seconds of virtual time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.names: list[str] = []
        self._plain = documents.READERS[".md"]

    def clock(self) -> float:
        return self.now

    def __call__(self, data: bytes, name: str, control: RunControl) -> FetchedPage:
        self.now += 10.0
        self.names.append(name)
        return self._plain(data, name, control)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowReader]:
    reader = SlowReader()
    monkeypatch.setitem(documents.READERS, ".md", reader)
    yield reader


def test_indexing_ends_by_the_deadline_says_so_and_goes_on_the_next_time(tmp_path: Path, slow: SlowReader) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(10):
        write(folder / f"n{i}.md", f"Sediment number {i}.")
    local = LocalDocuments(folder)
    control = RunControl(60.0, clock=slow.clock)
    first = local.search("sediment", control=control)
    assert slow.now <= 40.0, "half of the run is for reading"
    assert first.status == "ok" and "have not been read yet" in first.detail
    # What has not been searched is not "nothing found".
    assert LocalDocuments(folder).search("absent", control=RunControl(10.0, clock=slow.clock)).status == "timeout"
    done = LocalDocuments(folder).search("sediment", max_results=20, control=RunControl(clock=slow.clock))
    assert len(done.results) == 10 and done.detail == ""
    assert sorted(set(slow.names)) == sorted(slow.names), "no file is read twice"


def test_a_stopped_run_reads_nothing_more(folder: Path, reads: list[str]) -> None:
    control = RunControl(60.0)
    control.stop("SIGINT")
    assert LocalDocuments(folder).search("glacier", control=control).status == "timeout"
    assert reads == []


def test_a_look_that_is_cut_short_forgets_nothing(folder: Path, reads: list[str]) -> None:
    LocalDocuments(folder).search("glacier")
    control = RunControl(60.0)
    control.stop("SIGINT")
    LocalDocuments(folder).search("glacier", control=control)
    reads.clear()
    assert names_of(LocalDocuments(folder).search("glacier")) == ["papers/ice.md"]
    assert reads == []


def test_a_document_that_the_deadline_cut_short_is_tried_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, now = documents.READERS[".md"], [0.0]

    def long(data: bytes, name: str, control: RunControl) -> FetchedPage:
        now[0] += 100.0
        return FetchedPage(name, "timeout", error="the time was up")

    monkeypatch.setitem(documents.READERS, ".md", long)
    control = RunControl(60.0, clock=lambda: now[0])
    assert LocalDocuments(folder).search("glacier", control=control).status == "timeout"
    monkeypatch.setitem(documents.READERS, ".md", plain)
    assert names_of(LocalDocuments(folder).search("glacier")) == ["papers/ice.md"]


def test_a_document_that_cannot_be_searched_is_named_in_the_report(tmp_path: Path) -> None:
    from config import load_config
    from m3_react_agent import run_react_loop

    (tmp_path / "kayak.md").write_text("# Kayaks\n\nA kayak is a narrow boat with a closed deck.\n")
    (tmp_path / "cut.pdf").write_bytes(b"%PDF-1.4 and nothing more")
    for name in ("a.pdf", "b.pdf", "z.pdf"):
        (tmp_path / name).write_bytes(b"%PDF-1.4")
    (tmp_path / "aa.md").symlink_to("/nonexistent")
    runs = [run_react_loop("What is a kayak?", config=load_config({"DOCS_DIR": str(tmp_path)})) for _ in range(2)]
    notes = [[entry.detail for entry in run.ledger if entry.kind == "search"] for run in runs]
    assert notes[0] == notes[1], "a fresh index and a kept one must tell the same"
    (tmp_path / "aa.md").unlink()
    for name in ("a.pdf", "b.pdf", "z.pdf"):
        (tmp_path / name).unlink()
    output = run_react_loop("What is a kayak?", config=load_config({"DOCS_DIR": str(tmp_path)}))
    assert output.outcome == "answered"
    assert "1 document cannot be searched" in output.to_markdown() and "cut.pdf" in output.to_markdown()
