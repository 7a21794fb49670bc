"""Changes of the metadata wait for each other, and for nobody once leadership is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.change_queue import ChangeQueue
from broker_embedded.metadata.records import MetadataRecord, SetFeatureLevel
from ottla_wire.protocol import ErrorCode

OnDone = Callable[[BrokerError | None], None]


class SlowQuorum:
    """Appends wait until the test commits them."""

    def __init__(self) -> None:
        self.is_leader = True
        self.appended: list[tuple[str, OnDone]] = []

    def append(self, records: Sequence[MetadataRecord], on_done: OnDone) -> None:
        self.appended.append((records[0].name, on_done))  # type: ignore[union-attr]

    def commit(self, error: BrokerError | None = None) -> None:
        self.appended.pop(0)[1](error)


def record(name: str) -> SetFeatureLevel:
    return SetFeatureLevel(name=name, level=1)


@pytest.fixture
def quorum() -> SlowQuorum:
    return SlowQuorum()


@pytest.fixture
async def queue(quorum: SlowQuorum) -> ChangeQueue:
    return ChangeQueue(quorum=quorum, loop=asyncio.get_running_loop())  # type: ignore[arg-type]


def code_of(future: asyncio.Future[Any]) -> ErrorCode:
    error = future.exception()
    assert isinstance(error, BrokerError)
    return error.code


async def test_a_change_is_decided_only_when_the_one_before_it_is_committed(
    quorum: SlowQuorum, queue: ChangeQueue
) -> None:
    decided: list[str] = []

    def decide(name: str) -> Any:
        decided.append(name)
        return [record(name)], name.upper()

    first = queue.submit(lambda: decide("a"))
    second = queue.submit(lambda: decide("b"))
    assert decided == ["a"]
    assert not first.done()
    quorum.commit()
    assert decided == ["a", "b"]
    assert first.result() == "A"
    assert not second.done()
    quorum.commit()
    assert second.result() == "B"


async def test_a_change_without_records_is_answered_in_its_turn(quorum: SlowQuorum, queue: ChangeQueue) -> None:
    assert queue.submit(lambda: ([], "at once")).result() == "at once"
    queue.submit(lambda: ([record("a")], None))
    reading = queue.submit(lambda: ([], "later"))
    assert not reading.done()
    quorum.commit()
    assert reading.result() == "later"


async def test_who_is_refused_hears_why_and_the_next_one_has_its_turn(quorum: SlowQuorum, queue: ChangeQueue) -> None:
    def refuse() -> Any:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "no")

    queue.submit(lambda: ([record("a")], None))
    refused = queue.submit(refuse)
    following = queue.submit(lambda: ([], 1))
    quorum.commit()
    assert code_of(refused) == ErrorCode.INVALID_REQUEST
    assert following.result() == 1


async def test_nobody_waits_for_a_controller_that_is_none_any_more(quorum: SlowQuorum, queue: ChangeQueue) -> None:
    under_way = queue.submit(lambda: ([record("a")], None))
    waiting = queue.submit(lambda: ([record("b")], None))
    quorum.is_leader = False
    queue.fail_all()
    assert code_of(waiting) == ErrorCode.NOT_CONTROLLER
    quorum.commit(BrokerError(ErrorCode.NOT_CONTROLLER, "lost"))
    assert code_of(under_way) == ErrorCode.NOT_CONTROLLER
    assert quorum.appended == []
    assert code_of(queue.submit(lambda: ([record("c")], None))) == ErrorCode.NOT_CONTROLLER


async def test_leadership_lost_between_two_changes_stops_the_second_one(quorum: SlowQuorum, queue: ChangeQueue) -> None:
    queue.submit(lambda: ([record("a")], None))
    second = queue.submit(lambda: ([record("b")], None))
    quorum.is_leader = False
    quorum.commit()
    assert code_of(second) == ErrorCode.NOT_CONTROLLER


async def test_a_change_whose_asker_has_gone_is_not_made(quorum: SlowQuorum, queue: ChangeQueue) -> None:
    queue.submit(lambda: ([record("a")], None))
    gone = queue.submit(lambda: ([record("b")], None))
    last = queue.submit(lambda: ([record("c")], 3))
    gone.cancel()
    quorum.commit()
    assert [name for name, _ in quorum.appended] == ["c"]
    quorum.commit()
    assert last.result() == 3


async def test_an_append_that_commits_at_once_and_submits_again_does_not_nest(queue: ChangeQueue) -> None:
    class InstantQuorum:
        is_leader = True
        depth = 0

        def append(self, records: Sequence[MetadataRecord], on_done: OnDone) -> None:
            self.depth += 1
            assert self.depth == 1
            nested = instant.submit(lambda: ([], "nested")) if records[0].name == "a" else None  # type: ignore[union-attr]
            assert nested is None or not nested.done()
            on_done(None)
            self.depth -= 1

    instant = ChangeQueue(quorum=InstantQuorum(), loop=asyncio.get_running_loop())  # type: ignore[arg-type]
    assert instant.submit(lambda: ([record("a")], 1)).result() == 1
    assert instant.submit(lambda: ([record("b")], 2)).result() == 2
