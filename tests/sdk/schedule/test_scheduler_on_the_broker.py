"""The scheduler over the embedded broker, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from metric_values import collected_metrics

from ottla import ConfigError, InputError, Json, Priorities, Producer, RetriableError, UnknownTopic
from ottla.admin import Admin
from ottla.schedule import partition_owner, slot_work
from ottla.schedule.headers import TOPIC_CONFIG, TOPIC_PREFIX
from ottla.schedule.owner_transactions import OwnerTransactions
from ottla.schedule.slot import WriteRefused
from ottla.schedule.slot_batches import Batches
from ottla.schedule.wheel import WHEEL
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing import Kafka, wait_until
from ottla.wire_client.fetching.record_chunks import RecordChunk
from tests.kit.both_shells import PRODUCERS
from tests.kit.virtual_schedule import ALL, Setup, settle, virtual_setup

TOPIC = TOPIC_PREFIX + "default"


@pytest.fixture
def setup() -> Iterator[Setup]:
    with virtual_setup() as made:
        yield made


def test_a_message_comes_when_it_is_due_with_its_own_bytes(setup: Setup) -> None:
    setup.create("t")
    scheduler = setup.scheduler()
    start_ms = setup.clock.now_ms()
    with setup.producer(key=str) as producer:
        producer.send("t", b"\x00v", key="k", headers=[("a", None), ("b", b"\xff")], deliver_after=3_600)
        producer.flush()
    for _ in range(3):
        scheduler.tick()
    setup.clock.advance(seconds=3_599)
    scheduler.tick()
    assert setup.values("t") == []
    setup.clock.advance(seconds=1)
    (record,) = settle(scheduler, "t", 1, setup)
    scheduler.close()
    assert (record.raw_key, record.raw_value) == (b"k", b"\x00v")
    own = [header for header in record.headers if not header[0].startswith("ottla-")]
    assert own == [("a", None), ("b", b"\xff")]
    assert record.header_text("ottla-scheduled-due") == str(start_ms + 3_600_000)
    assert record.timestamp_ms >= start_ms + 3_600_000


@pytest.mark.complete
def test_a_cancel_that_was_acknowledged_in_time_is_honoured(setup: Setup) -> None:
    setup.create("t")
    scheduler = setup.scheduler()
    with setup.producer(value=Json(), key=str) as producer:
        for number in range(4):
            producer.send("t", number, deliver_after=600, schedule_id=f"id-{number}")
        producer.send("t", 4, deliver_after=30 * 86_400, schedule_id="far")
        producer.flush()
        setup.clock.advance(seconds=599)
        scheduler.tick()
        assert producer.cancel("id-1").result(30) == WHEEL.partitions
        assert producer.cancel("far").result(30) == WHEEL.partitions
    setup.clock.advance(seconds=1)
    found = settle(scheduler, "t", 3, setup)
    assert sorted(int(record.value) for record in found) == [0, 2, 3]
    for _ in range(12):
        setup.clock.advance(days=3)
        scheduler.tick()
    assert len(setup.values("t")) == 3
    scheduler.close()


@pytest.mark.complete
def test_a_year_of_messages_each_once_and_never_early(setup: Setup) -> None:
    """In seconds: moved from slot to slot, schedulers that end anywhere, and a restart for each of them."""
    setup.create("t")
    random = Random(5)
    scheduler = setup.scheduler()
    start_ms = setup.clock.now_ms()
    due: dict[int, int] = {}
    cancelled: set[int] = set()
    day_ms = 86_400_000
    with setup.producer(value=Json(), key=str) as producer:
        while setup.clock.now_ms() < start_ms + 365 * day_ms:
            if setup.clock.now_ms() < start_ms + 200 * day_ms:
                for _ in range(12):
                    number, delay_ms = len(due), random.randint(0, random.choice([1, 9, 160]) * day_ms)
                    due[number] = setup.clock.now_ms() + delay_ms
                    producer.send("t", number, deliver_after=delay_ms / 1_000, schedule_id=str(number))
                producer.flush()
                if len(cancelled) < 2:  # each is in all slots, and opens all of them
                    gone = random.choice([number for number in due if due[number] > setup.clock.now_ms()])
                    producer.cancel(str(gone)).result(30)
                    cancelled.add(gone)
            setup.clock.advance(hours=random.choice([300, 600, 1_000]))
            if random.random() < 0.2:
                scheduler.close()
                scheduler = setup.scheduler()
            scheduler.tick()
    records = settle(scheduler, "t", len(due) - len(cancelled), setup)
    scheduler.close()
    assert all(record.timestamp_ms >= due[int(record.value)] for record in records)
    found = [int(record.value) for record in records]
    assert len(due) > 50
    assert cancelled
    assert sorted(found) == sorted(due.keys() - cancelled)


def test_what_it_does_with_a_time_to_live_and_a_priority(setup: Setup) -> None:
    orders = Priorities("orders", ("urgent", "normal"))
    for topic in orders.topics:
        setup.create(topic)
    scheduler = setup.scheduler()
    due_ms = setup.clock.now_ms() + 60_000
    with setup.producer() as producer:
        producer.send(orders, b"u", priority="urgent", deliver_after=60, expires_after=30)
        at = datetime.fromtimestamp(due_ms / 1_000, UTC)
        producer.send(orders, b"n", deliver_at=at, expires_at=datetime(2100, 1, 1, tzinfo=UTC))
    setup.clock.advance(seconds=60)
    (urgent,) = settle(scheduler, orders.topic("urgent"), 1, setup)
    (normal,) = settle(scheduler, "orders", 1, setup)
    scheduler.close()
    assert urgent.header_text("ottla-expires-at") == str(int(urgent.header_text("ottla-scheduled-due") or 0) + 30_000)
    assert normal.header_text("ottla-scheduled-due") == str(due_ms // 1_000 * 1_000 + due_ms % 1_000)
    assert normal.header_text("ottla-expires-at") == "4102444800000"


@pytest.mark.complete
def test_what_cannot_be_delivered_holds_up_nobody(setup: Setup) -> None:
    setup.create("t")
    scheduler = setup.scheduler()
    with setup.producer() as producer:
        producer.send("nowhere", b"lost", key=b"k", deliver_after=1)
        producer.send("t", b"fine", deliver_after=1)
        producer.send("t", b"x", partition=7, deliver_after=1)
    setup.clock.advance(seconds=2)
    settle(scheduler, "t", 1, setup)

    def given_up() -> bool:
        setup.clock.advance(seconds=40)
        scheduler.tick()
        return len(setup.kafka.consume_all(f"{TOPIC}.dead-letters")) == 2

    wait_until(given_up, 60, what="two dead letters")
    letters = {record.raw_value: record for record in setup.kafka.consume_all(f"{TOPIC}.dead-letters")}
    assert letters[b"lost"].header_text("ottla-dlq-topic") == "nowhere"
    assert letters[b"lost"].header_text("ottla-dlq-error-type") == "UnknownTopic"
    assert letters[b"lost"].raw_key == b"k"
    assert setup.values("t") == [b"fine"]
    scheduler.close()


def test_a_record_that_nobody_can_read_ends_no_scheduler(setup: Setup) -> None:
    setup.create("t")
    scheduler = setup.scheduler()
    scheduler.tick()
    with setup.producer() as producer:
        where = producer.send("t", b"fine", deliver_after=1).result()
        for value in (b"[" * 2_000, b'{"a":' * 2_000, b"\xff", b"[[0,1e400]]"):
            producer.send(TOPIC, value, partition=where.partition, headers=[("ottla-schedule", b"done")]).result()
    setup.clock.advance(seconds=2)
    settle(scheduler, "t", 1, setup)
    assert setup.values("t") == [b"fine"]
    scheduler.close()


def test_a_tick_reads_a_part_of_a_slot_however_well_it_is_compressed(setup: Setup) -> None:
    setup.create("t")
    scheduler = setup.scheduler()
    with setup.producer(settings={"compression.type": "gzip"}) as producer:
        producer.send_many("t", ((b"v" * 500,) for _ in range(12_000)), deliver_after=60).result()
    scheduler.tick()
    assert 0 < scheduler.waiting < 8_000

    def has_all() -> bool:
        scheduler.tick()
        return scheduler.waiting == 12_000

    wait_until(has_all, 60, what="the others")
    scheduler.close()


@pytest.mark.representative("before the commit")
@pytest.mark.parametrize("dies", ["before the commit", "behind the commit"])
def test_a_scheduler_that_dies_in_a_delivery_delivers_nothing_twice(
    setup: Setup, dies: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.create("t")
    scheduler = setup.scheduler()
    with setup.producer() as producer:
        for number in range(50):
            producer.send("t", b"%d" % number, deliver_after=60)
    scheduler.tick()
    setup.clock.advance(seconds=60)

    class Died(Exception):
        pass

    commit = OwnerTransactions.commit

    def dying(self: Any, batches: Batches) -> WriteRefused | None:
        if sum(batch.row_count for planned in batches.planned().values() for batch in planned) < 10:
            return commit(self, batches)
        if dies == "behind the commit":
            commit(self, batches)
        raise Died

    def dead() -> bool:
        try:
            scheduler.tick()
        except Died:
            return True
        return False

    with monkeypatch.context() as patch:
        patch.setattr(OwnerTransactions, "commit", dying)
        wait_until(dead, 30, what="its death")
    successor = setup.scheduler()  # the first one is not closed: it lives on as a zombie
    found = settle(successor, "t", 50, setup)
    for _ in range(3):
        scheduler.tick()
        successor.tick()
    assert sorted(int(record.value) for record in setup.kafka.consume_all("t")) == sorted(
        int(record.value) for record in found
    )
    assert len(found) == 50
    for each in (scheduler, successor):
        each.close()


def test_one_that_deletes_what_is_done_while_its_successor_reads_makes_nothing_come_twice(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.create("t")
    scheduler = setup.scheduler()
    with setup.producer() as producer:
        for number in range(3):
            producer.send("t", b"%d" % number, deliver_after=1)
    setup.clock.advance(seconds=2)
    settle(scheduler, "t", 3, setup)
    deleted: list[int] = []
    read_chunk = partition_owner.read_chunk

    def without_the_last(cluster: Any, place: Any, offset: int, **more: Any) -> RecordChunk:
        chunk = read_chunk(cluster, place, offset, **more)
        if deleted or not chunk.records:
            return chunk
        scheduler._delete(place, chunk.next_offset)
        deleted.append(chunk.next_offset)
        return RecordChunk(records=chunk.records[:-1], next_offset=chunk.records[-1].offset)

    with setup.scheduler() as successor:
        monkeypatch.setattr(partition_owner, "read_chunk", without_the_last)
        wait_until(lambda: bool(successor.tick()) or bool(deleted), 30)
        for _ in range(3):
            successor.tick()
    assert sorted(setup.values("t")) == [b"0", b"1", b"2"]
    scheduler.close()


def test_an_hour_that_the_schedulers_clock_is_ahead_delivers_nothing_early(setup: Setup) -> None:
    setup.create("t")
    true_clock = setup.clock

    class Ahead:
        def now_ms(self) -> int:
            now: int = true_clock.now_ms() + 3_600_000
            return now

        def monotonic_ms(self) -> int:
            return self.now_ms()

    scheduler = Scheduler(setup.cluster.bootstrap_servers, assigned=ALL, clock=Ahead())
    with scheduler, setup.producer() as producer:
        producer.send("t", b"v", deliver_after=600)
        producer.flush()
        for _ in range(5):
            scheduler.tick()
        assert setup.values("t") == []
        setup.clock.advance(seconds=600)
        settle(scheduler, "t", 1, setup)


def test_a_topic_that_would_lose_messages_is_refused(setup: Setup) -> None:
    setup.cluster.create_topic(TOPIC, partitions=WHEEL.partitions, config={**TOPIC_CONFIG, "retention.ms": "1000"})
    with pytest.raises(ConfigError, match=r"retention\.ms=1000, wanted -1"):
        setup.scheduler()
    setup.cluster.create_topic(TOPIC_PREFIX + "small", partitions=3, config=dict(TOPIC_CONFIG))
    with pytest.raises(ConfigError, match="found 3 partitions, wanted 64"):
        setup.scheduler(name="small")
    with pytest.raises(UnknownTopic):
        setup.scheduler(name="none", create=False)


def test_a_topic_that_another_broker_does_not_know_yet_is_waited_for(setup: Setup) -> None:
    """As where Kafka's nodes learn of a new topic one after the other."""
    unknown = {"api": "METADATA", "error": "UNKNOWN_TOPIC_OR_PARTITION"}
    with setup.cluster.faults.add(**unknown, topic=TOPIC_PREFIX + "late", count=3) as fault:
        setup.scheduler(name="late")
        assert fault.hits == 3


def test_a_topic_that_comes_to_lose_messages_is_told_while_delivering_goes_on(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    setup.create("t")
    scheduler = setup.scheduler()
    with setup.producer() as producer:
        producer.send("t", b"v", deliver_after=2)
    monotonic_ms = [scheduler._monotonic()]
    monkeypatch.setattr(scheduler, "_monotonic", lambda: monotonic_ms[0])

    def is_ready() -> bool:
        monotonic_ms[0] += 30_000
        scheduler.tick()
        return scheduler.health().is_ready

    def set_retention(value: str) -> None:
        with Admin(setup.cluster.bootstrap_servers) as admin:
            admin.alter_topic_settings(TOPIC, {"retention.ms": value})

    assert is_ready()
    set_retention("1000000000")
    wait_until(lambda: not is_ready(), 60, what="the next look")
    (problem,) = scheduler.health().problems
    assert f"{TOPIC}: found retention.ms=1000000000, wanted -1" in problem
    for _ in range(5):
        assert not is_ready()
    assert capsys.readouterr().err.count('"event": "schedule_unsafe"') == 1

    setup.clock.advance(seconds=2)
    settle(scheduler, "t", 1, setup)
    set_retention("-1")
    wait_until(is_ready, 60, what="the next look")
    scheduler.close()


def test_what_is_no_time_or_no_id_is_refused_at_once(setup: Setup) -> None:
    setup.scheduler().close()  # it has made the schedule
    with setup.producer() as producer:
        producer.send("t", b"v", deliver_after=1)  # equal to True, and kept
        for wrong in (
            {"deliver_after": -1},
            {"deliver_after": True},
            {"deliver_after": [1]},
            {"deliver_after": 1, "deliver_at": datetime(2030, 1, 1, tzinfo=UTC)},
            {"deliver_at": datetime(2030, 1, 1)},
            {"schedule_id": "x"},
            {"deliver_after": 1, "schedule_id": ""},
            {"deliver_after": 1, "schedule_id": 7},
        ):
            with pytest.raises(InputError):
                producer.send("t", b"v", **wrong)
        with pytest.raises(InputError, match="schedule_id"):
            producer.cancel("")
    with pytest.raises(ConfigError, match="schedule"):
        Producer(setup.cluster.bootstrap_servers, schedule="a b")


# In a group, in real time


@pytest.mark.representative("asyncio")
@pytest.mark.parametrize("shell", ["threads", "asyncio"])
async def test_two_schedulers_share_the_slots_and_one_goes(
    shell: str, kafka: Kafka, make_topic: Callable[..., str], kafka_group: str
) -> None:
    topic = make_topic()
    name = kafka_group
    settings = {"heartbeat.interval.ms": 200}  # slots change hands with a heartbeat
    schedulers = [Scheduler(kafka.bootstrap_servers, name=name, settings=settings) for _ in range(2)]
    threads = [threading.Thread(target=scheduler.run, daemon=True) for scheduler in schedulers]
    schedulers[0].start()
    for thread in threads:
        thread.start()
    try:
        await asyncio.to_thread(
            wait_until, lambda: sorted(schedulers[0].slots + schedulers[1].slots) == [*ALL] and schedulers[1].slots, 60
        )
        async with PRODUCERS[shell](kafka.bootstrap_servers, value=Json(), key=str, schedule=name) as producer:
            for number in range(200):
                producer.send(topic, number, key=str(number), deliver_after=number / 100)
            producer.send(topic, -1, deliver_after=5, schedule_id="never")
            await producer.flush()
            cancel = getattr(producer, "producer", producer).cancel("never")
            await (cancel if shell == "asyncio" else asyncio.to_thread(cancel.result, 30))
        schedulers[1].stop()
        await asyncio.to_thread(threads[1].join, 60)
        await asyncio.to_thread(wait_until, lambda: len(kafka.consume_all(topic)) == 200, 60)
        records = kafka.consume_all(topic)
    finally:
        for scheduler, thread in zip(schedulers, threads, strict=True):
            scheduler.stop()
            await asyncio.to_thread(thread.join, 60)
    assert sorted(record.value for record in records) == sorted(b"%d" % number for number in range(200))
    late = [record.timestamp_ms - int(record.header_text("ottla-scheduled-due") or 0) for record in records]
    assert min(late) >= 0


# What it says of itself


def test_it_tells_what_it_delivered_and_how_late_and_what_waits(setup: Setup) -> None:
    setup.create("t")
    with collected_metrics() as metrics:
        scheduler = setup.scheduler(name="told")
        with setup.producer(schedule="told") as producer:
            for _ in range(3):
                producer.send("t", b"v", deliver_after=1)
            producer.send("t", b"w", deliver_after=60)
        setup.clock.advance(seconds=9)
        settle(scheduler, "t", 3, setup)
        name = {"ottla.schedule.name": "told"}

        def measured() -> bool:
            scheduler.tick()
            return metrics.value("ottla.schedule.pending", **name) == 1

        wait_until(measured, 30, what="a measure")
        assert metrics.value("ottla.schedule.dispatched", **name) == 3
        assert metrics.value("ottla.schedule.slots", **name) == WHEEL.partitions
        assert metrics.value("ottla.schedule.slots.failing", **name) == 0
        assert metrics.value("ottla.schedule.oldest_due.age", **name) == 0
        scheduler.close()
        assert metrics.value("ottla.schedule.pending", **name) in (None, 0)


def test_a_slot_that_is_late_or_cannot_be_read_makes_it_unready(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.create("t")
    scheduler = setup.scheduler()
    assert not scheduler.health().is_ready
    with setup.producer() as producer:
        producer.send("t", b"v", deliver_after=2)
    monotonic_ms = [0]
    monkeypatch.setattr(scheduler, "_monotonic", lambda: monotonic_ms[0])

    def tick(after_s: int) -> None:
        monotonic_ms[0] += after_s * 1_000
        setup.clock.advance(seconds=after_s)
        scheduler.tick()

    tick(0)
    tick(1)
    assert scheduler.health().is_ready
    with monkeypatch.context() as patch:
        patch.setattr(slot_work.SlotWork, "_write", lambda self, write: _refuse())
        tick(2)  # due, and each of its tries fails
        for _ in range(6):
            tick(2)
        (problem,) = scheduler.health().problems
        assert "cannot be read or written since" in problem
        assert "no replicas" in problem
    for _ in range(3):
        tick(2)
    settle(scheduler, "t", 1, setup)
    tick(2)
    assert scheduler.health().is_ready
    scheduler.close()


def _refuse() -> None:
    raise RetriableError("no replicas")
