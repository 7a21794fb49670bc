"""Delayed operations: woken by events, ended by timers, done once."""

from __future__ import annotations

import asyncio

from broker_embedded.purgatory.purgatory import DelayedOperation, Purgatory


class Wait(DelayedOperation[str]):
    """Waits for an amount, and remembers how it ended."""

    __slots__ = ("ended", "got", "has_ended", "wanted")

    def __init__(self, wanted: int) -> None:
        super().__init__()
        self.wanted = wanted
        self.got = 0
        self.ended: list[str] = []
        self.has_ended = asyncio.Event()

    def is_satisfied(self, key: str, amount: int) -> bool:
        self.got += amount
        return self.got >= self.wanted

    def on_complete(self) -> None:
        self.ended.append("completed")
        self.has_ended.set()

    def on_expire(self) -> None:
        self.ended.append("expired")
        self.has_ended.set()


async def test_an_operation_completes_when_events_on_its_keys_add_up() -> None:
    purgatory: Purgatory[str] = Purgatory(asyncio.get_running_loop())
    wait = Wait(10)
    purgatory.watch(wait, ["a", "b"], timeout_ms=60_000)
    assert purgatory.notify("a", 4) == 0
    assert purgatory.notify("c", 100) == 0
    assert wait.ended == []
    assert purgatory.notify("b", 6) == 1
    assert wait.ended == ["completed"]
    assert len(purgatory) == 0
    assert not purgatory.is_watched("a")


async def test_a_completed_operation_does_not_expire_later() -> None:
    purgatory: Purgatory[str] = Purgatory(asyncio.get_running_loop())
    first, second = Wait(1), Wait(1)
    purgatory.watch(first, ["a"], timeout_ms=5)
    purgatory.watch(second, ["b"], timeout_ms=20)
    purgatory.notify("a", 1)
    await second.has_ended.wait()
    assert first.ended == ["completed"]
    assert second.ended == ["expired"]


async def test_an_expired_operation_is_not_completed_by_a_later_event() -> None:
    purgatory: Purgatory[str] = Purgatory(asyncio.get_running_loop())
    wait = Wait(1)
    purgatory.watch(wait, ["a"], timeout_ms=1)
    await wait.has_ended.wait()
    assert purgatory.notify("a", 1) == 0
    assert wait.ended == ["expired"]


async def test_a_cancelled_operation_runs_neither_hook() -> None:
    purgatory: Purgatory[str] = Purgatory(asyncio.get_running_loop())
    gone, stays = Wait(1), Wait(1)
    purgatory.watch(gone, ["a"], timeout_ms=10)
    purgatory.watch(stays, ["a"], timeout_ms=20)
    purgatory.cancel(gone)
    await stays.has_ended.wait()
    assert gone.ended == []
    assert len(purgatory) == 0


async def test_one_event_completes_every_operation_that_it_satisfies() -> None:
    purgatory: Purgatory[str] = Purgatory(asyncio.get_running_loop())
    waits = [Wait(wanted) for wanted in (1, 5, 9)]
    for wait in waits:
        purgatory.watch(wait, ["a"], timeout_ms=60_000)
    assert purgatory.notify("a", 5) == 2
    assert [wait.ended for wait in waits] == [["completed"], ["completed"], []]
    purgatory.close()
    assert waits[2].ended == []
