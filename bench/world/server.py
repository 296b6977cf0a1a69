"""The loopback world: a model, search engines and a web of documentation pages in one process on 127.0.0.1.

    python bench/world/server.py --port 8765 --reads 3      # by hand; bench/peers.py starts its own

| path | plays |
|---|---|
| POST …/v1/chat/completions | the model (`policy.py`), OpenAI's and Groq's form, streamed or not, with tools |
| POST …/v1/embeddings | a hashed bag of words, for agents that embed |
| POST /search | Tavily |
| GET /search?q=…&format=json | SearXNG; below /named it gives each page a host name of its own |
| GET /brave?q=… | Brave |
| GET /page/N, /robots.txt | the web |

Each request takes a fixed time, so that wall times can be compared, and leaves a `Record`. Tokens are characters / 4,
tool schemas included.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import json
import math
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from bench.world.corpus import Corpus, words
from bench.world.policy import QUESTION, Policy, Reply, Walk, flat

HOST_NAME = "page-{}.docs.example"
MODEL = "world-1"


@dataclass(frozen=True)
class Latency:
    """What a request takes, in seconds."""

    model: float = 0.3
    search: float = 0.2
    page: float = 0.2
    embedding: float = 0.1


@dataclass(frozen=True)
class Record:
    """One request: its kind (model, search, page, robots, embedding), when it began and ended (time.time()).

    urls: pages served or results shown; messages: the prompt as text; *_tokens: of a model call.
    """

    kind: str
    began: float
    ended: float
    urls: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    prompt_tokens: int = 0
    schema_tokens: int = 0
    completion_tokens: int = 0


class World:
    """The state of a running world. `walk` and `search_down` may be changed between runs."""

    def __init__(self, corpus: Corpus, question: str, latency: Latency, port: int) -> None:
        self.corpus, self.latency = corpus, latency
        self.walk = Walk()
        self.search_down = False
        self.address = f"http://127.0.0.1:{port}"
        self.port = port
        self.policy = Policy(corpus, question, self.address)
        self._records: list[Record] = []
        self._lock = threading.Lock()

    def record(self, record: Record) -> None:
        with self._lock:
            self._records.append(record)

    def take_records(self) -> list[Record]:
        """The requests since the last call."""
        with self._lock:
            found, self._records = self._records, []
        return sorted(found, key=lambda record: record.began)

    def url(self, number: int, *, named: bool = False) -> str:
        return (
            f"http://{HOST_NAME.format(number)}:{self.port}/page/{number}" if named else f"{self.address}/page/{number}"
        )


def resolve(host: str, port: int, *more: object) -> list[tuple[Any, ...]]:
    """As `socket.getaddrinfo`, for the named hosts of the world: all of them are on this machine."""
    return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]


@contextlib.contextmanager
def running(
    corpus: Corpus, *, question: str = QUESTION, latency: Latency = Latency(), port: int = 0
) -> Iterator[World]:
    """A world that answers as long as the context lasts. port 0 takes a free one."""
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    world = server.world = World(corpus, question, latency, server.server_address[1])  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield world
    finally:
        server.shutdown()
        server.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its headers
    wbufsize = -1  # headers and body leave in one piece

    def log_message(self, *args: object) -> None:
        """Quiet."""

    @property
    def world(self) -> World:
        found: World = self.server.world  # type: ignore[attr-defined]
        return found

    # --- the web and the engines that are asked by GET

    def do_GET(self) -> None:
        began, parts = time.time(), urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if page := re.fullmatch(r"/page/(\d+)", parts.path):
            self._page(began, int(page[1]))
        elif parts.path.endswith("/search") or parts.path == "/brave":
            self._search(began, query.get("q", ""), int(query.get("count", 10)), parts.path)
        elif parts.path == "/robots.txt":
            self._send(200, b"User-agent: *\nAllow: /\n", "text/plain")
            self.world.record(Record("robots", began, time.time()))
        elif parts.path.endswith("/models"):
            self._send_json(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        else:
            self._send_json(404, {"error": "no such path"})

    def _page(self, began: float, number: int) -> None:
        self._wait(began, self.world.latency.page)
        if number >= len(self.world.corpus.pages):
            self._send(404, b"<title>Not found</title>There is no such page.", "text/html")
            return
        self._send(200, self.world.corpus.pages[number].html, "text/html; charset=utf-8")
        self.world.record(Record("page", began, time.time(), (self.world.url(number),)))

    def _search(self, began: float, query: str, most: int, path: str) -> None:
        world = self.world
        found = world.corpus.search(query, most)
        named = path.startswith("/named")
        results = [
            {"title": world.corpus.pages[n].title, "url": world.url(n, named=named), "score": score,
             "content": world.corpus.snippet(n, query)}
            for score, n in found
        ]  # fmt: skip
        self._wait(began, world.latency.search)
        if world.search_down:
            self._send_json(503, {"error": "the search engine is down"})
        elif path == "/brave":
            rows = [{"title": r["title"], "url": r["url"], "description": r["content"]} for r in results]
            self._send_json(200, {"web": {"results": rows}})
        else:  # SearXNG and Tavily differ in what stands around the results
            rows = [{**r, "engine": "world", "raw_content": None} for r in results]
            self._send_json(200, {"query": query, "results": rows, "answers": [], "unresponsive_engines": []})
        shown = () if world.search_down else tuple(world.url(n) for _, n in found)
        world.record(Record("search", began, time.time(), shown))

    # --- the model, and Tavily

    def do_POST(self) -> None:
        began = time.time()
        body = json.loads(self._body() or b"{}")
        path = urlsplit(self.path).path
        if path.endswith("/chat/completions"):
            self._chat(began, body)
        elif path.endswith("/embeddings"):
            self._embed(began, body)
        elif path.endswith("/search"):
            self._search(began, str(body.get("query", "")), int(body.get("max_results") or 5), path)
        else:
            self._send_json(404, {"error": {"message": "no such path", "type": "invalid_request_error"}})

    def _chat(self, began: float, body: Mapping[str, Any]) -> None:
        world = self.world
        reply = world.policy.reply(body, world.walk)
        messages = tuple(flat(body.get("messages") or []))
        schemas = len(json.dumps(body["tools"])) if body.get("tools") else 0
        prompt = (sum(map(len, messages)) + schemas) // 4
        said = len(reply.text or "") + sum(len(name) + len(json.dumps(given)) for name, given in reply.calls)
        completion = max(1, said // 4)
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        self._wait(began, world.latency.model)
        if body.get("stream"):
            options = body.get("stream_options") or {}
            self._stream(_chunks(reply, usage if options.get("include_usage") else None))
        else:
            self._send_json(200, _completion(reply, usage))
        world.record(Record("model", began, time.time(), (), messages, prompt, schemas // 4, completion))

    def _embed(self, began: float, body: Mapping[str, Any]) -> None:
        given = body.get("input") or []
        texts = [given] if isinstance(given, str) else [str(text) for text in given]
        size = int(body.get("dimensions") or 384)
        vectors: list[Any] = [_bag(text, size) for text in texts]
        if body.get("encoding_format") == "base64":
            vectors = [base64.b64encode(struct.pack(f"<{size}f", *vector)).decode() for vector in vectors]
        self._wait(began, self.world.latency.embedding)
        tokens = sum(map(len, texts)) // 4
        rows = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        self._send_json(200, {"object": "list", "data": rows, "model": "world-embed", "usage": usage})
        self.world.record(Record("embedding", began, time.time(), prompt_tokens=tokens))

    # --- plumbing

    @staticmethod
    def _wait(began: float, seconds: float) -> None:
        """Until the request has taken its time; what was reckoned meanwhile counts."""
        time.sleep(max(0.0, began + seconds - time.time()))

    def _body(self) -> bytes:
        if "chunked" not in (self.headers.get("Transfer-Encoding") or ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def _send_json(self, status: int, data: Any) -> None:
        self._send(status, json.dumps(data).encode(), "application/json")

    def _send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _stream(self, chunks: Sequence[Mapping[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for text in [*map(json.dumps, chunks), "[DONE]"]:
            event = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


def _tool_calls(reply: Reply) -> list[dict[str, Any]]:
    found = []
    for at, (name, given) in enumerate(reply.calls):
        arguments = json.dumps(given)
        number = hashlib.sha256(f"{name} {arguments}".encode()).hexdigest()[:8]
        function = {"name": name, "arguments": arguments}
        found.append({"id": f"call_{number}_{at}", "type": "function", "function": function})
    return found


def _completion(reply: Reply, usage: Mapping[str, int]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.calls:
        message["tool_calls"] = _tool_calls(reply)
    finish = "tool_calls" if reply.calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    return {"id": "chatcmpl-world", "object": "chat.completion", "created": 0, "model": MODEL, "usage": usage,
            "choices": [choice]}  # fmt: skip


def _chunks(reply: Reply, usage: Mapping[str, int] | None) -> list[dict[str, Any]]:
    def chunk(choices: Sequence[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
        return {"id": "chatcmpl-world", "object": "chat.completion.chunk", "created": 0, "model": MODEL,
                "choices": choices, **more}  # fmt: skip

    def delta(given: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        return chunk([{"index": 0, "delta": given, "finish_reason": finish}])

    text = reply.text or ""
    found = [delta({"role": "assistant", "content": ""})]
    found += [delta({"content": text[at : at + 40]}) for at in range(0, len(text), 40)]
    found += [delta({"tool_calls": [{**call, "index": at}]}) for at, call in enumerate(_tool_calls(reply))]
    found.append(delta({}, "tool_calls" if reply.calls else "stop"))
    return [*found, *([chunk([], usage=usage)] if usage else [])]


def _bag(text: str, size: int) -> list[float]:
    vector = [0.0] * size
    for word in words(text):
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % size] += 1.0
    length = math.sqrt(sum(x * x for x in vector)) or 1.0
    return [x / length for x in vector]


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--searches", type=int, default=2)
    parser.add_argument("--reads", type=int, default=3)
    parser.add_argument("--careless", action="store_true", help="the model also cites pages that it did not read")
    parser.add_argument("--seconds", type=float, default=3_600, help="the world ends by itself after this")
    args = parser.parse_args()
    with running(Corpus.load(), question=args.question, port=args.port) as world:
        world.walk = Walk(args.searches, args.reads, careless=args.careless)
        print(f"the world is at {world.address}; question: {args.question}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(args.seconds)


if __name__ == "__main__":
    main()
