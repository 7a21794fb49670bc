"""Which log directories of a broker are on one disk. Pure.

A broker reports the size and the free bytes of the disk that each directory is on, and not which disk that is. Several
directories mean several disks (JBOD) nearly always, and equal disks that hold equal parts look like one that all of
them share. So directories are disks of their own unless the figures say otherwise: they share one if

- they report the same size and nearly the same free bytes, although they hold different amounts; on disks of their own
  they would differ by that; or each holds so much that two disks with as much of other data, equal on both, are out of
  the question;
- and the disk has at least as many bytes in use as they hold together.

Each is decided by much more than a broker writes between two questions, so that a few bytes do not change a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Final

from ottla.admin.facts.cluster_facts import BrokerInfo, LogDirInfo

_SAME: Final = 1 / 1024
"""Maximum difference, as a share of the disk's size, of two reports of one disk's free bytes."""
_DIFFERENT: Final = 4 * _SAME
"""Maximum difference, as a share of the disk's size, of the amounts of equal partitions."""
_MUCH: Final = 0.1
"""Share of a disk's size: other data beside a directory never makes up this much on two neighbouring disks."""


def directories_by_disk(broker: BrokerInfo) -> list[tuple[LogDirInfo, ...]]:
    """Return the log directories of a broker by path, grouped by disk."""
    known: list[LogDirInfo] = []
    found: list[tuple[LogDirInfo, ...]] = []
    for log_dir in broker.log_dirs or ():
        if log_dir.error is None and log_dir.total_bytes and log_dir.usable_bytes is not None:
            known.append(log_dir)
        else:
            found.append((log_dir,))
    known.sort(key=lambda each: (each.total_bytes or 0, each.usable_bytes or 0, each.path))
    for _, same_size in groupby(known, key=lambda each: each.total_bytes):
        found += _shared(tuple(same_size))
    ordered = [tuple(sorted(each, key=lambda log_dir: log_dir.path)) for each in found]
    return sorted(ordered, key=lambda each: each[0].path)


def _shared(log_dirs: Sequence[LogDirInfo]) -> Iterator[tuple[LogDirInfo, ...]]:
    """Yield directories with disks of one size, by free bytes, split at the widest gaps until each part is one disk."""
    if len(log_dirs) == 1 or _is_one_disk(log_dirs):
        yield tuple(log_dirs)
        return
    gaps = [(b.usable_bytes or 0) - (a.usable_bytes or 0) for a, b in pairwise(log_dirs)]
    at = gaps.index(max(gaps)) + 1
    yield from _shared(log_dirs[:at])
    yield from _shared(log_dirs[at:])


def _is_one_disk(log_dirs: Sequence[LogDirInfo]) -> bool:
    total = log_dirs[0].total_bytes or 0
    free = [each.usable_bytes or 0 for each in log_dirs]
    held = [each.replica_bytes for each in log_dirs]
    if max(free) - min(free) > total * _SAME or sum(held) > total - min(free):
        return False
    return max(held) - min(held) > total * _DIFFERENT or min(held) > total * _MUCH
