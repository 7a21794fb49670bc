"""`app.producer`: open while the app runs, with its address; flushed and closed when it has stopped. In both shells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla import App, Json, LifecycleError
from ottla.testing import Kafka, RunningApp, ServedApp, wait_until_async


@pytest.mark.representative("False-ServedApp")
@pytest.mark.parametrize("shell", [RunningApp, ServedApp])
@pytest.mark.parametrize("is_async", [False, True])
async def test_handlers_and_hooks_send_with_it(
    kafka: Kafka, make_topic: Callable[..., str], shell: Any, is_async: bool
) -> None:
    orders, invoices = make_topic("orders"), make_topic("invoices")
    app = App(kafka.fresh_name("billing"))
    handled: list[int] = []
    producer: Any = app.async_producer(value=Json()) if is_async else app.producer(value=Json())

    if is_async:

        @app.on_start
        async def started() -> None:
            await producer.send(invoices, "started")

        @app.handler(orders, value=Json(int))
        async def bill_async(order: int) -> Any:
            handled.append(order)
            return producer.send(invoices, order)

        @app.on_stop
        async def stopped() -> None:
            producer.send(invoices, "stopped")
    else:

        @app.on_start
        def started_threads() -> None:
            producer.send(invoices, "started").result(30)

        @app.handler(orders, value=Json(int))
        def bill(order: int) -> Any:
            handled.append(order)
            return producer.send(invoices, order)

        @app.on_stop
        def stopped_threads() -> None:
            producer.send(invoices, "stopped")

    kafka.produce(orders, [1, 2], value=Json(int))
    running = shell(app, kafka.bootstrap_servers)
    if shell is ServedApp:
        await running.start()
    await wait_until_async(lambda: handled == [1, 2], 30, what="two orders")
    stopping = running.stop()
    if shell is ServedApp:
        await stopping

    sent = [record.value for record in kafka.consume_all(invoices, value=Json())]
    assert sent == ["started", 1, 2, "stopped"]
    with pytest.raises(LifecycleError, match="works only while app"):
        producer.send(invoices, "late")
