"""Changes of the metadata wait for each other, and for nobody once leadership is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.change_queue import ChangeQueue
from broker_embedded.metadata.delta import image_after
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import MetadataRecord, SetFeatureLevel
from ottla_wire.protocol import ErrorCode

OnDone = Callable[[BrokerError | None], None]


class SlowQuorum:
    """Appends wait until the test commits them."""

    def __init__(self) -> None:
        self.is_leader = True
        self.image = ClusterImage(cluster_id="c")
        self.appended: list[tuple[list[str], OnDone]] = []
        self._records: Sequence[MetadataRecord] = ()

    def append(self, records: Sequence[MetadataRecord], on_done: OnDone) -> None:
        self._records = records
        self.appended.append(([each.name for each in records], on_done))  # type: ignore[union-attr]

    def commit(self, error: BrokerError | None = None) -> None:
        if error is None:
            self.image = image_after(self.image, self._records, offset=self.image.offset + len(self._records))
        self.appended.pop(0)[1](error)


def record(name: str) -> SetFeatureLevel:
    return SetFeatureLevel(name=name, level=1)


@pytest.fixture
def quorum() -> SlowQuorum:
    return SlowQuorum()


@pytest.fixture
async def queue(quorum: SlowQuorum) -> ChangeQueue:
    loop = asyncio.get_running_loop()
    return ChangeQueue(quorum=quorum, committed=lambda: quorum.image, loop=loop)  # type: ignore[arg-type]


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


async def test_changes_that_wait_are_appended_together_each_decided_on_those_before_it(
    quorum: SlowQuorum, queue: ChangeQueue
) -> None:
    seen: list[tuple[set[str], int]] = []

    def decide(name: str) -> Any:
        seen.append((set(queue.image.features), queue.image.offset))
        return [record(name)], name

    first = queue.submit(lambda: decide("a"))
    others = [queue.submit(lambda name=name: decide(name)) for name in "bcd"]
    quorum.commit()
    assert first.result() == "a"
    assert [names for names, _ in quorum.appended] == [["b", "c", "d"]]
    assert seen == [(set(), -1), ({"a"}, 0), ({"a", "b"}, 1), ({"a", "b", "c"}, 2)]
    assert queue.image is quorum.image
    assert not any(each.done() for each in others)
    quorum.commit()
    assert [each.result() for each in others] == ["b", "c", "d"]


async def test_what_was_decided_together_fails_together(quorum: SlowQuorum, queue: ChangeQueue) -> None:
    queue.submit(lambda: ([record("a")], None))
    waiting = [queue.submit(lambda name=name: ([record(name)], None)) for name in "bc"]
    waiting.append(queue.submit(lambda: ([], "saw what b and c would do")))
    quorum.commit()
    quorum.commit(BrokerError(ErrorCode.NOT_CONTROLLER, "lost"))
    assert [code_of(each) for each in waiting] == [ErrorCode.NOT_CONTROLLER] * 3


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
    assert [names for names, _ in quorum.appended] == [["c"]]
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

    instant = ChangeQueue(
        quorum=InstantQuorum(),  # type: ignore[arg-type]
        committed=lambda: ClusterImage(cluster_id="c"),
        loop=asyncio.get_running_loop(),
    )
    assert instant.submit(lambda: ([record("a")], 1)).result() == 1
    assert instant.submit(lambda: ([record("b")], 2)).result() == 2
