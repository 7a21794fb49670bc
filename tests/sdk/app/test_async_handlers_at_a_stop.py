"""What is still under way on the loop of async handlers when a service ends is cancelled, cleans up, and comes again.

In both shells: threads have a loop for async handlers of their own.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla import App, CommitPolicy


@pytest.mark.parametrize("returns_what_it_sent", [False, True])
def test_a_handler_that_outlives_the_drain_cleans_up_and_its_record_comes_again(
    returns_what_it_sent: bool,
    shell: Any,
    kafka: Any,
    kafka_topic: str,
    kafka_group: str,
    committed: Any,
    wait: Any,
    capfd: Any,
) -> None:
    begun: list[int] = []
    ended: list[int] = []

    def service(is_stuck: bool) -> App:
        app = App(
            kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=CommitPolicy(every_s=0.05), drain_s=0.1
        )

        async def work(offset: int) -> None:
            begun.append(offset)
            try:
                if is_stuck and offset == 1:
                    await asyncio.Event().wait()
            finally:
                ended.append(offset)

        @app.handler(kafka_topic)
        async def handle(record: Any) -> Any:
            if returns_what_it_sent:
                return work(record.offset)
            return await work(record.offset)

        return app

    kafka.produce(kafka_topic, [b"a", b"b"])
    first = shell.start(service(is_stuck=True))
    wait(lambda: begun == [0, 1] and ended == [0])
    shell.stop(first)

    assert ended == [0, 1]
    assert committed(kafka_group, kafka_topic) <= 1
    second = shell.start(service(is_stuck=False))
    wait(lambda: committed(kafka_group, kafka_topic) == 2, timeout_s=60)
    shell.stop(second)
    assert begun[-1] == 1
    assert "was destroyed" not in capfd.readouterr().err


def test_a_task_that_a_hook_left_on_the_loop_is_cancelled_at_the_end(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any
) -> None:
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)
    seen: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def watch() -> None:
        try:
            seen.append("begun")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @app.on_start
    async def begin() -> None:
        tasks.append(asyncio.create_task(watch()))

    @app.handler(kafka_topic)
    async def handle(value: bytes) -> None: ...

    shell.start(app)
    wait(lambda: seen == ["begun"])
    shell.stop(app)
    assert seen == ["begun", "cancelled"]
