"""The chat under load: how late each event of twenty chats over slow pages reaches its reader, in milliseconds."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.chat_load import measure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object of figures as the last line")
    parser.add_argument("--chats", type=int, default=20, help="chats at a time (default: 20)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(args.chats, Path(folder)).as_dict()
    if args.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:<20}{value:>10}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
