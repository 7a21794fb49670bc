"""Groups, keys and restarts through the real clients."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla import App, CommitPolicy, Context, Json, RetryPolicy, TopicPartition
from ottla.browse.topic_writer import write_all
from ottla.testing.topics import create_topic

SHELLS = ["threads", "asyncio", "columns"]

OFTEN = CommitPolicy(every_s=0.05)


@pytest.mark.representative("threads")
def test_by_key_each_keys_records_stay_in_order_while_handlers_fail(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    topic = make_topic("orders", partitions=2)
    chance = random.Random(1)
    sent: dict[str, list[int]] = defaultdict(list)
    for partition in (0, 1):
        keys = [f"{partition}-{chance.randrange(12)}" for _ in range(300)]
        kafka.produce(topic, range(300), value=Json(), keys=keys, key=str, partition=partition)
        for number, key in enumerate(keys):
            sent[key].append(number)
    handled: dict[str, list[int]] = defaultdict(list)
    at_once: set[str] = set()
    overlaps: list[str] = []
    lock = threading.Lock()
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=OFTEN,
        retry=RetryPolicy(max_attempts=None, initial_s=0.005, max_s=0.01),
    )

    @app.handler(topic, value=Json(), key=str, ordering="key", concurrency=4)
    def handle(value: int, key: str, context: Context) -> None:
        with lock:
            if key in at_once:
                overlaps.append(key)
            at_once.add(key)
        time.sleep(0.0005)
        with lock:
            at_once.discard(key)
            fails = chance.random() < 0.05
            if not fails:
                handled[key].append(value)
        if fails:
            raise RuntimeError("flaky")

    shell.start(app)
    wait(lambda: committed(kafka_group, topic, 0) + committed(kafka_group, topic, 1) == 600, timeout_s=60)

    assert handled == sent
    assert overlaps == []


@pytest.mark.representative("asyncio")
def test_what_was_done_out_of_order_is_not_repeated_after_a_restart(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    kafka.produce(kafka_topic, range(20), value=Json())
    seen: list[int] = []
    release = threading.Event()

    def make(block: bool) -> App:
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, drain_s=2)

        @app.handler(kafka_topic, value=Json(), ordering="unordered", concurrency=2, max_records_per_turn=1)
        def handle(value: int) -> None:
            if block and value == 0:
                release.wait(30)
                raise RuntimeError("it died here")
            seen.append(value)

        return app

    first = shell.start(make(block=True))
    wait(lambda: len(seen) == 19)
    shell.stop(first)
    assert committed(kafka_group, kafka_topic) == 0, "the first record is not done"
    shell.start(make(block=False))
    wait(lambda: committed(kafka_group, kafka_topic) == 20)
    release.set()

    assert sorted(seen) == list(range(20)), "each record was handled once"


def test_several_groups_in_one_app_see_every_record(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any
) -> None:
    kafka.produce(kafka_topic, range(10), value=Json())
    billed: list[int] = []
    audited: list[int] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)

    @app.handler(kafka_topic, value=Json())
    def bill(value: int) -> None:
        billed.append(value)

    @app.handler(kafka_topic, value=Json(), group=f"{kafka_group}-audit")
    async def audit(value: int) -> None:
        audited.append(value)

    shell.start(app)
    wait(lambda: len(billed) == len(audited) == 10)

    assert billed == audited == list(range(10))


def test_start_and_stop_hooks_run_around_the_work(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any
) -> None:
    kafka.produce(kafka_topic, [1], value=Json())
    steps: list[str] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)

    @app.on_start
    async def open_pool() -> None:
        app.state["pool"] = "open"
        steps.append("start")

    @app.on_stop
    def close_pool() -> None:
        steps.append("stop")

    @app.handler(kafka_topic, value=Json())
    def handle(value: int, context: Context) -> None:
        steps.append(context.state["pool"])

    shell.start(app)
    wait(lambda: "open" in steps)
    shell.stop(app)

    assert steps == ["start", "open", "stop"]


@pytest.mark.representative("columns")
def test_a_service_ends_in_time_although_its_broker_is_gone(shell: Any, make_cluster: Any, wait: Any) -> None:
    cluster = make_cluster(brokers=1)
    create_topic(cluster.bootstrap_servers, "orders")
    write_all(cluster.bootstrap_servers, "orders", range(100), value=Json())
    handled: list[int] = []
    app = App("billing", bootstrap_servers=cluster.bootstrap_servers, drain_s=1)
    app.handler("orders", value=Json())(lambda value: handled.append(value))
    shell.start(app)
    wait(lambda: len(handled) == 100)
    cluster.stop()

    shell.stop(app, timeout_s=25)  # left to itself librdkafka takes 30 s


@pytest.mark.representative("asyncio")
def test_a_broker_that_comes_back_costs_nothing_but_time(shell: Any, tmp_path: Path, wait: Any) -> None:
    handled: list[int] = []
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        servers = cluster.bootstrap_servers
        port = int(servers.rpartition(":")[2])
        create_topic(servers, "orders")
        write_all(servers, "orders", range(100), value=Json())
        app = App("billing", bootstrap_servers=servers, commit=OFTEN)
        app.handler("orders", value=Json())(lambda value: handled.append(value))
        shell.start(app)
        wait(lambda: len(handled) == 100)
    with EmbeddedCluster(data_dir=tmp_path, port=port):
        write_all(servers, "orders", range(100, 200), value=Json())
        wait(lambda: set(handled) == set(range(200)), timeout_s=60)
        shell.stop(app)

    assert list(dict.fromkeys(handled)) == list(range(200))


@pytest.mark.representative("threads")
def test_pause_seek_and_drain_at_run_time(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    handled: list[int] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)
    app.handler(kafka_topic, value=Json())(lambda value: handled.append(value))
    shell.start(app)
    kafka.produce(kafka_topic, range(3), value=Json())
    wait(lambda: handled == [0, 1, 2])
    shell.ask(app, lambda runner: runner.seek(TopicPartition(kafka_topic, 0), 1))
    wait(lambda: handled == [0, 1, 2, 1, 2])

    assert shell.ask(app, lambda runner: runner.drain(20))
    kafka.produce(kafka_topic, [3], value=Json())
    assert committed(kafka_group, kafka_topic) <= 3, "a drained app handles nothing new"
    assert handled == [0, 1, 2, 1, 2]
    shell.ask(app, lambda runner: runner.resume())
    wait(lambda: handled == [0, 1, 2, 1, 2, 3], timeout_s=30)


def test_a_paused_app_takes_nothing_until_it_is_resumed(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any
) -> None:
    handled: list[int] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)
    app.handler(kafka_topic, value=Json())(lambda value: handled.append(value))
    shell.start(app)
    kafka.produce(kafka_topic, [0], value=Json())
    wait(lambda: handled == [0])

    shell.ask(app, lambda runner: runner.pause())
    kafka.produce(kafka_topic, [1], value=Json())
    shell.ask(app, lambda runner: runner.seek(TopicPartition(kafka_topic, 0), 0))
    assert handled == [0], "a seek does not end the pause"
    shell.ask(app, lambda runner: runner.resume())
    wait(lambda: handled == [0, 0, 1], timeout_s=30)


class TestThreadsOnly:
    """What only librdkafka has."""

    @pytest.mark.representative("consumer")
    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_members_share_and_a_rebalance_moves_only_what_must_move(
        self, kafka: Any, make_topic: Any, kafka_group: str, run_app: Any, committed: Any, wait: Any, protocol: str
    ) -> None:
        topic = make_topic("orders", partitions=4)
        handled: list[str] = []
        lock = threading.Lock()

        def make() -> App:
            app = App(
                kafka_group,
                commit=OFTEN,
                settings={"group.protocol": protocol}
                | ({"heartbeat.interval.ms": 200} if protocol == "classic" else {}),
            )

            @app.handler(topic, value=Json())
            def handle(value: str) -> None:
                time.sleep(0.001)
                with lock:
                    handled.append(value)

            return app

        first = make()
        run_app(first)
        wait(lambda: first._runner is not None and len(first.health().partitions) == 4, timeout_s=20)
        session = first.runner.members[kafka_group]._session
        before = {partition: session.epoch_of(partition) for partition in session.assignment}
        for partition in range(4):
            kafka.produce(topic, [f"{partition}-{n}" for n in range(300)], value=Json(), partition=partition)
        second = make()
        run_app(second)
        wait(lambda: second._runner is not None and len(second.health().partitions) == 2, timeout_s=30)
        wait(lambda: sum(committed(kafka_group, topic, number) for number in range(4)) == 1_200, timeout_s=30)

        kept = [partition for partition in session.assignment if session.epoch_of(partition) == before[partition]]
        assert len(kept) == 2, "what stays is never taken away"
        assert len(handled) == len(set(handled)) == 1_200
        for number in range(4):
            order = [int(value.split("-")[1]) for value in handled if value.startswith(f"{number}-")]
            assert order == sorted(order)
