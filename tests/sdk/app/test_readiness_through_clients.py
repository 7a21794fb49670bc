"""When a service is ready, seen through its clients."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ottla import App, Json

SHELLS = ["threads", "asyncio", "columns"]


@pytest.mark.representative("columns")
def test_a_slow_handler_is_ready_while_it_gets_on_and_not_when_it_hangs(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any
) -> None:
    kafka.produce(kafka_topic, range(50), value=Json())
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, unready_after_s=1.0)
    release = threading.Event()
    handled: list[int] = []
    unready: list[Any] = []

    @app.handler(kafka_topic, value=Json())
    def handle(order: int) -> None:
        if order == 40:
            release.wait(20)
        else:
            threading.Event().wait(0.05)  # 40 of these together are longer than the limit
        handled.append(order)

    shell.start(app)
    while len(handled) < 40:
        health = app.health()
        if handled and not health.is_ready:
            unready.append((len(handled), health.problems))
        release.wait(0.02)
    assert unready == []

    wait(lambda: not app.health().is_ready)
    assert "offset 40 is unfinished for" in app.health().problems[0]
    release.set()
    wait(lambda: len(handled) == 50 and app.health().is_ready)
