"""What is done although an earlier one is not is named in the commit's metadata; the next owner does not repeat it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ottla import App, CommitPolicy, Dead, Json, RetryPolicy
from ottla.failures import describe_dead_letter
from ottla.sync.consume.lookups import committed_offsets, retry_positions

SHELLS = ["threads", "asyncio", "columns"]


BEFORE = {"threads": "columns", "asyncio": "threads", "columns": "threads"}
"""Which client had the partitions of each before."""


@pytest.mark.representative("asyncio-by the same client")
@pytest.mark.parametrize("is_handed_over", [False, True], ids=["by the same client", "by another client"])
def test_a_batch_is_not_repeated_for_a_dead_letter_that_could_not_be_written(
    kafka: Any, make_topic: Any, kafka_group: str, shell: Any, committed: Any, wait: Any, is_handed_over: bool
) -> None:
    before = type(shell)(BEFORE[shell.name]) if is_handed_over else shell
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
    first = before.start(make(), sink=lambda letter: "the dead letter topic is gone")
    wait(lambda: sum(handled.values()) == 10 and committed(kafka_group, topic) == 2)
    before.stop(first)
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


def test_metadata_that_confluent_kafka_cannot_read_costs_repeats_and_not_the_member() -> None:
    """What another tool committed, and foreign memory behind it: by chance it is text or not, so nothing real shows it
    each time."""

    class Client:
        def committed(self, *_: Any, **__: Any) -> Any:
            return b"\x8a".decode()

    failed: list[Exception] = []
    assert committed_offsets(Client(), [], group="g") is None, "not known: a start at the end would skip records"
    assert retry_positions(Client(), [], on_error=failed.append) == {}
    assert [type(error) for error in failed] == [UnicodeDecodeError]
