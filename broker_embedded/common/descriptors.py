"""Limit of open file descriptors of this process, and the reaction when none is left.

Files of logs can be closed and opened again, sockets cannot: so the files yield. `MakeRoom` closes some of them.
"""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

MakeRoom = Callable[[], bool]
"""Closes some files that can be reopened on demand. Returns False without any."""

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)

SPARE = 16
"""Descriptors that clients' connections leave free: for files that are opened for a moment, modules that are imported
on first use, and connections between brokers.
"""

_MACOS_LIMIT = 10_240
"""OPEN_MAX: macOS reports no hard limit, and accepts no higher soft one."""


def no_room() -> bool:
    """Free nothing: a `MakeRoom` for owners without files."""
    return False


def soft_limit() -> int:
    """Return descriptors that this process may have open (`ulimit -Sn`)."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2**31 if limit == resource.RLIM_INFINITY else limit


def raise_soft_limit() -> None:
    """Set the soft limit to the hard one, as the JVM does for Kafka. A system that refuses keeps the limit it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, _MACOS_LIMIT):
        is_more = soft != resource.RLIM_INFINITY and (wanted == resource.RLIM_INFINITY or wanted > soft)
        if not is_more:
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            continue
        return


def with_room(act: Callable[[], T], make_room: MakeRoom) -> T:
    """Return the result of `act`, which opens something; while descriptors are short, room is made and it is tried
    again."""
    while True:
        try:
            return act()
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS or not make_room():
                raise
