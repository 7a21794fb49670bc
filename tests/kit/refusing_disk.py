"""A disk that refuses one step, for tests that try each step in turn."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from broker_embedded.common.errors import BrokerError


def refuse(which: int, seen: list[str], code: int = errno.ENOSPC) -> Callable[[str, str], None]:
    """What a `MemoryFileSystem` is to call before a change: the disk refuses one step and does all the others.

    `seen`: what it was asked to do.
    """

    def before_change(operation: str, path: str) -> None:
        seen.append(f"{operation} {path}")
        if len(seen) == which + 1:
            raise OSError(code, os.strerror(code), path)

    return before_change


def refused_in_turn(
    make: Callable[[], Any], act: Callable[[Any], object], code: int = errno.ENOSPC
) -> Iterator[tuple[Any, bool, str]]:
    """Do `act` on what `make` makes, again and again, until it needs no further step: each time the next is refused.

    What was made, whether who asked was told, and the step that was refused.
    """
    for number in count():
        made, seen = make(), list[str]()
        made.fs.before_change = refuse(number, seen, code)
        try:
            act(made)
            was_refused = False
        except BrokerError:
            was_refused = True
        made.fs.before_change = None
        if len(seen) <= number:
            return
        yield made, was_refused, seen[number]
