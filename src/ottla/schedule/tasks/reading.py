"""Reads the recurring tasks of a schedule, without owning them."""

from __future__ import annotations

from ottla.records import TopicPartition
from ottla.schedule.partition_owner import MOST_PLAIN_BYTES
from ottla.schedule.tasks.owned_tasks import OwnedTasks
from ottla.schedule.tasks.task_records import State
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.fetching.record_chunks import read_chunk


def read_tasks(cluster: Cluster, topic: str) -> dict[str, State]:
    """Return the tasks by id, up to the end of the log of now. `cluster` reads what is committed. Raises
    `UnknownTopic`, and the errors of `read_chunk`."""
    place, tasks = TopicPartition(topic, 0), OwnedTasks()
    cluster.topic(topic)
    offset = cluster.list_offsets({place: EARLIEST})[place][0]
    end = cluster.list_offsets({place: LATEST})[place][0]
    while offset < end:
        chunk = read_chunk(cluster, place, offset, most_plain_bytes=MOST_PLAIN_BYTES)
        for record in chunk.records:
            tasks.take_in(record)
        if chunk.next_offset <= offset:
            break  # the rest is of a transaction that ended meanwhile
        offset = chunk.next_offset
    return tasks.states()
