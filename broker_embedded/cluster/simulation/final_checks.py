"""Conditions at the end of a run, when all faults are healed and all work is done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from broker_embedded.cluster.simulation.invariants import Invariants
from broker_embedded.cluster.simulation.nodes import SimulatedNode
from broker_embedded.cluster.simulation.scenario import COPIES, TOPIC, Scenario, reads_committed
from broker_embedded.cluster.simulation.transactions import check_copies, check_transactions
from broker_embedded.cluster.simulation.violation import InvariantViolated
from broker_embedded.cluster.simulation.workload import WorkloadProgress
from broker_embedded.common.types import TopicPartition


def not_in_sync(nodes: Sequence[SimulatedNode], scenario: Scenario) -> str | None:
    """Return which replica still lacks something; None when all are equal and in sync."""
    for topic, number in product((TOPIC, COPIES), range(scenario.partitions)):
        topic_partition = TopicPartition(topic, number)
        replicas = [
            partition
            for node in nodes
            if node.broker is not None and (partition := node.broker.replicas.partition(topic_partition))
        ]
        leaders = [partition for partition in replicas if partition.is_leader]
        ends = [partition.log.log_end_offset for partition in replicas]
        if len(leaders) != 1:
            return f"{topic_partition} has {len(leaders)} leaders"
        if len(leaders[0].isr) < scenario.replication_factor:
            return f"{topic_partition}: only {list(leaders[0].isr)} are in sync"
        if len(set(ends)) > 1 or leaders[0].log.high_watermark != ends[0]:
            return f"{topic_partition}: the replicas end at {ends}, high watermark {leaders[0].log.high_watermark}"
    return None


def still_open(scenario: Scenario, invariants: Invariants) -> str | None:
    """Return an undecided transaction, or None. That of a client that died ends by its timeout."""
    for topic, number in product((TOPIC, COPIES), range(scenario.partitions)):
        producer_ids = invariants.committed(TopicPartition(topic, number)).open_transactions()
        if producer_ids:
            return f"{topic}-{number}: the transactions of producers {producer_ids} are open"
    return None


def check_everything(
    nodes: Iterable[SimulatedNode],
    scenario: Scenario,
    *,
    invariants: Invariants,
    progress: WorkloadProgress,
    consumers: Iterable[str],
) -> None:
    """Check everything, from the first record to the last."""
    for node in nodes:
        _has_all_that_is_committed(node, invariants)
    for name in consumers:
        _has_read_everything(name, scenario, invariants, progress)
    check_transactions(
        progress.transactions, lambda topic, partition: invariants.committed(TopicPartition(topic, partition))
    )
    if scenario.copiers:
        for number in range(scenario.partitions):
            originals, copies = (invariants.committed(TopicPartition(topic, number)) for topic in (TOPIC, COPIES))
            check_copies(originals, copies)


def _has_all_that_is_committed(node: SimulatedNode, invariants: Invariants) -> None:
    assert node.broker is not None
    for partition in node.broker.replicas.partitions():
        committed = invariants.committed(partition.topic_partition)
        found = committed.compare(partition.log, start=0, end=committed.end_offset, node=node.name)
        if found < committed.end_offset and partition.topic_partition.topic in (TOPIC, COPIES):
            raise InvariantViolated(
                "what is committed is not lost",
                f"{partition.topic_partition}: {node.name} has it up to {found} of {committed.end_offset}",
            )


def _has_read_everything(name: str, scenario: Scenario, invariants: Invariants, progress: WorkloadProgress) -> None:
    """Check that a group has seen each record that it may see: nothing was skipped."""
    unseen = ("ABORT",) if reads_committed(name) else ()
    for number in range(scenario.partitions):
        committed = invariants.committed(TopicPartition(TOPIC, number))
        wanted = {offset for offset in committed.values if committed.decision(offset) not in unseen}
        missed = wanted - progress.read.get((f"group-of-{name}", number), set())
        if missed:
            raise InvariantViolated(
                "a group sees every record", f"{name} missed {sorted(missed)[:10]} of {TOPIC}-{number}"
            )
