"""What becomes of works whose transaction fails, step by step, with a producer that answers as it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla import (
    BrokerUnavailable,
    ConfigError,
    DeliveryError,
    FencedError,
    RecordTooLarge,
    RetriableError,
    TopicPartition,
)
from ottla.once.committing import MOST_OUTPUTS, Committing, OutcomeUnknown, transactions_of
from ottla.once.outputs import OutputRecord
from ottla.producer.bulk import Outgoing

PLACE = TopicPartition("orders", 0)


class Told:
    """A work that notes what it is told."""

    def __init__(self, next_offset: int = 1, *, outputs: int = 1, name: TopicPartition = PLACE, is_alone: bool = False):
        self.name, self.epoch, self.next_offset, self.is_alone = name, 1, next_offset, is_alone
        self.outputs = [OutputRecord("out", Outgoing(b"%d" % n), n) for n in range(outputs)]
        self.size = outputs
        self.told: list[str] = []

    def committed(self) -> None:
        self.told.append("committed")

    def refused(self, at: int, error: Exception) -> Told | None:
        self.told.append(f"refused {at}")
        self.outputs = self.outputs[:at]
        return self if self.outputs else None

    def abandon(self) -> None:
        self.told.append("let go")


class Scripted:
    """Each call takes the next answer for its name: an error to raise, or nothing."""

    def __init__(self, *, has_name: bool = False, **answers: Sequence[Any]) -> None:
        self.has_name = has_name
        self._answers = {name: list(given) for name, given in answers.items()}
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            waiting = self._answers.get(name)
            answer = waiting.pop(0) if waiting else None
            if isinstance(answer, Exception):
                raise answer
            return True if answer is None and name == "pause" else answer

        return call


class Delivered:
    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def done(self) -> bool:
        return True

    def exception(self) -> Exception | None:
        return self._error


def settle(client: Scripted, *works: Told, holds: Callable[..., bool] = lambda *_: True) -> list[str]:
    events: list[str] = []
    committing = Committing(holds=holds, tell=lambda event, *_: events.append(event))
    drive(committing.settle(list(works), client))
    return events


def drive(steps: Any) -> None:
    """Make the calls, as a shell does."""
    call = next(steps, None)
    while call is not None:
        try:
            answer = call()
        except Exception as error:
            try:
                call = steps.throw(error)
            except StopIteration:
                break
        else:
            try:
                call = steps.send(answer)
            except StopIteration:
                break


def test_a_lost_answer_is_asked_for_until_it_comes() -> None:
    work, lost = Told(), BrokerUnavailable("nobody answers")
    client = Scripted(commit=[lost, lost, None])
    assert settle(client, work) == ["transaction_outcome_open"] * 2
    assert work.told == ["committed"]
    assert client.calls.count("send_all") == 1


def test_an_outcome_that_nobody_can_tell_ends_the_member() -> None:
    work = Told()
    client = Scripted(commit=[BrokerUnavailable("nobody answers"), FencedError("too late")])
    with pytest.raises(OutcomeUnknown):
        settle(client, work)
    assert work.told == []


def test_without_a_name_a_transaction_that_took_too_long_is_done_again_by_another_producer() -> None:
    work = Told()
    client = Scripted(commit=[FencedError("it took too long"), None])
    assert settle(client, work) == ["transaction_failed"]
    assert work.told == ["committed"]
    assert client.calls.count("renew") == 1


def test_with_a_name_the_newer_process_goes_on() -> None:
    with pytest.raises(FencedError):
        settle(Scripted(has_name=True, begin=[FencedError("a newer one")]), Told())


def test_a_refused_output_is_found_by_sending_one_by_one() -> None:
    bad, good = Told(outputs=3), Told(name=TopicPartition("orders", 1))
    refused = RecordTooLarge(topic="out", size_bytes=9, limit_bytes=8, setting="max.message.bytes")
    client = Scripted(
        commit=[DeliveryError([], total=1), DeliveryError([], total=1), None],
        send=[Delivered(), Delivered(refused), Delivered(), Delivered()],
    )
    settle(client, bad, good)
    assert bad.told == ["refused 1", "committed"]
    assert good.told == ["committed"]
    assert client.calls.count("abort") == 2


def test_what_no_record_is_to_blame_for_ends_the_member_and_nothing_is_told() -> None:
    work = Told()
    with pytest.raises(ConfigError):
        settle(Scripted(send_all=[ConfigError("batch.size")], send=[ConfigError("batch.size")]), work)
    assert work.told == []


def test_a_partition_that_was_taken_away_is_left_out_and_the_others_go_on() -> None:
    gone, here = Told(), Told(name=TopicPartition("orders", 1))
    has_begun: list[bool] = []

    def holds(name: TopicPartition, epoch: int) -> bool:
        has_begun.append(True)
        return name.partition == 1 or len(has_begun) <= 2

    client = Scripted(offsets=[RetriableError("given to others"), None])
    settle(client, gone, here, holds=holds)
    assert gone.told == ["let go"]
    assert here.told == ["committed"]


def test_at_the_end_what_is_open_stays_open_and_is_not_told() -> None:
    work = Told()
    settle(Scripted(begin=[BrokerUnavailable("nobody answers")], pause=[False]), work)
    assert work.told == []


def test_an_offset_that_a_later_commit_has_passed_is_not_put_back() -> None:
    client = Scripted()
    committing = Committing(holds=lambda *_: True, tell=lambda *_: None)
    for work in (Told(5), Told(3, outputs=0)):
        for call in (steps := committing.settle([work], client)):
            call()
        assert steps is not None
        assert work.told == ["committed"]
    assert client.calls.count("commit") == 1


def test_letters_go_alone_and_transactions_have_a_bound() -> None:
    works = [Told(), Told(), Told(is_alone=True), Told(), Told(outputs=MOST_OUTPUTS), Told()]
    assert [len(group) for group in transactions_of(works)] == [2, 1, 1, 1, 1]


def test_of_works_that_come_to_an_end_together_those_without_an_answer_are_known() -> None:
    """The member lets them go then. One that has its answer must not get a second."""
    committing = Committing(holds=lambda *_: True, tell=lambda *_: None)
    first, letter, fenced, behind = Told(), Told(is_alone=True), Told(), Told(is_alone=True)
    results = Scripted(has_name=True, commit=[None, FencedError("a newer one")])
    steps = committing.settle_all([first, letter, fenced, behind], results=results, failed_writes=Scripted())
    with pytest.raises(FencedError):
        drive(steps)
    assert committing.unanswered == [fenced, behind]
    assert [work.told for work in (first, letter, fenced, behind)] == [["committed"], ["committed"], [], []]


def test_a_work_of_which_a_part_was_refused_is_still_without_an_answer() -> None:
    committing = Committing(holds=lambda *_: True, tell=lambda *_: None)
    whole, part = Told(name=TopicPartition("orders", 1)), Told(outputs=2)
    refused = RecordTooLarge(topic="out", size_bytes=9, limit_bytes=8, setting="max.message.bytes")
    client = Scripted(
        has_name=True,
        commit=[DeliveryError([], total=1), DeliveryError([], total=1), FencedError("a newer one")],
        send=[Delivered(), Delivered(), Delivered(refused), Delivered(), Delivered()],
    )
    with pytest.raises(FencedError):
        drive(committing.settle([whole, part], client))
    assert [work.told for work in (whole, part)] == [[], ["refused 1"]]
    assert set(committing.unanswered) == {whole, part}
