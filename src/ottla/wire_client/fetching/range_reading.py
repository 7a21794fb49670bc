"""Reading offset ranges of many partitions, as a stream of record batches that are found and checked, not opened.

Stateless: no group, no fetch session, no position outside the call. Each broker gets one Fetch for all of its
partitions and the next one is on its way before the last response is decoded, so broker and decoder work at the same
time. A range ends when an offset at or behind its end has been *passed*, never by counting rows: compaction, aborted
transactions and control records leave gaps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from ottla.errors import BrokerUnavailable, ConfigError
from ottla.topics import TopicPartition
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, LEADER_MOVED, Cluster, refused
from ottla.wire_client.errors import CorruptBatch, OffsetOutOfRange, PartitionUnavailable, TopicRecreated
from ottla.wire_client.fetching.fetched_batches import FetchedBatches, Segment
from ottla.wire_client.ranges import DataLoss, LossRule, OffsetRange, OnDataLoss
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.control import AbortedTransaction

log = logging.getLogger(__name__)

_LARGEST_FETCH_BYTES = 1 << 30
_BY_ID_FROM = 13
"""From this version of Fetch on, topics are asked for by id only, before it by name only (KIP-516)."""


class _Cursor:
    """The position of one range's reading, and until when it may make no progress."""

    __slots__ = (
        "asked_id",
        "deadline",
        "end",
        "last_error",
        "max_bytes",
        "partition",
        "position",
        "replica",
        "topic",
        "topic_id",
    )

    def __init__(self, wanted: OffsetRange, *, deadline: float, max_bytes: int) -> None:
        self.topic = wanted.topic
        self.topic_id = wanted.topic_id
        self.asked_id = wanted.topic_id  # or, if nobody said which one, that of the topic that has the name now
        self.partition = wanted.partition
        self.position = wanted.start
        self.end = wanted.end
        self.deadline = deadline
        self.max_bytes = max_bytes
        self.last_error = "no data came"
        self.replica = -1  # the follower that the leader named as nearer (KIP-392), or -1: the leader

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def is_done(self) -> bool:
        return self.position >= self.end


def batches_of_ranges(
    cluster: Cluster,
    ranges: Sequence[OffsetRange],
    *,
    on_data_loss: LossRule = OnDataLoss.FAIL,
    report_loss: Callable[[DataLoss], None] | None = None,
    waits_at_end: bool = False,
) -> Generator[FetchedBatches, None, None]:
    """Return the batches of all ranges, response by response; a partition's in order, partitions mixed. Abandoning it
    is safe.

    A batch may hold records outside its range: `Segment.start` and `Segment.end` say what is wanted of it.
    `waits_at_end`: the end of a partition is no error where a range goes on behind it; it is waited for records there,
    for ever. What comes is then empty where none came for `fetch.max.wait.ms`.
    """
    names = [wanted.topic_partition for wanted in ranges]
    if len(set(names)) != len(names):
        raise ConfigError("each partition may be in one range only; read them one after the other")
    return _Reading(cluster, ranges, on_data_loss, report_loss, waits_at_end).run()


class _Reading:
    def __init__(
        self,
        cluster: Cluster,
        ranges: Sequence[OffsetRange],
        on_data_loss: LossRule,
        report_loss: Callable[[DataLoss], None] | None,
        waits_at_end: bool,
    ) -> None:
        self._cluster = cluster
        self._settings = cluster.settings
        self._on_data_loss = on_data_loss
        self._report_loss = report_loss
        self._waits_at_end = waits_at_end
        self._names: dict[bytes, str] = {}  # of the topics that were asked for by id
        deadline = self._next_deadline()
        self._cursors = {
            wanted.topic_partition: _Cursor(
                wanted, deadline=deadline, max_bytes=self._settings.max_partition_fetch_bytes
            )
            for wanted in ranges
            if wanted.size
        }

    def run(self) -> Generator[FetchedBatches, None, None]:
        while self._cursors:
            try:
                yield from self._read_from(self._by_replica())
            except BrokerUnavailable as error:
                for cursor in self._cursors.values():
                    self._cluster.forget_leaders(cursor.topic)  # the partitions of a broker that died have new leaders
                    cursor.replica = -1
                self._stand_still(self._cursors.values(), str(error))

    def _by_replica(self) -> dict[int, list[TopicPartition]]:
        """Return the partitions still to be read, by the broker to fetch from: the leader, or the replica that it
        named."""
        groups: dict[int, list[TopicPartition]] = {}
        for leader, partitions in self._cluster.by_leader(self._cursors).items():
            for key in partitions:
                cursor = self._cursors[key]
                present = self._cluster.topic(key.topic).topic_id
                if cursor.topic_id is not None and present is not None and present != cursor.topic_id:
                    self._recreated(cursor)
                    continue
                cursor.asked_id = cursor.topic_id or present
                replica = cursor.replica
                groups.setdefault(leader if replica < 0 else replica, []).append(key)
        return groups

    def _read_from(self, groups: dict[int, list[TopicPartition]]) -> Iterator[FetchedBatches]:
        """Fetch from each broker until all ranges are read or have to be asked for elsewhere."""
        asked: list[tuple[Any, list[TopicPartition]]] = []
        connections = {node_id: self._cluster.broker(node_id, borrower=self) for node_id in groups}
        try:
            for node_id, partitions in groups.items():
                asked.append((connections[node_id], partitions))
                self._ask(connections[node_id], partitions)
            while asked:
                connection, partitions = asked[0]
                response = connection.receive()
                del asked[0]
                segments, moved = self._take(response)
                found = FetchedBatches()
                isolation, check_crcs = self._settings.isolation, self._settings.check_crcs
                self._advance(segments, [found.collect(segment, isolation, check_crcs) for segment in segments])
                left = [p for p in self._served_last(partitions, segments) if p in self._cursors and p not in moved]
                if left:
                    asked.append((connection, left))
                    self._ask(connection, left)
                if len(found) or self._waits_at_end:
                    yield found
                    self._begin_waiting()
        finally:
            # An error, or the caller went away: nobody else may read those answers. A connection that owes none may be
            # lent to somebody else by now.
            for connection, _ in asked:
                connection.close()

    def _ask(self, connection: Any, partitions: list[TopicPartition]) -> None:
        topics: dict[str, list[dict[str, Any]]] = {}
        ids = {key.topic: self._cursors[key].asked_id for key in partitions}
        by_id = connection.version(ApiKey.FETCH) >= _BY_ID_FROM and all(ids.values())
        for key in partitions:
            cursor = self._cursors[key]
            topics.setdefault(key.topic, []).append(
                {
                    "partition": key.partition,
                    "fetch_offset": cursor.position,
                    "partition_max_bytes": cursor.max_bytes,
                }
            )
        connection.send(
            ApiKey.FETCH,
            {
                "max_wait_ms": self._settings.fetch_max_wait_ms,
                "min_bytes": 1,
                "max_bytes": max(self._settings.fetch_max_bytes, *(self._cursors[key].max_bytes for key in partitions)),
                "isolation_level": self._settings.isolation.value,
                "topics": [
                    ({"topic_id": ids[name]} if by_id else {"topic": name}) | {"partitions": entries}
                    for name, entries in topics.items()
                ],
                "rack_id": self._settings.client_rack,
            },
            newest=None if by_id else _BY_ID_FROM - 1,
        )
        self._names.update({topic_id: name for name, topic_id in ids.items() if by_id and topic_id})

    def _take(self, response: Any) -> tuple[list[Segment], set[TopicPartition]]:
        """Return the segments of a response, and the partitions that this broker no longer serves."""
        if response.error_code != ErrorCode.NONE:
            raise refused("fetch", ErrorCode.of(response.error_code))
        segments: list[Segment] = []
        moved: set[TopicPartition] = set()
        must_pause = False
        for topic in response.responses:
            name = self._names.get(bytes(topic.topic_id), topic.topic)
            for entry in topic.partitions:
                key = TopicPartition(name, entry.partition_index)
                cursor = self._cursors.get(key)
                if cursor is None:
                    continue
                code = ErrorCode.of(entry.error_code)
                if code is ErrorCode.NONE and getattr(entry, "preferred_read_replica", -1) >= 0:
                    moved.add(key)
                    cursor.replica = entry.preferred_read_replica
                elif code is ErrorCode.NONE:
                    segment = self._segment(cursor, entry)
                    if segment is not None:
                        segments.append(segment)
                elif code in LEADER_MOVED or (code is ErrorCode.OFFSET_OUT_OF_RANGE and cursor.replica >= 0):
                    moved.add(key)
                    must_pause = True
                    cursor.replica = -1  # what a follower does not have, or no longer, the leader knows of
                    self._cluster.forget_leaders(key.topic)
                    self._stand_still([cursor], code.name, pause=False)
                elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    moved.add(key)
                    must_pause = True
                    self._lost_offsets(cursor)
                elif code is ErrorCode.CORRUPT_MESSAGE:
                    raise CorruptBatch(f"{key}: the broker found a corrupt batch at or after offset {cursor.position}")
                else:
                    raise refused(f"fetch from {key}", code)
        if must_pause:
            self._cluster.pause()
        return segments, moved

    def _begin_waiting(self) -> None:
        """Begin to wait: no partition has stood still so far; others had their turn in a response, or the caller was at
        work."""
        deadline = self._next_deadline()
        for cursor in self._cursors.values():
            cursor.deadline = deadline

    def _segment(self, cursor: _Cursor, entry: Any) -> Segment | None:
        data = entry.records
        if data is None or not len(data):
            if self._waits_at_end:
                cursor.deadline = self._next_deadline()
            elif entry.high_watermark < cursor.end and entry.high_watermark <= cursor.position:
                # The partition ends before the range does: records were there when the range was planned.
                self._stand_still([cursor], f"the partition ends at {entry.high_watermark}", pause=False)
            elif self._cluster.now() >= cursor.deadline:
                raise PartitionUnavailable(f"{cursor.key}: no data from offset {cursor.position} on in time")
            return None
        aborted = [AbortedTransaction(a.producer_id, a.first_offset) for a in entry.aborted_transactions or ()]
        return Segment(
            topic=cursor.topic,
            partition=cursor.partition,
            data=memoryview(data),
            start=cursor.position,
            end=cursor.end,
            aborted=aborted,
        )

    def _advance(self, segments: Sequence[Segment], next_offsets: Sequence[int]) -> None:
        has_progress = False
        for segment, next_offset in zip(segments, next_offsets, strict=True):
            key = TopicPartition(segment.topic, segment.partition)
            cursor = self._cursors[key]
            if next_offset > cursor.position:
                cursor.position = next_offset
                has_progress = True
            elif cursor.max_bytes < _LARGEST_FETCH_BYTES:
                cursor.max_bytes *= 2  # the batch was cut off: brokers before KIP-74, or a batch beyond the limits
            else:
                raise CorruptBatch(
                    f"{key}: a batch at offset {cursor.position} is larger than {cursor.max_bytes} bytes"
                )
            if cursor.is_done:
                del self._cursors[key]
        if has_progress:
            self._begin_waiting()

    @staticmethod
    def _served_last(partitions: list[TopicPartition], segments: Sequence[Segment]) -> list[TopicPartition]:
        """Return partitions that got data go to the end: brokers fill a response in the order of its request
        (KIP-74)."""
        served = {TopicPartition(segment.topic, segment.partition) for segment in segments}
        return [p for p in partitions if p not in served] + [p for p in partitions if p in served]

    def _lost_offsets(self, cursor: _Cursor) -> None:
        cursor.last_error = ErrorCode.OFFSET_OUT_OF_RANGE.name
        earliest = self._cluster.list_offsets({cursor.key: EARLIEST})[cursor.key][0]
        latest = self._cluster.list_offsets({cursor.key: LATEST})[cursor.key][0]
        if earliest <= cursor.position <= latest:
            self._stand_still([cursor], cursor.last_error, pause=False)  # a leader that has not caught up: ask again
            return
        policy = self._policy_of(cursor)
        if policy is OnDataLoss.FAIL:
            raise OffsetOutOfRange(
                topic=cursor.topic, partition=cursor.partition, wanted=cursor.position, earliest=earliest, latest=latest
            )
        first_missing = cursor.position
        can_go_on = policy in (OnDataLoss.EARLIEST, OnDataLoss.SKIP) and earliest > cursor.position
        cursor.position = min(earliest, cursor.end) if can_go_on else cursor.end
        log.warning(
            "%s: offsets %d to %d are gone (the partition holds %d to %d); reading goes on at %d",
            cursor.key, first_missing, cursor.position - 1, earliest, latest, cursor.position,
        )  # fmt: skip
        self._report(cursor, first_missing)

    def _recreated(self, cursor: _Cursor) -> None:
        """Stop reading: the topic of these offsets is gone, and another one has its name."""
        text = f"{cursor.topic} was deleted and created anew; offsets {cursor.position} to {cursor.end - 1} of"
        text = f"{text} partition {cursor.partition} of the old topic were not read"
        if self._policy_of(cursor) is OnDataLoss.FAIL:
            raise TopicRecreated(text)
        log.warning("%s", text)
        first_missing, cursor.position = cursor.position, cursor.end
        self._report(cursor, first_missing)

    def _policy_of(self, cursor: _Cursor) -> OnDataLoss:
        rule = self._on_data_loss
        return rule if isinstance(rule, OnDataLoss) else rule(cursor.key)

    def _report(self, cursor: _Cursor, first_missing: int) -> None:
        """Report what is missing before the cursor's position, which may be its end."""
        if self._report_loss is not None:
            self._report_loss(
                DataLoss(
                    topic=cursor.topic,
                    partition=cursor.partition,
                    first_missing=first_missing,
                    resumed_at=cursor.position,
                )
            )
        if cursor.is_done:
            del self._cursors[cursor.key]

    def _stand_still(self, cursors: Any, reason: str, *, pause: bool = True) -> None:
        """Note that these ranges did not get on; too long is an error."""
        for cursor in list(cursors):
            cursor.last_error = reason
            if self._cluster.now() >= cursor.deadline:
                seconds = self._settings.api_timeout_ms / 1000
                raise PartitionUnavailable(
                    f"{cursor.key}: no progress at offset {cursor.position} of {cursor.end}"
                    f" for {seconds:g} s (default.api.timeout.ms): {reason}"
                )
        if pause:
            self._cluster.pause()

    def _next_deadline(self) -> float:
        return self._cluster.now() + self._settings.api_timeout_ms / 1000
