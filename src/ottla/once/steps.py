"""What the handling of a run wants done, one step at a time: the steps of `transactions` and `claims`.

The code that decides is a procedure (`ottla.stepping`): it yields a step and gets the answer, or the error that the
step raised. `StoreUnavailable` says that the store is away; then its session is gone, and with it any open transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ottla.consumer.model.run import AnyRecord, RunResult
from ottla.stepping import Procedure
from ottla_wire.facts import positional_fact


@positional_fact
class BeginTransaction:
    """Begin a transaction."""


@positional_fact
class CommitTransaction:
    """Commit it. After `StoreUnavailable` nobody knows whether it was committed."""


@positional_fact
class RollBack:
    """Roll it back. Never fails: a session that cannot is given up, and the store ends the transaction."""


@positional_fact
class CallHandler:
    """Give these records to the handler. Answer: a `RunResult` of exactly these."""

    records: list[AnyRecord]
    claimed: Sequence[str] = ()
    """Ids whose claims are to be renewed meanwhile."""


@positional_fact
class MarkProcessed:
    """Mark ids as done in the transaction. Answer: those that were not."""

    ids: list[str]


@positional_fact
class UnmarkProcessed:
    ids: list[str]


@positional_fact
class SaveOffset:
    """Save the partition's offset in the transaction. Answer: False if another owner has the partition."""

    next_offset: int
    epoch: int


@positional_fact
class ReadOffset:
    """Read what is committed of the partition. Answer: a `Start` or None."""


@positional_fact
class ClaimIds:
    """Claim ids. Answer: those that are ours now."""

    ids: list[str]


@positional_fact
class FindProcessed:
    """Look up ids that could not be claimed. Answer: id → None if done, else milliseconds until it is free."""

    ids: list[str]


@positional_fact
class FinishIds:
    ids: list[str]


@positional_fact
class ReleaseIds:
    """Give up claims. Never fails: a claim that cannot be given up runs out."""

    ids: list[str]


Step: TypeAlias = (
    BeginTransaction
    | CommitTransaction
    | RollBack
    | CallHandler
    | MarkProcessed
    | UnmarkProcessed
    | SaveOffset
    | ReadOffset
    | ClaimIds
    | FindProcessed
    | FinishIds
    | ReleaseIds
)

RunProcedure: TypeAlias = Procedure[Step, Any, RunResult]
