"""An HTTP proxy before an object store: it slows requests, answers them with 503, and drops their connections.

with object_store() as address, store_proxy() as proxy:
    proxy.fault = each(3, Fault.UNAVAILABLE)      # every third request
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

_SLOW_S = 0.3
_OF_ONE_CONNECTION = ("connection", "transfer-encoding", "content-length")


class Fault(Enum):
    """What happens to a request."""

    SLOW = "slow"
    """It is answered late."""
    UNAVAILABLE = "503"
    """It is refused with 503 Slow Down, and does nothing."""
    DROPPED = "dropped"
    """Its connection is closed before the store gets it."""
    UNANSWERED = "unanswered"
    """The store does it, and the connection is closed instead of the answer."""
    CUT = "cut"
    """The connection is closed in the middle of the answer."""


class StoreProxy:
    """`fault` says what happens to the request with this number, from 1, by its method."""

    def __init__(self, endpoint: str) -> None:
        self.fault: Callable[[int, str], Fault | None] = lambda number, method: None
        self.requests = 0
        self.faults = 0
        self._lock = threading.Lock()
        self._store = urlsplit(endpoint)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *arguments: object) -> None:
                pass

            def handle_any(self) -> None:
                proxy.serve(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that hung up

        self._server = Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="store-proxy")
        self._thread.start()

    def begin_again(self, fault: Callable[[int, str], Fault | None]) -> None:
        """Count from 1 again, with other faults."""
        with self._lock:
            self.requests = self.faults = 0
            self.fault = fault

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        """Pass a request on to the store, or what the fault makes of it."""
        with self._lock:
            self.requests += 1
            fault = self.fault(self.requests, request.command)
            self.faults += fault is not None
        if fault is Fault.DROPPED:
            request.close_connection = True
            return
        body = _body_of(request)
        if fault is Fault.UNAVAILABLE:
            text = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
            _answer(request, 503, [("content-type", "application/xml")], text, declared=len(text))
            return
        if fault is Fault.SLOW:
            time.sleep(_SLOW_S)
        status, headers, answer = self._ask_store(request, body)
        if fault is Fault.UNANSWERED or (fault is Fault.CUT and not answer):
            request.close_connection = True
            return
        declared = next((value for name, value in headers if name.lower() == "content-length"), str(len(answer)))
        if fault is Fault.CUT:
            request.close_connection = True
            answer = answer[: len(answer) // 2]
        _answer(request, status, headers, answer, declared=int(declared))

    def _ask_store(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        store = HTTPConnection(self._store.hostname or "", self._store.port, timeout=30)
        try:
            left_out = ("expect", "transfer-encoding", "content-length")
            passed = {name: value for name, value in request.headers.items() if name.lower() not in left_out}
            store.request(request.command, request.path, body=body, headers=passed)
            answer = store.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            store.close()


def _body_of(request: BaseHTTPRequestHandler) -> bytes:
    if "chunked" not in request.headers.get("transfer-encoding", ""):
        return request.rfile.read(int(request.headers.get("content-length") or 0))
    chunks = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        chunks.append(request.rfile.read(size))
        request.rfile.readline()
    while request.rfile.readline().strip():
        pass
    return b"".join(chunks)


def _answer(
    request: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], body: bytes, *, declared: int
) -> None:
    request.send_response(status)
    for name, value in headers:
        if name.lower() not in _OF_ONE_CONNECTION:
            request.send_header(name, value)
    request.send_header("content-length", str(declared))
    request.end_headers()
    if request.command != "HEAD":  # a client would take it for the beginning of the next answer
        request.wfile.write(body)


def each(step: int, *faults: Fault) -> Callable[[int, str], Fault | None]:
    """Return what gives every request whose number is divided by `step` the next of the faults, in turn."""
    return lambda number, method: None if number % step else faults[number // step % len(faults)]


@contextlib.contextmanager
def store_proxy() -> Iterator[StoreProxy]:
    """Start it before the store of the environment, and point the environment's clients at it."""
    proxy = StoreProxy(os.environ["AWS_ENDPOINT_URL"])
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
            yield proxy
    finally:
        proxy.close()
