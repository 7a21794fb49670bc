"""What must hold at every quiet moment of a cluster, whatever has been done to it.

Each rule looks at the nodes that are alive, from outside and all at once, as nobody in the cluster can. What has been
seen is kept here: who led in which epoch, how far each high watermark was, what is committed.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_embedded.cluster.simulation.committed import CommittedLog
from broker_embedded.cluster.simulation.nodes import SimulatedNode
from broker_embedded.cluster.simulation.transcript import Transcript
from broker_embedded.cluster.simulation.violation import InvariantViolated
from broker_embedded.common.types import TopicPartition
from broker_embedded.replication.partition import Partition


class Invariants:
    """Call `check` whenever the world has come to rest."""

    def __init__(self, transcript: Transcript) -> None:
        self.checks = 0
        self._transcript = transcript
        self._committed: dict[TopicPartition, CommittedLog] = {}
        self._leaders: dict[TopicPartition, dict[int, str]] = {}
        self._controllers: dict[int, str] = {}
        self._last: dict[tuple[str, TopicPartition], _Seen] = {}

    def committed(self, topic_partition: TopicPartition) -> CommittedLog:
        found = self._committed.get(topic_partition)
        if found is None:
            is_internal = topic_partition.topic.startswith("__")
            found = self._committed[topic_partition] = CommittedLog(str(topic_partition), has_values=not is_internal)
        return found

    def check(self, nodes: Iterable[SimulatedNode]) -> None:
        """Check everything that can have changed since the last time."""
        self.checks += 1
        for node in nodes:
            broker = node.broker
            process = node.process
            if broker is None or process is None or not process.has_run:
                continue
            process.has_run = False
            self._one_controller_per_epoch(node)
            for partition in broker.replicas.partitions():
                self._check_replica(node, partition)

    def node_ended(self, node: SimulatedNode) -> None:
        """Forget what is known of the replicas of a process that ended: it may come back with less."""
        for key in [key for key in self._last if key[0] == node.name]:
            del self._last[key]

    def acknowledged(self, topic_partition: TopicPartition, offset: int, values: list[bytes], *, who: str) -> None:
        """Record that a producer got the offset of its records."""
        committed = self.committed(topic_partition)
        for index, value in enumerate(values):
            found = committed.value_at(offset + index)
            if found != value:
                state = "is not committed" if found is None else f"is {found!r}"
                raise InvariantViolated(
                    "what is acknowledged under acks=all is committed",
                    f"{who} was told that {value!r} is in {topic_partition} at {offset + index}, which {state}",
                )

    def consumed(
        self, topic_partition: TopicPartition, offset: int, value: bytes | None, *, who: str, is_read_committed: bool
    ) -> None:
        """Record that a consumer was given a record."""
        committed = self.committed(topic_partition)
        found = committed.value_at(offset)
        if found != value:
            raise InvariantViolated(
                "a consumer reads what is committed",
                f"{who} read {value!r} from {topic_partition} at {offset}, committed is {found!r}",
            )
        decision = committed.decision(offset)
        if is_read_committed and decision in ("ABORT", "OPEN"):
            raise InvariantViolated(
                "read_committed never sees an aborted record",
                f"{who} read {value!r} from {topic_partition} at {offset}, whose transaction is {decision}",
            )

    # --- the rules

    def _one_controller_per_epoch(self, node: SimulatedNode) -> None:
        epoch = node.controller_epoch()
        if epoch is None:
            return
        other = self._controllers.setdefault(epoch, node.name)
        if other != node.name:
            raise InvariantViolated("at most one controller per epoch", f"epoch {epoch}: {other} and {node.name}")
        if epoch > self._last_controller_epoch:
            self._last_controller_epoch = epoch
            self._transcript.note(node.name, f"is the controller in epoch {epoch}")

    _last_controller_epoch = -1

    def _check_replica(self, node: SimulatedNode, partition: Partition) -> None:
        topic_partition = partition.topic_partition
        log = partition.log
        high_watermark = log.high_watermark
        key = (node.name, topic_partition)
        seen = self._last.get(key)
        if seen is None:
            seen = self._last[key] = _Seen()
        is_same = (
            seen.high_watermark == high_watermark
            and seen.log_end_offset == log.log_end_offset
            and seen.epoch == partition.leader_epoch
            and seen.is_leader == partition.is_leader
            and seen.isr == partition.isr
        )
        if is_same:
            return
        committed = self.committed(topic_partition)
        starts_epoch = partition.is_leader and (not seen.is_leader or seen.epoch != partition.leader_epoch)
        if starts_epoch:
            self._one_leader_per_epoch(node, partition)
            seen.verified = 0
        self._high_watermark_moves_forward(node, partition, seen)
        if partition.is_leader:
            if starts_epoch or seen.isr != partition.isr:
                state = f"leads {topic_partition} in epoch {partition.leader_epoch}, in sync {list(partition.isr)}"
                self._transcript.note(node.name, f"{state}, from {high_watermark} to {log.log_end_offset}")
            is_deposed = partition.leader_epoch < max(self._leaders[topic_partition])  # and does not know it yet
            if log.log_end_offset < committed.end_offset and not is_deposed:
                raise InvariantViolated(
                    "what is committed is not lost",
                    f"{topic_partition}: {node.name} leads in epoch {partition.leader_epoch} and ends at "
                    f"{log.log_end_offset}, committed is everything up to {committed.end_offset}",
                )
            if high_watermark > committed.end_offset:
                committed.extend(log, high_watermark, node=node.name)
        end = log.log_end_offset if starts_epoch else min(high_watermark, log.log_end_offset)
        if end > seen.verified:
            seen.verified = committed.compare(log, start=seen.verified, end=end, node=node.name)
        seen.high_watermark = high_watermark
        seen.log_end_offset = log.log_end_offset
        seen.epoch = partition.leader_epoch
        seen.is_leader = partition.is_leader
        seen.isr = partition.isr

    def _one_leader_per_epoch(self, node: SimulatedNode, partition: Partition) -> None:
        leaders = self._leaders.setdefault(partition.topic_partition, {})
        other = leaders.setdefault(partition.leader_epoch, node.name)
        if other != node.name:
            raise InvariantViolated(
                "at most one leader per epoch",
                f"{partition.topic_partition}: {other} and {node.name} in epoch {partition.leader_epoch}",
            )

    def _high_watermark_moves_forward(self, node: SimulatedNode, partition: Partition, seen: _Seen) -> None:
        log = partition.log
        if log.high_watermark > log.log_end_offset:
            raise InvariantViolated(
                "the high watermark is not beyond the log",
                f"{partition.topic_partition}: {node.name} has {log.high_watermark}, its log ends at "
                f"{log.log_end_offset}",
            )
        is_same_epoch = seen.epoch == partition.leader_epoch and seen.is_leader == partition.is_leader
        if is_same_epoch and log.high_watermark < seen.high_watermark:
            raise InvariantViolated(
                "the high watermark never moves back",
                f"{partition.topic_partition}: {node.name} was at {seen.high_watermark}, now at {log.high_watermark}, "
                f"in epoch {partition.leader_epoch}",
            )
        if log.log_end_offset < seen.verified:
            raise InvariantViolated(
                "no replica drops what is committed",
                f"{partition.topic_partition}: {node.name} ended at {seen.log_end_offset} and ends at "
                f"{log.log_end_offset} now; up to {seen.verified} was committed",
            )


class _Seen:
    """A replica as it was at the last check."""

    __slots__ = ("epoch", "high_watermark", "is_leader", "isr", "log_end_offset", "verified")

    def __init__(self) -> None:
        self.epoch = -1
        self.high_watermark = 0
        self.log_end_offset = -1
        self.is_leader = False
        self.isr: tuple[int, ...] = ()
        self.verified = 0
        """Up to here it has been found equal to what is committed."""
