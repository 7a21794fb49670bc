"""One client that reads and writes at once: no answer is taken for another's, whoever asks in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.errors import LifecycleError
from ottla.records import TopicPartition
from ottla.wire_client import Cluster, wire_settings
from ottla.wire_client.cluster.cluster_client import LATEST
from ottla.wire_client.fetching.range_reading import batches_of_ranges
from ottla.wire_client.fetching.record_rows import rows_of
from ottla.wire_client.producing.batch_producer import ProduceClient
from ottla.wire_client.producing.outgoing_batch import OutgoingBatch
from ottla.wire_client.ranges import OffsetRange
from ottla_wire.protocol import ApiKey
from ottla_wire.records import RecordData, encode_record


@pytest.fixture
def cluster(kafka: Any) -> Iterator[Cluster]:
    """Fetches hundreds of bytes at once, so that a topic is many answers."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "max.partition.fetch.bytes": 300}
    with Cluster(wire_settings(settings)) as made:
        yield made


@pytest.fixture
def topic(kafka: Any, make_topic: Callable[..., str]) -> str:
    """The first of its two partitions has fifty records, in batches of one."""
    name = make_topic(partitions=2)
    for number in range(50):
        kafka.produce(name, [b"%03d" % number * 30], partition=0)
    return name


def wanted(topic: str) -> OffsetRange:
    return OffsetRange(topic=topic, partition=0, start=0, end=50)


def batch(partition: int, value: bytes) -> OutgoingBatch:
    pieces: list[bytes] = []
    encode_record(RecordData(0, 1_000, None, value), 0, 0, pieces)
    return OutgoingBatch(
        partition=partition,
        first_row=0,
        row_count=1,
        payload=b"".join(pieces),
        base_timestamp_ms=1_000,
        max_timestamp_ms=1_000,
    )


def test_reading_and_writing_on_one_client_take_no_answer_of_each_other(cluster: Cluster, topic: str) -> None:
    first, second = (batches_of_ranges(cluster, [wanted(topic)]) for _ in range(2))
    producer = ProduceClient(cluster)
    seen: tuple[list[bytes | None], list[bytes | None]] = ([], [])
    limits = cluster.settings.decode_limits
    looks = 0
    for mine, other in zip(first, second, strict=True):
        for values, found in zip(seen, (mine, other), strict=True):
            values += [row[3] for rows in rows_of(found, limits) for row in rows.rows]
        producer.send(topic, [batch(1, b"%d" % looks)])
        assert cluster.list_offsets({TopicPartition(topic, 0): LATEST}) == {TopicPartition(topic, 0): (50, -1)}
        looks += 1
    assert looks > 10, "many answers, so that there was something to mix"
    assert seen[0] == seen[1] == [b"%03d" % number * 30 for number in range(50)]
    assert producer.flush().ranges == {TopicPartition(topic, 1): (0, looks - 1)}


def test_a_reader_that_ends_closes_no_connection_on_which_another_waits_for_answers(
    cluster: Cluster, topic: str
) -> None:
    reading = batches_of_ranges(cluster, [wanted(topic)])
    limits = cluster.settings.decode_limits
    last = -1
    while last < 49:
        last = max([row[0] for rows in rows_of(next(reading), limits) for row in rows.rows], default=last)
    producer = ProduceClient(cluster)
    producer.send(topic, [batch(1, b"x")])
    (lent,) = [each for several in cluster._lent.values() for each in several]
    assert lent.connection.in_flight == 1, "the reader's, which owes it nothing more"
    assert list(reading) == []
    assert lent.connection.is_open
    assert producer.flush().rows == 1


def test_a_connection_is_lent_again_when_nothing_is_in_flight_on_it(cluster: Cluster, topic: str) -> None:
    reader, writer = object(), object()
    leader = cluster.topic(topic).leaders[0]
    lent = cluster.broker(leader, borrower=reader)
    assert cluster.broker(leader, borrower=writer) is lent
    lent.send(ApiKey.METADATA, {"topics": []})
    assert cluster.broker(leader, borrower=writer) is lent
    own = cluster.broker(leader, borrower=reader)
    assert own is not lent
    lent.receive()
    assert cluster.broker(leader, borrower=reader) is own
    lent.close()
    own.close()
    assert cluster.broker(leader, borrower=reader).is_open


def test_a_question_on_a_connection_that_owes_an_answer_is_refused(cluster: Cluster, topic: str) -> None:
    connection = cluster.broker(cluster.topic(topic).leaders[0], borrower=object())
    connection.send(ApiKey.METADATA, {"topics": []})
    with pytest.raises(LifecycleError, match="LIST_GROUPS cannot be sent here: 1 earlier requests wait"):
        connection.call(ApiKey.LIST_GROUPS, {})
    assert connection.receive().brokers, "the answer that was due is not lost"
    assert connection.call(ApiKey.LIST_GROUPS, {}).error_code == 0
