"""What a handler sends belongs to the record that it handles, whether it returns the deliveries or not."""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import TopicPartition
from killed_services import KilledService
from structlog.testing import capture_logs

from ottla import (
    NO_RETRY,
    App,
    AsyncProducer,
    AtMostOnce,
    CommitPolicy,
    Consumer,
    Dead,
    DeliveryError,
    ExactlyOnce,
    Inbox,
    OttlaError,
    Producer,
    Record,
    Retry,
    RetryPolicy,
    Skip,
    Str,
    UnknownTopic,
)
from ottla.producer import record_sends
from ottla.stores import Sqlite
from ottla.testing import consumer_for
from ottla.testing.topics import create_topic

HELD = {"linger.ms": 60_000}
"""Nothing leaves before somebody flushes."""

SOON = {"topic.metadata.propagation.max.ms": 300}
"""A missing topic fails its sends at once."""

OFTEN = CommitPolicy(every_s=0.02)

SERVICE = r"""
import asyncio
import sys
from pathlib import Path

from ottla import App, CommitPolicy, Record


def main(shell: str, servers: str, group: str, topic: str, target: str, path: str) -> None:
    settings = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
    app = App(group, bootstrap_servers=servers, commit=CommitPolicy(every_s=0.02), settings=settings)
    journal = Path(path).open("ab", buffering=0)

    if shell == "threads":
        out = app.producer(settings={"linger.ms": 50})

        @app.handler(topic)
        def forward(record: Record[bytes]) -> None:
            out.send(target, b"%d-%d" % (record.partition, record.offset))
            journal.write(b"%d-%d\n" % (record.partition, record.offset))

        app.run()
    else:
        loop_out = app.async_producer(settings={"linger.ms": 50})

        @app.handler(topic)
        async def forward_async(record: Record[bytes]) -> None:
            loop_out.send(target, b"%d-%d" % (record.partition, record.offset))
            journal.write(b"%d-%d\n" % (record.partition, record.offset))

        asyncio.run(app.serve(handle_signals=True))


main(*sys.argv[1:])
"""

KINDS = ["def", "async def", "batch", "async batch"]
"""How handlers are declared, each of which runs in both shells."""


@pytest.fixture
def events() -> Iterator[list[Any]]:
    with capture_logs() as captured:
        yield captured


def declare(app: App, topic: str, kind: str, handle: Callable[[Record[bytes], Any], Any], **options: Any) -> Any:
    """A handler that calls `handle(record, send)`, and awaits what that returns if it is asynchronous. Returns the
    app's producer: `send` is its."""
    settings = options.pop("settings", None)
    if kind in ("def", "batch"):
        out: Any = app.producer(settings=settings)

        def one(record: Record[bytes]) -> Any:
            return handle(record, out)

        def many(records: list[Record[bytes]]) -> None:
            for record in records:
                handle(record, out)

        app.handler(topic, batch=kind == "batch", **options)(many if kind == "batch" else one)
        return out
    out = app.async_producer(settings=settings)

    async def one_async(record: Record[bytes]) -> Any:
        returned = handle(record, out)
        return await returned if asyncio.iscoroutine(returned) else returned

    async def many_async(records: list[Record[bytes]]) -> None:
        for record in records:
            returned = handle(record, out)
            if asyncio.iscoroutine(returned):
                await returned

    app.handler(topic, batch=kind == "async batch", **options)(many_async if kind == "async batch" else one_async)
    return out


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_record_is_done_when_what_its_handler_sent_is_acknowledged(
    kind: str, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    orders, results = make_topic("orders", partitions=2), make_topic("results")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, drain_s=0.1)
    handled: list[tuple[int, int]] = []

    def handle(record: Record[bytes], out: Any) -> Any:
        handled.append((record.partition, record.offset))
        if record.partition == 1:
            return out.flush()
        out.send(results, record.value)
        return None

    declare(app, orders, kind, handle, settings=HELD)
    kafka.produce(orders, [b"a", b"b", b"c"], partition=0)
    shell.start(app)
    wait(lambda: (0, 2) in handled)
    assert app.health().is_ready
    assert committed(kafka_group, orders, 0) <= 0
    assert kafka.consume_all(results) == []

    kafka.produce(orders, [b"flush"], partition=1)
    wait(lambda: committed(kafka_group, orders, 0) == 3, timeout_s=30)
    assert sorted(record.value for record in kafka.consume_all(results)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("way", ["delayed", "cancel"])
def test_delayed_sends_and_their_cancelling_belong_to_the_record_too(
    kind: str, way: str, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    orders = make_topic("orders", partitions=2)
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, drain_s=0.1)
    handled: list[int] = []

    def handle(record: Record[bytes], out: Any) -> Any:
        handled.append(record.partition)
        if record.partition == 1:
            return out.flush()
        if way == "delayed":
            out.send("later", record.value, deliver_after=3_600)
        else:
            out.cancel("order-7")
        return None

    declare(app, orders, kind, handle, settings=HELD)
    kafka.produce(orders, [b"a", b"b"], partition=0)
    shell.start(app)
    wait(lambda: handled == [0, 0])
    assert committed(kafka_group, orders, 0) <= 0
    kafka.produce(orders, [b"flush"], partition=1)
    wait(lambda: committed(kafka_group, orders, 0) == 2, timeout_s=30)


@pytest.mark.representative("asyncio-def")
def test_what_was_not_acknowledged_when_a_service_stops_is_not_committed(
    kind: str, shell: Any, make_cluster: Any, wait: Any
) -> None:
    cluster = make_cluster(brokers=1)
    for topic in ("orders", "results"):
        create_topic(cluster.bootstrap_servers, topic)
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send_many("orders", [(b"%d" % number,) for number in range(10)])
    handled: list[int] = []
    app = App("billing", bootstrap_servers=cluster.bootstrap_servers, commit=OFTEN, drain_s=0.1)

    def handle(record: Record[bytes], out: Any) -> None:
        out.send("results", record.value)
        handled.append(record.offset)

    declare(app, "orders", kind, handle, settings=HELD)
    shell.start(app)
    wait(lambda: len(handled) == 10)
    shell.stop(app)
    raw = RawConsumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "billing"})
    try:
        assert raw.committed([TopicPartition("orders", 0)], timeout=10)[0].offset <= 0
    finally:
        raw.close()


@pytest.mark.representative("asyncio")
@pytest.mark.parametrize("name", ["threads", "asyncio"])
@pytest.mark.timeout(300)
def test_no_record_is_committed_whose_result_is_missing_although_the_service_is_killed(
    name: str, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any, tmp_path: Path
) -> None:
    orders, results = make_topic("orders", partitions=2), make_topic("results")
    servers = kafka.bootstrap_servers
    chance, count = random.Random(11), 6_000
    kafka.produce(orders, [b"x"] * count, keys=[b"%d" % number for number in range(count)])
    places = [record.partition for record in kafka.consume_all(orders, at_least=count)]
    per_partition = [places.count(0), places.count(1)]
    arguments = (SERVICE, name, servers, kafka_group, orders, results)
    place: dict[str, Any] = {"bootstrap_servers": servers, "group": kafka_group, "folder": tmp_path}
    with KilledService(*arguments, **place) as service:
        for _ in range(3):
            before = len(service.lines())
            most = min(count - 500, before + chance.randrange(200, 1_500))
            wait(lambda most=most: len(service.lines()) >= most, timeout_s=60)
            service.kill()
            done = [committed(kafka_group, orders, partition) for partition in (0, 1)]
            found = {record.value for record in kafka.consume_all(results)}
            missing = [
                (partition, offset)
                for partition, end in enumerate(done)
                for offset in range(max(0, end))
                if b"%d-%d" % (partition, offset) not in found
            ]
            assert missing == []
            service.start()
        wait(
            lambda: [committed(kafka_group, orders, partition) for partition in (0, 1)] == per_partition, timeout_s=120
        )
    assert len({record.value for record in kafka.consume_all(results)}) == count


class TestSendsThatFail:
    @pytest.fixture
    def servers(self, make_cluster: Any) -> str:
        """A broker that creates no topics by itself."""
        cluster = make_cluster(brokers=1, config={"auto.create.topics.enable": "false"})
        for topic in ("orders", "results", "dead"):
            create_topic(cluster.bootstrap_servers, topic)
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send_many("orders", [(b"%d" % number,) for number in range(5)])
        return str(cluster.bootstrap_servers)

    @pytest.fixture
    def letters(self, servers: str, wait: Any) -> Callable[[int], list[bytes]]:
        def read(count: int) -> list[bytes]:
            found: list[bytes] = []
            with Consumer("dead", group="reader", bootstrap_servers=servers) as consumer:
                wait(
                    lambda: found.extend(each.value for each in consumer.poll(0.2)) or len(found) >= count, timeout_s=60
                )
            return found

        return read

    def app(self, servers: str, **options: Any) -> App:
        return App("billing", bootstrap_servers=servers, commit=OFTEN, **{"retry": NO_RETRY, **options})

    @pytest.mark.representative("asyncio-async def-send_many", "threads-async def-task")
    @pytest.mark.parametrize("way", ["send", "send_many", "task"])
    def test_a_send_that_fails_is_the_failure_of_its_record(
        self, kind: str, way: str, shell: Any, servers: str, letters: Any
    ) -> None:
        app = self.app(servers, dead_letter_topic="dead")

        def handle(record: Record[bytes], out: Any) -> Any:
            topic = "nowhere" if record.value == b"2" else "results"
            if way == "send":
                out.send(topic, record.value)
            elif way == "send_many":
                return out.send_many(topic, [(record.value,), (b"more",)])
            elif way == "task":
                if "async" in kind:
                    return self.in_task(out, topic)
                context = contextvars.copy_context()
                thread = threading.Thread(target=context.run, args=(out.send, topic, record.value))
                thread.start()
                thread.join()
            return None

        declare(app, "orders", kind, handle, settings=SOON)
        shell.start(app)
        dead = letters(1)
        shell.stop(app, timeout_s=60)
        assert dead == [b"2"], "and no other"

    async def in_task(self, out: Any, topic: str) -> None:
        async def send() -> None:
            out.send(topic, b"x")

        await asyncio.create_task(send())

    @pytest.mark.representative("asyncio-async def")
    def test_it_is_delivered_again_as_the_retry_policy_says(
        self, kind: str, shell: Any, servers: str, letters: Any, events: list[Any]
    ) -> None:
        quick = RetryPolicy(max_attempts=2, initial_s=0.01, max_s=0.02)
        app = self.app(servers, dead_letter_topic="dead", retry=quick)
        handled: list[bytes] = []

        def handle(record: Record[bytes], out: Any) -> None:
            handled.append(record.value)
            if record.value == b"3":
                out.send("nowhere", record.value)

        declare(app, "orders", kind, handle, settings=SOON)
        shell.start(app)
        assert letters(1) == [b"3"]
        shell.stop(app)
        assert handled.count(b"3") >= 2
        assert any(event["event"] == "record_retried" and "nowhere" in event["error"] for event in events)

    @pytest.mark.representative("asyncio-def")
    def test_without_a_dead_letter_topic_the_partition_stops_there(
        self, kind: str, shell: Any, servers: str, wait: Any
    ) -> None:
        app = self.app(servers)
        declare(app, "orders", kind, lambda record, out: out.send("nowhere", b"x") and None, settings=SOON)
        shell.start(app)
        wait(lambda: any("stopped at offset 0" in problem for problem in app.health().problems), timeout_s=60)
        assert "nowhere" in app.health().problems[0]
        shell.stop(app)

    @pytest.mark.representative("threads-async def")
    @pytest.mark.parametrize("kind", ["def", "async def"])
    def test_a_send_after_thousands_of_records_that_sent_nothing_is_its_records(
        self, kind: str, shell: Any, servers: str, letters: Any
    ) -> None:
        app = self.app(servers, dead_letter_topic="dead")
        with Producer(servers) as producer:
            producer.send_many("orders", [(b"quiet",) for _ in range(3_000)])
            producer.send_many("orders", [(b"good",), (b"bad",), (b"good",), (b"quiet",)])

        def handle(record: Record[bytes], out: Any) -> None:
            if record.value in (b"good", b"bad"):
                out.send("nowhere" if record.value == b"bad" else "results", record.value)

        declare(app, "orders", kind, handle, settings=SOON)
        shell.start(app)
        assert letters(1) == [b"bad"]
        shell.stop(app)

    @pytest.mark.representative("asyncio-result-def", "threads-detached bulk-def")
    @pytest.mark.parametrize("kind", ["def", "async def"])
    @pytest.mark.parametrize("way", ["result", "flush", "mark_handled", "detached", "detached bulk"])
    def test_a_failure_that_the_handler_deals_with_is_not_the_records(
        self, kind: str, way: str, shell: Any, servers: str, wait: Any
    ) -> None:
        app = self.app(servers)
        seen: list[bytes] = []

        def mark(delivery: Any) -> None:
            delivery.mark_handled()

        def handle(record: Record[bytes], out: Any) -> Any:
            seen.append(record.value)
            if kind == "async def":
                return handle_async(record, out)
            if way == "result":
                with pytest.raises(UnknownTopic):
                    out.send("nowhere", b"x").result()
            elif way == "flush":
                out.send("nowhere", b"x")
                with pytest.raises(DeliveryError):
                    out.flush()
            elif way == "mark_handled":
                out.send("nowhere", b"x", on_delivery=mark)
            elif way == "detached":
                out.send("nowhere", b"x", detached=True, on_delivery=mark)
            else:
                out.send_many("nowhere", [(b"x",)], detached=True).add_done_callback(mark)
            return None

        async def handle_async(record: Record[bytes], out: Any) -> None:
            if way == "result":
                with pytest.raises(UnknownTopic):
                    await out.send("nowhere", b"x")
            elif way == "flush":
                out.send("nowhere", b"x")
                with pytest.raises(DeliveryError):
                    await out.flush()
            elif way == "mark_handled":
                out.send("nowhere", b"x", on_delivery=mark)
            elif way == "detached":
                out.send("nowhere", b"x", detached=True, on_delivery=mark)
            else:
                (await out.send_many("nowhere", [(b"x",)], detached=True)).add_done_callback(mark)

        declare(app, "orders", kind, handle, settings=SOON)
        with Consumer("orders", group="billing", bootstrap_servers=servers) as _:
            pass
        shell.start(app)
        wait(lambda: b"4" in seen, timeout_s=60)
        shell.stop(app, timeout_s=60)
        assert app.health().problems == () or not any("stopped at" in each for each in app.health().problems)
        assert seen == [b"0", b"1", b"2", b"3", b"4"]

    def test_a_delivery_that_is_returned_is_the_records_although_it_was_dealt_with(
        self, shell: Any, servers: str, letters: Any
    ) -> None:
        app = self.app(servers, dead_letter_topic="dead")

        def handle(record: Record[bytes], out: Any) -> Any:
            return (
                out.send("nowhere", b"x", on_delivery=lambda each: each.mark_handled()) if record.offset == 1 else None
            )

        declare(app, "orders", "def", handle, settings=SOON)
        shell.start(app)
        assert letters(1) == [b"1"]
        shell.stop(app)

    @pytest.mark.representative("asyncio-retry-async def", "threads-dead-def")
    @pytest.mark.parametrize("kind", ["def", "async def"])
    @pytest.mark.parametrize("outcome", ["raise", "retry", "dead"])
    def test_a_handler_that_fails_after_a_send_has_failed_once(
        self, kind: str, outcome: str, shell: Any, servers: str, letters: Any, events: list[Any], wait: Any
    ) -> None:
        app = self.app(servers, dead_letter_topic="dead")

        def handle(record: Record[bytes], out: Any) -> Any:
            if record.value != b"1":
                return None
            out.send("nowhere", b"x")
            if outcome == "raise":
                raise ValueError("after the send")
            return Retry(reason="after the send") if outcome == "retry" else Dead("after the send")

        declare(app, "orders", kind, handle, settings=SOON)
        shell.start(app)
        assert letters(1) == [b"1"]
        wait(lambda: any(event["event"] == "send_of_failed_record_lost" for event in events), timeout_s=30)
        shell.stop(app, timeout_s=60)  # and the producer's last flush raises nothing
        (dead,) = [event for event in events if event["event"] == "record_dead_lettered"]
        assert "after the send" in dead["error"]

    @pytest.mark.representative("asyncio-async def")
    @pytest.mark.parametrize("kind", ["def", "async def"])
    def test_a_record_that_is_skipped_waits_for_what_it_sent(
        self, kind: str, shell: Any, servers: str, letters: Any
    ) -> None:
        app = self.app(servers, dead_letter_topic="dead", on_error={KeyError: Skip()})

        def handle(record: Record[bytes], out: Any) -> Any:
            out.send("nowhere" if record.value in (b"1", b"3") else "results", b"x")
            if record.value == b"3":
                raise KeyError("skipped by the table")
            return Skip("not for us")

        declare(app, "orders", kind, handle, settings=SOON)
        shell.start(app)
        assert sorted(letters(2)) == [b"1", b"3"]
        shell.stop(app)

    def test_a_failed_send_of_a_batch_is_found_record_by_record(self, shell: Any, servers: str, letters: Any) -> None:
        app = self.app(servers, dead_letter_topic="dead")
        out = app.producer(settings=SOON)

        @app.handler("orders", batch=True)
        def handle(records: list[Record[bytes]]) -> list[Any]:
            for record in records:
                out.send("nowhere" if record.value == b"4" else "results", record.value)
            return [None for _ in records]

        shell.start(app)
        assert letters(1) == [b"4"]
        shell.stop(app)

    @pytest.mark.representative("True")
    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_handler_of_columns(self, is_async: bool, run: Any, servers: str, letters: Any) -> None:
        app = self.app(servers, dead_letter_topic="dead")
        out: Any = app.async_producer(settings=SOON) if is_async else app.producer(settings=SOON)

        def send(batch: pa.RecordBatch) -> None:
            for value in batch.column("value").to_pylist():
                out.send("nowhere" if value == b"2" else "results", value)

        async def send_async(batch: pa.RecordBatch) -> None:
            send(batch)

        app.handler("orders", columns=True)(send_async if is_async else send)
        stop = run(app)
        assert letters(1) == [b"2"]
        stop()

    @pytest.mark.representative("asyncio-inbox-def", "threads-inbox-async def")
    @pytest.mark.parametrize("kind", ["def", "async def"])
    @pytest.mark.parametrize("once", ["exactly_once", "inbox", "offsets"])
    def test_a_record_that_is_counted_once(
        self, kind: str, once: str, shell: Any, servers: str, letters: Any, tmp_path: Any
    ) -> None:
        app = self.app(servers, dead_letter_topic="dead")
        store = Sqlite(str(tmp_path / "store.db"))
        store.create_tables()
        options: dict[str, Any] = {
            "exactly_once": {"exactly_once": ExactlyOnce()},
            "inbox": {"inbox": Inbox(store)},
            "offsets": {"offsets": store},
        }[once]

        def handle(record: Record[bytes], out: Any) -> None:
            out.send("nowhere" if record.value == b"1" else "results", record.value)

        declare(app, "orders", kind, handle, settings=SOON, **options)
        shell.start(app)
        assert letters(1) == [b"1"]
        shell.stop(app)

    @pytest.mark.representative("threads-batch")
    def test_under_at_most_once_nothing_waits_for_a_send(self, kind: str, shell: Any, servers: str, wait: Any) -> None:
        app = App("billing", bootstrap_servers=servers, commit=AtMostOnce())
        handled: list[bytes] = []

        def handle(record: Record[bytes], out: Any) -> None:
            handled.append(record.value)
            out.send("nowhere", b"x", on_delivery=lambda each: each.mark_handled())

        declare(app, "orders", kind, handle, settings=SOON)
        shell.start(app)
        wait(lambda: len(handled) == 5)
        shell.stop(app, timeout_s=60)


class TestSendsOfNobody:
    """Tasks and threads that outlive the handler, hooks, and members that are pulled."""

    @pytest.mark.representative("asyncio-0")
    @pytest.mark.parametrize("before", [0, 3_000])
    def test_a_thread_that_sends_after_the_handler_is_logged_once_and_fails_no_later_record(
        self, before: int, shell: Any, make_cluster: Any, wait: Any, events: list[Any]
    ) -> None:
        servers = make_cluster(brokers=1, config={"auto.create.topics.enable": "false"}).bootstrap_servers
        create_topic(servers, "orders")
        create_topic(servers, "orders-too")
        with Producer(servers) as producer:
            producer.send_many("orders", [(b"0",) for _ in range(before)])
            producer.send_many("orders", [(b"1",), (b"2",), (b"3",)])
        app = App("billing", bootstrap_servers=servers, retry=NO_RETRY)
        out = app.producer(settings=SOON)
        returned, threads, handled = threading.Event(), [], []
        lost: list[BaseException] = []

        def late() -> None:
            returned.wait(30)
            for _ in range(3):
                lost.append(out.send("nowhere", b"x").exception())  # type: ignore[arg-type]

        @app.handler("orders", ordering="partition")
        def handle(record: Record[bytes]) -> None:
            if record.value == b"0":
                if record.offset == before - 1:  # an heir that sends in time
                    heir = threading.Thread(target=contextvars.copy_context().run, args=(out.send, "orders-too", b"x"))
                    heir.start()
                    heir.join()
                return
            if record.value == b"1":
                context = contextvars.copy_context()
                threads.append(threading.Thread(target=context.run, args=(late,)))
                threads[-1].start()
            elif record.value == b"2":
                returned.set()
                threads[0].join(60)  # the sends are made, and have failed, while record 2 is handled
            handled.append(record.value)

        shell.start(app)
        wait(lambda: handled == [b"1", b"2", b"3"], timeout_s=60)
        wait(lambda: not app.health().problems)
        assert len(lost) == 3
        (event,) = [event for event in events if event["event"] == "sent_after_handler"]
        assert (event["group"], event["handler"], event["topic"]) == ("billing", "handle", "nowhere")
        with pytest.raises(DeliveryError):
            shell.stop(app, timeout_s=60)

    def test_a_task_that_sends_after_the_handler_is_logged_once_and_fails_no_later_record(
        self, shell: Any, make_cluster: Any, wait: Any, events: list[Any]
    ) -> None:
        servers = make_cluster(brokers=1, config={"auto.create.topics.enable": "false"}).bootstrap_servers
        create_topic(servers, "orders")
        with Producer(servers) as producer:
            producer.send_many("orders", [(b"1",), (b"2",), (b"3",)])
        app = App("billing", bootstrap_servers=servers, retry=NO_RETRY)
        out = app.async_producer(settings=SOON)
        tasks: list[asyncio.Task[None]] = []
        handled: list[bytes] = []

        async def late(returned: asyncio.Event) -> None:
            await returned.wait()
            for _ in range(2):
                out.send("nowhere", b"x")
            with pytest.raises(OttlaError):
                await out.send("nowhere", b"x")

        events_of: list[asyncio.Event] = []

        @app.handler("orders")
        async def handle(record: Record[bytes]) -> None:
            if record.value == b"1":
                events_of.append(asyncio.Event())
                tasks.append(asyncio.create_task(late(events_of[0])))
            elif record.value == b"2":
                events_of[0].set()
                await tasks[0]
            handled.append(record.value)

        shell.start(app)
        wait(lambda: handled == [b"1", b"2", b"3"], timeout_s=60)
        wait(lambda: not app.health().problems)
        assert len([event for event in events if event["event"] == "sent_after_handler"]) == 1
        with pytest.raises(DeliveryError):
            shell.stop(app, timeout_s=60)

    def test_what_is_sent_outside_of_handlers_belongs_to_no_record(
        self, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any, events: list[Any]
    ) -> None:
        orders, results = make_topic("orders"), make_topic("results")
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)
        out = app.producer(settings=HELD)
        app.on_start(lambda: out.send(results, b"started") and None)
        app.handler(orders)(lambda value: None)
        kafka.produce(orders, [b"a"])
        shell.start(app)
        wait(lambda: committed(kafka_group, orders) == 1, timeout_s=30)
        shell.stop(app)
        assert [record.value for record in kafka.consume_all(results)] == [b"started"]
        assert [event for event in events if event["event"] == "sent_after_handler"] == []

    def test_a_record_that_is_pulled_does_not_wait_for_sends(
        self, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
    ) -> None:
        orders, results = make_topic("orders"), make_topic("results")
        kafka.produce(orders, [b"a", b"b"])
        with (
            Producer(kafka.bootstrap_servers, settings=HELD) as producer,
            Consumer(orders, group=kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN) as consumer,
        ):
            for number, record in enumerate(consumer, 1):
                producer.send(results, record.value)
                if number == 2:
                    consumer.ack(record)
                    break
            wait(lambda: committed(kafka_group, orders) == 2, timeout_s=30)
            assert kafka.consume_all(results) == []


class TestProducersOfOtherKinds:
    @pytest.mark.representative("threads-async def")
    @pytest.mark.parametrize("kind", ["def", "async def"])
    def test_a_producer_that_the_handler_makes_with_its_first_record(
        self, kind: str, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
    ) -> None:
        orders, results = make_topic("orders"), make_topic("results")
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, drain_s=0.1)
        made: list[Producer[Any, Any]] = []
        handled: list[bytes] = []

        def handle(record: Record[bytes]) -> Any:
            if record.value == b"2":
                made.append(Producer(kafka.bootstrap_servers, settings=HELD))
            if made:
                made[0].send(results, record.value)
            handled.append(record.value)
            return None if kind == "def" else asyncio.sleep(0)

        async def handle_async(record: Record[bytes]) -> None:
            await handle(record)

        app.handler(orders)(handle if kind == "def" else handle_async)
        kafka.produce(orders, [b"%d" % number for number in range(5)])
        senders = set(record_sends._senders)
        record_sends._senders.clear()  # those of other tests
        try:
            shell.start(app)
            wait(lambda: len(handled) == 5)
            wait(lambda: committed(kafka_group, orders) == 2, timeout_s=30)
            made[0].flush()
            wait(lambda: committed(kafka_group, orders) == 5, timeout_s=30)
        finally:
            record_sends._senders.update(senders)
            made[0].close()

    def test_an_async_handler_that_sends_with_a_threaded_producer(
        self, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
    ) -> None:
        orders, results = make_topic("orders"), make_topic("results")
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, drain_s=0.1)
        sent: list[Any] = []
        with Producer(kafka.bootstrap_servers, settings=HELD) as producer:

            @app.handler(orders)
            async def handle(record: Record[bytes]) -> None:
                sent.append(producer.send(results, record.value))

            kafka.produce(orders, [b"a", b"b"])
            shell.start(app)
            wait(lambda: len(sent) == 2)
            assert app.health().is_ready, "the event loop is not blocked"
            assert committed(kafka_group, orders) <= 0
            producer.flush()
            wait(lambda: committed(kafka_group, orders) == 2, timeout_s=30)

    def test_a_plain_handler_whose_send_runs_on_an_event_loop(
        self, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any, run: Any
    ) -> None:
        orders, results = make_topic("orders"), make_topic("results")
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, drain_s=0.1)
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        producer = AsyncProducer(kafka.bootstrap_servers, settings=HELD)
        sent: list[bytes] = []

        async def send(value: bytes) -> None:
            producer.send(results, value)
            sent.append(value)

        @app.handler(orders)
        def handle(value: bytes) -> None:
            asyncio.run_coroutine_threadsafe(send(value), loop).result(30)

        try:
            asyncio.run_coroutine_threadsafe(producer.start(), loop).result(30)
            kafka.produce(orders, [b"a", b"b"])
            stop = run(app)
            wait(lambda: len(sent) == 2)
            assert committed(kafka_group, orders) <= 0
            asyncio.run_coroutine_threadsafe(producer.flush(), loop).result(30)
            wait(lambda: committed(kafka_group, orders) == 2, timeout_s=30)
            stop()
            asyncio.run_coroutine_threadsafe(producer.close(), loop).result(30)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def test_captured_sends_belong_to_their_record_too(self, events: list[Any]) -> None:
        app = App("billing")
        out = app.producer(key=Str())
        contexts: list[contextvars.Context] = []

        @app.handler("orders")
        def handle(value: bytes) -> None:
            contexts.append(contextvars.copy_context())
            out.send("results", value, key="k")
            out.send("other", value, detached=True)
            contexts[0].run(out.send, "results", b"of the first")

        consumer = consumer_for(app)
        consumer.deliver_all([b"a", b"b"])
        assert [record.topic for record in consumer.sent] == ["results", "other", "results"] * 2
        late = [event for event in events if event["event"] == "sent_after_handler"]
        assert [(event["handler"], event["topic"]) for event in late] == [("handle", "results")]
