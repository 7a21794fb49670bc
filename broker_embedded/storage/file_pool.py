"""Keeps the number of open files bounded, however many segments and partitions there are.

A `PooledFile` opens itself when it is first used and may be closed behind its back when too many are open; the next use
opens it again. A file that was used since the last sweep is spared once (second chance), so active segments stay open.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import ClassVar

from broker_embedded.common.descriptors import soft_limit
from broker_embedded.common.filesystem import Bytes, File, FileSystem, name_of, parent

MOST_FILES = 32_768
"""Open files of one process, whatever its limit: a closed file is opened again in 10 µs."""
FEWEST_FILES = 16

_ROOM = 16
"""Files that are closed at once for something else that needs a descriptor."""


class OpenFiles:
    """The files that one cluster has open, of all its brokers and their file systems.

    Used on the thread of the cluster's event loop only. The clusters of one process share half of its soft limit
    evenly; the other half is for sockets.
    """

    _sharing: ClassVar[weakref.WeakSet[OpenFiles]] = weakref.WeakSet()
    _lock = threading.Lock()

    def __init__(self, *, max_open: int | None = None) -> None:
        """`max_open`: None takes this cluster's share of what the process may have open."""
        if max_open is not None and max_open < 1:
            raise ValueError(f"max_open must be at least 1, got {max_open}")
        self._max_open = max_open
        self._open: OrderedDict[PooledFile, None] = OrderedDict()  # the first was opened, or spared, longest ago

    def __len__(self) -> int:
        """Return how many files are open now."""
        return len(self._open)

    @property
    def max_open(self) -> int:
        """Files that may be open."""
        if self._max_open is not None:
            return self._max_open
        share = min(soft_limit() // 2, MOST_FILES) // max(1, len(self._sharing))
        return max(share, FEWEST_FILES)

    def opened(self, file: PooledFile) -> None:
        """Register `file`, which was just opened; files that were not used lately are closed if there are too many."""
        if not self._open:
            self._join()
        self._close_down_to(self.max_open - 1)
        self._open[file] = None

    def closed(self, file: PooledFile) -> None:
        """Unregister `file`, which its owner closed."""
        self._open.pop(file, None)
        if not self._open:
            self._leave()

    def make_room(self) -> bool:
        """Close some files, as something else needs descriptors; False if none is open."""
        before = len(self._open)
        self._close_down_to(max(before - _ROOM, 0))
        return before > 0

    def _close_down_to(self, count: int) -> None:
        files = self._open
        while len(files) > count:
            candidate = next(iter(files))
            if candidate.was_used:
                candidate.was_used = False
                files.move_to_end(candidate)
            else:
                del files[candidate]
                candidate.release()

    def _join(self) -> None:
        with self._lock:
            self._sharing.add(self)

    def _leave(self) -> None:
        with self._lock:
            self._sharing.discard(self)


class FilePool:
    """The files of one file system, among all `open_files` of a cluster."""

    def __init__(self, fs: FileSystem, open_files: OpenFiles | None = None) -> None:
        self.fs = fs
        self.open_files = OpenFiles() if open_files is None else open_files


class PooledFile:
    """A file by path. Its path may change (rename) while it is open."""

    __slots__ = ("_file", "_is_name_durable", "_pool", "path", "was_used")

    def __init__(self, pool: FilePool, path: str) -> None:
        self._pool = pool
        self._file: File | None = None
        self._is_name_durable = False
        self.path = path
        self.was_used = False

    def read_at(self, size: int, position: int) -> bytes:
        self.was_used = True
        return (self._file or self._opened(create=False)).read_at(size, position)

    def write_at(self, data: Bytes, position: int) -> None:
        self.was_used = True
        (self._file or self._opened(create=True)).write_at(data, position)

    def truncate(self, size: int) -> None:
        (self._file or self._opened(create=True)).truncate(size)

    def create(self) -> None:
        """Make sure that the file exists."""
        if self._file is None:
            self._opened(create=True)

    def size(self) -> int:
        """Return bytes on disk; 0 if the file does not exist."""
        if self._file is not None:
            return self._file.size()
        try:
            return self._pool.fs.size(self.path)
        except FileNotFoundError:
            return 0

    def exists(self) -> bool:
        return self._file is not None or self._pool.fs.exists(self.path)

    def flush(self) -> None:
        """Make the content durable, and the first time the name too (a new file's name is not durable by itself)."""
        (self._file or self._opened(create=True)).flush()
        if not self._is_name_durable:
            self._pool.fs.sync_dir(parent(self.path))
            self._is_name_durable = True

    def fileno(self) -> int | None:
        self.was_used = True
        return (self._file or self._opened(create=False)).fileno()

    def rename(self, path: str) -> None:
        """Rename the file; for one that does not exist yet, only the name changes."""
        if self.exists():
            self._pool.fs.rename(self.path, path)
        self.path = path

    def moved_to_dir(self, directory: str) -> None:
        """Update the path of an open file: its directory was renamed."""
        self.path = f"{directory}/{name_of(self.path)}"

    def close(self) -> None:
        if self._file is not None:
            self._pool.open_files.closed(self)
            self.release()

    def delete(self) -> None:
        self.close()
        self._pool.fs.remove(self.path)

    def release(self) -> None:
        """Close without telling the pool (the pool calls this)."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self, *, create: bool) -> File:
        file = self._pool.fs.open(self.path, create=create)
        self._file = file
        self._pool.open_files.opened(self)
        return file
