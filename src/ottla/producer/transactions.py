"""The states of a transactional producer, as a table that code, docs and tests read (KIP-98).

The clients keep states of their own; this one stands in front of them, so that a call at the wrong moment is an error
that says what to do, the same in both shells, before anything reaches the network.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from ottla.errors import FencedError, LifecycleError, OttlaError


class ProducerTransactionState(Enum):
    """State of the producer between two transactions."""

    NOT_INITIALIZED = "not initialized"
    """No producer id yet: earlier instances with this transactional.id are not fenced yet."""
    READY = "ready"
    """No transaction is open."""
    OPEN = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    MUST_ABORT = "must abort"
    """Something in the transaction failed: abort it, then it can be tried again from its start."""
    FENCED = "fenced"
    """A newer instance has the same transactional.id. Final."""
    BROKEN = "broken"
    """The client cannot go on. Final: make a new producer."""


class TransactionEvent(Enum):
    """Event that changes the state."""

    INITIALIZED = "initialized"
    BEGIN = "begin"
    COMMIT = "commit"
    COMMITTED = "committed"
    ABORT = "abort"
    ABORTED = "aborted"
    TIMED_OUT = "timed out"
    """The coordinator did not answer in time: the same call may be repeated."""
    FAILED = "failed"
    WAS_FENCED = "was fenced"
    BROKE = "broke"


_S, _E = ProducerTransactionState, TransactionEvent

TRANSITIONS: Final[dict[ProducerTransactionState, dict[TransactionEvent, ProducerTransactionState]]] = {
    _S.NOT_INITIALIZED: {
        _E.INITIALIZED: _S.READY,
        _E.TIMED_OUT: _S.NOT_INITIALIZED,
        _E.FAILED: _S.NOT_INITIALIZED,
        _E.WAS_FENCED: _S.FENCED,
        _E.BROKE: _S.BROKEN,
    },
    _S.READY: {_E.BEGIN: _S.OPEN, _E.WAS_FENCED: _S.FENCED, _E.BROKE: _S.BROKEN},
    _S.OPEN: {
        _E.COMMIT: _S.COMMITTING,
        _E.ABORT: _S.ABORTING,
        _E.FAILED: _S.MUST_ABORT,
        _E.WAS_FENCED: _S.FENCED,
        _E.BROKE: _S.BROKEN,
    },
    _S.COMMITTING: {
        _E.COMMITTED: _S.READY,
        _E.COMMIT: _S.COMMITTING,
        _E.TIMED_OUT: _S.COMMITTING,
        _E.FAILED: _S.MUST_ABORT,
        _E.WAS_FENCED: _S.FENCED,
        _E.BROKE: _S.BROKEN,
    },
    _S.MUST_ABORT: {
        _E.ABORT: _S.ABORTING,
        _E.FAILED: _S.MUST_ABORT,
        _E.WAS_FENCED: _S.FENCED,
        _E.BROKE: _S.BROKEN,
    },
    _S.ABORTING: {
        _E.ABORTED: _S.READY,
        _E.ABORT: _S.ABORTING,
        _E.TIMED_OUT: _S.ABORTING,
        _E.FAILED: _S.BROKEN,
        _E.WAS_FENCED: _S.FENCED,
        _E.BROKE: _S.BROKEN,
    },
    _S.FENCED: {},
    _S.BROKEN: {},
}

_WHAT_TO_DO: Final = {
    _S.NOT_INITIALIZED: "open one with `with producer.transaction():`",
    _S.READY: "open one with `with producer.transaction():`",
    _S.OPEN: "commit or abort the open transaction first; transactions do not nest",
    _S.COMMITTING: "the commit is not settled: commit again",
    _S.ABORTING: "the abort is not settled: abort again",
    _S.MUST_ABORT: "abort this transaction, then try it again from its start",
    _S.FENCED: "a newer instance with this transactional.id took over: close this producer",
    _S.BROKEN: "close this producer and make a new one",
}

_AGAIN: Final = {_S.COMMITTING: _E.COMMIT, _S.ABORTING: _E.ABORT}


class TransactionStates:
    """The state of one transactional producer."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = ProducerTransactionState.NOT_INITIALIZED

    def on(self, event: TransactionEvent) -> None:
        """Move on, or raise: FencedError after fencing, LifecycleError for anything that does not fit the state."""
        following = TRANSITIONS[self.state].get(event)
        if following is None:
            raise self.refusal(event.value)
        self.state = following

    def check_can_send(self) -> None:
        """Raise unless a transaction is open."""
        if self.state is not ProducerTransactionState.OPEN:
            raise self.refusal("send")

    def is_in(self, *states: ProducerTransactionState) -> bool:
        """Return whether it is in one of these states."""
        return self.state in states

    @property
    def is_settled(self) -> bool:
        """Return whether the producer can go away without leaving anything for the transaction timeout to end."""
        return self.is_in(_S.NOT_INITIALIZED, _S.READY, _S.FENCED, _S.BROKEN)

    @property
    def left_open(self) -> TransactionEvent | None:
        """Return the step that the last transaction still needs before the next can begin: repeating the commit or
        abort whose response was lost. A repeated commit returns the outcome and commits nothing twice."""
        return _AGAIN.get(self.state)

    def refusal(self, wanted: str) -> OttlaError:
        """Return the error for an action that this state does not allow."""
        text = (
            f"transactional.id={self.transactional_id}: found the producer {self.state.value}, wanted to {wanted}; "
            f"{_WHAT_TO_DO[self.state]}"
        )
        return FencedError(text) if self.state is ProducerTransactionState.FENCED else LifecycleError(text)
