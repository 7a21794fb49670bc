"""Dead letters that the broker writes for share groups (KIP-1191): which, where, and when they cannot be written."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from share_member import ACCEPT, REJECT, RELEASE, ShareMember
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.share.events import (
    Acknowledge,
    AcknowledgedRange,
    Acquire,
    DeadLettered,
    Effect,
    GivenUp,
    LogBatch,
    Persist,
    Persisted,
    PersistedState,
    StateBatch,
    Tick,
    WriteDeadLetters,
)
from broker_embedded.share.partition import SharePartition, ShareSettings
from broker_embedded.share.states import AcknowledgeType, RecordState
from ottla.failures.foreign import describe_dead_letter
from ottla.testing.waiting import wait_until
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records import RecordData, decode_batch, encode_batch, iter_batches

ENABLED = {"errors.deadletterqueue.group.enable": "true"}
SETTINGS = ShareSettings(delivery_limit=2, lock_ms=1_000, has_dead_letters=True)


# --- the share partition


def acquired(partition: SharePartition, *, now_ms: int = 0) -> list[Effect]:
    event = Acquire(
        member_id="m", offset=partition.next_offset(), batches=(LogBatch(0, 3),), max_records=4, is_strict=True
    )
    return partition.step(event, now_ms)


def acknowledged(partition: SharePartition, first: int, last: int, kind: AcknowledgeType) -> list[Effect]:
    ranges = (AcknowledgedRange(first, last, (kind,)),)
    return partition.step(Acknowledge(ticket=object(), member_id="m", ranges=ranges), 0)


def persisted(partition: SharePartition, effects: list[Effect], error: ErrorCode = ErrorCode.NONE) -> list[Effect]:
    (write,) = [each for each in effects if isinstance(each, Persist)]
    return partition.step(Persisted(write_id=write.write_id, error=error), 0)


def letters(effects: list[Effect]) -> list[tuple[int, int, int, GivenUp]]:
    found = [each for each in effects if isinstance(each, WriteDeadLetters)]
    return [(each.first, each.last, each.delivery_count, each.why) for each in found]


def test_a_rejected_record_is_archived_when_its_dead_letter_is_written() -> None:
    partition = SharePartition(PersistedState(0, 0), SETTINGS)
    acquired(partition)
    rejected = acknowledged(partition, 0, 1, AcknowledgeType.REJECT)
    assert letters(rejected) == [], "the outcome is kept first"
    assert letters(persisted(partition, rejected)) == [(0, 1, 1, GivenUp.REJECTED)]
    assert partition.start_offset == 0
    assert acknowledged(partition, 0, 0, AcknowledgeType.ACCEPT)[0].error is ErrorCode.INVALID_RECORD_STATE  # type: ignore[union-attr]
    (write,) = [e for e in partition.step(DeadLettered(first=0, last=1), 0) if isinstance(e, Persist)]
    assert write.batches == (StateBatch(0, 1, RecordState.ARCHIVED, 1),)
    assert partition.start_offset == 2
    assert not letters(partition.step(DeadLettered(first=0, last=1), 0)), "what comes twice changes nothing"


def test_a_rejection_that_was_not_kept_writes_no_dead_letter() -> None:
    partition = SharePartition(PersistedState(0, 0), SETTINGS)
    acquired(partition)
    failed = persisted(
        partition, acknowledged(partition, 0, 0, AcknowledgeType.REJECT), ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    assert letters(failed) == []
    assert acknowledged(partition, 0, 0, AcknowledgeType.ACCEPT)


def test_what_is_given_up_at_the_limit_is_a_dead_letter_and_gaps_are_none() -> None:
    partition = SharePartition(PersistedState(0, 0), SETTINGS)
    acquired(partition)
    persisted(partition, acknowledged(partition, 3, 3, AcknowledgeType.GAP))
    persisted(partition, acknowledged(partition, 0, 1, AcknowledgeType.RELEASE))
    assert letters(partition.step(Tick(), 1_000)) == [], "the lock of the first delivery"
    acquired(partition, now_ms=1_000)
    acquired(partition, now_ms=1_000)
    acquired(partition, now_ms=1_000)
    found = letters(partition.step(Tick(), 2_000))
    assert {(first, last) for first, last, _, _ in found} <= {(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)}
    assert sum(last - first + 1 for first, last, _, _ in found) == 3
    assert {(count, why) for _, _, count, why in found} == {(2, GivenUp.DELIVERIES_SPENT)}


def test_a_new_leader_writes_the_dead_letters_that_the_one_before_may_not_have_written() -> None:
    kept = (StateBatch(5, 6, RecordState.ARCHIVING, 1), StateBatch(7, 7, RecordState.ARCHIVING, 2))
    partition = SharePartition(PersistedState(0, 5, kept), SETTINGS)
    assert letters(partition.step(Tick(), 0)) == [(5, 6, 1, GivenUp.REJECTED), (7, 7, 2, GivenUp.DELIVERIES_SPENT)]
    partition.step(DeadLettered(first=5, last=6), 0)
    assert (partition.start_offset, partition.end_offset) == (7, 8)


# --- on a broker


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    config = {"errors.deadletterqueue.auto.create.topics.enable": "true"}
    with EmbeddedCluster(config=config) as embedded:
        yield embedded


@pytest.fixture
def topic(cluster: EmbeddedCluster, client: WireClient, request: pytest.FixtureRequest) -> str:
    """A topic with four records; its name is also the group's."""
    name = request.node.name.replace("[", "-").replace("]", "")
    cluster.create_topic(name)
    records = [RecordData(n, 1, b"k%d" % n, b"v%d" % n, [("own", b"header")]) for n in range(4)]
    assert client.produce(name, encode_batch(records)).error_code == ErrorCode.NONE
    return name


def set_group(client: WireClient, group: str, **settings: str) -> None:
    configs = [
        {"name": name.replace("_", "."), "config_operation": 0, "value": value} for name, value in settings.items()
    ]
    resource = {"resource_type": 32, "resource_name": group, "configs": configs}
    body = {"resources": [resource], "validate_only": False}
    assert client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0].error_code == ErrorCode.NONE


@pytest.fixture
def member(cluster: EmbeddedCluster, client: WireClient, topic: str) -> Iterator[ShareMember]:
    set_group(client, topic, share_auto_offset_reset="earliest", share_delivery_count_limit="2")
    member = ShareMember(cluster.bootstrap_servers, topic)
    member.join(topic)
    yield member
    member.close()


def dead_letters(client: WireClient, topic: str, wanted: int) -> list[RecordData]:
    found: list[RecordData] = []

    def are_there() -> bool:
        answer = client.fetch(topic, 0)
        data = bytes(answer.records or b"")
        found[:] = [record for position, _ in iter_batches(data) for record in decode_batch(data, position)]
        return len(found) >= wanted

    wait_until(are_there, 30, what=f"{wanted} dead letters")
    return found


def state_of(cluster: EmbeddedCluster, topic: str) -> str:
    return "\n".join(cluster.explain(topic, offset=0, group=topic))


def test_a_dead_letter_has_the_text_headers_of_kafka(
    cluster: EmbeddedCluster, client: WireClient, topic: str, member: ShareMember
) -> None:
    cluster.create_topic("dlq.given-up", config=ENABLED)
    set_group(client, topic, errors_deadletterqueue_topic_name="dlq.given-up")
    assert member.acquire(topic) == [(0, 3, 1)]
    assert member.acknowledge(topic, 0, 0, REJECT) is ErrorCode.NONE
    assert member.acknowledge(topic, 1, 1, RELEASE) is ErrorCode.NONE
    assert member.acknowledge(topic, 2, 3, ACCEPT) is ErrorCode.NONE
    assert member.acquire(topic) == [(1, 1, 2)]
    assert member.acknowledge(topic, 1, 1, RELEASE) is ErrorCode.NONE
    rejected, spent = dead_letters(client, "dlq.given-up", 2)
    assert [(name, bytes(value or b"")) for name, value in rejected.headers] == [
        ("__dlq.errors.topic", topic.encode()),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"0"),
        ("__dlq.errors.group", topic.encode()),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    ]
    assert (rejected.key, rejected.value) == (None, None)
    view = describe_dead_letter([(name, bytes(value or b"")) for name, value in spent.headers])
    assert view is not None
    assert (view.offset, view.attempts, view.message) == (1, 2, "Offset delivery count exceeded the threshold.")
    wait_until(lambda: "is settled" in state_of(cluster, topic), 30, what="the end of the record")


@pytest.mark.parametrize("keeps_headers", ["false", "true"])
def test_a_copy_has_key_and_value_and_the_own_headers_if_that_is_wanted(
    cluster: EmbeddedCluster, client: WireClient, topic: str, member: ShareMember, keeps_headers: str
) -> None:
    dead = f"dlq.copies-{keeps_headers}"
    cluster.create_topic(dead, config=ENABLED)
    set_group(
        client,
        topic,
        errors_deadletterqueue_topic_name=dead,
        errors_deadletterqueue_copy_record_enable="true",
        errors_deadletterqueue_copy_headers_enable=keeps_headers,
    )
    member.acquire(topic)
    assert member.acknowledge(topic, 1, 2, REJECT) is ErrorCode.NONE
    found = dead_letters(client, dead, 2)
    assert [(each.key, each.value) for each in found] == [(b"k1", b"v1"), (b"k2", b"v2")]
    assert [name for name, _ in found[0].headers].count("own") == (keeps_headers == "true")


def test_a_copy_that_is_too_large_is_left_out(
    cluster: EmbeddedCluster, client: WireClient, topic: str, member: ShareMember
) -> None:
    cluster.create_topic("dlq.small", config={**ENABLED, "max.message.bytes": "600"})
    large = [RecordData(0, 1, b"large", b"x" * 400)]
    assert client.produce(topic, encode_batch(large)).error_code == ErrorCode.NONE
    set_group(
        client, topic, errors_deadletterqueue_topic_name="dlq.small", errors_deadletterqueue_copy_record_enable="true"
    )
    held = member.acquire(topic)
    while held[-1][1] < 4:
        held += member.acquire(topic)
    assert member.acknowledge(topic, 0, 4, REJECT) is ErrorCode.NONE
    found = dead_letters(client, "dlq.small", 5)
    assert [each.value for each in found] == [b"v0", b"v1", b"v2", b"v3", None]


def test_a_topic_with_the_prefix_is_created(
    cluster: EmbeddedCluster, client: WireClient, topic: str, member: ShareMember
) -> None:
    set_group(client, topic, errors_deadletterqueue_topic_name="dlq.created")
    member.acquire(topic)
    assert member.acknowledge(topic, 0, 3, REJECT) is ErrorCode.NONE
    wait_until(lambda: ("dlq.created", 0) in cluster.facts().partitions, 30, what="the topic")
    assert len(dead_letters(client, "dlq.created", 4)) == 4


@contextmanager
def no_topics_created(client: WireClient) -> Iterator[None]:
    """Have the brokers create no dead letter topics meanwhile."""

    def set_to(value: bool) -> None:
        name = "errors.deadletterqueue.auto.create.topics.enable"
        change = {"name": name, "config_operation": 0, "value": str(value).lower()}
        resource = {"resource_type": 4, "resource_name": "", "configs": [change]}
        body = {"resources": [resource], "validate_only": False}
        assert client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0].error_code == ErrorCode.NONE

    set_to(False)
    try:
        yield
    finally:
        set_to(True)


@pytest.mark.parametrize("dead", ["without-the-prefix", "dlq.closed", "dlq.missing"])
def test_without_a_topic_that_takes_them_records_are_archived_and_that_is_logged(
    cluster: EmbeddedCluster,
    client: WireClient,
    topic: str,
    member: ShareMember,
    dead: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if dead != "dlq.missing":
        cluster.create_topic(dead, config={} if dead == "dlq.closed" else ENABLED)
    set_group(client, topic, errors_deadletterqueue_topic_name=dead)
    member.acquire(topic)
    with caplog.at_level(logging.ERROR), no_topics_created(client):
        assert member.acknowledge(topic, 0, 3, REJECT) is ErrorCode.NONE
        wait_until(lambda: "Record 0 is settled" in state_of(cluster, topic), 30, what="the end of the records")
    assert f"no dead letters of {topic}-0, offsets 0 to 3, in {dead}" in caplog.text


def test_dead_letters_are_written_when_their_topic_has_enough_replicas_again(
    cluster: EmbeddedCluster, client: WireClient, topic: str, member: ShareMember
) -> None:
    cluster.create_topic("dlq.later", config=ENABLED)
    set_group(client, topic, errors_deadletterqueue_topic_name="dlq.later")
    fault = cluster.faults.add(api="PRODUCE", topic="dlq.later", error="NOT_ENOUGH_REPLICAS", count=3)
    member.acquire(topic)
    assert member.acknowledge(topic, 0, 3, REJECT) is ErrorCode.NONE
    assert len(dead_letters(client, "dlq.later", 4)) == 4
    assert fault.hits == 3
    wait_until(lambda: "Record 0 is settled" in state_of(cluster, topic), 30, what="the end of the records")
