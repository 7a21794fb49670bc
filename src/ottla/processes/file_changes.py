"""Changes of source files below some folders, in bursts: what an editor or a checkout writes at once is one change.

`watchfiles` waits for the operating system where it is installed. Without it the folders are looked through four times
a second, by time of change and size.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

_POLL_S: Final = 0.25
_QUIET_S: Final = 0.1
"""A burst has ended when nothing has changed for so long."""
_MOST_FILES: Final = 50_000
_PASSED_OVER: Final = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})

Stamp = tuple[int, int]
"""When a file was changed, in nanoseconds, and its size."""


class TooManyFiles(ValueError):
    """Name a smaller folder: these hold more files than can be looked through."""


def stamps_below(folders: Iterable[Path]) -> dict[str, Stamp]:
    """Return the Python files below these folders, without hidden folders and installed packages. Raises
    `TooManyFiles`."""
    found: dict[str, Stamp] = {}
    for folder in folders:
        for place, names, files in os.walk(folder):
            names[:] = [name for name in names if name not in _PASSED_OVER and not name.startswith(".")]
            for name in files:
                if not name.endswith(".py"):
                    continue
                path = Path(place, name)
                try:
                    status = path.stat()
                except OSError:  # it was deleted meanwhile
                    continue
                found[str(path)] = (status.st_mtime_ns, status.st_size)
                if len(found) > _MOST_FILES:
                    raise TooManyFiles(f"{folder}: found more than {_MOST_FILES:,} Python files, wanted fewer")
    return found


def changed_between(before: dict[str, Stamp], after: dict[str, Stamp]) -> list[str]:
    """Return the files that were changed, added or removed, in order."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


class FileChanges:
    """The changes of one set of folders. `wait` and `sleep` are for one thread."""

    def __init__(self, folders: Sequence[Path], *, sleep: Callable[[float], object] = time.sleep) -> None:
        self._folders = list(folders)
        self._sleep = sleep
        self._stamps = stamps_below(self._folders)
        self._watch: Iterator[Any] | None = _watched(self._folders)

    def next_burst(self) -> list[str]:
        """Return the files of the next burst; empty if none changed for a moment (a quarter of a second)."""
        if self._watch is None:
            self._sleep(_POLL_S)
        else:
            next(self._watch)
        # The stamps decide in both cases: what was written and put back is no change, and nothing is missed between
        # two calls.
        seen = stamps_below(self._folders)
        if not changed_between(self._stamps, seen):
            return []
        while True:
            self._sleep(_QUIET_S)
            after = stamps_below(self._folders)
            if after == seen:
                break
            seen = after
        changed, self._stamps = changed_between(self._stamps, seen), seen
        return changed


def _watched(folders: Sequence[Path]) -> Iterator[Any] | None:
    """Return an iterator that waits for events of the operating system, at most a quarter of a second each; None
    without `watchfiles`."""
    try:
        import watchfiles
    except ImportError:
        return None
    return watchfiles.watch(
        *folders,
        debounce=50,
        step=20,
        rust_timeout=round(_POLL_S * 1_000),
        yield_on_timeout=True,
        raise_interrupt=True,
        ignore_permission_denied=True,
    )
