"""Behaviour of a client when its process forks or ends.

Carried into a child process by fork it is refused there: librdkafka's threads and sockets stay with the parent, so in
the child a send would wait for ever, and both processes would write to one connection. A flag set in the child costs
nothing per send, unlike asking for the process id.

Nor may the child free what it was carried: librdkafka's destructors join threads, which are not there, and wait for
ever. That also holds for clients that are closed and for those that are garbage already but not yet collected; the
child's first collection would find them.

A process that ends gives its producers a few seconds. `atexit` says when, except in the children of multiprocessing:
they leave by `os._exit`, and run the finalizers of `multiprocessing.util` before. A `Pool` is ended with SIGTERM when
its block is left, so in such a child SIGTERM waits for the producers as well, unless it means something else there
(`ottla.processes.sigterm_forwarding`).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Iterable
from typing import Any, Final, Protocol

from ottla.errors import LifecycleError
from ottla.processes import lookups, sigterm_forwarding
from ottla.raising import again
from ottla.telemetry import log_event

_FIRST: Final = 100
"""Priority among multiprocessing's finalizers: before those that end its queues and managers."""


class _Forkable(Protocol):
    def _forked(self) -> None: ...


class _Watched(_Forkable, Protocol):
    def _at_exit(self) -> None: ...


class _CClientOwner(Protocol):
    def _c_clients(self) -> Iterable[object | None]: ...


class Refusing:
    """Replaces an object that a fork carried over: every use raises."""

    def __init__(self, error: LifecycleError) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise again(self._error)


_alive: weakref.WeakSet[Any] = weakref.WeakSet()
_refusing: weakref.WeakSet[Any] = weakref.WeakSet()
_owners: weakref.WeakSet[Any] = weakref.WeakSet()
_finalized_pid = 0
"""Process id of the multiprocessing child that ends its producers."""

_ending = threading.Lock()
_ended_by: int | None = None
"""The thread that ends the producers now."""


def watch(client: _Watched) -> None:
    """Call `client._forked()` in every child process, and `client._at_exit()` when this process ends."""
    _alive.add(client)
    _watch_the_end_of_a_child()


def unwatch(client: _Watched) -> None:
    _alive.discard(client)


def open_clients() -> list[Any]:
    """Return the producers of this process that are not closed."""
    return list(_alive)


def refuses(client: _Forkable) -> None:
    """Call `client._forked()` in every child process while the client exists."""
    _refusing.add(client)


def owns(owner: _CClientOwner) -> None:
    """Keep the objects of `owner._c_clients()` from being freed in a child while the owner exists."""
    _owners.add(owner)


def carried_over(what: str, stayed: str) -> LifecycleError:
    """Return the error for a client used in a forked child. `stayed` names what remained in the parent."""
    return LifecycleError(
        f"this {what} was copied by a fork: its {stayed} stayed in the parent process; "
        f"make a {what} in each process, after the fork"
    )


def _before_fork() -> None:
    if _alive or _refusing or _owners:
        lookups.before_fork()
    sigterm_forwarding.before_fork()


def _in_the_child() -> None:
    global _ending, _ended_by
    _ending, _ended_by = threading.Lock(), None
    lookups.after_fork_in_child()
    sigterm_forwarding.after_fork_in_child()
    for owner in list(_owners):
        for client in owner._c_clients():
            if client is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    carried = [*_alive, *_refusing]
    _alive.clear()  # the parent ends them
    for client in carried:
        client._forked()


def _watch_the_end_of_a_child() -> None:
    global _finalized_pid
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is None or multiprocessing.parent_process() is None or _finalized_pid == os.getpid():
        return
    from multiprocessing.util import Finalize

    _finalized_pid = os.getpid()
    Finalize(None, _at_the_end, exitpriority=_FIRST)
    sigterm_forwarding.ends_with(_at_the_end, is_ending_here=lambda: _ended_by == threading.get_ident())


def _at_the_end() -> None:
    """End the producers once: during a termination at exit two threads would do it."""
    global _ended_by
    with _ending:
        _ended_by = threading.get_ident()
        for client in list(_alive):
            try:
                client._at_exit()
            except Exception as error:  # the others are ended all the same
                log_event("client_shutdown_failed", "error", {"error": repr(error), "exc_info": error})
        _ended_by = None


atexit.register(_at_the_end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=sigterm_forwarding.after_fork_in_parent,
        after_in_child=_in_the_child,
    )
