"""The states of a transactional id, as a table that code, docs and tests read (KIP-98, KIP-890)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The number is the one that `__transaction_state` stores."""

    EMPTY = 0
    """A producer id was given out; no transaction was begun since."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided: written to the log, from here on nothing but a commit can follow. Markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """Every leader has its marker."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """Idle for too long: about to be forgotten."""
    PREPARE_EPOCH_FENCE = 7
    """The epoch was incremented to fence the producer, before an abort. Never stored by itself."""

    @property
    def label(self) -> str:
        """Return the name in ListTransactions and DescribeTransactions."""
        return self.name.title().replace("_", "")


_S = TransactionState

VALID_PREVIOUS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    # Without a transaction: a client of transaction.version 2 may abort before its first partition was added.
    _S.PREPARE_ABORT: frozenset({_S.ONGOING, _S.PREPARE_EPOCH_FENCE, _S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}),
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}

PREPARED: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
"""Decided, with markers still to be written: other requests have to retry."""

AT_REST: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
"""No transaction is open: one may begin, a producer may be initialised, the id may expire."""
