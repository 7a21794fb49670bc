"""Records from strangers: header keys that are not UTF-8, which neither client can show."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from wire_client import WireClient

from ottla import App, Json, Record
from ottla.admin import redrive
from ottla.browse.topic_reader import TopicReader
from ottla.errors import BrokerUnavailable, RetriableError
from ottla.records import TopicPartition
from ottla.sync.client.headers import HeaderReader
from ottla.sync.consume.messages import to_records
from ottla.testing.topics import create_topic
from ottla.testing.waiting import wait_until
from ottla_wire.protocol import ApiKey
from ottla_wire.records import CompressionType, RecordData, crc32c, encode_batch

SHELLS = ["threads", "asyncio", "columns"]

LATIN = "caf\udce9"
"""b"caf\\xe9": a key in Latin-1, as the codec keeps it."""
SHOWN = r"caf\xe9"


def produce(
    kafka: Any, topic: str, *records: RecordData, partition: int = 0, claims: int | None = None, **options: Any
) -> None:
    """One batch, as bytes: no client sends such keys. `claims`: how many records its header says there are."""
    batch = bytearray(encode_batch(records, **options))
    if claims is not None:
        struct.pack_into(">i", batch, 23, claims - 1)
        struct.pack_into(">i", batch, 57, claims)
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    client = WireClient(kafka.bootstrap_servers)
    data = {"index": partition, "records": bytes(batch)}
    body = {"acks": -1, "timeout_ms": 5000, "topic_data": [{"name": topic, "partition_data": [data]}]}
    answer = client.call(ApiKey.PRODUCE, 9, body)
    client.close()
    assert answer.responses[0].partition_responses[0].error_code == 0


def record(offset: int, *keys: str, value: bytes = b"1") -> RecordData:
    return RecordData(offset, 1_700_000_000_000 + offset, b"k%d" % offset, value, [(key, b"\xff") for key in keys])


def watched(kafka: Any, group: str, topic: str, **options: Any) -> tuple[App, list[Record[Any]]]:
    seen: list[Record[Any]] = []
    app = App(group, bootstrap_servers=kafka.bootstrap_servers, **options)

    @app.handler(topic)
    def handle(record: Record[bytes]) -> None:
        seen.append(record)

    return app, seen


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD])
def test_a_header_key_that_is_not_utf8_reaches_the_handler_escaped(
    shell: Any, kafka: Any, wait: Callable[..., None], committed: Any, codec: CompressionType
) -> None:
    topic, group = f"latin-{codec.label}-{shell.name}", f"latin-{codec.label}-{shell.name}"
    create_topic(kafka.bootstrap_servers, topic)
    produce(kafka, topic, record(0, "plain"), record(1, "plain", LATIN, LATIN), record(2), compression=codec)
    produce(kafka, topic, record(0, LATIN), record(1, "plain"), compression=codec)
    app, seen = watched(kafka, group, topic)
    shell.start(app)
    wait(lambda: len(seen) >= 5)
    shell.stop(app)

    assert [each.offset for each in seen] == [0, 1, 2, 3, 4]
    assert [[key for key, _ in each.headers] for each in seen] == [
        ["plain"],
        ["plain", SHOWN, SHOWN],
        [],
        [SHOWN],
        ["plain"],
    ]
    assert {value for each in seen for _, value in each.headers} == {b"\xff"}
    assert [each.raw_key for each in seen] == [b"k0", b"k1", b"k2", b"k0", b"k1"]
    assert seen[1].timestamp_ms == 1_700_000_000_001
    assert committed(group, topic) == 5


def test_records_of_other_partitions_are_not_lost_beside_such_a_record(
    shell: Any, kafka: Any, wait: Callable[..., None], committed: Any
) -> None:
    topic = group = f"beside-{shell.name}"
    create_topic(kafka.bootstrap_servers, topic, partitions=4)
    for _ in range(20):
        for partition in range(4):
            keys = (LATIN,) if partition == 2 else ("plain",)
            produce(kafka, topic, record(0), record(1, *keys), record(2), partition=partition)
    app, seen = watched(kafka, group, topic)
    shell.start(app)
    wait(lambda: len(seen) >= 240)
    shell.stop(app)

    by_partition: dict[int, list[int]] = {}
    for each in seen:
        by_partition.setdefault(each.partition, []).append(each.offset)
    assert by_partition == {partition: list(range(60)) for partition in range(4)}
    assert [committed(group, topic, partition) for partition in range(4)] == [60] * 4


@pytest.mark.parametrize("shell", ["threads"], indirect=True)
def test_headers_that_cannot_be_had_now_are_waited_for_and_nothing_is_lost(
    shell: Any, kafka: Any, wait: Callable[..., None], committed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = group = "later"
    create_topic(kafka.bootstrap_servers, topic, partitions=2)
    for partition in range(2):
        produce(kafka, topic, record(0), record(1, LATIN if partition else "plain"), record(2), partition=partition)
    read_again, failures = HeaderReader.read_again, iter(range(5))

    def fails_at_first(reader: HeaderReader, message: Any) -> Any:
        if next(failures, None) is not None:
            raise BrokerUnavailable("not now")
        return read_again(reader, message)

    monkeypatch.setattr(HeaderReader, "read_again", fails_at_first)
    # Each of the five times the client first waits for the fetch that is on its way: a short one.
    app, seen = watched(kafka, group, topic, settings={"fetch.max.wait.ms": 50})
    shell.start(app)
    wait(lambda: len(seen) >= 6, 40)
    shell.stop(app)

    by_partition = {partition: [r.offset for r in seen if r.partition == partition] for partition in range(2)}
    assert by_partition == {0: [0, 1, 2], 1: [0, 1, 2]}
    assert next(failures, None) is None
    assert [committed(group, topic, partition) for partition in range(2)] == [3, 3]


@pytest.mark.parametrize("shell", ["asyncio"], indirect=True)  # librdkafka passes over what it cannot parse
def test_a_batch_that_nobody_can_read_holds_up_its_own_partition_alone(
    shell: Any, kafka: Any, wait: Callable[..., None], committed: Any
) -> None:
    topic = group = f"unreadable-{shell.name}"
    create_topic(kafka.bootstrap_servers, topic, partitions=4)
    for number in range(20):
        for partition in range(4):
            claimed = 5 if (partition, number) == (2, 10) else 3
            # Long enough for five records: a count that the bytes cannot have is refused by the broker.
            records = [record(number, value=b"1" * 50) for number in range(3)]
            produce(kafka, topic, *records, partition=partition, claims=claimed)
    app, seen = watched(kafka, group, topic)
    shell.start(app)
    wait(lambda: len(seen) >= 3 * 60 + 30)
    shell.stop(app)

    by_partition: dict[int, list[int]] = {}
    for each in seen:
        by_partition.setdefault(each.partition, []).append(each.offset)
    assert by_partition == {partition: list(range(30 if partition == 2 else 60)) for partition in range(4)}
    assert [committed(group, topic, partition) for partition in range(4)] == [60, 60, 30, 60]


def test_such_a_record_goes_to_the_dead_letters_with_its_bytes_and_back(
    shell: Any, kafka: Any, wait: Callable[..., None]
) -> None:
    topic = group = f"dead-{shell.name}"
    letters = f"{topic}.dlq"
    create_topic(kafka.bootstrap_servers, topic)
    create_topic(kafka.bootstrap_servers, letters)
    produce(kafka, topic, record(0, LATIN, value=b"not json"))
    app = App(group, bootstrap_servers=kafka.bootstrap_servers)
    app.handler(topic, value=Json(), dead_letter_topic=letters)(lambda value: None)
    shell.start(app)
    with TopicReader(kafka.bootstrap_servers, letters) as reader:
        (letter,) = reader.take(1)
    shell.stop(app)

    assert (letter.raw_key, letter.raw_value) == (b"k0", b"not json")
    assert (SHOWN, b"\xff") in letter.headers


def test_a_reader_of_a_topic_shows_such_keys(kafka: Any) -> None:
    create_topic(kafka.bootstrap_servers, "read-latin")
    produce(kafka, "read-latin", record(0, LATIN), record(1))
    with TopicReader(kafka.bootstrap_servers, "read-latin") as reader:
        assert [each.headers for each in reader.take(2)] == [[(SHOWN, b"\xff")], []]


def test_a_redrive_sends_such_keys_back_escaped(kafka: Any) -> None:
    for name in ("latin-letters", "latin-again"):
        create_topic(kafka.bootstrap_servers, name)
    produce(kafka, "latin-letters", record(0, LATIN), record(1))
    assert redrive(kafka.bootstrap_servers, "latin-letters", to_topic="latin-again").redriven == 2
    with TopicReader(kafka.bootstrap_servers, "latin-again") as reader:
        assert (SHOWN, b"\xff") in reader.take(2)[0].headers


@pytest.fixture
def message(kafka: Any) -> Iterator[Any]:
    """One message that confluent-kafka cannot show the headers of."""
    from confluent_kafka import Consumer

    create_topic(kafka.bootstrap_servers, topic := f"message-{next(_numbers)}")
    produce(kafka, topic, record(0, LATIN))
    client = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    client.subscribe([topic])
    yield wait_until(lambda: client.poll(0.1))
    client.close()


_numbers = count()


def test_headers_that_cannot_be_had_now_are_an_error_to_try_again(message: Any) -> None:
    closed_port = "127.0.0.1:1"
    reader = HeaderReader({"bootstrap.servers": closed_port}, timeout_ms=1)
    with pytest.raises(RetriableError, match=re.escape(closed_port)):
        reader.headers_of(message)


def test_a_batch_ends_before_a_message_whose_headers_cannot_be_had_now(message: Any) -> None:
    from confluent_kafka import Message

    before = Message(topic=message.topic(), partition=0, offset=5, value=b"1", timestamp=(1, 1))
    given = [before, message, before]
    records, _ = to_records(TopicPartition(message.topic(), 0), given, read_again=lambda _message: None)
    assert [each.offset for each in records] == [5], "the client goes back and gives the rest again"


def test_headers_that_this_client_cannot_read_at_all_leave_a_header_that_says_so(message: Any) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    ((name, why),) = HeaderReader(settings).headers_of(message)
    assert name == "ottla-headers-unread"
    assert b"sasl.mechanism: found 'GSSAPI'" in why
