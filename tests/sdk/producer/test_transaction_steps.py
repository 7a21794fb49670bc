"""The order of a transaction's calls, whatever fails in between: no client, no loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import (
    BrokerUnavailable,
    DeliveryError,
    FencedError,
    InputError,
    LifecycleError,
    OttlaError,
    UndeliveredRecord,
)
from ottla.producer import ProducerTransactionState, TransactionEvent, TransactionStates
from ottla.producer.deliveries import DeliveryFailure
from ottla.producer.transaction_steps import Steps, TransactionSteps

CALLS = ("initialize", "begin", "settle", "send_offsets", "commit", "abort")
FAILURES: dict[str, Callable[[], OttlaError]] = {
    "away": lambda: BrokerUnavailable("nobody answers"),
    "refused": lambda: OttlaError("refused"),
    "fenced": lambda: FencedError("a newer producer"),
}


class TimedOutInside:
    """A client that gave the transaction up, with an error that says of a commit that its outcome is open."""

    def __init__(self, steps: TransactionSteps) -> None:
        self.steps = steps

    def fail(self) -> None:
        self.steps.states.on(TransactionEvent.FAILED)
        raise BrokerUnavailable("MSG_TIMED_OUT: the transaction must be aborted")


class Scripted:
    """Fails where it is told to, and moves the state as the shells do."""

    def __init__(self, plan: list[str | None]) -> None:
        self.plan = plan
        self.made: list[str] = []
        self.committed: list[bool] = []
        """Whether anything of the transaction had failed when its commit was asked for and answered."""
        self.has_failed = False
        self.steps: TransactionSteps

    def _call(self, name: str) -> None:
        self.made.append(name)
        failure = self.plan.pop(0) if self.plan else None
        if failure is None:
            return
        error = FAILURES[failure]()
        if name == "settle":  # waits only: what was not delivered is told by `still_out`
            self.has_failed = True
            self.steps.failures.call_raised(error)
            return
        if isinstance(error, FencedError):
            self.steps.was_fenced()
        elif isinstance(error, BrokerUnavailable):
            self.steps.timed_out()
        else:
            self.steps.refused()
        if name == "send_offsets":
            self.has_failed = True
        raise error

    def initialize(self, timeout_s: float) -> None:
        self._call("initialize")

    def begin(self, timeout_s: float) -> None:
        self.has_failed = False
        self._call("begin")

    def send_offsets(self, offsets: Any, group: Any, timeout_s: float) -> None:
        self._call("send_offsets")

    def send_joined(self, positions: Any, member: Any, timeout_s: float) -> None:
        self._call("send_offsets")

    def commit(self, timeout_s: float, *, is_first: bool) -> None:
        self._call("commit")
        self.committed.append(self.has_failed)

    def abort(self, timeout_s: float) -> None:
        self._call("abort")

    def settle(self, timeout_s: float) -> None:
        self._call("settle")

    def still_out(self) -> tuple[list[Any], None]:
        return [], None

    def forget_failures(self) -> None:
        pass


def run(steps: Steps[None]) -> None:
    try:
        call = next(steps)
        while True:
            try:
                answer = call()
            except BaseException as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration:
        return


def transaction(steps: TransactionSteps, *, body_fails: bool) -> None:
    """The block of `with producer.transaction()`."""
    run(steps.begin(1))
    error: Exception | None = None
    try:
        run(steps.send_offsets({("orders", 0): 1}, "group", 1))
        if body_fails:
            raise ValueError("the block")
    except Exception as raised:
        error = raised
    run(steps.leave(error, 1))
    if error is not None:
        raise error


@settings(max_examples=400)  # each is cheap, and what matters is which two calls fail
@given(
    failing=st.dictionaries(st.integers(0, 11), st.sampled_from(sorted(FAILURES)), max_size=4),
    blocks=st.lists(st.booleans(), min_size=1, max_size=4),
)
def test_nothing_is_committed_of_which_a_part_failed_and_nothing_stays_open(
    failing: dict[int, str], blocks: list[bool]
) -> None:
    client = Scripted([failing.get(number) for number in range(12)])
    client.steps = steps = TransactionSteps(client, TransactionStates("billing"))
    for body_fails in blocks:
        before, calls = len(client.committed), len(client.made)
        has_open_commit = steps.states.left_open is TransactionEvent.COMMIT
        try:
            transaction(steps, body_fails=body_fails)
        except OttlaError:
            pass
        except ValueError:
            assert body_fails
        else:
            assert not body_fails
            was_left_open = has_open_commit and client.made[calls] == "commit"
            assert len(client.committed) == before + 1 + was_left_open, "a block that ends well is committed"
        assert not any(client.committed), "what failed in part was committed"
        is_settled = steps.states.is_in(
            ProducerTransactionState.READY, ProducerTransactionState.FENCED, ProducerTransactionState.BROKEN
        )
        is_known_open = steps.states.left_open in (TransactionEvent.COMMIT, TransactionEvent.ABORT)
        not_begun = steps.states.is_in(ProducerTransactionState.NOT_INITIALIZED)
        assert is_settled or is_known_open or not_begun, steps.states.state
    client.plan.clear()
    if steps.states.is_in(ProducerTransactionState.FENCED, ProducerTransactionState.BROKEN) or steps.failures.fenced:
        return
    run(steps.end(1))
    assert steps.states.is_in(ProducerTransactionState.READY, ProducerTransactionState.NOT_INITIALIZED), (
        "end leaves nothing open"
    )


def test_a_commit_without_an_answer_is_asked_for_again_before_the_next_transaction() -> None:
    client = Scripted([None, None, None, None, "away"])
    client.steps = steps = TransactionSteps(client, TransactionStates("billing"))
    try:
        transaction(steps, body_fails=False)
    except BrokerUnavailable:
        pass
    assert steps.states.left_open is TransactionEvent.COMMIT
    transaction(steps, body_fails=False)
    first, second = (
        ["initialize", "begin", "send_offsets", "settle", "commit"],
        ["begin", "send_offsets", "settle", "commit"],
    )
    assert client.made == [*first, "commit", *second]
    assert len(client.committed) == 2


@pytest.mark.parametrize("call", ["commit", "send_offsets"])
def test_a_transaction_of_records_without_reports_that_is_given_up_is_a_delivery_error(call: str) -> None:
    client = Scripted([])
    steps = client.steps = TransactionSteps(client, TransactionStates("billing"))
    run(steps.begin(1))
    steps.failures.no_reports_from("invoices")
    gives_up = TimedOutInside(steps).fail
    setattr(client, call, lambda *_, **__: gives_up())
    with pytest.raises(DeliveryError, match=r"invoices.*MSG_TIMED_OUT"):
        run(steps.commit(1) if call == "commit" else steps.send_offsets({}, "group", 1))
    run(steps.abort_if_open(1))
    assert client.made[-1] == "abort"
    assert steps.states.state is ProducerTransactionState.READY


def test_without_such_records_the_client_is_taken_at_its_word() -> None:
    client = Scripted([])
    steps = client.steps = TransactionSteps(client, TransactionStates("billing"))
    client.plan = [None, None, "refused"]
    run(steps.begin(1))
    with pytest.raises(OttlaError, match="refused") as raised:
        run(steps.send_offsets({}, "group", 1))
    assert not isinstance(raised.value, DeliveryError)


def test_what_the_client_says_while_records_are_waited_for_ends_the_wait() -> None:
    client = Scripted([])
    steps = client.steps = TransactionSteps(client, TransactionStates("billing"))
    run(steps.begin(1))
    gives_up = TimedOutInside(steps).fail
    client.settle = lambda timeout_s: gives_up()  # type: ignore[method-assign]
    with pytest.raises(OttlaError, match="MSG_TIMED_OUT"):
        run(steps.commit(1))
    assert "commit" not in client.made
    assert client.made[-1] == "abort"
    assert steps.states.state is ProducerTransactionState.READY


def not_delivered(key: bytes, error: OttlaError) -> DeliveryFailure:
    return DeliveryFailure(UndeliveredRecord(topic="invoices", partition=0, key=key, error=str(error)), error)


def test_the_record_that_was_refused_is_named_before_those_that_were_given_up_with_it() -> None:
    client = Scripted([])
    steps = client.steps = TransactionSteps(client, TransactionStates("billing"))
    run(steps.begin(1))
    steps.failures.add(not_delivered(b"behind", LifecycleError("given up with its transaction")))
    assert steps.failures.has_any
    assert not steps.failures.has_reason
    refused = InputError("an invalid record")
    steps.failures.add(not_delivered(b"refused", refused))
    assert steps.failures.has_reason
    with pytest.raises(DeliveryError) as raised:
        run(steps.commit(1))
    assert [record.key for record in raised.value.undelivered] == [b"refused", b"behind"]
    assert raised.value.__cause__ is refused
    assert "commit" not in client.made


def test_records_that_were_given_up_without_another_reason_have_the_clients() -> None:
    client = Scripted([])
    steps = client.steps = TransactionSteps(client, TransactionStates("billing"))
    run(steps.begin(1))
    steps.failures.add(not_delivered(b"k", LifecycleError("given up with its transaction")))
    gives_up = TimedOutInside(steps).fail
    client.settle = lambda timeout_s: gives_up()  # type: ignore[method-assign]
    with pytest.raises(DeliveryError, match="given up with its transaction") as raised:
        run(steps.commit(1))
    assert "MSG_TIMED_OUT" in str(raised.value.__cause__)


def test_what_is_still_out_does_not_hide_the_record_that_was_refused() -> None:
    client = Scripted([])
    steps = client.steps = TransactionSteps(client, TransactionStates("billing"))
    out = UndeliveredRecord(topic="invoices", partition=None, key=b"out", error="not acknowledged yet")
    client.still_out = lambda: ([out], None)  # type: ignore[method-assign]
    run(steps.begin(1))
    steps.failures.add(not_delivered(b"refused", InputError("an invalid record")))
    with pytest.raises(DeliveryError) as raised:
        run(steps.commit(1))
    assert [record.key for record in raised.value.undelivered] == [b"refused"]
    run(steps.begin(1))
    with pytest.raises(DeliveryError) as raised:
        run(steps.commit(1))
    assert [record.key for record in raised.value.undelivered] == [b"out"]
