"""The console over HTTP: routes to functions of (desk, query), the page's files, and the stream of a tail.

Functions of pages block, so each runs in a thread. What they raise becomes an answer that says what was found and what
was wanted; only a mistake of ours is a 500, and tells no more than its type.

Pages poll, and only a tail is a stream. Facts are read once for all pages, so a stream could not bring them sooner; it
would keep on the server what each page shows, and hold one of the six connections that a browser opens to an address.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from ottla.console.connections import KEPT_S, REFUSED_FROM, ConsoleConnection, Loop
from ottla.console.guard import LOGIN, MOST_BODY_BYTES, Guard, Rules, error_body
from ottla.console.query import Query
from ottla.console.rhythm import pause_after
from ottla.errors import (
    AuthenticationError,
    BrokerUnavailable,
    ConfigError,
    InputError,
    OttlaError,
    RetriableError,
    UnknownTopic,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp

log = logging.getLogger(__name__)

Page = Callable[[Query], dict[str, Any]]
Stream = Callable[[Query], Iterator[dict[str, Any] | None]]
Document = Callable[[Query], str]

MOST_STREAMS: Final = 8
_BODY_S: Final = 15.0
_ROUND_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 5.0
_KINDS: Final = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css"}
_OF_DOCUMENTS: Final = {
    "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'",
    "x-frame-options": "SAMEORIGIN",
}
"""In place of the headers of other responses: the console's own page may frame a document, which runs no script."""
_ENCODE: Final = msgspec.json.Encoder(enc_hook=str).encode


def app_of(
    rules: Rules,
    *,
    reads: dict[str, Page],
    writes: dict[str, Page],
    streams: dict[str, Stream],
    title: str,
    script: str,
    documents: dict[str, Document] | None = None,
) -> ASGIApp:
    """Return the whole server. `reads` answer GET, `writes` POST, at `/api/NAME`; `script` draws the page. `documents`
    are pages of HTML that the page shows in a frame."""
    routes = [Route(LOGIN, _login(rules), methods=["POST"])]
    routes += [
        Route(f"/api/{name}", _answering(function, _from_query), methods=["GET"]) for name, function in reads.items()
    ]
    routes += [
        Route(f"/api/{name}", _answering(function, _from_body), methods=["POST"]) for name, function in writes.items()
    ]
    limit = threading.BoundedSemaphore(MOST_STREAMS)
    routes += [
        Route(f"/api/{name}", _streaming(function, limit), methods=["GET"]) for name, function in streams.items()
    ]
    routes += [
        Route(f"/api/{name}", _document(function), methods=["GET"]) for name, function in (documents or {}).items()
    ]
    routes.append(Route("/api/{rest:path}", _nothing_here, methods=["GET", "POST"]))
    routes.append(Route("/{path:path}", _files(title, script), methods=["GET"]))
    return Guard(Starlette(routes=routes), rules)


def status_of(error: OttlaError) -> int:
    """Return the HTTP status that says the same."""
    from ottla.admin.errors import GroupInUse, UnknownGroup

    kinds: tuple[tuple[type[BaseException], int], ...] = (
        (UnknownTopic, 404),
        (UnknownGroup, 404),
        (GroupInUse, 409),
        (BrokerUnavailable, 503),
        (RetriableError, 503),
        (AuthenticationError, 502),
        (ConfigError, 400),
        (InputError, 400),
    )
    return next((status for kind, status in kinds if isinstance(error, kind)), 502)


def _login(rules: Rules) -> Callable[[Request], Any]:
    """Set the login cookie: the guard has checked the token, and checks the cookie from now on."""

    async def login(request: Request) -> Response:
        answer = Response(b"{}", media_type="application/json")
        answer.set_cookie(
            rules.cookie, rules.session, httponly=True, samesite="strict", path="/", secure=rules.scheme == "https"
        )
        return answer

    return login


def _answering(function: Page, parse: Callable[[Request], Any]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        try:
            query = await parse(request)
            found = await run_in_threadpool(function, query)
            return Response(_ENCODE(found), media_type="application/json")
        except OttlaError as error:
            return _error(error)
        except ModuleNotFoundError as error:
            return _error(ConfigError(f"this needs {error.name}, which is not installed"))
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            log.exception("%s failed", request.url.path)
            body = error_body(type(error).__name__, "the console made a mistake; its log has more")
            return Response(body, status_code=500, media_type="application/json")

    return answer


def _document(function: Document) -> Callable[[Request], Any]:
    async def document(request: Request) -> Response:
        try:
            text = await run_in_threadpool(function, await _from_query(request))
        except OttlaError as error:
            return _error(error)
        return Response(text.encode("utf-8", "replace"), media_type=_KINDS[".html"], headers=_OF_DOCUMENTS)

    return document


def _error(error: OttlaError) -> Response:
    body = error_body(type(error).__name__, str(error)[:5_000])
    return Response(body, status_code=status_of(error), media_type="application/json")


async def _from_query(request: Request) -> Query:
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in given:
            there = given[name]
            given[name] = [*there, value] if isinstance(there, list) else [there, value]
        else:
            given[name] = value
    return Query(given)


async def _from_body(request: Request) -> Query:
    data = bytearray()

    async def read() -> None:
        async for piece in request.stream():
            data.extend(piece)
            if len(data) > MOST_BODY_BYTES:
                raise InputError(f"found a body of more than {MOST_BODY_BYTES:,} bytes, wanted at most that")

    try:
        await asyncio.wait_for(read(), _BODY_S)
    except TimeoutError:
        raise InputError(f"the body did not arrive within {_BODY_S:g} s") from None
    try:
        given = msgspec.json.decode(bytes(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"found a body that is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise InputError("found a body that is not an object, wanted one")
    return Query(given)


def _streaming(function: Stream, limit: threading.BoundedSemaphore) -> Callable[[Request], Any]:
    async def stream(request: Request) -> Response:
        if not limit.acquire(blocking=False):
            body = error_body("TooMany", f"{MOST_STREAMS} topics are followed already: close one")
            return Response(body, status_code=429, media_type="application/json")
        rounds: Iterator[dict[str, Any] | None] | None = None
        try:
            rounds = function(await _from_query(request))
            first = await run_in_threadpool(next, rounds, None)  # what is wrong with the question is said by a status
        except BaseException as error:
            if rounds is not None:
                await run_in_threadpool(_close, rounds)
            limit.release()
            if isinstance(error, OttlaError):
                return _error(error)
            raise
        return StreamingResponse(_events(rounds, first, limit), media_type="text/event-stream")

    return stream


async def _events(
    rounds: Iterator[dict[str, Any] | None], first: dict[str, Any] | None, limit: threading.BoundedSemaphore
) -> AsyncIterator[bytes]:
    """Yield messages, and a comment when there is none, so that a closed page is detected."""
    try:
        message, pause_s = first, _ROUND_S
        while True:
            yield b": nothing\n\n" if message is None else b"data: " + _ENCODE(message) + b"\n\n"
            await asyncio.sleep(pause_s)
            try:
                message, cpu_s = await run_in_threadpool(_next, rounds)
                # A topic at full speed is looked at less often: those who write it may need the same CPUs.
                pause_s = pause_after(cpu_s, every_s=_ROUND_S, most_s=_LONGEST_PAUSE_S)
            except OttlaError as error:
                yield b"event: problem\ndata: " + error_body(type(error).__name__, str(error)[:2_000]) + b"\n\n"
                return
    finally:
        limit.release()
        await asyncio.shield(run_in_threadpool(_close, rounds))


def _next(rounds: Iterator[dict[str, Any] | None]) -> tuple[dict[str, Any] | None, float]:
    """Return the next message, and the CPU time that it took, in seconds."""
    began = time.thread_time()
    return next(rounds), time.thread_time() - began


def _close(rounds: Any) -> None:
    try:
        rounds.close()
    except (ValueError, RuntimeError):  # it is in the middle of a round; it is closed when that is collected
        pass


async def _nothing_here(request: Request) -> Response:
    body = error_body("NotFound", f"{request.url.path[:200]} is not here, or not by {request.method}")
    return Response(body, status_code=404, media_type="application/json")


def _files(title: str, script: str) -> Callable[[Request], Any]:
    """Return the files of the page by their names; every other path is the page itself, whose script reads the path."""
    folder = resources.files("ottla.console").joinpath("static")
    there = {
        each.name: (each.read_bytes(), _KINDS[suffix])
        for each in folder.iterdir()
        if (suffix := "." + each.name.rpartition(".")[2]) in _KINDS
    }
    shown = {name: content for name, content in there.items() if not name.endswith(".html")}
    page = there["page.html"][0].replace(b"{title}", title.encode()).replace(b"{script}", script.encode())

    async def file(request: Request) -> Response:
        path = request.path_params["path"]
        if path.startswith("static/"):
            if path[7:] not in shown:
                return Response(b"not here", status_code=404, media_type="text/plain")
            content, kind = shown[path[7:]]
        else:
            content, kind = page, _KINDS[".html"]
        return Response(content, media_type=kind)

    return file


def _check_certificate(certificate: str, key: str) -> None:
    """Raise ConfigError for files that TLS cannot be served with, before anything listens."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot serve TLS with {certificate} and {key}: {error}") from error


class Server:
    """Serves an app on a port until `close`. Port 0 takes a free one; `port` says which."""

    def __init__(
        self, make: Callable[[int], ASGIApp], *, host: str, port: int, certificate: tuple[str, str] | None = None
    ) -> None:
        """Create the server. `make` gets the port, which the Host header names. Raises `ConfigError` if the port is
        taken, or TLS cannot be served with the certificate and key."""
        if certificate is not None:
            _check_certificate(*certificate)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # asyncio turns Nagle's algorithm off only where the protocol is named; with it an answer takes 40 ms longer.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
            self._socket.listen(128)
        except (OSError, OverflowError) as error:
            self._socket.close()
            raise ConfigError(f"cannot listen at {host}:{port}: {error}") from error
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            make(self.port),
            http=ConsoleConnection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=REFUSED_FROM,
            timeout_keep_alive=KEPT_S,
            timeout_graceful_shutdown=2,
            ssl_certfile=None if certificate is None else certificate[0],
            ssl_keyfile=None if certificate is None else certificate[1],
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Serve in this thread until Ctrl-C or SIGTERM."""
        try:
            with asyncio.Runner(loop_factory=Loop) as runner:
                runner.run(self._server.serve(sockets=[self._socket]))
        finally:
            self._socket.close()

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread = threading.Thread(target=self.run, name="ottla-console", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; requests under way get two seconds."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(10)
