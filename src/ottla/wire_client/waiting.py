"""Waits for the first answer on several connections, or for another thread that wakes the waiter."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from typing import Final

from ottla.wire_client.connection import Connection

_DRAIN_BYTES: Final = 4_096


class Waiter:
    """For one thread that waits. `wake` may be called by any other, any number of times."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def wake(self) -> None:
        """Let the wait that runs, or the next one, be over."""
        try:
            self._theirs.send(b"\0")
        except OSError:
            pass  # full: the waiter is woken already; closed: nobody waits any more

    def wait(self, connections: Iterable[Connection], timeout_s: float) -> list[Connection]:
        """Those with bytes to read, or that ended, within the time; empty when there are none or somebody woke us."""
        watched = {connection.fileno(): connection for connection in connections}
        ready = [connection for connection in watched.values() if connection.has_bytes]
        # Not select.select: it takes no descriptor above 1,023, and a service with many sockets has those.
        poll = select.poll()
        poll.register(self._ours, select.POLLIN)
        for number in watched:
            if number >= 0:
                poll.register(number, select.POLLIN)
        found = poll.poll(0 if ready else max(0.0, timeout_s) * 1_000)
        for number, _ in found:
            if number == self._ours.fileno():
                self._drain()
            elif watched[number] not in ready:
                ready.append(watched[number])
        return ready

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()

    def _drain(self) -> None:
        try:
            while len(self._ours.recv(_DRAIN_BYTES)) == _DRAIN_BYTES:
                pass
        except OSError:
            pass
