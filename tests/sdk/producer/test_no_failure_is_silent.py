"""A failed delivery is raised by `flush` and `close` unless it was raised before or marked as handled. Both shells."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from both_shells import PRODUCERS

from broker_embedded.cluster import EmbeddedCluster
from ottla.errors import DeliveryError, OttlaError, UnknownTopic

TOPIC = "no-such-topic"


@pytest.fixture(params=sorted(PRODUCERS))
def make(request: pytest.FixtureRequest, no_auto_create: EmbeddedCluster) -> Callable[[], Any]:
    settings = {"topic.metadata.propagation.max.ms": 0}
    return lambda: PRODUCERS[request.param](no_auto_create.bootstrap_servers, settings=settings)


async def send_and_look(producer: Any, look: Callable[[Any], None]) -> None:
    """Send a record that fails, with a callback that has run when this returns."""
    has_looked = threading.Event()

    def callback(delivery: Any) -> None:
        try:
            look(delivery)
        finally:
            has_looked.set()

    producer.send(TOPIC, b"v", key=b"k", on_delivery=callback)
    assert await asyncio.to_thread(has_looked.wait, 30)


async def test_a_callback_that_looks_at_a_failure_does_not_silence_it(make: Callable[[], Any]) -> None:
    producer = make()
    await producer.start()
    await send_and_look(producer, lambda delivery: delivery.exception())
    with pytest.raises(DeliveryError, match="key=b'k'"):
        await producer.flush()
    await send_and_look(producer, lambda delivery: delivery.exception())
    with pytest.raises(DeliveryError, match="key=b'k'"):
        await producer.close()


async def test_a_failure_that_is_marked_as_handled_is_not_raised_again(make: Callable[[], Any]) -> None:
    async with make() as producer:
        await send_and_look(producer, lambda delivery: delivery.mark_handled())
        await producer.flush()


async def test_a_failure_that_was_raised_to_its_caller_is_not_raised_again(make: Callable[[], Any]) -> None:
    async with make() as producer:
        delivery = producer.send(TOPIC, b"v")
        with pytest.raises(UnknownTopic):
            await delivery
        await producer.flush()


async def test_looking_at_a_failure_beside_its_callback_does_not_silence_it_either(make: Callable[[], Any]) -> None:
    async with make() as producer:
        has_failed = asyncio.Event()
        loop = asyncio.get_running_loop()
        delivery = producer.send(
            TOPIC, b"v", on_delivery=lambda delivery: loop.call_soon_threadsafe(has_failed.set) and None
        )
        await has_failed.wait()
        assert isinstance(delivery.exception(), UnknownTopic)
        with pytest.raises(DeliveryError):
            await producer.flush()
        delivery.mark_handled()  # too late to matter, and harmless


async def test_a_result_asked_for_in_a_callback_of_threads_goes_to_nobody_who_sent(
    no_auto_create: EmbeddedCluster,
) -> None:
    def ask(delivery: Any) -> None:
        try:
            delivery.result(0)
        except OttlaError:
            pass  # logged, say

    settings = {"topic.metadata.propagation.max.ms": 0}
    producer = PRODUCERS["threads"](no_auto_create.bootstrap_servers, settings=settings)
    await producer.start()
    await send_and_look(producer, ask)
    with pytest.raises(DeliveryError):
        await producer.close()


async def test_the_parts_of_a_bulk_are_raised_once(make: Callable[[], Any]) -> None:
    async with make() as producer:
        bulk = await producer.send_many(TOPIC, [(b"1",), (b"2",)])
        with pytest.raises(DeliveryError, match="2 record"):
            await bulk
        await producer.flush()
        bulk = await producer.send_many(TOPIC, [(b"1",), (b"2",)])
        with pytest.raises(DeliveryError, match="2 record"):
            await producer.flush()
        with pytest.raises(DeliveryError, match="2 record"):
            await bulk
