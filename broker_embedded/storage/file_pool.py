"""Keeps the number of open files bounded, however many segments and partitions there are.

A `PooledFile` opens itself when it is first used and may be closed behind its back when the pool is full; the next use
opens it again. Who was used since the last sweep is spared once (second chance), so active segments stay open.
"""

from __future__ import annotations

from collections import deque

from broker_embedded.common.filesystem import Bytes, File, FileSystem, name_of, parent


class FilePool:
    """Counts open files. 400 leaves room for sockets below the usual limit of 1,024 descriptors."""

    def __init__(self, fs: FileSystem, *, max_open: int = 400) -> None:
        if max_open < 1:
            raise ValueError(f"max_open must be at least 1, got {max_open}")
        self.fs = fs
        self.max_open = max_open
        self._open: deque[PooledFile] = deque()

    @property
    def open_count(self) -> int:
        """Files open right now."""
        return len(self._open)

    def opened(self, file: PooledFile) -> None:
        """`file` was just opened: make room by closing one that was not used lately."""
        while len(self._open) >= self.max_open:
            candidate = self._open.popleft()
            if candidate.was_used:
                candidate.was_used = False
                self._open.append(candidate)
            else:
                candidate.release()
        self._open.append(file)

    def closed(self, file: PooledFile) -> None:
        """`file` was closed by its owner."""
        try:
            self._open.remove(file)
        except ValueError:
            pass  # already evicted


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
        """Bytes on disk; 0 if the file does not exist."""
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
        """Change the name; a file that does not exist only changes its mind."""
        if self.exists():
            self._pool.fs.rename(self.path, path)
        self.path = path

    def moved_to_dir(self, directory: str) -> None:
        """The directory was renamed around the open file."""
        self.path = f"{directory}/{name_of(self.path)}"

    def close(self) -> None:
        if self._file is not None:
            self._pool.closed(self)
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
        self._pool.opened(self)
        return file
