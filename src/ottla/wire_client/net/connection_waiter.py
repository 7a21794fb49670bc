"""Waits for the first answer on several connections, or for another thread that wakes the waiter."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from typing import Final

from ottla.wire_client.net.broker_connection import Connection

_DRAIN_BYTES: Final = 4_096


class Waiter:
    """For one thread that waits. `wake` may be called by any other, any number of times."""

    def __init__(self) -> None:
        self._pair: tuple[socket.socket, socket.socket] | None = None
        self._is_woken = False
        self._poll = select.poll()
        self._polled: set[int] = set()

    def wake(self) -> None:
        """Let the wait that runs, or the next one, be over."""
        self._is_woken = True  # before the look at the pair: the waiter makes the pair, and then looks here
        pair = self._pair
        if pair is None:
            return
        try:
            pair[1].send(b"\0")
        except OSError:
            pass  # full: the waiter is woken already; closed: nobody waits any more

    def wait(self, connections: Iterable[Connection], timeout_s: float) -> list[Connection]:
        """Return the connections with bytes to read, or that were closed, within the time; empty without one, or if
        another thread woke us."""
        if self._pair is None:  # only when it is needed: who never waits has nothing to close
            self._pair = socket.socketpair()
            for end in self._pair:
                end.setblocking(False)
            self._poll.register(self._pair[0], select.POLLIN)
        ours = self._pair[0]
        was_woken, self._is_woken = self._is_woken, False
        watched = {connection.fileno(): connection for connection in connections}
        ready = [connection for connection in watched.values() if connection.has_bytes]
        if watched.keys() != self._polled:
            self._poll_these({number for number in watched if number >= 0})
        found = self._poll.poll(0 if ready or was_woken else max(0.0, timeout_s) * 1_000)
        for number, _ in found:
            if number == ours.fileno():
                _drain(ours)
            elif watched[number] not in ready:
                ready.append(watched[number])
        return ready

    def _poll_these(self, numbers: set[int]) -> None:
        # Not select.select: it takes no descriptor above 1,023, and a service with many sockets has those.
        for number in self._polled - numbers:
            self._poll.unregister(number)
        for number in numbers - self._polled:
            self._poll.register(number, select.POLLIN)
        self._polled = numbers

    def close(self) -> None:
        for end in self._pair or ():
            end.close()


def _drain(ours: socket.socket) -> None:
    try:
        while len(ours.recv(_DRAIN_BYTES)) == _DRAIN_BYTES:
            pass
    except OSError:
        pass
