"""Serves the control API on a loopback port, on the cluster's loop."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from broker_embedded.cluster.control.http import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    HttpError,
    encode_response,
    read_request,
)
from broker_embedded.cluster.control.routes import answer
from broker_embedded.common.clock import client_timer
from broker_embedded.common.errors import StartupError
from broker_embedded.server.net.network import listen

if TYPE_CHECKING:
    from broker_embedded.cluster.control.local import LocalControl

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
PATIENCE_S = 10.0
MOST_WAITING = 100
"""Connections that may wait without a complete request: they use the same file descriptors as the brokers."""


class ControlServer:
    """`await start()`, then `url`; `await stop()` cuts who is still connected."""

    def __init__(self, control: LocalControl, *, port: int = 0, patience_s: float = PATIENCE_S) -> None:
        """Create the server. `patience_s`: how long a client may take to send a request, and to read the response."""
        self._control = control
        self._patience_s = patience_s
        self._port = port
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()
        self._waiting: dict[asyncio.StreamWriter, None] = {}
        """Connections without a whole request, the oldest first."""

    @property
    def url(self) -> str:
        """Return where it listens, once it has started."""
        return f"http://{HOST}:{self._port}"

    async def start(self) -> None:
        """Listen; StartupError if the port cannot be had."""
        sock = listen(HOST, self._port)
        self._port = sock.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, sock=sock, limit=MAX_HEAD_BYTES)

    async def stop(self) -> None:
        """Stop listening; requests under way are not answered."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._waiting[writer] = None
        self._make_room()
        timer = self._time_limit(writer)
        try:
            response = await self._response(reader, writer, timer)
            if response is not None:
                timer = self._time_limit(writer)
                writer.write(response)
                writer.write_eof()
                await _discard_rest(reader)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or we are going: asyncio would report either
        finally:
            timer.cancel()
            self._waiting.pop(writer, None)
            self._serving.discard(task)
            writer.close()

    def _make_room(self) -> None:
        """Close the connection that has waited longest without a complete request, if there are too many."""
        if len(self._waiting) > MOST_WAITING:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.transport.abort()

    def _time_limit(self, writer: asyncio.StreamWriter) -> asyncio.TimerHandle:
        """Start the timer that closes the connection of a client that neither sends its request nor reads its response:
        each keeps a file descriptor."""
        return client_timer(asyncio.get_running_loop())(self._patience_s, writer.transport.abort)

    async def _response(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timer: asyncio.TimerHandle
    ) -> bytes | None:
        try:
            request = await read_request(reader)
            if request is None:
                return None
            self._waiting.pop(writer, None)
            timer.cancel()  # what is asked for may take as long as it does
            log.debug("%s /%s %s", request.method, "/".join(request.path), request.query or request.body)
            status, body = await answer(self._control, request)
        except HttpError as error:
            return encode_response(error.status, error.body)
        except StartupError as error:
            return encode_response(HTTPStatus.CONFLICT, {"error": str(error)})
        except Exception as error:
            log.exception("the control API failed")
            return encode_response(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"})
        return encode_response(status, body)


async def _discard_rest(reader: asyncio.StreamReader) -> None:
    """Read the rest of a refused request: closing with unread bytes would discard the response."""
    left = MAX_BODY_BYTES
    while left > 0 and (piece := await reader.read(65_536)):
        left -= len(piece)
