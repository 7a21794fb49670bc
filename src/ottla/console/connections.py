"""Connections of browsers, bounded in number and in time until their request is complete.

No token is needed to connect, so a stranger could otherwise exhaust the connections: a socket that sends no complete
header in time is closed, and at the limit the connection that has waited longest without a request makes room.
"""

from __future__ import annotations

import asyncio
from operator import itemgetter
from typing import Any, Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_S: Final = 10.0
"""From the connection's beginning to the end of the request's header."""
KEPT_S: Final = 15
"""From the end of an answer to the end of the next request's header."""
STALL_S: Final = 30.0
"""For taking some of an answer that the network has no room for."""
MOST_CONNECTIONS: Final = 200
_MOST_REFUSED: Final = 100
"""Connections beyond, which are answered 503: all others are being served."""
REFUSED_FROM: Final = MOST_CONNECTIONS + 1


class ConsoleConnection(H11Protocol):
    """One connection, on the server's loop."""

    waits_since: float | None = None
    """Time of the loop; None while a request is served."""
    _wait: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Start the limit, and make room."""
        super().connection_made(transport)
        self._await_request(HEADER_S)
        if len(self.connections) > MOST_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the limits."""
        self._cancel_wait()
        self._cancel_stall()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Serve what has arrived; a whole header ends the wait."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._cancel_wait()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._await_request(KEPT_S)  # first: uvicorn goes on with a request that has arrived already
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Stop writing: the client reads more slowly than responses are made."""
        super().pause_writing()
        self._await_reading()

    def resume_writing(self) -> None:
        """Write on: the client has read."""
        self._cancel_stall()
        super().resume_writing()

    def _await_request(self, limit_s: float) -> None:
        self._cancel_wait()
        self.waits_since = self.loop.time()
        self._wait = self.loop.call_later(limit_s, self._close)

    def _cancel_wait(self) -> None:
        self.waits_since = None
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None

    def _close(self) -> None:
        self.transport.close()  # what is still to be sent is sent

    def _await_reading(self) -> None:
        self._cancel_stall()
        self._unsent = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(STALL_S, self._check_reading)

    def _check_reading(self) -> None:
        if self.transport.get_write_buffer_size() >= self._unsent:
            self.transport.abort()
        else:
            self._await_reading()

    def _cancel_stall(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _make_room(self) -> None:
        others = cast("set[ConsoleConnection]", self.connections) - {self}
        waiting = [(each.waits_since, each) for each in others if each.waits_since is not None]
        if waiting:
            _, oldest = min(waiting, key=itemgetter(0))
        elif len(self.connections) > MOST_CONNECTIONS + _MOST_REFUSED:
            oldest = self
        else:
            return
        self.connections.discard(oldest)  # its end comes with the loop's next round, and others may come before
        oldest.transport.abort()


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers wait for a TLS handshake no longer than for a header; asyncio waits a minute."""

    async def create_server(self, *arguments: Any, **options: Any) -> asyncio.Server:
        """As in asyncio."""
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", HEADER_S)
        return await super().create_server(*arguments, **options)
