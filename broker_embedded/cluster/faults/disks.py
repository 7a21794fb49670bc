"""`cluster.disks`: what is wrong with the brokers' disks, from any thread.

with cluster.disks.full(1): ...
cluster.disks.offline(2, dir=0)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from broker_embedded.cluster.faults.disk_fault import DiskFault, DiskFaultKind
from broker_embedded.cluster.faults.faulty_filesystem import FaultyFileSystem
from broker_embedded.cluster.faults.model import Faults
from broker_embedded.cluster.faults.selector import InvalidFault

POLL_S = 0.005


class BadDisk:
    """Faults that were added together. As a context manager they are removed at the end of the block."""

    def __init__(self, disks: Disks, node: int, faults: Sequence[DiskFault]) -> None:
        self.node = node
        self.faults = tuple(faults)
        self._disks = disks

    @property
    def hits(self) -> int:
        """Return how many operations it has met."""
        return sum(fault.hits for fault in self.faults)

    @property
    def is_limit(self) -> bool:
        """Return whether it says how large disks are."""
        return all(fault.kind is DiskFaultKind.LIMITED for fault in self.faults)

    def wait(self, hits: int = 1, timeout_s: float = 10) -> Self:
        """Block until it has met so many operations; TimeoutError says how many. Never on the cluster's thread."""
        deadline = time.monotonic() + timeout_s
        while self.hits < hits:
            if time.monotonic() > deadline:
                kinds = ", ".join(sorted({fault.kind.value for fault in self.faults}))
                raise TimeoutError(
                    f"disk of broker {self.node} ({kinds}): found {self.hits} hits after {timeout_s} s, wanted {hits}"
                )
            time.sleep(POLL_S)
        return self

    def remove(self) -> None:
        """Repair the disk. Writes that failed are not repeated."""
        self._disks.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()


class Disks:
    """See the module. `log_dirs` returns the log directories of a broker, or raises InvalidFault for an unknown one.
    `dir` is the number of one of a broker's log directories; None means all."""

    def __init__(self, fs: FaultyFileSystem, faults: Faults, *, log_dirs: Callable[[int], Sequence[str]]) -> None:
        self._fs = fs
        self._faults = faults
        self._on_loop = faults.on_loop
        self._log_dirs = log_dirs
        self._bad: list[BadDisk] = []

    def full(self, node: int, *, dir: int | None = None) -> BadDisk:
        """Fill the disk: appends are refused with KAFKA_STORAGE_ERROR, reads work, nothing is lost."""
        return self._add(DiskFaultKind.FULL, node, dir)

    def limited(self, node: int, *, limit_bytes: int, dir: int | None = None) -> BadDisk:
        """Limit each directory to so many bytes, which it reports as its size; appends beyond are refused as by `full`.

        It takes the place of an earlier limit of the same directories, and stays when disks are healed.
        """
        paths = set(self._paths(node, dir))
        for bad in [bad for bad in self._bad if bad.is_limit and {fault.path for fault in bad.faults} <= paths]:
            bad.remove()
        return self._add(DiskFaultKind.LIMITED, node, dir, limit_bytes=limit_bytes)

    def slow(self, node: int, *, delay_ms: int, dir: int | None = None) -> BadDisk:
        """Make each read, write and fsync cost `delay_ms`: requests that cause them are answered that much later.

        The brokers share a thread, so the disk does not block: a follower's appends and flushes in the background are
        not slowed. To make a follower lag, use `links.slow`.
        """
        return self._add(DiskFaultKind.SLOW, node, dir, delay_ms=delay_ms)

    def fail_fsync(self, node: int, *, count: int | None = None, dir: int | None = None) -> BadDisk:
        """Make fsync fail with EIO, `count` times."""
        return self._add(DiskFaultKind.FSYNC_ERROR, node, dir, count=count)

    def tear_write(self, node: int, *, count: int = 1, dir: int | None = None) -> BadDisk:
        """Write only half of the next write to the file, then fail with EIO."""
        return self._add(DiskFaultKind.TORN_WRITE, node, dir, count=count)

    def offline(self, node: int, *, dir: int | None = None) -> BadDisk:
        """Make all accesses fail with EIO: the partitions there are offline until the broker is started again."""
        return self._add(DiskFaultKind.OFFLINE, node, dir)

    def heal(self, node: int | None = None) -> None:
        """Remove all faults, or one broker's faults. Disk sizes stay as set."""
        for bad in [bad for bad in self._bad if node in (None, bad.node) and not bad.is_limit]:
            bad.remove()

    def remove(self, bad: BadDisk) -> None:
        """Remove what was added together."""

        def run() -> None:
            for fault in bad.faults:
                self._fs.remove_fault(fault)
            self._bad = [each for each in self._bad if each is not bad]
            self._report_slow()

        self._on_loop(run)

    def crash(self, node: int) -> None:
        """Lose what the broker wrote and did not fsync, as when the power goes. Its logs must be let go of before."""
        for path in self._log_dirs(node):
            self._on_loop(lambda path=path: self._fs.crash(path))  # type: ignore[misc]  # mypy and defaults of lambdas

    def to_json(self) -> list[dict[str, Any]]:
        """As the control API shows it."""
        return [{"broker": bad.node, **fault.to_json()} for bad in self._bad for fault in bad.faults]

    def _add(
        self,
        kind: DiskFaultKind,
        node: int,
        dir: int | None,
        *,
        count: int | None = None,
        delay_ms: int = 0,
        limit_bytes: int = 0,
    ) -> BadDisk:
        paths = self._paths(node, dir)
        faults = [
            DiskFault(
                kind,
                path,
                count=count,
                delay_ms=delay_ms,
                limit_bytes=limit_bytes,
                measure=partial(self._fs.bytes_below, path),
            )
            for path in paths
        ]
        bad = BadDisk(self, node, faults)

        def run() -> None:
            for fault in faults:
                self._fs.add(fault)
            self._bad.append(bad)
            self._report_slow()

        self._on_loop(run)
        return bad

    def _paths(self, node: int, dir: int | None) -> Sequence[str]:
        paths = self._log_dirs(node)
        if dir is None:
            return paths
        if not 0 <= dir < len(paths):
            raise InvalidFault(f"dir: found {dir}, wanted 0 to {len(paths) - 1}: broker {node} has {len(paths)}")
        return [paths[dir]]

    def _report_slow(self) -> None:
        """Report the time that slow disks have cost to the brokers' requests."""
        slow: dict[int, list[DiskFault]] = {}
        for bad in self._bad:
            slow.setdefault(bad.node, []).extend(f for f in bad.faults if f.kind is DiskFaultKind.SLOW)
        self._faults.set_slow_disks({node: tuple(faults) for node, faults in slow.items() if faults})
