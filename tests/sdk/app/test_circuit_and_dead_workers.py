"""What makes a whole service stand still on purpose: a spent dead letter budget, a worker that died. In both shells."""

from __future__ import annotations

import threading
from typing import Any

from ottla import App, CommitPolicy, Dead, DeadLetterBudget, Json, RetryPolicy, Str
from ottla.telemetry import Counters

SHELLS = ["threads", "asyncio", "columns"]


def test_a_spent_budget_pauses_the_partition_instead_of_draining_the_topic(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    topic, dead_topic = make_topic("orders"), make_topic("dead")
    kafka.produce(topic, list(range(50)), value=Json())
    counters = Counters()
    is_down = True
    handled: list[int] = []
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=CommitPolicy(every_s=0.05),
        retry=RetryPolicy(max_attempts=1),
        budget=DeadLetterBudget(burst=3, per_success=0, every_s=3_600),
        hooks=counters,
    )

    @app.handler(topic, value=Json(), dead_letter_topic=dead_topic)
    def handle(value: int) -> Any:
        if is_down:
            return Dead("the database is down")
        handled.append(value)
        return None

    shell.start(app)
    wait(lambda: counters["dead_letter_budget_spent"] >= 1 and committed(kafka_group, topic) == 3, timeout_s=60)
    is_down = False
    shell.stop(app)
    assert committed(kafka_group, topic) == 3, "what there is no budget for is still there"

    second = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=CommitPolicy(every_s=0.05))
    second.handler(topic, value=Json())(handle)
    shell.start(second)
    wait(lambda: committed(kafka_group, topic) == 50, timeout_s=60)
    shell.stop(second)

    assert handled == list(range(3, 50))
    assert len(kafka.consume_all(dead_topic)) == 3


def test_a_dead_worker_makes_the_process_unhealthy_and_loses_nothing(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    class Dying(BaseException):
        """What no handler may raise: it is no `Exception`."""

    kafka.produce(kafka_topic, [1, 2, 3], value=Json())
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=CommitPolicy(every_s=0.05))

    @app.handler(kafka_topic, value=Json(), max_records_per_turn=1)
    def handle(value: int) -> None:
        if value == 2:
            raise Dying("out of memory")

    shell.start(app)
    wait(lambda: any("a worker died" in problem for problem in app.health().problems), timeout_s=60)

    assert not app.health().is_alive
    assert not app.health().is_ready
    shell.stop(app)
    assert committed(kafka_group, kafka_topic) == 1


def test_a_dead_worker_of_a_queue_makes_the_process_unhealthy_and_no_job_is_lost(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, wait: Any
) -> None:
    class Dying(BaseException):
        """What no handler may raise: it is no `Exception`."""

    topic, dead_topic = make_topic("jobs"), make_topic("dead")
    kafka.produce(topic, ["a"], value=Str())

    def app_with(concurrency: int) -> tuple[App, list[str]]:
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, dead_letter_topic=dead_topic)
        begun: list[str] = []

        @app.queue(topic, value=str, max_attempts=2, concurrency=concurrency)
        def handle(value: str) -> None:
            begun.append(value)
            raise Dying("out of memory")

        return app, begun

    first, begun = app_with(4)
    shell.start(first)
    wait(lambda: any("a worker died" in problem for problem in first.health().problems), timeout_s=60)
    assert not first.health().is_alive
    assert not first.health().is_ready
    shell.stop(first)
    assert begun == ["a"], "its other workers do not die of the same job"

    second, begun = app_with(1)
    shell.start(second)
    wait(lambda: len(kafka.consume_all(dead_topic)) == 1, timeout_s=60)
    shell.stop(second)
    assert begun == ["a"]


def test_a_worker_that_dies_takes_no_run_of_another_partition_with_it(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    class Dying(BaseException):
        """What no handler may raise: it is no `Exception`."""

    topic = make_topic("orders", partitions=4)
    for partition in range(4):
        kafka.produce(topic, [partition] * 200, value=Json(), partition=partition)
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=CommitPolicy(every_s=0.05))
    others_wait = threading.Semaphore(0)

    @app.handler(topic, value=Json(), max_records_per_turn=10, concurrency=2)
    def handle(value: int) -> None:
        if value == 0:
            assert others_wait.acquire(timeout=60)
            raise Dying("out of memory")
        others_wait.release()

    shell.start(app)
    wait(lambda: any("a worker died" in problem for problem in app.health().problems), timeout_s=60)
    wait(lambda: [committed(kafka_group, topic, partition) for partition in (1, 2, 3)] == [200] * 3, timeout_s=60)
    shell.stop(app)
