"""The record of what was applied, by cluster: a file that is kept beside the declarations. It has names, no values.

While a plan is applied it has what was declared before and what is declared now, so that a kill half way forgets
neither. Of two commands that apply with one file at the same time, what both declared stays in it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Final

from ottla.admin.declared.declared_cluster import NOTHING_APPLIED, Applied, both_applied
from ottla.admin.facts.facts_file import from_json, read_bounded, to_json, write_whole
from ottla.errors import InputError
from ottla_wire.facts import fact

SCHEMA: Final = "ottla.applied/1"


@fact
class AppliedFile:
    """The whole file: cluster id → what was applied to it."""

    clusters: Mapping[str, Applied] = field(default_factory=dict)


def read_applied(path: Path, cluster_id: str) -> Applied:
    """Return the record of a cluster; an empty one where there is no file, or none of this cluster."""
    return _read(path).clusters.get(cluster_id, NOTHING_APPLIED)


def write_applied(
    path: Path, cluster_id: str, applied: Applied, *, expected: Collection[Applied] | None = None
) -> None:
    """Put the record of a cluster into the file. Those of other clusters stay.

    If the file has none of the `expected` records of the cluster, another command has applied something meanwhile: what
    that one declared is kept beside this. One command at a time reads and writes the file.
    """
    with _locked(path.parent):
        clusters = dict(_read(path).clusters)
        there = clusters.get(cluster_id, NOTHING_APPLIED)
        is_of_another = expected is not None and there not in expected
        clusters[cluster_id] = both_applied(there, applied) if is_of_another else applied
        write_whole(path, to_json(SCHEMA, AppliedFile(clusters=dict(sorted(clusters.items())))))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: the file itself is replaced at each write. Without effect on a file system that has no
    locks of folders, as NFS."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}") from None
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(path: Path) -> AppliedFile:
    return from_json(read_bounded(path), SCHEMA, AppliedFile, source=str(path)) if path.exists() else AppliedFile()
