"""The file system as an argument: the operating system's, or one in memory that can crash.

`FileSystem` and `File` are what storage needs and no more; `os_filesystem` and `memory_filesystem` implement them.
Paths are plain strings with `/`. Errors are `OSError`s with their usual errno, from both implementations; storage
turns them into messages that name the path and the remedy.

Durability follows POSIX, strictly: bytes survive a crash after `File.flush`, names (create, rename, remove) after
`sync_dir` of their directory.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

Bytes = bytes | bytearray | memoryview


class DiskUsage(NamedTuple):
    """Bytes of the volume that holds a path."""

    total: int
    usable: int


class File(Protocol):
    """An open file, read and written at positions."""

    def read_at(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        ...

    def write_at(self, data: Bytes, position: int) -> None:
        """Write all of `data`, or raise; after an error any part of it may have been written."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def flush(self) -> None:
        """Make the content durable (fsync)."""
        ...

    def fileno(self) -> int | None:
        """Return a descriptor for sendfile, or None without one."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive lock on a path, held until released or the process ends."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """File system operations of the storage layer."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. A missing file is created or is FileNotFoundError."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """Return names in a directory, sorted."""
        ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Rename atomically; replaces a file at `target`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its contents; a missing one is no error."""
        ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def synced_together(self, path: str) -> AbstractContextManager[None]:
        """Delay the durability of all flushes within it to its end: one wait instead of thousands.

        `path` is a directory; everything that is flushed is on its volume. An error leaves all of it in doubt.
        """
        ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def lock(self, path: str) -> Lock:
        """Lock the file at `path`, creating it; BlockingIOError if another holder has it."""
        ...

    def usage(self, path: str) -> DiskUsage: ...


def read_whole(fs: FileSystem, path: str) -> bytes:
    """Return the content of a small file."""
    file = fs.open(path)
    try:
        return file.read_at(file.size(), 0)
    finally:
        file.close()


def write_whole(fs: FileSystem, path: str, data: bytes) -> None:
    """Replace a small file so that a crash leaves the old content or the new, never a mixture."""
    temporary = f"{path}.tmp"
    file = fs.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write_at(data, 0)
        file.flush()
    finally:
        file.close()
    fs.rename(temporary, path)
    fs.sync_dir(parent(path))


def parent(path: str) -> str:
    """Return the directory of a path."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]
