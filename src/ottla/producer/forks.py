"""What happens to a client when its process forks (P10) or ends.

Carried into a child process by fork it is refused there: librdkafka's threads and sockets stay with the parent, so in
the child a send would wait for ever, and both processes would write to one connection. A flag set in the child costs
nothing per send, unlike asking for the process id.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import weakref
from typing import Any, Protocol


class _Forkable(Protocol):
    def _forked(self) -> None: ...

    def _at_exit(self) -> None: ...


_alive: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(client: _Forkable) -> None:
    """Have `client._forked()` called in every child process, and `client._at_exit()` when this one ends."""
    _alive.add(client)


def unwatch(client: _Forkable) -> None:
    _alive.discard(client)


def keep_for_ever(client: object) -> None:
    """Never free a C client: in a child its destructor would wait for threads that do not exist there."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


def _in_the_child() -> None:
    for client in list(_alive):
        client._forked()


def _at_the_end() -> None:
    for client in list(_alive):
        client._at_exit()


atexit.register(_at_the_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
