"""A task of the producer ends when it is told to, also when its first cancellation is lost."""

from __future__ import annotations

import asyncio

import pytest

from ottla.aio.client.ending import end
from ottla.aio.produce.cluster_watch import ClusterWatch
from ottla.clock import SystemClock
from ottla.producer import LimitsCache


async def test_a_cancellation_that_is_lost_comes_again() -> None:
    lost = 0

    async def loses_it() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(3_600)
            except asyncio.CancelledError:
                lost += 1
                if lost == 3:
                    raise

    task = asyncio.create_task(loses_it())
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await end(task, None)
    assert task.cancelled()
    assert lost == 3


async def test_what_a_task_raises_at_its_end_is_dropped() -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    task = asyncio.create_task(fails())
    await asyncio.sleep(0)
    await end(task)
    assert isinstance(task.exception(), ZeroDivisionError)


@pytest.mark.parametrize("_", range(3))
async def test_a_watch_that_is_woken_and_stopped_in_one_moment_ends(_: int) -> None:
    """`wait_for` returned the wake, and forgot the cancellation: `close` waited for ever."""
    watch = ClusterWatch(
        admin_config={},
        limits=LimitsCache(client_limit_bytes=1_000_000, max_age_ms=60_000),
        on_limit=lambda topic, limit: None,
        clock=SystemClock(),
        timeout_ms=1_000,
    )
    watch._wake()
    for _turn in range(3):
        await asyncio.sleep(0)  # it waits now
    watch._wake()
    async with asyncio.timeout(30):
        await watch.stop()
