"""The table of transaction states: what each allows, and what it says when it does not."""

from __future__ import annotations

import pytest

from ottla.errors import FencedError, LifecycleError
from ottla.producer import TRANSITIONS, ProducerTransactionState, TransactionEvent, TransactionStates

FINAL = {ProducerTransactionState.FENCED, ProducerTransactionState.BROKEN}


def in_state(state: ProducerTransactionState) -> TransactionStates:
    states = TransactionStates("billing-1")
    states.state = state
    return states


def test_a_transaction_commits_and_the_next_begins() -> None:
    states = TransactionStates("billing-1")
    states.on(TransactionEvent.INITIALIZED)
    for _ in range(2):
        states.on(TransactionEvent.BEGIN)
        states.check_can_send()
        states.on(TransactionEvent.COMMIT)
        states.on(TransactionEvent.COMMITTED)
    assert states.state is ProducerTransactionState.READY


def test_a_failed_transaction_can_only_be_aborted() -> None:
    states = in_state(ProducerTransactionState.OPEN)
    states.on(TransactionEvent.FAILED)
    with pytest.raises(LifecycleError, match="abort this transaction, then try it again"):
        states.check_can_send()
    with pytest.raises(LifecycleError, match="found the producer must abort, wanted to commit"):
        states.on(TransactionEvent.COMMIT)
    states.on(TransactionEvent.ABORT)
    states.on(TransactionEvent.ABORTED)
    assert states.state is ProducerTransactionState.READY


@pytest.mark.parametrize(
    "state", [state for state in ProducerTransactionState if state is not ProducerTransactionState.OPEN]
)
def test_sending_needs_an_open_transaction(state: ProducerTransactionState) -> None:
    with pytest.raises((LifecycleError, FencedError), match=r"transactional\.id=billing-1"):
        in_state(state).check_can_send()


@pytest.mark.parametrize("state", [state for state in ProducerTransactionState if state not in FINAL])
def test_fencing_is_final_wherever_it_happens(state: ProducerTransactionState) -> None:
    states = in_state(state)
    states.on(TransactionEvent.WAS_FENCED)
    for event in TransactionEvent:
        with pytest.raises(FencedError, match=r"a newer instance with this transactional\.id took over"):
            states.on(event)


def test_transactions_do_not_nest() -> None:
    with pytest.raises(LifecycleError, match="transactions do not nest"):
        in_state(ProducerTransactionState.OPEN).on(TransactionEvent.BEGIN)


def test_a_commit_without_an_answer_can_be_repeated_but_not_turned_into_an_abort() -> None:
    states = in_state(ProducerTransactionState.COMMITTING)
    states.on(TransactionEvent.TIMED_OUT)
    states.on(TransactionEvent.COMMIT)
    with pytest.raises(LifecycleError, match="the commit is not settled: commit again"):
        states.on(TransactionEvent.ABORT)


def test_every_state_but_the_final_ones_can_be_left() -> None:
    assert set(TRANSITIONS) == set(ProducerTransactionState)
    assert {state for state, events in TRANSITIONS.items() if not events} == FINAL
    reached = {following for events in TRANSITIONS.values() for following in events.values()}
    assert reached | {ProducerTransactionState.NOT_INITIALIZED} == set(ProducerTransactionState)
