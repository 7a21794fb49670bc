"""Faults of a disk: full, small, slow, failing to fsync, tearing a write, or gone."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from enum import Enum
from typing import Any

from broker_embedded.cluster.faults.selector import InvalidFault


class Operation(Enum):
    """File operations, as far as faults distinguish them."""

    OPEN = "open"
    LOOK = "look"
    READ = "read"
    CREATE = "create"
    WRITE = "write"
    RENAME = "rename"
    REMOVE = "remove"
    FSYNC = "fsync"


class DiskFaultKind(Enum):
    """See the members."""

    FULL = "full"
    """Operations that need space fail with ENOSPC; reading, overwriting and removing work."""
    LIMITED = "limited"
    """The disk holds so many bytes; writes beyond them fail with ENOSPC. It reports this as its size."""
    SLOW = "slow"
    """Reads, writes and fsyncs cost time. Requests that caused them are answered that much later."""
    FSYNC_ERROR = "fsync-error"
    """fsync fails with EIO; nothing counts as durable."""
    TORN_WRITE = "torn-write"
    """Half of a write reaches the file, then EIO."""
    OFFLINE = "offline"
    """Everything fails with EIO."""


_GROWTH = (Operation.CREATE, Operation.WRITE)
_COSTS_TIME = (Operation.READ, Operation.WRITE, Operation.FSYNC)


class DiskFault:
    """One fault of everything at and below a path. Acts `count` times, or until it is removed."""

    def __init__(
        self,
        kind: DiskFaultKind,
        path: str,
        *,
        count: int | None = None,
        delay_ms: int = 0,
        limit_bytes: int = 0,
        measure: Callable[[], int] = lambda: 0,
    ) -> None:
        """Limit a disk to `limit_bytes`; `measure` returns how many bytes are on it."""
        if count is not None and count < 1:
            raise InvalidFault(f"count: found {count}, wanted 1 or more, or none for no limit")
        if (kind is DiskFaultKind.SLOW) != (delay_ms > 0):
            raise InvalidFault(f"delay_ms: found {delay_ms} for {kind.value}, wanted 1 or more for slow, else none")
        if (kind is DiskFaultKind.LIMITED) != (limit_bytes > 0):
            raise InvalidFault(f"bytes: found {limit_bytes} for {kind.value}, wanted 1 or more for limited, else none")
        self.limit_bytes = limit_bytes
        self._measure = measure
        self._used: int | None = None
        self.kind = kind
        self.path = path.rstrip("/")
        self.count = count
        self.delay_ms = delay_ms
        self.hits = 0
        self.debt_ms = 0
        """Accumulated delay of a slow disk."""
        self._below = self.path + "/"

    def concerns(self, path: str) -> bool:
        return path == self.path or path.startswith(self._below)

    def check(self, operation: Operation, path: str, *, grows: int) -> None:
        """Raise OSError if the operation fails because of this fault. `grows`: by how many bytes, 1 for a new name."""
        if not self.concerns(path):
            return
        kind = self.kind
        if kind is DiskFaultKind.SLOW:
            if operation in _COSTS_TIME:
                self._take()
                self.debt_ms += self.delay_ms
        elif kind is DiskFaultKind.OFFLINE:
            self._raise(errno.EIO, path)
        elif kind is DiskFaultKind.FULL:
            if grows and operation in _GROWTH:
                self._raise(errno.ENOSPC, path)
        elif kind is DiskFaultKind.LIMITED:
            if grows and operation in _GROWTH and self._is_beyond(grows):
                self._raise(errno.ENOSPC, path)
        elif kind is DiskFaultKind.FSYNC_ERROR and operation is Operation.FSYNC:
            self._raise(errno.EIO, path)

    def torn_bytes(self, path: str, size: int) -> int | None:
        """Return how many bytes of a write reach the file before it fails; None if it does not."""
        if self.kind is not DiskFaultKind.TORN_WRITE or not self.concerns(path) or not self._take():
            return None
        return size // 2

    def makes_full(self, path: str) -> bool:
        return self.kind is DiskFaultKind.FULL and self.concerns(path)

    def usage_of(self, path: str) -> tuple[int, int] | None:
        """Return size and free bytes of a limited disk; None for any other."""
        if self.kind is not DiskFaultKind.LIMITED or not self.concerns(path):
            return None
        return self.limit_bytes, max(0, self.limit_bytes - self._measure())

    def _is_beyond(self, grows: int) -> bool:
        """Return whether the files would grow beyond the limit. Removed files are noticed only when the limit is
        reached: then everything is measured again."""
        self._used = (self._measure() if self._used is None else self._used) + grows
        if self._used > self.limit_bytes:
            self._used = self._measure()
            if self._used + grows > self.limit_bytes:
                return True
            self._used += grows
        return False

    def to_json(self) -> dict[str, Any]:
        """As the control API shows it."""
        shown: dict[str, Any] = {"kind": self.kind.value, "path": self.path, "count": self.count, "hits": self.hits}
        if self.kind is DiskFaultKind.SLOW:
            shown["delay_ms"] = self.delay_ms
        if self.kind is DiskFaultKind.LIMITED:
            shown["bytes"] = self.limit_bytes
        return shown

    def _take(self) -> bool:
        if self.count is not None and self.hits >= self.count:
            return False
        self.hits += 1
        return True

    def _raise(self, number: int, path: str) -> None:
        if self._take():
            raise OSError(number, os.strerror(number), path)
