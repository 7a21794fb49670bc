"""The record of what was applied, by cluster: a file that is kept beside the declarations. It has names, no values.

While a plan is applied it has what was declared before and what is declared now, so that a kill half way forgets
neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from ottla.admin.declared.declared_cluster import NOTHING_APPLIED, Applied
from ottla.admin.facts.facts_file import from_json, read_bounded, to_json, write_whole
from ottla_wire.facts import fact

SCHEMA: Final = "ottla.applied/1"


@fact
class AppliedFile:
    """The whole file: cluster id → what was applied to it."""

    clusters: Mapping[str, Applied] = field(default_factory=dict)


def read_applied(path: Path, cluster_id: str) -> Applied:
    """Return the record of a cluster; an empty one where there is no file, or none of this cluster."""
    return _read(path).clusters.get(cluster_id, NOTHING_APPLIED)


def write_applied(path: Path, cluster_id: str, applied: Applied) -> None:
    """Put the record of a cluster into the file. Those of other clusters stay."""
    clusters = {**_read(path).clusters, cluster_id: applied}
    write_whole(path, to_json(SCHEMA, AppliedFile(clusters=dict(sorted(clusters.items())))))


def _read(path: Path) -> AppliedFile:
    return from_json(read_bounded(path), SCHEMA, AppliedFile, source=str(path)) if path.exists() else AppliedFile()
