"""The items of `ottla cluster` documents, made of facts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ottla.browse.human_amounts import moment
from ottla.browse.topic_items import problems_of

if TYPE_CHECKING:
    from ottla.admin import BrokerInfo, ClusterFacts


def cluster_item(found: ClusterFacts) -> dict[str, Any]:
    """Return what `cluster.show/1` has, of facts with topics and log directories."""
    partitions = list(found.by_partition.values())
    sizes = [log_dir.replica_bytes for broker in found.brokers for log_dir in broker.log_dirs or ()]
    return {
        "cluster_id": found.cluster_id,
        "at": moment(found.at_ms),
        "controller": found.controller_id,
        "brokers": len(found.brokers),
        "fenced_brokers": [broker.id for broker in found.brokers if broker.is_fenced],
        "topics": len(found.topics),
        "partitions": len(partitions),
        "replicas": sum(len(each.replicas) for each in partitions),
        "bytes": sum(sizes) if sizes else None,
        "problems": problems_of(partitions),
    }


def broker_items(found: ClusterFacts) -> list[dict[str, Any]]:
    """Return what `cluster.brokers/1` has, of facts with topics, log directories and who was reached."""
    leaders = Counter(each.leader for each in found.by_partition.values())
    replicas = Counter(broker for each in found.by_partition.values() for broker in each.replicas)
    return [
        {
            "broker": broker.id,
            "address": f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "leaders": leaders[broker.id],
            "replicas": replicas[broker.id],
            "bytes": None if broker.log_dirs is None else sum(each.replica_bytes for each in broker.log_dirs),
            "state": _state(broker, found),
            "controller": broker.id == found.controller_id,
        }
        for broker in found.brokers
    ]


def disk_items(found: ClusterFacts, before: ClusterFacts | None = None) -> list[dict[str, Any]]:
    """Return the items of `cluster.disks/1` from facts with log directories. With an earlier sample they also say when
    each directory will be full."""
    items = [_disk(broker.id, log_dir) for broker in found.brokers for log_dir in broker.log_dirs or ()]
    if before is not None:
        _forecast(items, before, seconds=max(0.001, (found.at_ms - before.at_ms) / 1000))
    return items


def _state(broker: BrokerInfo, found: ClusterFacts) -> str:
    if broker.is_fenced:
        return "fenced"
    if broker.unreachable is not None:
        return "unreachable"
    if broker.answers_as is not None and broker.answers_as != found.cluster_id:
        return f"another cluster: {broker.answers_as}"
    return "ok"


def _disk(broker: int, log_dir: Any) -> dict[str, Any]:
    return {
        "broker": broker,
        "path": log_dir.path,
        "replicas": len(log_dir.replicas),
        "bytes": log_dir.replica_bytes,
        "total_bytes": log_dir.total_bytes,
        "usable_bytes": log_dir.usable_bytes,
        "cordoned": log_dir.is_cordoned,
        "error": log_dir.error,
    }


def _forecast(items: list[dict[str, Any]], before: ClusterFacts, *, seconds: float) -> None:
    """Add to each disk the rate at which it fills, and when it will be full, whatever uses the space."""
    usable = {(broker.id, each.path): each.usable_bytes for broker in before.brokers for each in broker.log_dirs or ()}
    for item in items:
        then, now = usable.get((item["broker"], item["path"])), item["usable_bytes"]
        rate = None if then is None or now is None else (then - now) / seconds
        item["bytes_per_second"] = None if rate is None else round(rate)
        item["full_in_ms"] = None if rate is None or rate <= 0 else round(now / rate * 1000)
