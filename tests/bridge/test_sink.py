"""Records on their way to Kafka, as a road counts them."""

from __future__ import annotations

from collections.abc import Callable

from broker_embedded.cluster import EmbeddedCluster
from ottla import Producer
from ottla.bridge.forwarding.sink import Outbound, Sink
from ottla.clock import ManualClock
from ottla.errors import OttlaError, RecordTooLarge, UnknownTopic
from ottla.producer.encoded import checked_headers
from ottla.records import Header
from ottla.testing import Kafka, wait_until


class Record(Outbound):
    """A record that keeps its outcomes."""

    __slots__ = ("outcomes",)

    def __init__(self, sink: Sink, topic: str, outcomes: list[OttlaError | None]) -> None:
        super().__init__(sink, topic, None)
        self.outcomes = outcomes

    def acknowledged(self) -> None:
        self.outcomes.append(None)

    def failed(self, error: OttlaError) -> None:
        self.outcomes.append(error)


class Sent:
    """A sink whose reports are handled when the test says so."""

    def __init__(self, producer: Producer, topic: str, clock: ManualClock | None = None) -> None:
        self.woken: list[Callable[[], None]] = []
        self.outcomes: list[OttlaError | None] = []
        self.sink = Sink(producer, self.woken.append, max_records=100, max_bytes=100_000, clock=clock)
        self._topic = topic

    def send(self, value: bytes = b"", headers: list[Header] | None = None, *, topic: str | None = None) -> None:
        to = topic or self._topic
        listed, most_bytes = checked_headers(to, None, headers or [])
        self.sink.send(Record(self.sink, to, self.outcomes), value, listed, most_bytes + len(value))

    def drain(self) -> None:
        wait_until(lambda: bool(self.woken))
        self.woken.pop()()


def test_headers_count_as_bytes_in_flight(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        sent = Sent(producer, kafka_topic)
        sent.send(headers=[("name", b"v" * 10_000)] * 10)
        assert sent.sink.bytes_in_flight > 100_000
        assert sent.sink.is_full, "a publisher chooses the headers: without them it has no bound"
        sent.drain()
        assert sent.outcomes == [None]
        assert sent.sink.bytes_in_flight == sent.sink.in_flight == 0


def test_a_record_that_is_too_large_fails_in_the_thread_of_the_road(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers, topics=[kafka_topic]) as producer:
        sent = Sent(producer, kafka_topic)
        sent.send(b"x" * 2_000_000)
        assert sent.outcomes == []
        sent.drain()
        [error] = sent.outcomes
        assert isinstance(error, RecordTooLarge)
        producer.flush()  # the failure was handled: it is not raised here as well


def test_a_record_that_the_client_refuses_at_once_fails_once(kafka: Kafka) -> None:
    settings = {"topic.metadata.propagation.max.ms": 200}
    with Producer(kafka.bootstrap_servers, settings=settings) as producer:
        sent = Sent(producer, "not-there")
        for count in (1, 2, 3):  # after the first the client knows that there is no such topic
            sent.send()
            wait_until(lambda: bool(sent.woken), timeout_s=20)
            sent.drain()
            assert [type(error) for error in sent.outcomes] == [UnknownTopic] * count
            assert sent.sink.in_flight == 0
        producer.flush()


def test_a_partition_that_is_stuck_keeps_nothing_of_the_records_of_others() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        for number in range(8):
            cluster.create_topic(f"t{number}")
        good, stuck = (
            "t0",
            next(name for name in map("t{}".format, range(8)) if cluster.leader(name, 0) != cluster.leader("t0", 0)),
        )
        clock = ManualClock()
        with Producer(cluster.bootstrap_servers) as producer:
            sent = Sent(producer, good, clock)
            sent.send()
            sent.drain()
            cluster.kill(cluster.leader(stuck, 0))
            sent.send(topic=stuck)
            clock.advance(5_000)
            for _ in range(50):
                sent.send()
                sent.drain()
            assert sent.outcomes == [None] * 51
            assert sent.sink.in_flight == 1
            assert sent.sink.oldest_ms == 5_000
            producer.close(0)
