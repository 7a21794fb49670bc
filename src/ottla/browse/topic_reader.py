"""Read a topic without a group: for tests, the command line and anything else that reads and leaves.

No offset is committed and no group is joined, so reading disturbs no service. Partitions are read side by side; within
a partition records come in offset order, between partitions in the order they arrive.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from types import TracebackType
from typing import Any, Final

from ottla.browse.dead_letter_reader import record_at
from ottla.browse.reading import read_blocks
from ottla.errors import BrokerUnavailable, LifecycleError, RetriableError
from ottla.producer.encoded import check_topic
from ottla.records import Record, TimestampType, TopicPartition
from ottla.serdes import SerdeContext, as_serde
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.fetching.record_rows import RecordRows
from ottla.wire_client.net.reachability import addresses_of, require_reachable
from ottla.wire_client.ranges import Isolation
from ottla_wire.records import Row, shown_key

_WAIT_S: Final = 0.02
"""The pause between two requests for the partitions' ends."""
_ATTEMPT_MS: Final = 1_000
"""How long one question may find no leader; it is asked again until the caller's time has passed."""


class TopicReader:
    """Reads all partitions of one topic, from the earliest record (with `from_latest`, only new records). Raises
    `UnknownTopic`, and `BrokerUnavailable` if no broker responds within `timeout_s`."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        key: Any = None,
        value: Any = None,
        from_latest: bool = False,
        settings: Mapping[str, object] | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        check_topic(topic)
        addresses_of(bootstrap_servers)
        self.topic = topic
        self._key, self._key_ctx = as_serde(key), SerdeContext(topic, "key")
        self._value, self._value_ctx = as_serde(value), SerdeContext(topic, "value")
        self._waiting: list[Record[Any]] = []
        given = settings or {}
        if given:  # a login is what goes wrong
            require_reachable(bootstrap_servers, given, timeout_s=timeout_s)
        wire = connection_settings(
            {"client.id": "ottla-topic-reader", **given, "bootstrap.servers": bootstrap_servers},
            isolation=Isolation[str(given.get("isolation.level", "read_committed")).upper()],
            api_timeout_ms=_ATTEMPT_MS,
        )
        self._cluster: Cluster | None = Cluster(wire)
        try:
            partitions = _partitions_of(self._cluster, topic, timeout_s)
            self._next: dict[TopicPartition, int | None] = dict.fromkeys(partitions)
            """Offset of the next read; None means the start of the log."""
            if from_latest:
                ends = self._cluster.list_offsets(dict.fromkeys(partitions, LATEST))
                self._next |= {place: end for place, (end, _) in ends.items()}
        except BaseException:
            self.close()
            raise
        self.partitions = frozenset(place.partition for place in partitions)

    def take(self, count: int, *, timeout_s: float = 10.0) -> list[Record[Any]]:
        """Return the next `count` records. Raises TimeoutError, saying what did arrive, when they do not come in
        time."""
        deadline = time.monotonic() + timeout_s
        while len(self._waiting) < count:
            is_at_end = True
            for records in self._new_records(deadline, timeout_s=timeout_s):
                self._waiting += records
                if len(self._waiting) >= count:
                    is_at_end = False
                    break
            if is_at_end and len(self._waiting) < count:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    arrived = ", ".join(f"{record.position} {record.value!r}"[:100] for record in self._waiting[:5])
                    raise TimeoutError(
                        f"{self.topic}: wanted {count} records, {len(self._waiting)} arrived in {timeout_s} s:"
                        f" [{arrived}]"
                    )
                time.sleep(min(_WAIT_S, left_s))
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def read_to_end(self, *, timeout_s: float = 10.0) -> list[Record[Any]]:
        """Return every record up to each partition's end at the time of the call."""
        for records in self._new_records(time.monotonic() + timeout_s, timeout_s=timeout_s):
            self._waiting += records
        taken, self._waiting = self._waiting, []
        return taken

    def stream_to_end(self, *, timeout_s: float = 10.0) -> Iterator[Record[Any]]:
        """Yield what `read_to_end` returns, and keep nothing. Raises TimeoutError when nothing comes for `timeout_s`
        seconds."""
        waiting, self._waiting = self._waiting, []
        yield from waiting
        for records in self._new_records(None, timeout_s=timeout_s):
            yield from records

    def record_at(self, partition: int, offset: int, *, timeout_s: float = 10.0) -> Record[Any] | None:
        """Return the record at one offset; None if there is none."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                row = record_at(self._opened(), self.topic, partition, offset)
            except RetriableError as error:
                if time.monotonic() >= deadline:
                    raise TimeoutError(
                        f"{self.topic}-{partition}: offset {offset} was not read in {timeout_s} s: {error}"
                    ) from error
                time.sleep(_WAIT_S)
            else:
                return None if row is None else self._record(partition, row, is_append_time=False)

    def close(self) -> None:
        """Close the connections. Safe to call twice."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def _opened(self) -> Cluster:
        if self._cluster is None:
            raise LifecycleError(f"the reader of {self.topic} is closed")
        return self._cluster

    def _new_records(self, deadline: float | None, *, timeout_s: float) -> Iterator[list[Record[Any]]]:
        """Yield the records up to the end of each partition as it is now. Raises TimeoutError at the deadline; without
        one, `timeout_s` after the last record."""
        cluster = self._opened()
        until = time.monotonic() + timeout_s if deadline is None else deadline
        ends: dict[TopicPartition, tuple[int, int]] = {}
        while True:
            try:
                ends = ends or cluster.list_offsets(dict.fromkeys(self._next, LATEST))
                unknown = [place for place, following in self._next.items() if following is None]
                if unknown:
                    starts = cluster.list_offsets(dict.fromkeys(unknown, EARLIEST))
                    self._next |= {place: start for place, (start, _) in starts.items()}
                spans = {
                    place: (following, ends[place][0])
                    for place, following in self._next.items()
                    if following is not None and following < ends[place][0]
                }
                with closing(read_blocks(cluster, spans)) as blocks:
                    for block in blocks:
                        if block is not None:
                            yield self._taken(block)
                            if deadline is None:
                                until = time.monotonic() + timeout_s
                            elif time.monotonic() >= until:
                                raise TimeoutError(self._too_slow(timeout_s))
                self._next |= {place: end for place, (_, end) in spans.items()}  # behind them lie markers only
                return
            except RetriableError as error:
                if time.monotonic() >= until:
                    raise TimeoutError(f"{self._too_slow(timeout_s)}: {error}") from error
                time.sleep(_WAIT_S)

    def _too_slow(self, timeout_s: float) -> str:
        count = len(self._waiting)
        return f"{self.topic}: the end of its partitions was not reached in {timeout_s} s; {count} records were read"

    def _taken(self, block: RecordRows) -> list[Record[Any]]:
        self._next[TopicPartition(block.topic, block.partition)] = block.rows[-1][0] + 1
        return [self._record(block.partition, row, is_append_time=block.is_append_time) for row in block.rows]

    def _record(self, partition: int, row: Row, *, is_append_time: bool) -> Record[Any]:
        offset, timestamp_ms, key, value, headers = row
        kind = TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
        listed = [(shown_key(name), data) for name, data in headers]
        return Record(
            self.topic,
            partition,
            offset,
            timestamp_ms,
            self._key.deserialize(key, self._key_ctx),
            self._value.deserialize(value, self._value_ctx._replace(headers=listed)),
            listed,
            key,
            value,
            TimestampType.NOT_AVAILABLE if timestamp_ms < 0 else kind,
        )

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _partitions_of(cluster: Cluster, topic: str, timeout_s: float) -> list[TopicPartition]:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return [TopicPartition(topic, number) for number in sorted(cluster.topic(topic).leaders)]
        except RetriableError as error:
            if time.monotonic() >= deadline:
                raise BrokerUnavailable(f"no Kafka broker answered: {error}") from error
