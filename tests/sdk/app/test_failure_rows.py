"""What users lose elsewhere, one test per row of the comparison of failure semantics, in all three shells.

Each row says what other frameworks do with the event; here every record is handled, dead-lettered or still there.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla import App, AtMostOnce, CommitPolicy, Dead, InvalidRecord, Json, Retry, RetryPolicy, Skip, TopicPartition
from ottla.browse.topic_writer import write_all
from ottla.failures import describe_dead_letter
from ottla.telemetry import Counters
from ottla.testing.topics import create_topic

SHELLS = ["threads", "asyncio", "columns"]

QUICK = RetryPolicy(max_attempts=3, initial_s=0.01, max_s=0.05)


@pytest.fixture
def app(kafka: Any, kafka_group: str) -> App:
    return App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        retry=QUICK,
        commit=CommitPolicy(every_s=0.05),
        drain_s=5,
        hooks=Counters(),
    )


class TestHandlerThrows:
    """Elsewhere: ten instant tries, then log and commit; or the pool commits what failed; or the partition loops."""

    def test_it_is_retried_with_backoff_until_it_succeeds(
        self, app: App, kafka: Any, kafka_topic: str, shell: Any, committed: Any, wait: Any
    ) -> None:
        attempts: list[tuple[int, float]] = []

        @app.handler(kafka_topic, value=Json())
        def handle(value: int, context: Any) -> None:
            if value == 2:
                attempts.append((context.attempt, time.monotonic()))
                if len(attempts) < 3:
                    raise RuntimeError("not yet")

        kafka.produce(kafka_topic, [1, 2, 3], value=Json())
        shell.start(app)
        wait(lambda: committed(app.group, kafka_topic) == 3)

        assert [attempt for attempt, _ in attempts] == [1, 2, 3]
        assert attempts[1][1] - attempts[0][1] >= 0.005

    def test_what_fails_for_good_is_a_dead_letter_and_the_rest_goes_on(
        self, app: App, kafka: Any, make_topic: Any, shell: Any, committed: Any, wait: Any
    ) -> None:
        topic, dead_topic = make_topic("orders"), make_topic("dead")
        handled: list[int] = []

        @app.handler(topic, value=Json(), dead_letter_topic=dead_topic)
        def handle(value: int) -> None:
            if value == 2:
                raise RuntimeError("never")
            handled.append(value)

        kafka.produce(
            topic, [1, 2, 3], key=str, keys=["a", "b", "c"], headers=[("trace", b"\xff"), ("null", None)], value=Json()
        )
        shell.start(app)
        wait(lambda: committed(app.group, topic) == 3)
        shell.stop(app)

        assert handled == [1, 3]
        (letter,) = kafka.consume_all(dead_topic)
        assert (letter.raw_key, letter.raw_value) == (b"b", b"2")
        assert letter.headers[:2] == [("trace", b"\xff"), ("null", None)]
        view = describe_dead_letter(letter.headers)
        assert view is not None
        assert view.origin == f"{topic}-0@1"
        assert (view.kind, view.error_type, view.message, view.attempts) == ("failed", "RuntimeError", "never", 3)
        assert view.group == app.group
        assert "in handle" in (view.stack_trace or "")

    def test_without_a_dead_letter_topic_the_partition_stops_and_turns_unready(
        self, app: App, kafka: Any, make_topic: Any, shell: Any, committed: Any, wait: Any
    ) -> None:
        topic = make_topic("orders", partitions=2)
        handled: list[int] = []

        @app.handler(topic, value=Json())
        def handle(value: int) -> None:
            if value == 2:
                raise RuntimeError("never")
            handled.append(value)

        kafka.produce(topic, [1, 2, 3], partition=0, value=Json())
        kafka.produce(topic, [10, 11], partition=1, value=Json())
        shell.start(app)
        wait(lambda: any("stopped at offset 1" in problem for problem in app.health().problems))
        wait(lambda: committed(app.group, topic, 1) == 2 and committed(app.group, topic, 0) == 1)

        assert not app.health().is_ready
        assert app.health().is_alive
        assert sorted(handled) == [1, 10, 11]
        shell.stop(app)
        assert committed(app.group, topic, 0) == 1, "never log-and-commit"

    def test_resuming_delivers_the_stopped_record_again(
        self, app: App, kafka: Any, kafka_topic: str, shell: Any, committed: Any, wait: Any
    ) -> None:
        is_fixed = threading.Event()

        @app.handler(kafka_topic, value=Json(), retry=RetryPolicy(max_attempts=1))
        def handle(value: int) -> None:
            if value == 2 and not is_fixed.is_set():
                raise RuntimeError("broken release")

        kafka.produce(kafka_topic, [1, 2, 3], value=Json())
        shell.start(app)
        wait(lambda: any("stopped" in problem for problem in app.health().problems))
        is_fixed.set()
        shell.ask(app, lambda runner: runner.resume(TopicPartition(kafka_topic, 0)))
        wait(lambda: committed(app.group, kafka_topic) == 3)

        assert app.health().is_ready


class TestOutcomes:
    @pytest.mark.representative("asyncio")
    def test_a_handler_says_what_became_of_a_record(
        self, app: App, kafka: Any, make_topic: Any, shell: Any, committed: Any, wait: Any
    ) -> None:
        topic, dead_topic = make_topic("orders"), make_topic("dead")
        seen: list[str] = []

        @app.handler(topic, value=str, dead_letter_topic=dead_topic)
        def handle(value: str) -> Any:
            seen.append(value)
            if value == "later":
                return Retry(after_s=0.01) if seen.count("later") == 1 else None
            return {"skip": Skip("old"), "dead": Dead("refused", kind="invalid")}.get(value)

        kafka.produce(topic, ["ok", "skip", "later", "dead", "ok"], value=str)
        shell.start(app)
        wait(lambda: committed(app.group, topic) == 5)
        shell.stop(app)

        assert seen == ["ok", "skip", "later", "later", "dead", "ok"]
        (letter,) = kafka.consume_all(dead_topic)
        view = describe_dead_letter(letter.headers)
        assert view is not None
        assert (view.kind, view.message, view.attempts) == ("invalid", "refused", 1)
        assert app.hooks["skipped"] == 1  # type: ignore[index]

    def test_an_invalid_record_is_dead_at_its_first_failure(
        self, app: App, kafka: Any, make_topic: Any, shell: Any, committed: Any, wait: Any
    ) -> None:
        topic, dead_topic = make_topic("orders"), make_topic("dead")
        calls: list[int] = []

        @app.handler(topic, value=Json(), dead_letter_topic=dead_topic)
        def handle(value: int) -> None:
            calls.append(value)
            raise InvalidRecord("no departure time")

        kafka.produce(topic, [1], value=Json())
        shell.start(app)
        wait(lambda: committed(app.group, topic) == 1)

        assert calls == [1]
        view = describe_dead_letter(kafka.consume_all(dead_topic)[0].headers)
        assert view is not None
        assert (view.kind, view.attempts) == ("invalid", 1)

    def test_a_batch_handler_reports_per_record(
        self, app: App, kafka: Any, make_topic: Any, shell: Any, committed: Any, wait: Any
    ) -> None:
        topic, dead_topic = make_topic("orders"), make_topic("dead")
        batches: list[list[int]] = []

        @app.handler(topic, value=Json(), dead_letter_topic=dead_topic, batch=True)
        def handle(values: list[int]) -> list[Any]:
            batches.append(values)
            return [Dead("odd") if value % 2 else None for value in values]

        kafka.produce(topic, [b"{", *(b"%d" % number for number in range(6))], value=bytes)
        shell.start(app)
        wait(lambda: committed(app.group, topic) == 7)

        assert sorted(value for batch in batches for value in batch) == [0, 1, 2, 3, 4, 5]
        assert sorted(letter.raw_value for letter in kafka.consume_all(dead_topic)) == [b"1", b"3", b"5", b"{"]

    def test_what_a_batch_asks_to_have_again_keeps_its_place_before_later_records_of_its_key(
        self, app: App, kafka: Any, kafka_topic: str, shell: Any, committed: Any, wait: Any
    ) -> None:
        stored: dict[str, int] = {}
        asked: set[int] = set()

        def store(record: Any) -> Any:
            if record.value % 3 == 0 and record.value not in asked:
                asked.add(record.value)
                return Retry(after_s=0.01)
            stored[record.key] = record.value
            return None

        @app.handler(kafka_topic, value=Json(), key=str, batch=True)
        def handle(records: list[Any]) -> list[Any]:
            return [store(record) for record in records]

        kafka.produce(kafka_topic, range(40), keys=[f"k{number % 4}" for number in range(40)], key=str, value=Json())
        shell.start(app)
        wait(lambda: committed(app.group, kafka_topic) == 40)

        assert stored == {"k0": 36, "k1": 37, "k2": 38, "k3": 39}, "the last record of each key was stored last"

    def test_a_batch_that_may_be_handled_once_only_holds_back_nothing(
        self, kafka: Any, kafka_topic: str, kafka_group: str, shell: Any, committed: Any, wait: Any
    ) -> None:
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=AtMostOnce())
        seen: list[int] = []

        @app.handler(kafka_topic, value=Json(), batch=True)
        def handle(values: list[int]) -> list[Any]:
            seen.extend(values)
            return [Retry() if value % 3 == 0 else None for value in values]

        kafka.produce(kafka_topic, range(10), keys=["k"] * 10, key=str, value=Json())
        shell.start(app)
        wait(lambda: len(seen) >= 10)
        shell.stop(app)

        assert committed(kafka_group, kafka_topic) == 10
        assert sorted(seen) == list(range(10)), "nothing is handled twice"


class TestValueCannotBeDecoded:
    """Elsewhere: the same offset is polled for ever, the poll thread dies, or the record is lost."""

    def test_it_is_a_dead_letter_with_its_original_bytes_and_no_retries(
        self, app: App, kafka: Any, make_topic: Any, shell: Any, committed: Any, wait: Any
    ) -> None:
        topic, dead_topic = make_topic("orders"), make_topic("dead")
        handled: list[int] = []

        @app.handler(topic, value=Json(), dead_letter_topic=dead_topic)
        def handle(value: int) -> None:
            handled.append(value)

        kafka.produce(topic, [b"1", b"{broken", b"\xff\xfe", b"2"], value=bytes)
        shell.start(app)
        wait(lambda: committed(app.group, topic) == 4)

        assert handled == [1, 2]
        letters = kafka.consume_all(dead_topic)
        assert [letter.raw_value for letter in letters] == [b"{broken", b"\xff\xfe"]
        views = [describe_dead_letter(letter.headers) for letter in letters]
        assert [(view.kind, view.attempts) for view in views if view] == [("malformed", 1), ("malformed", 1)]

    def test_a_malformed_key_counts_as_well(
        self, app: App, kafka: Any, make_topic: Any, shell: Any, committed: Any, wait: Any
    ) -> None:
        topic, dead_topic = make_topic("orders"), make_topic("dead")

        @app.handler(topic, key=int, dead_letter_topic=dead_topic)
        def handle(value: bytes) -> None:
            raise AssertionError("never called")

        kafka.produce(topic, [b"v"], keys=[b"three"], key=bytes, value=bytes)
        shell.start(app)
        wait(lambda: committed(app.group, topic) == 1)

        (letter,) = kafka.consume_all(dead_topic)
        assert (letter.raw_key, letter.raw_value) == (b"three", b"v")


class TestDeadLetterWriteFails:
    """Elsewhere: it may fail after the offset was marked, and the record is lost; or it is retried without bound."""

    def test_the_partition_stops_unready_and_the_record_is_still_there(
        self, app: App, kafka: Any, kafka_topic: str, shell: Any, committed: Any, wait: Any, quick_writes: None
    ) -> None:
        asked: list[int] = []

        def refuse(letter: Any) -> str:
            asked.append(letter.record.offset)
            return "the dead letter topic is gone"

        @app.handler(kafka_topic, value=Json(), dead_letter_topic="dead")
        def handle(value: int) -> Any:
            return Dead("bad") if value == 2 else None

        kafka.produce(kafka_topic, [1, 2], value=Json())
        shell.start(app, sink=refuse)
        wait(lambda: any("stopped at" in problem for problem in app.health().problems), timeout_s=20)

        assert asked == [1] * 5, "bounded"
        assert not app.health().is_ready
        shell.stop(app)
        assert committed(app.group, kafka_topic) == 1

    def test_it_is_written_when_the_topic_comes_back(
        self, app: App, kafka: Any, kafka_topic: str, shell: Any, committed: Any, wait: Any, quick_writes: None
    ) -> None:
        answers = iter(["down", "down", None])

        @app.handler(kafka_topic, value=Json(), dead_letter_topic="dead")
        def handle(value: int) -> Any:
            return Dead("bad") if value == 2 else None

        kafka.produce(kafka_topic, [1, 2, 3], value=Json())
        shell.start(app, sink=lambda letter: next(answers))
        wait(lambda: committed(app.group, kafka_topic) == 3)

        assert app.health().is_ready


class TestOrderOfDeadLetters:
    """Elsewhere, and here once: two of one key are swapped on the way, and sending them back inverts them."""

    @pytest.mark.parametrize("ordering", ["partition", "key"])
    def test_a_write_that_is_tried_again_does_not_land_behind_the_next_one_of_its_key(
        self,
        app: App,
        kafka: Any,
        kafka_topic: str,
        shell: Any,
        committed: Any,
        wait: Any,
        ordering: str,
        quick_writes: None,
    ) -> None:
        asked: set[int] = set()
        taken: dict[bytes, list[int]] = {}
        handled: list[int] = []

        def fail_once(letter: Any) -> str | None:
            offset, key = letter.record.offset, letter.record.raw_key
            if offset % 4 < 2 and offset not in asked:
                asked.add(offset)
                if shell.name != "asyncio":  # until the next one of its key is a dead letter as well, if it may be
                    with contextlib.suppress(TimeoutError):
                        wait(lambda: len(handled) >= offset + 3, timeout_s=0.1)
                return "no leader"
            taken.setdefault(key, []).append(offset)
            return None

        @app.handler(kafka_topic, value=Json(), dead_letter_topic="dead", ordering=ordering, concurrency=4)
        def handle(value: int) -> Dead:
            handled.append(value)
            return Dead("bad")

        kafka.produce(kafka_topic, range(20), keys=[f"k{number % 2}" for number in range(20)], key=str, value=Json())
        shell.start(app, sink=fail_once)
        wait(lambda: committed(app.group, kafka_topic) == 20, timeout_s=30)

        assert taken == {b"k0": list(range(0, 20, 2)), b"k1": list(range(1, 20, 2))}


class TestCrashBeforeCommit:
    """Elsewhere: an out-of-order tail is lost. Here: at most what was in flight and one interval comes again."""

    @pytest.mark.representative("threads")
    def test_a_new_member_goes_on_from_the_first_unfinished_record(
        self, kafka: Any, kafka_topic: str, kafka_group: str, shell: Any, committed: Any, wait: Any
    ) -> None:
        kafka.produce(kafka_topic, range(100), value=Json())
        seen: list[int] = []
        is_stuck = threading.Event()

        def make(block: bool) -> App:
            app = App(
                kafka_group,
                bootstrap_servers=kafka.bootstrap_servers,
                commit=CommitPolicy(every_s=0.05),
                drain_s=0.2,
                settings={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
            )

            @app.handler(kafka_topic, value=Json())
            def handle(value: int) -> None:
                if block and value == 50:
                    is_stuck.set()
                    # As if the process died here: this call never comes back while the member lives.
                    ended.wait(30)
                    raise RuntimeError("too late")
                seen.append(value)

            return app

        ended = threading.Event()
        first = shell.start(make(block=True))
        wait(is_stuck.is_set)
        shell.stop(first)
        assert committed(kafka_group, kafka_topic) <= 50
        second = shell.start(make(block=False))
        wait(lambda: committed(kafka_group, kafka_topic) == 100)
        ended.set()
        shell.stop(second)

        assert set(seen) == set(range(100))
        assert len(seen) <= 100 + 50


class TestHandlerSlowerThanMaxPollInterval:
    """Elsewhere: evicted, and both the old and the new owner run the record."""

    @pytest.mark.representative("asyncio")
    def test_the_member_stays_and_the_record_is_handled_once(self, make_cluster: Any, shell: Any, wait: Any) -> None:
        cluster = make_cluster(brokers=1, config={"group.min.session.timeout.ms": 500})
        servers, topic = cluster.bootstrap_servers, "orders"
        create_topic(servers, topic)
        write_all(servers, topic, range(5), value=Json())
        counters = Counters()
        app = App(
            "slow",
            bootstrap_servers=servers,
            commit=CommitPolicy(every_s=0.05),
            hooks=counters,
            settings={"session.timeout.ms": 1_000, "heartbeat.interval.ms": 200, "max.poll.interval.ms": 1_000},
        )
        handled: list[int] = []

        @app.handler(topic, value=Json())
        def handle(value: int) -> None:
            if value == 0:
                time.sleep(2.5)  # the work itself, two and a half times max.poll.interval.ms
            handled.append(value)

        shell.start(app)
        wait(lambda: len(handled) >= 5, timeout_s=20)

        assert handled == [0, 1, 2, 3, 4]
        assert counters["partitions_assigned"] == 1
        assert counters["partitions_lost"] == 0


class TestRebalanceMidWork:
    """Elsewhere: late results are marked for a partition that somebody else has, or the whole pool stops."""

    @pytest.mark.representative("columns-eager")
    @pytest.mark.parametrize(
        ("shell", "settings"),
        [
            pytest.param("threads", {"heartbeat.interval.ms": 200}, id="threads-cooperative"),
            pytest.param(
                "threads", {"heartbeat.interval.ms": 200, "partition.assignment.strategy": "range"}, id="threads-eager"
            ),
            pytest.param("threads", {"group.protocol": "consumer"}, id="threads-next-generation"),
            pytest.param("asyncio", {"heartbeat.interval.ms": 200}, id="asyncio-eager"),
            pytest.param("columns", {"heartbeat.interval.ms": 200}, id="columns-cooperative"),
            pytest.param(
                "columns", {"heartbeat.interval.ms": 200, "partition.assignment.strategy": "range"}, id="columns-eager"
            ),
            pytest.param("columns", {"group.protocol": "consumer"}, id="columns-next-generation"),
        ],
        indirect=["shell"],
    )
    def test_the_old_owner_finishes_and_commits_before_the_new_one_begins(
        self,
        kafka: Any,
        make_topic: Any,
        kafka_group: str,
        shell: Any,
        committed: Any,
        wait: Any,
        settings: dict[str, Any],
    ) -> None:
        topic = make_topic("orders", partitions=4)
        handled: list[tuple[str, str]] = []
        lock = threading.Lock()

        def send(numbers: range) -> None:
            for partition in range(4):
                values = [f"{partition}-{number}" for number in numbers]
                kafka.produce(topic, values, partition=partition, value=Json())

        def make(name: str) -> App:
            app = App(
                kafka_group,
                bootstrap_servers=kafka.bootstrap_servers,
                commit=CommitPolicy(every_s=0.05),
                hooks=Counters(),
                settings=settings,
            )

            @app.handler(topic, value=Json(), concurrency=2, name="handle")
            def handle(value: str) -> None:
                time.sleep(0.005)
                with lock:
                    handled.append((name, value))

            return app

        send(range(150))
        first = shell.start(make("first"))
        wait(lambda: len(handled) > 50, timeout_s=60)
        second = shell.start(make("second"))
        wait(lambda: second._runner is not None and len(second.health().partitions) == 2, timeout_s=60)
        send(range(150, 300))
        wait(lambda: sum(committed(kafka_group, topic, p) for p in range(4)) == 1_200, timeout_s=60)
        shell.stop(first)
        shell.stop(second)

        values = [value for _, value in handled]
        assert {name for name, _ in handled} == {"first", "second"}
        assert len(values) == len(set(values)) == 1_200, "a graceful rebalance repeats nothing"
        for partition in range(4):
            numbers = [int(value.split("-")[1]) for value in values if value.startswith(f"{partition}-")]
            assert numbers == sorted(numbers)


@pytest.fixture
def quick_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letter writes are retried without the long pauses."""
    from ottla.consumer.outcomes.failure_writer import FailureWriter

    original: Callable[..., Any] = FailureWriter.failed

    def quick(self: Any, *arguments: Any) -> int | None:
        return None if original(self, *arguments) is None else 10

    monkeypatch.setattr(FailureWriter, "failed", quick)
