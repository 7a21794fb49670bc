"""A disk that refuses one step, for tests that try each step in turn."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable


def refuse(which: int, seen: list[str], code: int = errno.ENOSPC) -> Callable[[str, str], None]:
    """What a `MemoryFileSystem` is to call before a change: the disk refuses one step and does all the others.

    `seen`: what it was asked to do.
    """

    def before_change(operation: str, path: str) -> None:
        seen.append(f"{operation} {path}")
        if len(seen) == which + 1:
            raise OSError(code, os.strerror(code), path)

    return before_change
