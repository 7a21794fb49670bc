"""Records on their way to Kafka, as a road counts them."""

from __future__ import annotations

from collections.abc import Callable

from ottla import Producer
from ottla.bridge.forwarding.sink import Sink
from ottla.bridge.mapping.rules import OutRecord
from ottla.errors import OttlaError
from ottla.testing import Kafka, wait_until


def test_headers_count_as_bytes_in_flight(kafka: Kafka, kafka_topic: str) -> None:
    woken: list[Callable[[], None]] = []
    outcomes: list[OttlaError | None] = []
    with Producer(kafka.bootstrap_servers) as producer:
        sink = Sink(producer, woken.append, max_records=100, max_bytes=100_000)
        headers = [("name", b"v" * 10_000)] * 10
        sink.send(OutRecord(kafka_topic, None, b"", headers), outcomes.append)
        assert sink.bytes_in_flight > 100_000
        assert sink.is_full, "a publisher chooses the headers: without them it has no bound"
        wait_until(lambda: bool(woken))
        woken[0]()
    assert outcomes == [None]
    assert sink.bytes_in_flight == 0
