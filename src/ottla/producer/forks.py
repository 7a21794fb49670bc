"""What happens to a client when its process forks (P10) or ends.

Carried into a child process by fork it is refused there: librdkafka's threads and sockets stay with the parent, so in
the child a send would wait for ever, and both processes would write to one connection. A flag set in the child costs
nothing per send, unlike asking for the process id.

Nor may the child free what it was carried: librdkafka's destructors join threads, which are not there, and wait for
ever. That also holds for clients that are closed and for those that are garbage already but not yet collected; the
child's first collection would find them.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import weakref
from collections.abc import Iterable
from typing import Any, Protocol


class _Forkable(Protocol):
    def _forked(self) -> None: ...

    def _at_exit(self) -> None: ...


class _Owner(Protocol):
    def _c_clients(self) -> Iterable[object | None]: ...


_alive: weakref.WeakSet[Any] = weakref.WeakSet()
_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def watch(client: _Forkable) -> None:
    """Have `client._forked()` called in every child process, and `client._at_exit()` when this one ends."""
    _alive.add(client)


def unwatch(client: _Forkable) -> None:
    _alive.discard(client)


def owns(owner: _Owner) -> None:
    """Whatever `owner._c_clients()` gives in a child is never freed there. For as long as the owner's memory lives."""
    _owners.add(owner)


def _in_the_child() -> None:
    for owner in list(_owners):
        for client in owner._c_clients():
            if client is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    for client in list(_alive):
        client._forked()


def _at_the_end() -> None:
    for client in list(_alive):
        client._at_exit()


atexit.register(_at_the_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
