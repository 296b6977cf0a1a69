"""This agent's command line with the Groq SDK. All by settings, but for the resolver that knows the world's names."""

import os
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(ROOT))

from m3 import cli  # noqa: E402
from m3_react_agent import build_llm_client, run_react_loop  # noqa: E402


def main():
    from m3.fetch import PageFetchTool
    from m3.safe_http import SafeClient

    world = os.environ["WORLD"]
    os.environ.update(
        GROQ_API_KEY="gsk_world", GROQ_BASE_URL=world, GROQ_MODEL=os.environ["MODEL"], SEARCH_PROVIDER="searxng",
        SEARXNG_BASE_URL=world + "/named", MEMORY_BACKEND="none", MAX_ITERATIONS="14",
    )  # fmt: skip
    fetcher = PageFetchTool(client=SafeClient(resolver=resolve, allow_loopback=True))
    run = partial(run_react_loop, fetcher=fetcher)
    code = cli.main(["--quiet", sys.argv[1]], run, build_llm_client, None)
    if seen := os.environ.get("M3_BENCH_MODULES"):
        Path(seen).write_text("\n".join(name for name in sys.modules if not name.startswith("_")))
    return code


def resolve(host, port, *more):
    import socket

    return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]


if __name__ == "__main__":
    cli.as_program(main)
