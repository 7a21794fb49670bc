"""kafka-python consumer groups, unmodified, against the embedded broker."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest

from broker_embedded.cluster import EmbeddedCluster

with warnings.catch_warnings():  # it reads its schemas in a way that Python 3.11 deprecates and 3.13 has again
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

# kafka-python 3.0 forgets a join that completed between two polls; polls that outlast a rebalance do not run into it.
POLL_MS = 300

ASSIGNORS = [
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
]


@pytest.fixture
def start(cluster: EmbeddedCluster, topic: str) -> Iterator[Callable[..., KafkaConsumer]]:
    members: list[KafkaConsumer] = []

    def start(assignor: type = RangePartitionAssignor) -> KafkaConsumer:
        member = KafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=50,
            partition_assignment_strategy=[assignor],
        )
        members.append(member)
        return member

    yield start
    for member in members:
        member.close()


def owned(member: KafkaConsumer) -> set[int]:
    return {partition.partition for partition in member.assignment() or ()}


@pytest.mark.representative("sticky")
@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda one: one.name)
def test_members_share_the_partitions_as_they_come_and_go(start, until, assignor):
    first = start(assignor)
    until(lambda: owned(first) == set(range(6)), lambda: first.poll(POLL_MS))
    second = start(assignor)
    until(lambda: len(owned(first)) == len(owned(second)) == 3, lambda: (first.poll(POLL_MS), second.poll(POLL_MS)))
    assert owned(first) | owned(second) == set(range(6))
    first.close()
    until(lambda: owned(second) == set(range(6)), lambda: second.poll(POLL_MS))


def test_committed_offsets_carry_over_to_the_next_member(start, until, topic):
    first = start()
    values: list[int] = []
    until(
        lambda: len(values) == 60,
        lambda: values.extend(int(one.value) for batch in first.poll(POLL_MS).values() for one in batch),
    )
    assert sorted(values) == list(range(60))
    first.commit()
    first.close()
    second = start()
    assert [second.committed(TopicPartition(topic, number)) for number in range(6)] == [10] * 6


def test_an_operator_lists_and_describes_the_group(cluster: EmbeddedCluster, start, until, topic):
    member = start()
    until(lambda: owned(member) == set(range(6)), lambda: member.poll(POLL_MS))
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        assert topic in str(admin.list_groups())
        assert "Stable" in str(admin.describe_groups([topic]))
    finally:
        admin.close()
