"""A connection that is cut while a service starts does not end it: the next one is used. In both shells."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import App, AsyncProducer, Producer
from ottla.errors import BrokerUnavailable


@pytest.mark.parametrize("cuts", [1, 2])
def test_a_service_with_a_producer_starts_although_its_first_connections_are_cut(
    cuts: int, shell: Any, make_cluster: Any, wait: Any
) -> None:
    cluster = make_cluster(brokers=1)
    cluster.create_topic("orders")
    with Producer(cluster.bootstrap_servers) as before:
        before.send("orders", b"a")
    app = App("billing", bootstrap_servers=cluster.bootstrap_servers)
    producer: Any = (Producer if shell.name == "threads" else AsyncProducer)(cluster.bootstrap_servers)
    handled: list[bytes] = []

    @app.on_start
    def open_producer() -> Any:
        return producer.start()

    @app.on_stop
    def close_producer() -> Any:
        return producer.close()

    @app.handler("orders")
    def handle(value: bytes) -> None:
        handled.append(value)

    with cluster.faults.add(api="METADATA", disconnect=True, count=cuts) as cut:
        shell.start(app)
        wait(lambda: handled == [b"a"], timeout_s=60)
        assert cut.hits == cuts
    shell.stop(app)


async def test_a_broker_that_cuts_every_connection_is_not_available(make_cluster: Any) -> None:
    cluster = make_cluster(brokers=1)
    producer = AsyncProducer(cluster.bootstrap_servers)
    with cluster.faults.add(api="METADATA", disconnect=True), pytest.raises(BrokerUnavailable, match="start"):
        await producer.start()
    await producer.close(0)
