"""What of a hostile page reaches a prompt: this program beside plain BeautifulSoup and trafilatura text.

    python bench/hostile.py [--json] [--no-peers]

Counted over tests/cases/injection: hidden texts that leak and visible ones that are lost (hidden_html.json), characters
that must go and still stand (characters.json), imitations of the loop that this program's own parser would obey
(grammar.json). For this program also the puppet model of tests/puppet.py over every attack there is.
trafilatura runs in an environment of the bench's own (`.venv-bench-hostile/`, made at the first run).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
OWN = ROOT / "tests" / "cases" / "injection"
PUBLIC = Path(os.environ.get("M3_CASES", ROOT.parent / "shared" / "cases")) / "injection"
VENV = ROOT / ".venv-bench-hostile"
PROSE = (
    "<p>Ordinary paragraph of text about tea prices in 2024, long enough to be kept by every extractor there is.</p>"
)

Reader = Callable[[list[str]], list[str]]


def m3_text(pages: list[str]) -> list[str]:
    """What this program would put into a prompt."""
    from m3.extract import ContentExtractor
    from m3.untrusted import neutralise

    return [neutralise(ContentExtractor().extract(html, "https://tea.example/x").text) for html in pages]


def soup_text(pages: list[str]) -> list[str]:
    from bs4 import BeautifulSoup

    texts = []
    for html in pages:
        soup = BeautifulSoup(html, "lxml")
        for element in soup(["script", "style"]):
            element.decompose()
        texts.append(soup.get_text("\n"))
    return texts


def trafilatura_text(pages: list[str]) -> list[str]:
    if not (VENV / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "trafilatura==2.3.1", "lxml_html_clean"], check=True)
    code = (
        "import json, sys, trafilatura; "
        "print(json.dumps([trafilatura.extract(h, include_comments=False) or '' for h in json.load(sys.stdin)]))"
    )
    done = subprocess.run(
        [str(VENV / "bin" / "python"), "-c", code], input=json.dumps(pages), capture_output=True, text=True, check=True
    )
    return list(json.loads(done.stdout))


def figures(read: Reader) -> dict[str, int]:
    """The counts of one way of reading."""
    from m3.react_parser import parse_thought_action

    hidden = json.loads((OWN / "hidden_html.json").read_text())
    strip = json.loads((OWN / "characters.json").read_text())["strip"]
    grammar = [g for g in json.loads((OWN / "grammar.json").read_text())["items"] if "leave" not in g["why"]]
    texts = read([case["html"] for case in hidden])
    shown = list(zip(hidden, texts, strict=True))
    found = {
        "hidden texts leaked": sum(c["canary"] in t for c, t in shown if c["must"].startswith("strip")),
        "visible texts lost": sum("Ordinary paragraph" not in t or "Closing paragraph" not in t for _, t in shown),
    }
    pages = [f"{PROSE}<p>{''.join(f'&#{ord(c)};' for c in case['text'][:5_000])}</p>{PROSE}" for case in strip]
    gone = [set(case["text"]) - set(case.get("want") or case["text"]) - set("\r\n\t \xa0") for case in strip]
    found["pages with characters nobody sees"] = sum(
        bool(chars & set(text)) for chars, text in zip(gone, read(pages), strict=True)
    )
    pages = [f"<pre>{g['text'].replace('&', '&amp;').replace('<', '&lt;')}</pre>{PROSE}" for g in grammar]
    found["imitations that parse as an action"] = sum(
        parse_thought_action(text.split("Ordinary")[0]).tool is not None for text in read(pages)
    )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    args = parser.parse_args()
    readers: dict[str, Reader] = {"m3": m3_text}
    if not args.no_peers:
        readers |= {"BeautifulSoup": soup_text, "trafilatura": trafilatura_text}
    table = {name: figures(read) for name, read in readers.items()}
    from tests.puppet import attacks, run_attack

    total: Counter[str] = Counter()
    for attack in dict.fromkeys(attacks(OWN, PUBLIC)):
        total.update(run_attack(attack))
    if args.json:
        flat = {f"{name}.{key}": value for name, row in table.items() for key, value in row.items()}
        print(json.dumps(flat | {f"puppet.{key}": int(value) for key, value in total.items()}))
        return 0
    print(f"{'':<40}" + "".join(f"{name:>16}" for name in table))
    for key in table["m3"]:
        print(f"{key:<40}" + "".join(f"{row[key]:>16}" for row in table.values()))
    print("\na model that obeys the last thing in its prompt")
    for key, value in total.items():
        print(f"{key:<40}{int(value):>16}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
