"""Address lookups in the child of a fork, which may never end.

glibc's `getaddrinfo` holds a lock while it asks the kernel for the machine's addresses: for `AI_ADDRCONFIG`, which
librdkafka sets, and to sort several addresses. `fork` does not free it. If another thread of the parent was there then,
whoever looks up an address in the child waits for ever. A producer would take records and never connect.

So the fork waits until nobody is in there, which makes it rare, and a child tries before it makes its first client.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Final

from ottla.errors import LifecycleError
from ottla.raising import again

LONGEST_S: Final = 10.0
"""A lookup of a number takes microseconds; a machine under load may take long to start the thread."""

_may_wait_for_ever = False
"""Whether this is the child of a fork and nobody has tried yet."""

_refusal: LifecycleError | None = None


def before_fork() -> None:
    """Wait until no other thread is at it. In a child that may itself wait for ever: not there."""
    if not _may_wait_for_ever and _refusal is None:
        _look_up()


def after_fork_in_child() -> None:
    global _may_wait_for_ever
    _may_wait_for_ever = True


def check() -> None:
    """Raises `LifecycleError` in the child of a fork in which no address can be looked up."""
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
