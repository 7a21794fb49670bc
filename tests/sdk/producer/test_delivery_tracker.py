"""No failure is silent: each is raised to whoever waits for it, or else by the next flush."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import DeliveryError, RetriableError, UndeliveredRecord
from ottla.producer import DeliveryFailure, DeliveryTracker, delivery_error
from ottla.sync.produce.delivery import Delivery


@dataclass(eq=False)
class Sent:
    topic: str = "t"
    key: bytes | None = None
    is_done: bool = False
    failed_in: int = -1

    def done(self) -> bool:
        return self.is_done


def failure(text: str = "broken") -> DeliveryFailure:
    return DeliveryFailure(UndeliveredRecord(topic="t", partition=0, key=b"k", error=text), RetriableError(text))


def test_a_failure_is_taken_once() -> None:
    tracker: DeliveryTracker[Sent] = DeliveryTracker()
    tracker.failed(Sent(), failure())
    failures, total = tracker.take_failures()
    assert (len(failures), total) == (1, 1)
    assert tracker.take_failures() == ([], 0)


def test_a_failure_that_was_raised_to_its_caller_is_not_raised_again() -> None:
    tracker: DeliveryTracker[Sent] = DeliveryTracker()
    mine, other = Sent(), Sent()
    tracker.failed(mine, failure("mine"))
    tracker.failed(other, failure("other"))
    tracker.was_raised(mine)
    failures, total = tracker.take_failures()
    assert [kept.record.error for kept in failures] == ["other"]
    assert total == 1


def test_failures_beyond_what_is_kept_are_counted() -> None:
    tracker: DeliveryTracker[Sent] = DeliveryTracker()
    for number in range(tracker.KEEP_FAILURES + 5):
        tracker.failed(Sent(), failure(str(number)))
    failures, total = tracker.take_failures()
    assert len(failures) == tracker.KEEP_FAILURES
    assert total == tracker.KEEP_FAILURES + 5


def test_a_failure_that_is_raised_twice_hides_no_other() -> None:
    tracker: DeliveryTracker[Sent] = DeliveryTracker()
    sent = [Sent() for _ in range(tracker.KEEP_FAILURES + 5)]
    for each in sent:
        tracker.failed(each, failure())
    for _ in range(2):
        tracker.was_raised(sent[0])  # kept in full
        tracker.was_raised(sent[-1])  # only counted
    assert tracker.take_failures()[1] == tracker.KEEP_FAILURES + 3
    for each in sent:
        tracker.failed(Sent(), failure())
        tracker.was_raised(each)  # told by the last flush
    assert tracker.take_failures()[1] == len(sent)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=200))
def test_sweeping_forgets_what_is_done_and_nothing_else(steps: list[tuple[bool, bool]]) -> None:
    tracker: DeliveryTracker[Sent] = DeliveryTracker()
    pending: list[Sent] = []
    for is_done, sweeps in steps:
        sent = Sent(is_done=is_done)
        tracker.outstanding.append(sent)
        if not is_done:
            pending.append(sent)
        if sweeps:
            tracker.sweep(4)
        assert set(map(id, tracker.unfinished())) == set(map(id, pending))
    tracker.sweep(len(tracker.outstanding))
    assert len(tracker.outstanding) == len(pending)


def test_the_line_stays_short_while_one_partition_is_stuck() -> None:
    tracker: DeliveryTracker[Sent] = DeliveryTracker()
    tracker.outstanding.append(Sent(is_done=False))
    for number in range(10_000):
        tracker.outstanding.append(Sent(is_done=True))
        if not number % 256:
            tracker.sweep(512)
        assert len(tracker.outstanding) <= 600


class Counted(Sent):
    """Counts how often it is looked at."""

    looks = 0

    def done(self) -> bool:
        self.looks += 1
        return self.is_done


def test_what_is_settled_in_the_order_of_sending_is_looked_at_once() -> None:
    tracker: DeliveryTracker[Counted] = DeliveryTracker()
    sent = [Counted() for _ in range(10_240)]
    unfinished = 1_000
    for number, each in enumerate(sent):
        tracker.outstanding.append(each)
        if number >= unfinished:
            sent[number - unfinished].is_done = True
        if not number % 256:
            tracker.sweep_in_passing(512, unfinished=unfinished)
        assert len(tracker.outstanding) <= unfinished + 1_024
    assert sum(each.looks for each in sent) <= 1.1 * len(sent)


@pytest.mark.parametrize("stuck", [1, 3_000])
def test_a_partition_that_is_stuck_holds_back_no_others(stuck: int) -> None:
    tracker: DeliveryTracker[Sent] = DeliveryTracker()
    for _ in range(stuck):
        tracker.outstanding.append(Sent(is_done=False))
    for number in range(20_000):
        tracker.outstanding.append(Sent(is_done=True))
        if not number % 256:
            tracker.sweep_in_passing(512, unfinished=stuck)
        assert len(tracker.outstanding) <= 3 * stuck + 1_024
    assert len(tracker.unfinished()) == stuck


def test_an_error_lists_failures_first_then_what_is_still_out() -> None:
    still_out = [UndeliveredRecord(topic="t", partition=None, key=b"later", error="not acknowledged yet")]
    error = delivery_error([failure()], 1, still_out)
    assert isinstance(error, DeliveryError)
    assert [record.key for record in error.undelivered] == [b"k", b"later"]
    assert error.total == 2
    assert isinstance(error.__cause__, RetriableError)
    assert delivery_error([], 0, []) is None


def test_what_a_sweep_has_in_its_hands_is_not_missed_by_a_flush() -> None:
    is_sweeping, may_go_on = threading.Event(), threading.Event()

    def pending(deliveries: Iterable[Sent]) -> list[Sent]:
        is_sweeping.set()
        assert may_go_on.wait(60)
        return [delivery for delivery in deliveries if not delivery.is_done]

    tracker: DeliveryTracker[Sent] = DeliveryTracker(pending)
    sent = [Sent(), Sent(is_done=True), Sent()]
    tracker.outstanding.extend(sent)
    with ThreadPoolExecutor(2) as threads:
        sweep = threads.submit(tracker.sweep)
        assert is_sweeping.wait(60)
        flush = threads.submit(tracker.unfinished)
        tracker.sweep()  # while another thread does it there is nothing to do, and nothing to wait for
        may_go_on.set()
        assert flush.result(60) == [sent[0], sent[2]]
        sweep.result(60)
    assert list(tracker.outstanding) == [sent[0], sent[2]]


def test_a_delivery_has_a_signature() -> None:
    """Documentation tools and debuggers ask for it, and a struct reads the annotations of all its bases."""
    assert list(inspect.signature(Delivery).parameters)[:2] == ["topic", "key"]
