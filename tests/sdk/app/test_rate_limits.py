"""`max_rate=` in a service: offline, and through both clients, where operators see that the limit causes the lag."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from metric_values import Collected, collected_metrics

from ottla import App, CommitPolicy, ConfigError, Int64, Producer, Rate, RetryPolicy
from ottla.app.runtime.health_paths import answer
from ottla.cli import main
from ottla.testing import OfflineConsumer, consumer_for

SHELLS = ["threads", "asyncio", "columns"]


@pytest.fixture
def metrics() -> Iterator[Collected]:
    with collected_metrics() as made:
        yield made


def offline(is_async: bool, **options: Any) -> tuple[OfflineConsumer, list[tuple[int, int]]]:
    """A consumer whose handler notes when it gets which value; every tenth fails once."""
    app = App("billing", dead_letter_topic="dead", retry=RetryPolicy(initial_s=0.001, jitter=0))
    seen: list[tuple[int, int]] = []
    failed: set[int] = set()

    def note(value: int) -> None:
        seen.append((consumer.clock.now_ms(), value))
        if value % 10 == 0 and value not in failed:
            failed.add(value)
            raise ConnectionError(f"{value} fails once")

    async def note_async(value: int) -> None:
        note(value)

    app.handler("orders", value=Int64(), **options)(note_async if is_async else note)
    consumer = consumer_for(app)
    return consumer, seen


@pytest.mark.parametrize("is_async", [False, True])
def test_records_reach_the_handler_at_the_rate_and_in_order(is_async: bool) -> None:
    consumer, seen = offline(is_async, max_rate=Rate(100, burst=10))
    began_ms = consumer.clock.now_ms()
    deliveries = consumer.deliver_all(range(1, 31))

    assert [delivery.outcome for delivery in deliveries] == ["done"] * 30
    assert sorted({value for _, value in seen}) == list(range(1, 31))
    assert len(seen) == 33, "three of them twice"
    assert [value for at_ms, value in seen if at_ms == began_ms] == list(range(1, 11)), "the burst"
    took_ms = seen[-1][0] - began_ms
    assert 230 <= took_ms <= 240, "23 calls after the burst, at 10 ms"


def test_what_expires_while_it_waits_is_not_handed_out() -> None:
    consumer, seen = offline(False, max_rate=Rate(1, burst=2), ttl_s=2.5)
    outcomes = [delivery.outcome for delivery in consumer.deliver_all([1, 2, 3, 4, 5, 6])]
    assert outcomes == ["done"] * 4 + ["expired"] * 2
    assert [value for _, value in seen] == [1, 2, 3, 4]


def test_something_else_than_a_rate_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="on_order: max_rate must be of type Rate, got '200/s'"):
        App("billing").handler("orders", name="on_order", max_rate="200/s")(print)  # type: ignore[call-overload]


def test_a_limited_service_is_ready_and_says_that_it_is_limited(
    shell: Any, kafka: Any, make_topic: Callable[..., str], kafka_group: str, wait: Any, metrics: Collected
) -> None:
    topic = make_topic("limited")
    with Producer(kafka.bootstrap_servers, value=Int64()) as producer:
        producer.send_many(topic, [(number,) for number in range(2_000)])
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=CommitPolicy(every_s=0.1))
    seen: list[tuple[float, int]] = []

    @app.handler(topic, value=Int64(), max_rate=Rate(100, burst=5))
    def handle(number: int) -> None:
        seen.append((time.monotonic(), number))

    def lag() -> dict[str, Any]:
        environment = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
        printed = CliRunner().invoke(main, ["groups", "lag", kafka_group, "--format", "json"], env=environment)
        items = json.loads(printed.stdout)["items"]
        return dict(items[0]) if items else {"limited": False}

    def limited_metric() -> float | None:
        return metrics.value(
            "ottla.handler.limited", messaging__consumer__group__name=kafka_group, ottla__handler="handle"
        )

    shell.start(app)
    wait(lambda: len(seen) >= 60)
    wait(lambda: limited_metric() == 1)
    health = app.health()
    assert health.is_ready, health.problems
    assert health.limited == ("handle",)
    assert answer(health, "/health")[1]["limited"] == ["handle"]
    wait(lambda: lag()["limited"])
    assert lag()["lag"] > 0
    shell.stop(app)

    assert [number for _, number in seen] == list(range(len(seen)))
    took_s = seen[-1][0] - seen[0][0]
    assert len(seen) <= 5 + 100 * took_s + 2
    assert not lag()["limited"], "nobody runs any more"
