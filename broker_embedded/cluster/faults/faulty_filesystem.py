"""A file system that can be made to fail, over the machine's files or those in memory.

Two things are separate: which operations fail (`disk_fault.DiskFault`, asked before each operation while there are
faults), and what a power failure would leave (`unsynced.Unsynced`, which knows what was fsynced and drops the rest at
`crash`).
"""

from __future__ import annotations

import errno
import os
from contextlib import AbstractContextManager

from broker_embedded.cluster.faults.disk_fault import DiskFault, Operation
from broker_embedded.cluster.faults.unsynced import FileRecord, Unsynced
from broker_embedded.common.filesystem import Bytes, DiskUsage, File, FileSystem, Lock


class FaultyFileSystem:
    """A `FileSystem`. Nothing fails until a fault is added."""

    def __init__(self, inner: FileSystem) -> None:
        self.inner = inner
        self.faults: tuple[DiskFault, ...] = ()
        self.unsynced = Unsynced(inner)

    # -- faults

    def add(self, fault: DiskFault) -> DiskFault:
        self.faults = (*self.faults, fault)
        return fault

    def remove_fault(self, fault: DiskFault) -> None:
        self.faults = tuple(each for each in self.faults if each is not fault)

    def crash(self, path: str) -> None:
        """Drop what was written below `path` and not fsynced, and names of files whose directory was not fsynced.

        Close what is open there first: this is what the next start finds.
        """
        self.unsynced.forget_below(path)

    def check(self, operation: Operation, path: str, *, grows: int = 0) -> None:
        """Raise the faults' error for this operation. `grows` is the number of added bytes."""
        for fault in self.faults:
            fault.check(operation, path, grows=grows)

    # -- FileSystem

    def open(self, path: str, *, create: bool = False) -> File:
        creates = create and not self.inner.exists(path)
        if self.faults:
            self.check(Operation.CREATE if creates else Operation.OPEN, path, grows=creates)
        file = self.inner.open(path, create=create)
        return _FaultyFile(self, file, self.unsynced.opened(path, file, created=creates))

    def exists(self, path: str) -> bool:
        self.check(Operation.LOOK, path)
        return self.inner.exists(path)

    def is_dir(self, path: str) -> bool:
        self.check(Operation.LOOK, path)
        return self.inner.is_dir(path)

    def list_dir(self, path: str) -> list[str]:
        self.check(Operation.LOOK, path)
        return self.inner.list_dir(path)

    def make_dirs(self, path: str) -> None:
        if self.faults:
            self.check(Operation.CREATE, path, grows=not self.inner.exists(path))
        self.inner.make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self.check(Operation.RENAME, source)
        replaces = self.inner.exists(target)
        self.inner.rename(source, target)
        self.unsynced.renamed(source, target, replaces=replaces)

    def remove(self, path: str) -> None:
        self.check(Operation.REMOVE, path)
        self.inner.remove(path)
        self.unsynced.removed(path)

    def remove_tree(self, path: str) -> None:
        self.check(Operation.REMOVE, path)
        self.inner.remove_tree(path)
        self.unsynced.removed_tree(path)

    def synced_together(self, path: str) -> AbstractContextManager[None]:
        return self.inner.synced_together(path)

    def sync_dir(self, path: str) -> None:
        self.check(Operation.FSYNC, path)
        self.inner.sync_dir(path)
        self.unsynced.synced_dir(path)

    def size(self, path: str) -> int:
        self.check(Operation.LOOK, path)
        return self.inner.size(path)

    def modified_ms(self, path: str) -> int:
        self.check(Operation.LOOK, path)
        return self.inner.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.check(Operation.WRITE, path)
        self.inner.set_modified_ms(path, modified_ms)

    def lock(self, path: str) -> Lock:
        self.check(Operation.OPEN, path)
        return self.inner.lock(path)

    def usage(self, path: str) -> DiskUsage:
        self.check(Operation.LOOK, path)
        usage = self.inner.usage(path)
        limits = [limit for fault in self.faults if (limit := fault.usage_of(path)) is not None]
        if limits:
            usage = DiskUsage(*min(limits))
        is_full = any(fault.makes_full(path) for fault in self.faults)
        return DiskUsage(usage.total, 0) if is_full else usage

    def bytes_below(self, path: str) -> int:
        """Return the bytes of all files at and below a path; files removed meanwhile count as 0."""
        try:
            if not self.inner.is_dir(path):
                return self.inner.size(path)
            return sum(self.bytes_below(f"{path}/{name}") for name in self.inner.list_dir(path))
        except OSError:
            return 0


class _FaultyFile:
    """A file whose operations may fail, and whose fsynced size is known."""

    __slots__ = ("_fs", "_inner", "_record")

    def __init__(self, fs: FaultyFileSystem, inner: File, record: FileRecord) -> None:
        self._fs = fs
        self._inner = inner
        self._record = record

    def read_at(self, size: int, position: int) -> bytes:
        if self._fs.faults:
            self._fs.check(Operation.READ, self._record.path)
        return self._inner.read_at(size, position)

    def write_at(self, data: Bytes, position: int) -> None:
        record = self._record
        if self._fs.faults:
            self._check_write(data, position)
        if position < record.durable_size:
            record.remember(self._inner, position, len(data))
        self._inner.write_at(data, position)

    def size(self) -> int:
        return self._inner.size()

    def truncate(self, size: int) -> None:
        if self._fs.faults:
            self._fs.check(Operation.WRITE, self._record.path, grows=max(0, size - self._inner.size()))
        self._inner.truncate(size)
        self._record.truncated(size)

    def flush(self) -> None:
        self._fs.check(Operation.FSYNC, self._record.path)
        self._inner.flush()
        self._record.flushed(self._inner.size())

    def fileno(self) -> int | None:
        if self._fs.faults:
            self._fs.check(Operation.READ, self._record.path)
        return self._inner.fileno()

    def close(self) -> None:
        self._inner.close()

    def _check_write(self, data: Bytes, position: int) -> None:
        path = self._record.path
        self._fs.check(Operation.WRITE, path, grows=max(0, position + len(data) - self._inner.size()))
        for fault in self._fs.faults:
            written = fault.torn_bytes(path, len(data))
            if written is not None:
                if written:
                    self._inner.write_at(memoryview(data)[:written], position)
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
