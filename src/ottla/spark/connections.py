"""Connections that outlive a task: Spark reuses its Python workers, so the next task finds them open.

Kept per process and per settings. A worker runs one task at a time, so one cluster client is enough; a driver that
commits has one for each thread. After a fork the child starts without any.
"""

from __future__ import annotations

import os

from ottla.spark.jvm.interrupts import ignore_in_processes_of_spark
from ottla.wire_client import Cluster, WireSettings

_clusters: dict[tuple[int, int, WireSettings], Cluster] = {}


def cluster_for(settings: WireSettings, *, lane: int = 0) -> Cluster:
    """Return the cluster client of this process for these settings. Only one thread may use those of a lane."""
    key = (os.getpid(), lane, settings)
    if key not in _clusters:
        ignore_in_processes_of_spark()  # every process of a query comes by here before it reads, writes or commits
        _clusters[key] = Cluster(settings)
    return _clusters[key]
