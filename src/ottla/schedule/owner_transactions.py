"""Transactions of the owner of a partition of a schedule: records for any topics together with its own.

The partition has a transactional id of its own. Claiming it initializes that id, which aborts the open transaction of
an earlier owner, and fences that owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ottla.errors import UnknownTopic
from ottla.records import TopicPartition
from ottla.schedule.slot import Cause, WriteRefused
from ottla.schedule.slot_batches import Batches, partition_of
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.producing.batch_transactions import BatchesRefused, BatchTransactions

_TRANSACTION_TIMEOUT_MS: Final = 60_000

OWN: Final = -1
"""Number of the owner's own records, for which only the brokers can be to blame."""


class OwnerTransactions:
    """The transactions of one owner. Not thread-safe."""

    def __init__(self, place: TopicPartition, *, cluster: Cluster, appended: Callable[[int], None]) -> None:
        """`appended` is called with the brokers' time."""
        self._place = place
        self._cluster = cluster
        self._appended = appended
        self._writer: BatchTransactions | None = None
        self._turn = 0
        """Messages without a key go to the target's partitions in turns, one for each transaction."""
        self._keyless: dict[str, int] = {}
        """Topic → the partition of this transaction's messages without a key."""
        self._counts: dict[str, int] = {}
        """Topic → how many partitions it has, for this transaction."""

    def claim(self) -> bool:
        """Become the only writer. Returns False if this owner is already."""
        if self._writer is not None:
            return False
        transactional_id = f"{self._place.topic}.{self._place.partition}"
        self._writer = BatchTransactions(self._cluster, transactional_id, timeout_ms=_TRANSACTION_TIMEOUT_MS)
        return True

    def close(self) -> None:
        """Release it; the next owner aborts open transactions."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def begin(self, now_ms: int) -> Batches:
        """Return the empty batches of the next transaction. `now_ms` is never ahead of the brokers' clock: they refuse
        records of the future."""
        self._keyless.clear()
        self._counts.clear()
        self._turn += 1
        return Batches(now_ms=now_ms, place_of=self._partition_of)

    def commit(self, batches: Batches) -> WriteRefused | None:
        """Write in one transaction. Returns which records are to blame; raises where the brokers are."""
        assert self._writer is not None
        try:
            appended_ms = self._writer.commit(batches.planned())
        except BatchesRefused as error:
            named = {tag[number] for tag, numbers in error.batches for number in numbers}
            blamed = named or {number for tag, _ in error.batches for number in tag}
            cause = (
                Cause.TARGET_UNAVAILABLE
                if error.is_away
                else Cause.CERTAIN
                if named or len(blamed) == 1
                else Cause.SUSPECTED
            )
            if OWN in blamed:
                raise
            return WriteRefused(error.reason, frozenset(blamed), cause)
        if self._place in appended_ms:
            self._appended(appended_ms[self._place])
        return None

    def problem(self, targets: Iterable[tuple[str, int | None, int]]) -> WriteRefused | None:
        """Return why a target cannot be written to, if that is known: a topic that does not exist, or a partition
        without a leader, would hold up the other messages. Targets are (topic, partition, number of the record)."""
        numbers: dict[tuple[str, int | None], list[int]] = {}
        for topic, partition, number in targets:
            numbers.setdefault((topic, partition), []).append(number)
        for (topic, partition), those in numbers.items():
            cause = Cause.CERTAIN
            try:
                leaders = self._cluster.topic(topic).leaders
            except UnknownTopic as error:
                reason = f"UnknownTopic: {error}"
            else:
                if partition is not None and partition not in leaders:
                    reason = f"InputError: {topic} has {len(leaders)} partitions: there is no partition {partition}"
                elif any(leader >= 0 for leader in leaders.values()) if partition is None else leaders[partition] >= 0:
                    continue
                else:
                    self._cluster.forget_leaders(topic)
                    reason, cause = f"PartitionUnavailable: {topic} has no leader", Cause.TARGET_UNAVAILABLE
            return WriteRefused(reason, frozenset(those), cause)
        return None

    def _partition_of(self, topic: str, partition: int | None, key: bytes | None) -> int:
        # Terse: it is called for each message.
        if partition is not None:
            return partition
        if key is not None:
            count = self._counts.get(topic)
            if count is None:
                count = self._counts[topic] = len(self._cluster.topic(topic).leaders)
            return partition_of(key, count)
        place = self._keyless.get(topic)
        if place is None:
            leaders = self._cluster.topic(topic).leaders
            able = [number for number, leader in leaders.items() if leader >= 0] or list(leaders)
            place = self._keyless[topic] = able[self._turn % len(able)]
        return place
