"""The operating system's files, used with pread and pwrite so that readers and the writer never share a position.

Paths are strings for `os` here: a `Path` made for each call was a fifth of what it costs to open a node's directories.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker_embedded.common.descriptors import MakeRoom, no_room, with_room
from broker_embedded.common.filesystem import Bytes, DiskUsage, File, Lock

_OWNER_ONLY = 0o600
"""Mode for the owner alone: the metadata log has SCRAM credentials, the other logs have records."""


class OsFile:
    """A descriptor, used with pread and pwrite so that readers and the writer never share a position."""

    __slots__ = ("_fd", "_fs")

    def __init__(self, fd: int, fs: OsFileSystem) -> None:
        self._fd = fd
        self._fs = fs

    def read_at(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def write_at(self, data: Bytes, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):  # a nearly full disk writes what fits, then fails
            written += os.pwrite(self._fd, view[written:], position + written)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def flush(self) -> None:
        if self._fs.fsyncs:
            os.fsync(self._fd)

    def fileno(self) -> int | None:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _OsLock:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)  # closing gives the lock up; the file stays, as Kafka leaves it
            self._fd = -1


class OsFileSystem:
    """The machine's files. `fsync=False` for directories that need not survive the machine (temporary data).

    `make_room` closes other files when the process may open no more.
    """

    __slots__ = ("_make_room", "fsyncs")

    def __init__(self, *, fsync: bool = True, make_room: MakeRoom = no_room) -> None:
        self.fsyncs = fsync
        """Whether a flush reaches the disk now."""
        self._make_room = make_room

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(self._opened(path, flags), self)

    def exists(self, path: str) -> bool:
        return _mode(path) is not None

    def is_dir(self, path: str) -> bool:
        mode = _mode(path)
        return mode is not None and stat.S_ISDIR(mode)

    def list_dir(self, path: str) -> list[str]:
        with with_room(lambda: os.scandir(path), self._make_room) as entries:
            return sorted(entry.name for entry in entries)

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        if not os.path.lexists(path):
            return
        import shutil  # it loads what takes archives apart, which a start need not wait for

        try:
            with_room(lambda: shutil.rmtree(path), self._make_room)
        except FileNotFoundError:
            pass

    def sync_dir(self, path: str) -> None:
        if not self.fsyncs:
            return
        fd = self._opened(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextmanager
    def synced_together(self, path: str) -> Iterator[None]:
        syncfs = _syncfs() if self.fsyncs else None
        if syncfs is None:
            yield
            return
        self.fsyncs = False
        try:
            yield
        finally:
            self.fsyncs = True
        fd = self._opened(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            syncfs(fd)
        finally:
            os.close(fd)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def lock(self, path: str) -> Lock:
        fd = self._opened(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return _OsLock(fd)

    def usage(self, path: str) -> DiskUsage:
        found = os.statvfs(path)
        return DiskUsage(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def _opened(self, path: str, flags: int) -> int:
        return with_room(lambda: os.open(path, flags, _OWNER_ONLY), self._make_room)


def _syncfs() -> Callable[[int], None] | None:
    """Return Linux's syncfs(2), which Python lacks; None on systems without it."""
    import ctypes  # only a stop needs it

    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is None:
        return None

    def syncfs(fd: int) -> None:
        if function(fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return syncfs


def _mode(path: str) -> int | None:
    """Return the mode; None for a missing file. Disk errors are raised: `os.path.exists` would hide them."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
