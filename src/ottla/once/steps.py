"""Steps of handling a run, as `transactions` and `claims` yield them.

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
    """Commit the transaction. After `StoreUnavailable` the outcome is unknown."""


@positional_fact
class RollBack:
    """Roll the transaction back. Never fails: a session that cannot is closed, and the store ends the transaction."""


@positional_fact
class CallHandler:
    """Pass these records to the handler. Response: a `RunResult` of exactly these records."""

    records: list[AnyRecord]
    claimed: Sequence[str] = ()
    """Ids whose claims are renewed meanwhile."""


@positional_fact
class MarkProcessed:
    """Mark ids as processed in the transaction. Response: the ids that were not marked before."""

    ids: list[str]


@positional_fact
class UnmarkProcessed:
    ids: list[str]


@positional_fact
class SaveOffset:
    """Save the partition's offset in the transaction. Response: False if another owner has the partition."""

    next_offset: int
    epoch: int


@positional_fact
class ReadOffset:
    """Read the committed offset of the partition. Response: a `Start` or None."""


@positional_fact
class ClaimIds:
    """Claim ids. Response: the ids now owned by this run."""

    ids: list[str]


@positional_fact
class FindProcessed:
    """Look up ids that could not be claimed. Response: id → None if processed, else milliseconds until its claim
    expires.
    """

    ids: list[str]


@positional_fact
class FinishIds:
    ids: list[str]


@positional_fact
class ReleaseIds:
    """Give up claims. Never fails: a claim that cannot be given up expires."""

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
