"""Produce and Fetch over the wire: errors per partition, long polls, limits, sessions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.batch import iter_headers
from ottla_wire.records.record import decode_batch

Connect = Callable[[], Any]
MakeBatch = Callable[..., bytes]


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> str:
    cluster.create_topic("t", partitions=3)
    return "t"


def values_of(records: Any) -> list[bytes | None]:
    data = bytes(records or b"")
    found, position = [], 0
    for header in iter_headers(data):
        found += [record.value for record in decode_batch(data, position)]
        position += header.size_in_bytes
    return found


@pytest.mark.parametrize("version", range(3, 13))
def test_what_was_produced_is_fetched_in_every_version(
    client: Any, topic: str, make_batch: MakeBatch, version: int
) -> None:
    answer = client.produce(topic, make_batch(b"a", b"b"), version=version)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert client.produce(topic, make_batch(b"c"), version=version).base_offset == 2
    fetched = client.fetch(topic, version=max(4, version))
    assert values_of(fetched.records) == [b"a", b"b", b"c"]
    assert fetched.high_watermark == 3


@pytest.mark.parametrize(("produce", "fetch"), [(13, 13), (13, 15), (13, 16), (13, 18)])
def test_topics_are_named_by_id_in_new_versions(
    client: Any, topic: str, make_batch: MakeBatch, produce: int, fetch: int
) -> None:
    metadata = client.call(ApiKey.METADATA, 12, {"topics": [{"name": topic}]})
    topic_id = metadata.topics[0].topic_id
    data = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": make_batch(b"v")}]}]
    produced = client.call(ApiKey.PRODUCE, produce, {"acks": -1, "timeout_ms": 1000, "topic_data": data})
    assert produced.responses[0].topic_id == topic_id
    assert produced.responses[0].partition_responses[0].error_code == 0
    wanted = [{"topic_id": topic_id, "partitions": [{"partition": 0, "partition_max_bytes": 1_000_000}]}]
    fetched = client.call(ApiKey.FETCH, fetch, {"max_wait_ms": 0, "min_bytes": 1, "topics": wanted})
    assert fetched.responses[0].topic_id == topic_id
    assert values_of(fetched.responses[0].partitions[0].records) == [b"v"]


def test_an_unknown_topic_id_is_said_per_partition(client: Any, topic: str, make_batch: MakeBatch) -> None:
    unknown = bytes(15) + b"\x09"
    data = [{"topic_id": unknown, "partition_data": [{"index": 0, "records": make_batch(b"v")}]}]
    produced = client.call(ApiKey.PRODUCE, 13, {"acks": 1, "timeout_ms": 1000, "topic_data": data})
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    wanted = [{"topic_id": unknown, "partitions": [{"partition": 0, "partition_max_bytes": 1_000_000}]}]
    fetched = client.call(ApiKey.FETCH, 13, {"max_wait_ms": 1000, "min_bytes": 1, "topics": wanted})
    assert fetched.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_one_partitions_error_leaves_the_others_alone(client: Any, topic: str, make_batch: MakeBatch) -> None:
    good = make_batch(b"v")
    corrupt = good[:-1] + bytes([good[-1] ^ 1])
    data = [
        {"name": topic, "partition_data": [{"index": 0, "records": good}, {"index": 1, "records": corrupt}]},
        {"name": "missing", "partition_data": [{"index": 0, "records": good}]},
        {"name": topic, "partition_data": [{"index": 9, "records": good}, {"index": 2, "records": good}]},
    ]
    answer = client.call(ApiKey.PRODUCE, 9, {"acks": -1, "timeout_ms": 1000, "topic_data": data})
    errors = [[each.error_code for each in part.partition_responses] for part in answer.responses]
    assert errors == [
        [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE],
    ]


def test_acks_0_gets_no_response_and_does_not_stall_what_follows(
    client: Any, topic: str, make_batch: MakeBatch
) -> None:
    body = {
        "acks": 0,
        "timeout_ms": 1000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": make_batch(b"v")}]}],
    }
    client.send(ApiKey.PRODUCE, 9, body)
    client.send(ApiKey.PRODUCE, 9, body)
    last = client.send(ApiKey.API_VERSIONS, 2, {})
    answered, _ = client.receive()
    assert answered == last
    assert client.fetch(topic).high_watermark == 2


def test_acks_0_to_a_missing_topic_closes_the_connection(client: Any, make_batch: MakeBatch) -> None:
    data = [{"name": "missing", "partition_data": [{"index": 0, "records": make_batch(b"v")}]}]
    client.send(ApiKey.PRODUCE, 9, {"acks": 0, "timeout_ms": 1000, "topic_data": data})
    assert client.is_closed_by_peer()


def test_clients_cannot_write_to_internal_topics(cluster: EmbeddedCluster, client: Any, make_batch: MakeBatch) -> None:
    cluster.create_topic("__consumer_offsets")
    refused = client.produce("__consumer_offsets", make_batch(b"v"))
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(client: Any, topic: str, make_batch: MakeBatch, acks: int) -> None:
    assert client.produce(topic, make_batch(b"v"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_long_poll_is_woken_by_the_produce(connect: Connect, topic: str, make_batch: MakeBatch) -> None:
    reader, writer = connect(), connect()
    reader.send(ApiKey.FETCH, 11, reader.fetch_body(topic, max_wait_ms=8_000))
    # The reader's request is in the purgatory when a request behind it on the broker's loop has been answered.
    writer.call(ApiKey.API_VERSIONS, 2, {})
    started = time.monotonic()
    writer.produce(topic, make_batch(b"now"))
    _, response = reader.receive()
    assert time.monotonic() - started < 4
    assert values_of(response.responses[0].partitions[0].records) == [b"now"]


def test_a_long_poll_waits_for_min_bytes_over_several_produces(
    connect: Connect, topic: str, make_batch: MakeBatch
) -> None:
    reader, writer = connect(), connect()
    batch = make_batch(b"x" * 100)
    reader.send(ApiKey.FETCH, 11, reader.fetch_body(topic, max_wait_ms=8_000, min_bytes=3 * len(batch)))
    for _ in range(3):
        writer.produce(topic, batch)
    _, response = reader.receive()
    assert len(values_of(response.responses[0].partitions[0].records)) == 3


def test_a_long_poll_without_data_ends_after_max_wait(client: Any, topic: str) -> None:
    started = time.monotonic()
    assert values_of(client.fetch(topic, max_wait_ms=120).records) == []
    assert 0.1 < time.monotonic() - started < 5


def test_a_long_poll_on_a_deleted_topic_is_woken(connect: Connect, topic: str) -> None:
    reader, admin = connect(), connect()
    reader.send(ApiKey.FETCH, 11, reader.fetch_body(topic, max_wait_ms=8_000))
    admin.call(ApiKey.API_VERSIONS, 2, {})
    started = time.monotonic()
    admin.call(ApiKey.DELETE_TOPICS, 5, {"topic_names": [topic], "timeout_ms": 1000})
    _, response = reader.receive()
    assert time.monotonic() - started < 4
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_reader_that_hangs_up_leaves_nothing_behind(connect: Connect, topic: str, make_batch: MakeBatch) -> None:
    readers = [connect() for _ in range(20)]
    for reader in readers:
        reader.send(ApiKey.FETCH, 11, reader.fetch_body(topic, max_wait_ms=30_000))
    writer = connect()
    writer.call(ApiKey.API_VERSIONS, 2, {})
    for reader in readers:
        reader.close()
    assert writer.produce(topic, make_batch(b"v")).error_code == 0


def test_at_least_one_batch_is_returned_above_every_limit(client: Any, topic: str, make_batch: MakeBatch) -> None:
    client.produce(topic, make_batch(b"x" * 5_000))
    client.produce(topic, make_batch(b"y" * 5_000))
    fetched = client.fetch(topic, partition_max_bytes=1, max_bytes=1)
    assert values_of(fetched.records) == [b"x" * 5_000]


def test_the_response_limit_holds_over_all_partitions(client: Any, topic: str, make_batch: MakeBatch) -> None:
    for partition in range(3):
        client.produce(topic, make_batch(b"x" * 10_000), partition=partition)
    wanted = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1_000_000} for number in range(3)]
    body = {
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 15_000,
        "topics": [{"topic": topic, "partitions": wanted}],
    }
    response = client.call(ApiKey.FETCH, 11, body)
    sizes = [len(bytes(each.records)) for each in response.responses[0].partitions]
    assert sum(size > 0 for size in sizes) == 1


def test_a_fetch_inside_a_batch_returns_the_whole_batch(client: Any, topic: str, make_batch: MakeBatch) -> None:
    client.produce(topic, make_batch(b"a", b"b", b"c"))
    assert values_of(client.fetch(topic, 2).records) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("offset", [-1, 2, 1000])
def test_an_offset_outside_the_log_is_out_of_range(client: Any, topic: str, make_batch: MakeBatch, offset: int) -> None:
    client.produce(topic, make_batch(b"a"))
    answer = client.fetch(topic, offset, max_wait_ms=5_000)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_older_and_newer_leader_epochs_are_fenced(client: Any, topic: str) -> None:
    assert client.fetch(topic, current_leader_epoch=0).error_code == 0
    assert client.fetch(topic, current_leader_epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_session_sends_everything_first_and_then_only_what_changed(
    client: Any, topic: str, make_batch: MakeBatch
) -> None:
    partitions = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1_000_000} for number in range(3)]
    base = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50_000_000}
    full = client.call(
        ApiKey.FETCH, 11, {**base, "session_epoch": 0, "topics": [{"topic": topic, "partitions": partitions}]}
    )
    assert full.session_id > 0
    assert len(full.responses[0].partitions) == 3

    quiet = client.call(ApiKey.FETCH, 11, {**base, "session_id": full.session_id, "session_epoch": 1})
    assert quiet.responses == []

    client.produce(topic, make_batch(b"v"), partition=1)
    changed = client.call(ApiKey.FETCH, 11, {**base, "session_id": full.session_id, "session_epoch": 2})
    assert [each.partition_index for each in changed.responses[0].partitions] == [1]

    moved = [{"topic": topic, "partitions": [{"partition": 1, "fetch_offset": 1, "partition_max_bytes": 1_000_000}]}]
    body = {
        **base,
        "session_id": full.session_id,
        "session_epoch": 3,
        "topics": moved,
        "forgotten_topics_data": [{"topic": topic, "partitions": [0, 2]}],
    }
    assert client.call(ApiKey.FETCH, 11, body).responses == []
    client.produce(topic, make_batch(b"v"), partition=0)
    forgotten = client.call(ApiKey.FETCH, 11, {**base, "session_id": full.session_id, "session_epoch": 4})
    assert forgotten.responses == [], "partition 0 has left the session"


def test_a_session_that_lost_count_is_told_so(client: Any, topic: str) -> None:
    base = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50_000_000}
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}]
    full = client.call(
        ApiKey.FETCH, 11, {**base, "session_epoch": 0, "topics": [{"topic": topic, "partitions": partitions}]}
    )
    wrong = client.call(ApiKey.FETCH, 11, {**base, "session_id": full.session_id, "session_epoch": 5})
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = client.call(ApiKey.FETCH, 11, {**base, "session_id": 12345, "session_epoch": 1})
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_waiting_session_is_woken_and_answers_only_the_partition_that_changed(
    connect: Connect, topic: str, make_batch: MakeBatch
) -> None:
    reader, writer = connect(), connect()
    base = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50_000_000}
    partitions = [{"partition": number, "fetch_offset": 0, "partition_max_bytes": 1_000_000} for number in range(3)]
    full = reader.call(
        ApiKey.FETCH, 11, {**base, "session_epoch": 0, "topics": [{"topic": topic, "partitions": partitions}]}
    )
    body = {**base, "max_wait_ms": 8_000, "session_id": full.session_id, "session_epoch": 1}
    reader.send(ApiKey.FETCH, 11, body)
    writer.call(ApiKey.API_VERSIONS, 2, {})
    writer.produce(topic, make_batch(b"v"), partition=2)
    _, response = reader.receive()
    assert [each.partition_index for each in response.responses[0].partitions] == [2]


def test_many_writers_and_readers_at_once_lose_nothing(connect: Connect, topic: str, make_batch: MakeBatch) -> None:
    def write(client: Any, partition: int) -> None:
        for number in range(50):
            assert client.produce(topic, make_batch(b"%d" % number), partition=partition).error_code == 0

    def read(client: Any, partition: int, into: list[bytes | None]) -> None:
        offset = 0
        while offset < 50:
            body = client.fetch_body(topic, offset, partition=partition, max_wait_ms=1000)
            response = client.call(ApiKey.FETCH, 11, body)
            values = values_of(response.responses[0].partitions[0].records)
            into += values
            offset += len(values)

    read_values: list[list[bytes | None]] = [[], [], []]
    threads = [
        threading.Thread(target=work, args=arguments)
        for number in range(3)
        for work, arguments in (
            (read, (connect(), number, read_values[number])),
            (write, (connect(), number)),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert read_values == [[b"%d" % number for number in range(50)]] * 3


def test_read_committed_stops_at_an_open_transaction_and_is_not_woken_by_it(
    connect: Connect, topic: str, make_batch: MakeBatch
) -> None:
    reader, writer = connect(), connect()
    writer.produce(topic, make_batch(b"plain"))
    open_transaction = make_batch(b"undecided", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert writer.produce(topic, open_transaction).error_code == 0
    committed = reader.fetch(topic, isolation_level=1)
    assert values_of(committed.records) == [b"plain"]
    assert (committed.last_stable_offset, committed.high_watermark) == (1, 2)
    assert committed.aborted_transactions == []
    assert values_of(reader.fetch(topic).records) == [b"plain", b"undecided"]

    started = time.monotonic()
    reader.send(ApiKey.FETCH, 11, reader.fetch_body(topic, 1, max_wait_ms=300, isolation_level=1))
    writer.produce(topic, make_batch(b"more"))
    _, response = reader.receive()
    assert values_of(response.responses[0].partitions[0].records) == []
    assert time.monotonic() - started > 0.25, "what is not readable must not end the wait"
