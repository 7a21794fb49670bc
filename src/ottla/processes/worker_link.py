"""The connection between a supervisor and one worker process: a socket pair with a line of JSON for each message.

`ottla run --reload` and its service are connected in the same way.

The worker reports its progress, and receives the supervisor's orders: unlike a signal, none of them can reach another
process that has the same id by then. A side that finds the link closed knows that the other process has ended.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import MutableMapping
from typing import Any, Final

Message = dict[str, Any]

LINK_VARIABLE: Final = "_OTTLA_WORKER_LINK"
"""In the environment of a worker: the descriptor of its end."""
RELOAD_VARIABLE: Final = "_OTTLA_RELOAD_LINK"
"""The same in a process of `--reload`."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""The longest message: metrics with this many bytes are a mistake."""
_READ_BYTES: Final = 64 * 1024


class WorkerLink:
    """One end. Any thread may send; one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()
        self._received = bytearray()

    @classmethod
    def pair(cls) -> tuple[WorkerLink, socket.socket]:
        """Return the supervisor's end, and the socket that the worker's process inherits."""
        own, other = socket.socketpair()
        return cls(own), other

    @classmethod
    def of_environment(cls, environ: MutableMapping[str, str], variable: str) -> WorkerLink | None:
        """Return this process's end; None if no supervisor has started it. Processes that it starts do not inherit
        it."""
        descriptor = environ.pop(variable, None)
        if descriptor is None:
            return None
        os.set_inheritable(int(descriptor), False)
        return cls(socket.socket(fileno=int(descriptor)))

    def send(self, message: Message) -> bool:
        """Send a message, and wait until it is taken. Returns False if the other process has ended."""
        return self._send(message, 0)

    def send_at_once(self, message: Message) -> bool:
        """Send a short message. Returns False if the other process does not read, or has ended."""
        return self._send(message, socket.MSG_DONTWAIT)

    def _send(self, message: Message, flags: int) -> bool:
        line = json.dumps(message).encode() + b"\n"
        with self._sending:
            try:
                if not flags:
                    self._socket.sendall(line)
                    return True
                if self._socket.send(line, flags) == len(line):
                    return True
                self._socket.shutdown(socket.SHUT_WR)  # half a message: nothing after it could be read
            except OSError:
                pass
        return False

    def receive(self) -> Message | None:
        """Return the next message, or None when the other process has ended, or sends what is no message."""
        while (end := self._received.find(b"\n")) < 0:
            try:
                came = self._socket.recv(_READ_BYTES)
            except OSError:
                return None
            self._received += came
            if not came or len(self._received) > MOST_BYTES:
                return None
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        try:
            message = json.loads(line)
        except ValueError:
            return None
        return message if isinstance(message, dict) else None

    def close(self) -> None:
        """Close this end. The other side finds that out."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # which wakes the thread that receives
        except OSError:
            pass
        self._socket.close()
