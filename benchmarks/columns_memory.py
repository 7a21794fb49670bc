"""What a process of a slow handler of columns takes at most, all of whose partitions have a backlog.

Measured as `flow_memory.py` does it, with the default `FlowLimits`: what the resident set grows by, and what the
buffers hold by their own account, each divided by `total_bytes`. Part of `columns.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import flow_memory
from results import Results

from ottla import FlowLimits

PARTITIONS = 100
PARTITION_MB = 4.0
"""Together more than three times what the limits let in."""

WHAT = f"a slow handler {PARTITIONS} partitions behind: most memory"
BUFFERED = f"a slow handler {PARTITIONS} partitions behind: most in the buffers"


def measure(results: Results, *, rounds: int, seconds: float) -> None:
    limit_mb = FlowLimits().total_bytes // 2**20
    figures = [
        flow_memory.measured("columns", partitions=PARTITIONS, mb=PARTITION_MB, seconds=seconds, total_mb=limit_mb)
        for _ in range(rounds)
    ]
    write(results, figures, limit_mb=limit_mb)


def write(results: Results, figures: Sequence[Mapping[str, float]], *, limit_mb: float) -> None:
    grown = [(each["rss_mb"] - each["rss_before_mb"]) / limit_mb for each in figures]
    results.add(WHAT, "ottla", grown, "x FlowLimits")
    results.add(BUFFERED, "ottla", [each["buffered_mb"] / limit_mb for each in figures], "x FlowLimits")
