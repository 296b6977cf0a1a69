"""Do the deep links land? Quotes of stored pages, served on loopback and opened in a real Chromium.

python bench/deep_links.py [--json] [--pages N] [--quotes N]

Each page is served without its own scripts; a small script of the bench reports where the quote stands when loading
has settled. A link lands when the quote is in view although the window was scrolled to it, or lay in it from the start.
Needs `chromium` (Debian package) and the extraction cases (M3_CASES).
"""

from __future__ import annotations

import argparse
import gzip
import html
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
CASES = Path(os.environ.get("M3_CASES", ROOT.parent / "shared" / "cases"))

from m3.extract import ContentExtractor  # noqa: E402
from m3.grounding.fragments import Linker  # noqa: E402
from m3.grounding.sentences import split_sentences  # noqa: E402

SEED = 7
LEAST_TEXT = 2_500  # characters of a page that is long enough to scroll
# Smooth scrolling would still be under way when the probe looks.
PROBE = """<style>html, body, * { scroll-behavior: auto !important; }</style><script>
addEventListener('load', () => setTimeout(() => {
  const squash = s => s.normalize('NFKD').replace(/[\\u0300-\\u036f]/g, '').replace(/\\s+/g, '').toLowerCase();
  const wanted = squash(%s), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let all = '', places = [];
  for (let node; node = walker.nextNode();) {
    const holder = node.parentNode;
    if (/^(SCRIPT|STYLE|NOSCRIPT)$/.test(holder.nodeName) || !holder.getClientRects().length) continue;
    for (let i = 0; i < node.data.length; i++)
      for (const c of squash(node.data[i])) { all += c; places.push([node, i]); }
  }
  let seen = 0, inView = false;
  for (let at = all.indexOf(wanted); at >= 0; at = all.indexOf(wanted, at + 1)) {
    const range = document.createRange();
    range.setStart(...places[at]); range.setEnd(places[at][0], places[at][1] + 1);
    const box = range.getBoundingClientRect();
    seen++; inView ||= box.bottom > 0 && box.top < innerHeight;
  }
  document.documentElement.dataset.probe = JSON.stringify({seen, inView, y: Math.round(scrollY),
    below: document.documentElement.scrollHeight > innerHeight + 50});
}, 800));
</script>"""


def stored_pages(count: int) -> list[tuple[str, str]]:
    """(name, HTML without scripts) of the first pages of the cases that are long enough, in a shuffled fixed order."""
    files = sorted((CASES / "extraction").glob("*/html/*.html.gz"))
    random.Random(SEED).shuffle(files)
    found = []
    for file in files:
        markup = gzip.decompress(file.read_bytes()).decode("utf-8", "replace")
        markup = re.sub(
            r"(?is)<script\b.*?</script\s*>|<noscript\b.*?</noscript\s*>|<meta[^>]+(?:refresh|content-security)[^>]*>",
            "",
            markup,
        )
        markup = re.sub(r"(?i)<(?:link|iframe|img|source|video|base)\b[^>]*>", "", markup)
        if len(ContentExtractor().extract(markup, "http://127.0.0.1/").text) >= LEAST_TEXT:
            found.append((file.name, markup))
        if len(found) == count:
            break
    return found


class Server:
    """Serves one page after another under paths of their own."""

    def __init__(self) -> None:
        self.pages: dict[str, bytes] = {}
        pages = self.pages

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = pages.get(self.path)
                self.send_response(200 if body else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, format: str, *args: object) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()


def open_in_chromium(chromium: str, url: str, profile: str) -> dict[str, object]:
    """What the probe of the page at `url` reported."""
    command = [
        chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={profile}",
        "--window-size=1000,700", "--timeout=8000", "--virtual-time-budget=4000", "--dump-dom", url,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    match = re.search(r'data-probe="([^"]*)"', done.stdout)
    return dict(json.loads(html.unescape(match[1]))) if match else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--pages", type=int, default=20)
    parser.add_argument("--quotes", type=int, default=3, help="quotes a page")
    args = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None or not (CASES / "extraction").is_dir():
        print("skipped: needs chromium and the extraction cases (M3_CASES)")
        return 0
    server, chance = Server(), random.Random(SEED)
    counts = dict.fromkeys(("quotes", "linked", "landed", "scrolled", "on_page"), 0)
    with tempfile.TemporaryDirectory() as profile:
        for number, (name, markup) in enumerate(stored_pages(args.pages)):
            url = f"{server.base}/{number}"
            page = ContentExtractor().extract(markup, url)
            spans = [s for s in split_sentences(page.text) if 40 <= s[1] - s[0] <= 400]
            for start, end in sorted(chance.sample(spans, min(args.quotes, len(spans)))):
                counts["quotes"] += 1
                fragment = Linker(page).fragment(start, end)
                if fragment is None:
                    print(f"no link: {name}: {page.text[start:end][:80]!r}", file=sys.stderr)
                    continue
                counts["linked"] += 1
                quote = json.dumps(page.text[start:end].strip(" |*_")).replace("</", "<\\/")
                server.pages[f"/{number}"] = (markup + PROBE % quote).encode()
                seen = open_in_chromium(chromium, url + "#" + fragment.directive(), profile)
                counts["on_page"] += bool(seen.get("seen"))
                counts["landed"] += bool(seen.get("inView"))
                counts["scrolled"] += bool(seen.get("y"))
                if not seen.get("inView"):
                    print(f"not landed: {name} {seen}: {fragment}", file=sys.stderr)
    server.close()
    figures: dict[str, float] = {**counts, "landed_share": round(100 * counts["landed"] / max(1, counts["quotes"]), 1)}
    if args.json:
        print(json.dumps(figures))
    else:
        for key, value in figures.items():
            print(f"{key:<14} {value:>6}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
