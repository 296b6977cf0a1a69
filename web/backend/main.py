"""The chat's server: `python -m web.backend.main [--host H] [--port N]`.

Routes: GET /health, POST /chat (server-sent events), DELETE /chat/{run} (stop it), POST /upload, GET /files,
DELETE /files/{name}, and the built page at /. It holds no research logic: every question is one run of
`run_react_loop`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import uvicorn
from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from sse_starlette import EventSourceResponse
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

import config
from config import Config, ConfigError
from m3.arguments import Parser
from m3.logs import set_up
from m3.untrusted import clean_characters, safe_line
from web.backend.agent import Bench, Chat, Chats, warm_up
from web.backend.files import Record, UploadError, Uploads
from web.backend.guard import BODY_BYTES, LOOPBACK_NAMES, UPLOAD_OVERHEAD, Guard, Rules, refused

PAGE = config.PROGRAM_DIR / "web" / "frontend" / "dist"
DEFAULTS = {"MAX_ITERATIONS": "8", "PORT": "8000"}  # of the chat, where the settings say nothing
NOT_BUILT = "The chat's page is not built yet. Run `make web`, which builds and serves it (Node.js 20 or newer).\n"
RUN_HEADER = "X-Run"  # names the run of a stream, for DELETE /chat/{run}
NO_FILE = "there is no file of that name"
QUESTION_CHARACTERS = 16_000
MESSAGES = 400
UPLOADS_ARRIVING, UPLOADS_AT_ONCE = 16, 2  # forms taken in at a time, and files read and kept
RETRY_AFTER_SECONDS = 5
PING_SECONDS = 15
SEND_SECONDS = 60.0  # for one event, to a client that reads slowly
SHUTDOWN_SECONDS = 8  # docker kills after 10
ENDING_SECONDS = 6.0  # of them, for runs to say what they have
# Python's default lets each busy run keep the interpreter for 5 ms: with twenty of them, the event loop would wait for
# a third of a second until it may send what has happened.
SWITCH_SECONDS = 0.0002


class ChatMessage(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)
    role: str
    content: str

    @field_validator("role")
    @classmethod
    def known_role(cls, role: str) -> str:
        if role not in ("user", "assistant"):
            raise ValueError("the role must be user or assistant")
        return role


class ChatRequest(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)
    messages: list[ChatMessage] = Field(min_length=1, max_length=MESSAGES)

    @field_validator("messages")
    @classmethod
    def ends_with_a_question(cls, messages: list[ChatMessage]) -> list[ChatMessage]:
        last = messages[-1]
        if last.role != "user" or not clean_characters(last.content).strip():
            raise ValueError("the last message must be the user's, and not empty")
        if len(last.content) > QUESTION_CHARACTERS:
            raise ValueError(f"the question is longer than {QUESTION_CHARACTERS:,} characters")
        return messages


# --- the application -------------------------------------------------------------------------------------


def create_app(settings: Config | None = None, *, page: Path = PAGE) -> FastAPI:
    """The chat as an ASGI application. settings: None reads the environment. Raises ConfigError."""
    settings = settings or config.load_config(defaults=DEFAULTS)
    chat = settings.chat
    uploads = Uploads(chat.upload_dir, max_bytes=chat.upload_mb * 1_000_000)
    server = ChatServer(settings, uploads, page)
    origins = frozenset() if chat.token else frozenset(chat.cors_origins)
    hosts = LOOPBACK_NAMES | set(chat.hosts) | {_as_host(chat.host)}
    app = ChatApp(
        rules=Rules(frozenset(hosts), origins, chat.token, uploads.max_bytes),
        title="M3 research agent", version=config.VERSION, docs_url=None, redoc_url=None, openapi_url=None,
        max_body_size=uploads.max_bytes + UPLOAD_OVERHEAD,
    )  # fmt: skip
    app.add_api_route("/health", server.health, methods=["GET", "HEAD"], response_model=None)
    app.add_api_route("/chat", server.chat, methods=["POST"], response_model=None, max_body_size=BODY_BYTES)
    app.add_api_route("/chat/{run}", server.stop, methods=["DELETE"], response_model=None)
    app.add_api_route("/upload", server.upload, methods=["POST"], response_model=None)
    app.add_api_route("/files", server.files, methods=["GET", "HEAD"], response_model=None)
    app.add_api_route("/files/{name}", server.delete, methods=["DELETE"], response_model=None)
    app.add_api_route("/", server.index, methods=["GET", "HEAD"], response_model=None)
    # The page's files stand behind all else and would answer for a path whose method is not one of these.
    for route in [route for route in app.routes if isinstance(route, Route)]:
        app.router.routes.append(Route(route.path, WrongMethod(route.methods or (), server.has_file)))
    app.mount("/", PageFiles(directory=page, check_dir=False))
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(
        CORSMiddleware, allow_origins=sorted(origins), allow_credentials=True,
        allow_methods=["GET", "POST", "DELETE"], allow_headers=["authorization", "content-type"],
        expose_headers=[RUN_HEADER],
    )  # fmt: skip
    app.state.server = server
    return app


class ChatApp(FastAPI):
    """FastAPI with the guard before everything else, the framework's own answers to faults included."""

    def __init__(self, *, rules: Rules, **more: Any) -> None:
        super().__init__(**more)
        self._rules = rules

    def build_middleware_stack(self) -> ASGIApp:
        return Guard(super().build_middleware_stack(), self._rules)


class WrongMethod:
    """The answer to a method that a path does not know. has_file: whether the file that a path may name is there."""

    def __init__(self, allowed: Iterable[str], has_file: Callable[[str], bool]) -> None:
        self._allow = ", ".join(sorted(allowed))
        self._has_file = has_file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path_params"].get("name")
        if name is not None and not await asyncio.to_thread(self._has_file, name):
            raise HTTPException(404, NO_FILE)
        raise HTTPException(405, f"this address takes {self._allow} only", {"Allow": self._allow})


class PageFiles(StaticFiles):
    """The files of the built page. Where it is not built there are none, and that is no fault."""

    async def check_config(self) -> None:
        """Nothing has to be there."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        if scope["method"] in ("GET", "HEAD"):
            return await super().get_response(path, scope)
        try:
            _, found = await asyncio.to_thread(self.lookup_path, path)
        except (OSError, ValueError):  # a name that no file can have
            found = None
        if found is None:
            raise HTTPException(404)
        raise HTTPException(405, "a file of the page can only be read", {"Allow": "GET, HEAD"})


def _as_host(address: str) -> str:
    return f"[{address}]" if ":" in address else address.lower()


async def _http_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    answer = refused(problem.status_code, safe_line(str(problem.detail), 400))
    answer.headers.update(problem.headers or {})
    return answer


async def _unexpected(request: Request, problem: Exception) -> Response:
    """A mistake of the server's own: a number that leads to the log, and nothing else."""
    number = secrets.token_hex(4)
    logging.getLogger("m3.chat").error("request %s failed", number, exc_info=problem)
    return refused(500, f"the server made a mistake; its log has the details under {number}")


class ChatServer:
    """The routes and what they share."""

    def __init__(self, settings: Config, uploads: Uploads, page: Path) -> None:
        self.settings, self.uploads, self.page = settings, uploads, page
        self.bench = Bench.build(settings, uploads)
        self.chats = Chats(settings.chat.runs_per_client, settings.chat.runs)
        self._reading = asyncio.Semaphore(UPLOADS_AT_ONCE)
        self._arriving = 0

    async def health(self) -> dict[str, Any]:
        """Liveness and what is configured; no secret, and no request to anybody."""
        s, limits = self.settings, self.settings.limits
        mock = s.llm_provider == "mock"
        return {
            "status": "ok",
            "version": config.VERSION,
            "llm": {"provider": s.llm_provider, "model": s.model or "", "configured": not mock, "mock": mock},
            "search": {"providers": list(s.search_providers)},
            "warnings": list(s.warnings),
            "token_required": s.chat.token is not None,
            "limits": {
                "max_iterations": limits.max_iterations,
                "max_tokens": limits.max_tokens,
                "max_wall_clock_seconds": limits.max_wall_clock_seconds,
                "runs_per_client": s.chat.runs_per_client,
                "runs": s.chat.runs,
                "upload_bytes": self.uploads.max_bytes,
                "question_characters": QUESTION_CHARACTERS,
                "chat_body_bytes": BODY_BYTES,
            },
        }

    # --- chat

    async def chat(self, request: Request) -> Response:
        """Answer a conversation's last message as a stream of events."""
        if request.headers.get("last-event-id"):
            raise HTTPException(400, "a run cannot be taken up again; ask the question once more")
        question = await _chat_request(request)
        client = request.state.session
        fault = self.chats.fault(client)
        if fault:
            raise HTTPException(429, fault, {"Retry-After": str(RETRY_AFTER_SECONDS)})
        messages = [{"role": message.role, "content": message.content} for message in question.messages]
        chat = Chat(self.bench, messages, asyncio.get_running_loop())
        self.chats.start(chat, client)
        leaving = anyio.Event()

        async def gone(message: Any) -> None:
            chat.stop("disconnect")

        return EventSourceResponse(
            _framed(chat, leaving), headers={RUN_HEADER: chat.id}, ping=PING_SECONDS, sep="\n",
            send_timeout=SEND_SECONDS, client_close_handler_callable=gone, shutdown_event=leaving,
            shutdown_grace_period=ENDING_SECONDS,
        )  # fmt: skip

    async def stop(self, request: Request, run: str) -> Response:
        """Ask a run of this session to end with what it has. Its stream goes on to the checked partial report."""
        if not self.chats.stop(run, request.state.session):
            raise HTTPException(404, "that question is not being answered")
        return Response(status_code=204)

    # --- files

    async def upload(self, request: Request) -> Response:
        """Take one file of a form."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "multipart/form-data":
            raise HTTPException(415, "a file is sent as multipart/form-data")
        if self._arriving >= UPLOADS_ARRIVING:
            retry = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            raise HTTPException(429, "too many files are being uploaded; try again in a moment", retry)
        self._arriving += 1
        try:
            record = await self._store(request)
        finally:
            self._arriving -= 1
        return JSONResponse({"name": record.name, "size": record.size, "type": record.type}, 201)

    async def _store(self, request: Request) -> Record:
        """Take in the form, then, a few at a time, read and keep its file. Raises HTTPException."""
        async with _form(request) as form:
            files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
            if len(files) != 1 or not isinstance(form.get("file"), UploadFile):
                raise HTTPException(400, "send one file, in the field `file`")
            # Only here: a form that arrives slowly must not keep others from being read.
            async with self._reading:
                data = await files[0].read(self.uploads.max_bytes + 1)
                try:
                    return await asyncio.to_thread(self.uploads.add, files[0].filename or "", data)
                except UploadError as problem:
                    raise HTTPException(problem.status, str(problem)) from None

    async def files(self) -> dict[str, Any]:
        records = self.uploads.records()
        return {
            "files": [{"name": r.name, "size": r.size, "type": r.type, "uploaded_at": r.uploaded_at} for r in records]
        }

    async def delete(self, name: str) -> Response:
        if not await asyncio.to_thread(self.uploads.delete, name):
            raise HTTPException(404, NO_FILE)
        return Response(status_code=204)

    def has_file(self, name: str) -> bool:
        return any(record.name == name for record in self.uploads.records())

    # --- the page

    async def index(self) -> Response:
        """The built page, or how to build it."""
        try:
            text = (self.page / "index.html").read_bytes()
        except OSError:
            return PlainTextResponse(NOT_BUILT)
        return Response(text, media_type="text/html", headers={"Cache-Control": "no-cache"})


async def _framed(chat: Chat, leaving: anyio.Event) -> AsyncIterator[dict[str, str]]:
    """The events of a run, each as the data of one server-sent event: JSON in ASCII, so that no character of a page
    or a model can end a line. leaving: set when the server is about to go."""

    async def at_shutdown() -> None:
        await leaving.wait()
        chat.stop("shutdown")

    watch = asyncio.create_task(at_shutdown())
    try:
        async with contextlib.aclosing(chat.events()) as events:
            async for event in events:
                yield {"data": json.dumps(event, ensure_ascii=True)}
    finally:
        watch.cancel()


async def _chat_request(request: Request) -> ChatRequest:
    """The body of POST /chat. Raises HTTPException."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "a question is sent as application/json")
    body = await _body(request)
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not JSON") from None
    try:
        return ChatRequest.model_validate(data)
    except (ValidationError, RecursionError) as problem:
        first = problem.errors()[0] if isinstance(problem, ValidationError) else {"loc": (), "msg": "too deep"}
        where = ".".join(map(str, first["loc"]))
        raise HTTPException(422, f"{where}: {first['msg']}" if where else str(first["msg"])) from None


async def _body(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect:
        raise HTTPException(400, "the request broke off") from None


@contextlib.asynccontextmanager
async def _form(request: Request) -> AsyncIterator[FormData]:
    """The form of an upload, its files in temporary ones. Raises HTTPException."""
    try:
        form = await request.form(max_files=5, max_fields=10)
    except HTTPException:
        raise
    except ClientDisconnect:
        raise HTTPException(400, "the upload broke off") from None
    except (ValueError, KeyError, AssertionError):
        raise HTTPException(400, "the form cannot be read") from None
    try:
        yield form
    finally:
        await form.close()


# --- the process -----------------------------------------------------------------------------------------


class Server(uvicorn.Server):
    """Uvicorn that ends the runs first when it is told to go: each stream still gets what was found."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        app: Any = self.config.app
        app.state.server.chats.stop_all(signal.Signals(sig).name)
        super().handle_exit(sig, frame)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal comes. 0; 1 where the port cannot be had; 2 for settings that cannot be used."""
    parser = Parser(prog="python -m web.backend.main", description="The chat in the browser.")
    parser.add_argument("--host", metavar="ADDRESS", help="where to listen (CHAT_HOST, default 127.0.0.1)")
    parser.add_argument("--port", metavar="N", help="which port (PORT, default 8000)")
    args = parser.parse_args(argv)
    given = {"CHAT_HOST": args.host, "PORT": args.port}
    try:
        settings = config.load_config(overrides={k: v for k, v in given.items() if v}, defaults=DEFAULTS)
        host, port = settings.chat.host, settings.container.port
        if not is_loopback(host) and settings.chat.token is None:
            raise ConfigError(f"the chat is to listen on {host}, which others can reach: set CHAT_TOKEN")
        app = create_app(settings)
    except ConfigError as problem:
        print(f"error: {config.redact(str(problem))}", file=sys.stderr)
        return 2
    return serve(app, host, port)


def options_for(app: FastAPI) -> uvicorn.Config:
    """How uvicorn runs the chat: no access log (a path is a stranger's text), no trust in proxies' headers."""
    return uvicorn.Config(
        app, http="h11", ws="none", lifespan="off", access_log=False, log_config=None, server_header=False,
        proxy_headers=False, timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )  # fmt: skip


def serve(app: FastAPI, host: str, port: int) -> int:
    """Run the server; says where it is once the port is open."""
    set_up()
    sys.setswitchinterval(SWITCH_SECONDS)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=128)
    except OSError as problem:
        why = os.strerror(problem.errno) if problem.errno else problem  # `create_server` adds the address again
        print(f"error: cannot listen on {host} port {port}: {why}", file=sys.stderr)
        return 1
    with listener, contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it once more when all is ended
        settings: Config = app.state.server.settings
        warm_up(settings)
        for warning in settings.warnings:
            print(f"WARNING: {warning}", file=sys.stderr)
        print(f"The chat is at http://{_as_host(host)}:{listener.getsockname()[1]}/", flush=True)
        Server(options_for(app)).run(sockets=[listener])
    return 0


def __getattr__(name: str) -> Any:
    """`app`, made when it is first asked for: `uvicorn web.backend.main:app`."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    set_up()  # the process is the chat's
    globals()["app"] = app = create_app()
    return app


if __name__ == "__main__":
    sys.exit(main())
