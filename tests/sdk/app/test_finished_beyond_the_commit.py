"""What is done although an earlier one is not is named in the commit's metadata; the next owner does not repeat it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ottla import App, CommitPolicy, Dead, Json, RetryPolicy
from ottla.failures import describe_dead_letter

SHELLS = ["threads", "asyncio", "columns"]


def test_a_batch_is_not_repeated_for_a_dead_letter_that_could_not_be_written(
    kafka: Any, make_topic: Any, kafka_group: str, shell: Any, committed: Any, wait: Any
) -> None:
    topic, dead_topic = make_topic("orders"), make_topic("dead")
    handled: Counter[int] = Counter()

    def make() -> App:
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=CommitPolicy(every_s=0.05))

        @app.handler(topic, value=Json(), dead_letter_topic=dead_topic, batch=True)
        def handle(values: list[int]) -> list[Any]:
            handled.update(values)
            return [Dead("bad") if value == 2 else None for value in values]

        return app

    kafka.produce(topic, range(10), value=Json())
    first = shell.start(make(), sink=lambda letter: "the dead letter topic is gone")
    wait(lambda: sum(handled.values()) == 10 and committed(kafka_group, topic) == 2)
    shell.stop(first)
    assert committed(kafka_group, topic) == 2

    second = shell.start(make())
    wait(lambda: committed(kafka_group, topic) == 10)
    shell.stop(second)

    assert handled == Counter([*range(10), 2])


def test_a_malformed_record_is_dead_at_once_although_its_batch_fails_too(
    kafka: Any, make_topic: Any, kafka_group: str, shell: Any, committed: Any, wait: Any
) -> None:
    topic, dead_topic = make_topic("orders"), make_topic("dead")
    calls: list[list[int]] = []
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=CommitPolicy(every_s=0.05),
        retry=RetryPolicy(initial_s=0.01, max_s=0.01),
    )

    @app.handler(topic, value=Json(), dead_letter_topic=dead_topic, batch=True)
    def handle(values: list[int]) -> None:
        calls.append(values)
        if len(calls) == 1:
            raise RuntimeError("the database is away")

    kafka.produce(topic, [b"1", b"{", b"2"], value=bytes)
    shell.start(app)
    wait(lambda: committed(kafka_group, topic) == 3)

    assert calls == [[1, 2], [1, 2]]
    (letter,) = kafka.consume_all(dead_topic)
    view = describe_dead_letter(letter.headers)
    assert view is not None
    assert (view.kind, view.attempts) == ("malformed", 1)
