"""Detects address lookups that hang in a forked child.

glibc's `getaddrinfo` holds a lock while it asks the kernel for the machine's addresses: for `AI_ADDRCONFIG`, which
librdkafka sets, and to sort several addresses. `fork` does not free it. If another thread of the parent was there then,
whoever looks up an address in the child waits for ever. A producer would take records and never connect.

So the fork waits until no lookup runs, which makes it rare, and a child tries before it makes its first client.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final

from ottla.errors import LifecycleError
from ottla.raising import again

LONGEST_S: Final = 10.0
"""A numeric lookup takes microseconds; a loaded machine may be slow to start the thread."""

_may_wait_for_ever = False
"""This is a forked child, and no lookup was tried yet."""

_refusal: LifecycleError | None = None


def before_fork() -> None:
    """Wait for lookups in other threads (skipped in a forked child, which could hang)."""
    if not _may_wait_for_ever and _refusal is None:
        _look_up()


def after_fork_in_child() -> None:
    global _may_wait_for_ever
    _may_wait_for_ever = True


def check() -> None:
    """Raise `LifecycleError` in a forked child that cannot look up addresses."""
    global _may_wait_for_ever, _refusal
    if _refusal is not None:
        raise again(_refusal)
    if not _may_wait_for_ever:
        return
    attempt = threading.Thread(target=_look_up, name="ottla-lookup", daemon=True)
    attempt.start()
    attempt.join(LONGEST_S)
    if attempt.is_alive():
        _refusal = LifecycleError(
            "host names cannot be resolved in this process: it was forked while another thread of its parent resolved "
            "one, and the C library waits for that thread for ever; start processes by spawn or forkserver, or before "
            "other threads use the network"
        )
        raise _refusal
    _may_wait_for_ever = False


def _look_up() -> None:
    with contextlib.suppress(OSError):
        socket.getaddrinfo("127.0.0.1", 9, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
