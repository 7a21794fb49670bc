"""Where the logs of partitions begin and end, and of which topic they are."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.errors import UnknownTopic
from ottla.topics import TopicPartition
from ottla.wire_client.cluster import EARLIEST, LATEST, Cluster
from ottla_wire.named_tuples import NamedTuple


class LogEnds(NamedTuple):
    """One partition's log: the first offset, and the one behind the last that a reader may see."""

    topic_id: bytes | None
    start: int
    end: int


def log_ends(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, missing: set[str] | None = None
) -> dict[TopicPartition, LogEnds]:
    """Return the partitions that exist, as a broker describes them now, and add topics that do not exist to `missing`.
    Raises what `Cluster` does."""
    wanted = list(partitions)
    cluster.refresh({name.topic for name in wanted})
    ids: dict[str, bytes | None] = {}
    for topic in {name.topic for name in wanted}:
        try:
            ids[topic] = cluster.topic(topic).topic_id
        except UnknownTopic:
            if missing is not None:
                missing.add(topic)
    there = [name for name in wanted if name.topic in ids and cluster.leader(name) >= 0]
    starts = cluster.list_offsets(dict.fromkeys(there, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(there, LATEST))
    return {name: LogEnds(ids[name.topic], starts[name][0], ends[name][0]) for name in there}
