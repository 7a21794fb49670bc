"""Files in memory that can crash, for simulation and durability tests. Durable content and names are kept apart from
written ones; a crash drops the difference, or a part of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from random import Random

from broker_embedded.common.clock import Clock
from broker_embedded.common.filesystem import Bytes, DiskUsage, File, Lock, name_of, parent


class _FileNode:
    __slots__ = ("data", "durable", "modified_ms", "smallest")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.durable = b""
        self.smallest = 0
        """All bytes at any time since the last flush."""
        self.modified_ms = modified_ms


class _DirNode:
    """`pending` are changes of names not yet durable, in order; each is atomic (a rename changes two names)."""

    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.names: dict[str, _FileNode | _DirNode] = {}
        self.durable: dict[str, _FileNode | _DirNode] = {}
        self.pending: list[dict[str, _FileNode | _DirNode | None]] = []

    def change(self, changes: dict[str, _FileNode | _DirNode | None]) -> None:
        _apply(self.names, changes)
        self.pending.append(changes)


def _apply(names: dict[str, _FileNode | _DirNode], changes: dict[str, _FileNode | _DirNode | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class MemoryFileSystem:
    """Files in memory. `crash()` loses writes that are not durable; `kill()` only closes handles.

    Fault hooks: `capacity_bytes` makes the disk full (what fits is written first, as a real disk does it);
    `before_change(operation, path)` is called before each change and each flush and may raise (an OSError for a broken
    disk; anything else to stop a test at that very step).
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        capacity_bytes: int | None = None,
        before_change: Callable[[str, str], None] | None = None,
    ) -> None:
        self._clock = clock
        self._root = _DirNode()
        self._locks: set[str] = set()
        self._used = 0
        self.generation = 0
        """Counts crashes and kills; a handle of an earlier generation is dead."""
        self.capacity_bytes = capacity_bytes
        self.before_change = before_change

    # -- FileSystem

    def open(self, path: str, *, create: bool = False) -> File:
        directory, name = self._locate(path)
        node = directory.names.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._changing("create", path)
            node = _FileNode(self._now_ms())
            directory.change({name: node})
        if isinstance(node, _DirNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return _MemoryFile(self, node, path)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._find(path), _DirNode)

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._directory(path).names)

    def make_dirs(self, path: str) -> None:
        node = self._root
        for part in _parts(path):
            child = node.names.get(part)
            if child is None:
                self._changing("mkdir", path)
                child = _DirNode()
                # A directory is durable at once: losing whole partitions is not a fault this model is about.
                node.names[part] = node.durable[part] = child
            if isinstance(child, _FileNode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            node = child

    def rename(self, source: str, target: str) -> None:
        from_directory, from_name = self._locate(source)
        to_directory, to_name = self._locate(target)
        node = from_directory.names.get(from_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self._changing("rename", source)
        replaced = to_directory.names.get(to_name)
        if isinstance(replaced, _FileNode) and replaced is not node:
            self._used -= len(replaced.data)
        if from_directory is to_directory:
            from_directory.change({from_name: None, to_name: node})
        else:
            to_directory.change({to_name: node})
            from_directory.change({from_name: None})

    def remove(self, path: str) -> None:
        directory, name = self._locate(path)
        node = directory.names.get(name)
        if node is None:
            return
        if isinstance(node, _DirNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._changing("remove", path)
        self._used -= len(node.data)
        directory.change({name: None})

    def remove_tree(self, path: str) -> None:
        directory, name = self._locate(path)
        if name in directory.names:
            self._changing("remove", path)
            directory.change({name: None})
            self._used = _bytes_below(self._root)

    def synced_together(self, path: str) -> AbstractContextManager[None]:
        return nullcontext()

    def sync_dir(self, path: str) -> None:
        self._changing("sync", path)
        directory = self._directory(path)
        for changes in directory.pending:
            _apply(directory.durable, changes)
        directory.pending.clear()

    def size(self, path: str) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._file(path).modified_ms = modified_ms

    def lock(self, path: str) -> Lock:
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        self.open(path, create=True).close()
        self._locks.add(path)
        return _MemoryLock(self._locks, path)

    def usage(self, path: str) -> DiskUsage:
        total = self.capacity_bytes if self.capacity_bytes is not None else 1 << 40
        return DiskUsage(total, max(0, total - self._used))

    # -- faults

    def kill(self) -> None:
        """Kill the process: every written byte stays, handles and locks are gone."""
        self.generation += 1
        self._locks = set()

    def crash(self, random: Random | None = None) -> None:
        """Cut the power. Unflushed bytes and unsynced names are lost; with `random`, some of them reach the disk: a
        prefix of a directory's changes, and of a file a prefix of the new bytes, perhaps followed by zeros."""
        self.kill()
        _forget(self._root, random)
        self._used = _bytes_below(self._root)

    # -- used by handles

    def write(self, node: _FileNode, data: Bytes, position: int, path: str) -> None:
        self._changing("write", path)
        end = position + len(data)
        growth = end - len(node.data)
        if growth > 0 and self.capacity_bytes is not None and self._used + growth > self.capacity_bytes:
            fits = max(0, len(data) - (self._used + growth - self.capacity_bytes))
            if fits:
                self._put(node, bytes(data[:fits]), position)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self._put(node, data, position)

    def truncate(self, node: _FileNode, size: int, path: str) -> None:
        self._changing("truncate", path)
        before = len(node.data)
        if size < before:
            del node.data[size:]
        else:
            node.data.extend(bytes(size - before))
        node.smallest = min(node.smallest, size)
        self._used += size - before
        node.modified_ms = self._now_ms()

    def flush(self, node: _FileNode, path: str) -> None:
        self._changing("flush", path)
        node.durable = bytes(node.data)
        node.smallest = len(node.data)

    # -- helpers

    def _put(self, node: _FileNode, data: Bytes, position: int) -> None:
        before = len(node.data)
        if position > before:
            node.data.extend(bytes(position - before))
        node.data[position : position + len(data)] = data
        self._used += len(node.data) - before
        node.modified_ms = self._now_ms()

    def _changing(self, operation: str, path: str) -> None:
        if self.before_change is not None:
            self.before_change(operation, path)

    def _now_ms(self) -> int:
        return self._clock.now_ms() if self._clock is not None else 0

    def _find(self, path: str) -> _FileNode | _DirNode | None:
        node: _FileNode | _DirNode | None = self._root
        for part in _parts(path):
            if not isinstance(node, _DirNode):
                return None
            node = node.names.get(part)
        return node

    def _directory(self, path: str) -> _DirNode:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, _FileNode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _file(self, path: str) -> _FileNode:
        node = self._find(path)
        if not isinstance(node, _FileNode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _locate(self, path: str) -> tuple[_DirNode, str]:
        return self._directory(parent(path)), name_of(path)


class _MemoryFile:
    __slots__ = ("_fs", "_generation", "_node", "_path")

    def __init__(self, fs: MemoryFileSystem, node: _FileNode, path: str) -> None:
        self._fs = fs
        self._node = node
        self._path = path
        self._generation = fs.generation

    def read_at(self, size: int, position: int) -> bytes:
        self._check()
        return bytes(self._node.data[position : position + size])

    def write_at(self, data: Bytes, position: int) -> None:
        self._check()
        self._fs.write(self._node, data, position, self._path)

    def size(self) -> int:
        self._check()
        return len(self._node.data)

    def truncate(self, size: int) -> None:
        self._check()
        self._fs.truncate(self._node, size, self._path)

    def flush(self) -> None:
        self._check()
        self._fs.flush(self._node, self._path)

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        self._generation = -1

    def _check(self) -> None:
        if self._generation != self._fs.generation:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)


class _MemoryLock:
    __slots__ = ("_locks", "_path")

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _bytes_below(node: _FileNode | _DirNode) -> int:
    if isinstance(node, _FileNode):
        return len(node.data)
    return sum(_bytes_below(child) for child in node.names.values())


def _forget(node: _DirNode, random: Random | None) -> None:
    survivors = random.randint(0, len(node.pending)) if random is not None else 0
    for changes in node.pending[:survivors]:
        _apply(node.durable, changes)
    node.pending.clear()
    node.names = dict(node.durable)
    for child in node.names.values():
        if isinstance(child, _DirNode):
            _forget(child, random)
        else:
            child.data = bytearray(_torn(child, random))
            child.durable = bytes(child.data)
            child.smallest = len(child.data)


def _torn(file: _FileNode, random: Random | None) -> bytes:
    live, durable = bytes(file.data), file.durable
    if random is None or (live == durable and file.smallest == len(durable)):
        return durable
    if file.smallest < len(durable) and random.randint(0, 1):  # cut, and written again: perhaps only in part
        return live[: random.randint(file.smallest, len(live))]
    if not live.startswith(durable):  # overwritten or truncated in place: one version or the other
        return random.choice((live, durable))
    kept = random.randint(len(durable), len(live))
    zeros = random.choice((0, random.randint(0, len(live) - kept)))
    return live[:kept] + bytes(zeros)
