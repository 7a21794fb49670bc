"""Fetches of share groups that read a partition in more than one chunk, or that lease only a part of a batch."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from share_member import ACCEPT, RELEASE, ShareMember, produce, ranges, set_group
from transaction_wire import WireProducer
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.server.share.reading import CHUNK_BYTES
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.record import RecordData, encode_batch

STRICT = 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"group.share.partition.max.record.locks": "100"}) as embedded:
        yield embedded


@pytest.fixture
def topic(cluster: EmbeddedCluster, client: WireClient, request: pytest.FixtureRequest) -> str:
    """An empty topic; the group of the same name begins with its first record."""
    name = request.node.name.translate(str.maketrans("_[", "--", "]"))[-60:]
    cluster.create_topic(name)
    set_group(client, name, "share.auto.offset.reset", "earliest")
    return name


@pytest.fixture
def member(cluster: EmbeddedCluster, topic: str) -> Iterator[ShareMember]:
    member = ShareMember(cluster.bootstrap_servers, topic)
    yield member
    member.close()


@pytest.mark.parametrize("aborted", [50, 150], ids=["fewer-than-locks", "more-than-locks"])
def test_a_strict_fetch_behind_an_aborted_transaction_has_each_batch_once(
    client: WireClient, topic: str, member: ShareMember, aborted: int
) -> None:
    """Aborted records use locks until they are archived: fewer are free than the batch behind them has records."""
    set_group(client, topic, "share.isolation.level", "read_committed")
    produce(client, topic, 1)
    member.join(topic)
    assert member.acquire(topic) == [(0, 0, 1)]
    assert member.acknowledge(topic, 0, 0, ACCEPT) == ErrorCode.NONE
    producer = WireProducer(client, topic).init()
    producer.send(topic, *[b"aborted"] * aborted)
    producer.abort()
    produce(client, topic, 150)
    ((first, _, count),) = ranges(member.fetch(topic, share_acquire_mode=STRICT))
    assert (first, count) == (1 + aborted + 1, 1)


def test_a_lot_of_a_later_chunk_is_not_leased_with_other_records(
    client: WireClient, topic: str, member: ShareMember
) -> None:
    """The last record of a chunk must not be released with a record that is delivered for the last time."""
    now_ms = int(time.time() * 1000)
    big = [RecordData(offset=0, timestamp_ms=now_ms, key=None, value=bytes(CHUNK_BYTES), headers=[])]
    assert client.produce(topic, encode_batch(big)).error_code == ErrorCode.NONE
    produce(client, topic, 10)
    member.join(topic)
    assert member.acquire(topic) == [(0, 0, 1), (1, 10, 1)]
    for count in (2, 3):
        assert member.acknowledge(topic, 1, 10, RELEASE) == ErrorCode.NONE
        assert member.acquire(topic) == [(1, 10, count)]
    for first, last in ((1, 10), (0, 0)):
        assert member.acknowledge(topic, first, last, RELEASE) == ErrorCode.NONE
    assert ranges(member.fetch(topic)) == [(0, 0, 2)]
    assert ranges(member.fetch(topic)) == [(1, 5, 4)]
