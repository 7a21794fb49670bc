"""A batch handler's linger through the real clients, in both shells."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import App, Json

SHELLS = ["threads", "asyncio", "columns"]


def test_a_trickle_is_gathered_into_one_batch(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any
) -> None:
    batches: list[list[int]] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)

    @app.handler(kafka_topic, value=Json(), batch=True, max_batch=5, linger_ms=60_000)
    def handle(values: list[int]) -> None:
        batches.append(values)

    shell.start(app)
    for number in range(5):  # each its own fetch; together they are full long before the linger is over
        kafka.produce(kafka_topic, [number], value=Json())
    wait(lambda: batches, timeout_s=40)

    assert batches == [[0, 1, 2, 3, 4]]


@pytest.mark.representative("columns")
def test_a_batch_that_does_not_fill_goes_when_its_linger_is_over(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    batches: list[list[int]] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)

    @app.handler(kafka_topic, value=Json(), batch=True, max_batch=500, linger_ms=300)
    async def handle(values: list[int]) -> None:
        batches.append(values)

    shell.start(app)
    kafka.produce(kafka_topic, [0, 1], value=Json())
    wait(lambda: sum(map(len, batches)) == 2, timeout_s=30)
    wait(lambda: committed(kafka_group, kafka_topic) == 2, timeout_s=30)

    assert [value for batch in batches for value in batch] == [0, 1]
