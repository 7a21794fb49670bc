"""tenacity's strategies in a `RetryPolicy`, in every shell: what is tried again, what is not, and one that raises."""

from __future__ import annotations

from typing import Any

import pytest
from tenacity import RetryCallState, retry_if_exception_type, stop_after_attempt, wait_fixed, wait_random

from ottla import App, CommitPolicy, Consumer, Json, RetryPolicy, RetryTopics
from ottla.failures import describe_dead_letter
from ottla.testing import consumer_for

SHELLS = ["threads", "asyncio", "columns"]
LATE = RetryPolicy(
    wait=wait_fixed(0.01) + wait_random(0, 0.01),
    stop=stop_after_attempt(3),
    retry=retry_if_exception_type(TimeoutError),
)


def app_of(kafka: Any, group: str, retry: RetryPolicy) -> App:
    return App(group, bootstrap_servers=kafka.bootstrap_servers, retry=retry, commit=CommitPolicy(every_s=0.05))


@pytest.mark.representative("asyncio-batch")
@pytest.mark.parametrize("form", ["record", "batch"])
def test_what_retry_names_is_tried_again_and_the_rest_is_a_dead_letter_at_once(
    kafka: Any, kafka_group: str, make_topic: Any, shell: Any, committed: Any, wait: Any, form: str
) -> None:
    topic, dead_topic = make_topic("orders"), make_topic("dead")
    app = app_of(kafka, kafka_group, LATE)
    calls: list[int] = []

    def check(values: list[int]) -> None:
        calls.extend(values)
        for each in values:
            if each == 2 and calls.count(2) < 3:
                raise TimeoutError("late")
            if each == 3:
                raise TimeoutError("never in time")
            if each == 4:
                raise KeyError("not one of those")

    declared = app.handler(topic, value=Json(), dead_letter_topic=dead_topic, batch=form == "batch")
    declared(check if form == "batch" else lambda value: check([value]))  # type: ignore[operator]

    kafka.produce(topic, [1, 2, 3, 4, 5], value=Json())
    shell.start(app)
    wait(lambda: committed(app.group, topic) == 5)
    shell.stop(app)

    letters = {letter.raw_value: describe_dead_letter(letter.headers) for letter in kafka.consume_all(dead_topic)}
    assert set(letters) == {b"3", b"4"}
    late, other = letters[b"3"], letters[b"4"]
    assert late is not None
    assert other is not None
    assert (late.error_type, other.error_type) == ("TimeoutError", "KeyError")
    if form == "record":
        assert (late.attempts, other.attempts) == (3, 1)
        assert [calls.count(value) for value in (1, 2, 3, 4, 5)] == [1, 3, 3, 1, 1]


def test_a_strategy_that_raises_stops_its_partition_and_not_the_member(
    kafka: Any, kafka_group: str, make_topic: Any, shell: Any, committed: Any, wait: Any
) -> None:
    def broken(state: RetryCallState) -> float:
        raise LookupError("a mistake")

    topic = make_topic("orders", partitions=2)
    app = app_of(kafka, kafka_group, RetryPolicy(wait=broken))

    @app.handler(topic, value=Json(), dead_letter_topic=make_topic("dead"))
    def handle(value: int) -> None:
        if value == 2:
            raise TimeoutError("late")

    kafka.produce(topic, [1, 2, 3], partition=0, value=Json())
    kafka.produce(topic, [10, 11], partition=1, value=Json())
    shell.start(app)
    wait(lambda: any("broken raised LookupError: a mistake" in problem for problem in app.health().problems))
    wait(lambda: committed(app.group, topic, 1) == 2 and committed(app.group, topic, 0) == 1)

    assert app.health().is_alive
    assert not app.health().is_ready


def test_columns_that_fail_are_tried_again_and_halved_as_the_strategies_say() -> None:
    pa = pytest.importorskip("pyarrow")
    sizes: list[int] = []

    def handle(batch: Any) -> None:
        sizes.append(batch.num_rows)
        if 4 in batch["value"].to_pylist():
            raise TimeoutError("late")

    handle.__annotations__["batch"] = pa.RecordBatch
    consumer = consumer_for(handle, value=Json(int), columns=True, retry=LATE, dead_letter_topic="dead")
    deliveries = consumer.deliver_all([1, 2, 3, 4])

    assert [each.outcome for each in deliveries] == ["done", "done", "done", "dead"]
    assert sizes[:3] == [4, 4, 4]


def test_in_retry_topics_the_strategies_decide_in_each_topic() -> None:
    seen: list[int] = []

    def handle(value: int) -> None:
        seen.append(value)
        raise TimeoutError("late") if value == 1 else KeyError("other")

    policy = RetryPolicy(wait=wait_fixed(2), stop=stop_after_attempt(2), retry=retry_if_exception_type(TimeoutError))
    consumer = consumer_for(
        handle, value=Json(), retry=policy, retry_topics=RetryTopics(delays_s=(10, 60)), dead_letter_topic="dead"
    )

    late, other = consumer.deliver(1), consumer.deliver(2)
    assert (late.outcome, late.waited_s) == ("dead", 2 + 10 + 2 + 60 + 2)
    assert (other.outcome, other.waited_s) == ("dead", 0)
    assert seen == [1] * 6 + [2]


def test_a_pulled_consumer_asks_them_of_what_it_is_told(kafka: Any, kafka_group: str, make_topic: Any) -> None:
    topic, dead_topic = make_topic("orders"), make_topic("dead")
    kafka.produce(topic, [1, 2], value=Json())
    seen: list[int] = []

    with Consumer(
        topic,
        group=kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        value=Json(),
        retry=LATE,
        dead_letter_topic=dead_topic,
    ) as consumer:
        for record in consumer:
            seen.append(record.value)
            consumer.failed(record, TimeoutError("late") if record.value == 1 else KeyError("other"))
            if record.value == 2:
                break

    assert seen == [1, 1, 1, 2]
    assert [letter.raw_value for letter in kafka.consume_all(dead_topic)] == [b"1", b"2"]
