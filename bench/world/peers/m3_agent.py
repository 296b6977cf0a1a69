"""This agent with the Groq SDK. All by settings, but for the resolver that knows the world's host names."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
sys.path.insert(0, str(ROOT))

from config import load_config  # noqa: E402
from m3_react_agent import run_react_loop  # noqa: E402


def main() -> int:
    from m3.fetch import PageFetchTool
    from m3.safe_http import SafeClient

    world = os.environ["WORLD"]
    settings = {
        "GROQ_API_KEY": "gsk_world", "GROQ_BASE_URL": world, "GROQ_MODEL": os.environ["MODEL"],
        "SEARXNG_BASE_URL": world + "/named", "MEMORY_BACKEND": "none", "MAX_ITERATIONS": "14",
    }  # fmt: skip
    client = SafeClient(resolver=resolve, allow_loopback=True)
    output = run_react_loop(sys.argv[1], config=load_config(settings), fetcher=PageFetchTool(client=client))
    print(output.to_markdown())
    if seen := os.environ.get("M3_BENCH_MODULES"):
        Path(seen).write_text("\n".join(name for name in sys.modules if not name.startswith("_")))
    return 0 if output.outcome == "answered" else 1


def resolve(host, port, *more):
    import socket

    return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]


if __name__ == "__main__":
    sys.exit(main())
