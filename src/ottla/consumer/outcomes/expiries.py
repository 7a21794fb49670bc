"""Logs expired records: one line per partition and minute, with their number.

The first line is logged at once. Later records are counted, and logged after a minute or when the partition is revoked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.consumer.model.effects import Effect, Expired, Notice
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.model.timers import At
from ottla.consumer.partitions.partition import ExpiredHere, PartitionState

EVERY_MS: Final = 60_000


class Expiries:
    """The expired records of one session. `at` sets a timer."""

    __slots__ = ("_at",)

    def __init__(self, at: At) -> None:
        self._at = at

    def count(
        self,
        state: PartitionState,
        records: Sequence[AnyRecord],
        now_ms: int,
        effects: list[Effect],
        *,
        error: str = "",
    ) -> None:
        """Count records that are not delivered any more. `error`: why the last of them had failed before."""
        if not records:
            return
        effects.append(Expired(state.topic_partition, state.plan.name, records))
        account = state.expired
        is_first = account is None
        if account is None:
            account = state.expired = ExpiredHere()
        if not account.records:
            account.offset = records[0].offset
        account.records += len(records)
        account.error = error or account.error
        if is_first:
            self._log(state, account, now_ms, effects)

    def leave(self, states: Iterable[PartitionState], effects: list[Effect]) -> None:
        """Log the counted records of these partitions, which are revoked or restarted."""
        for state in states:
            account, state.expired = state.expired, None
            if account is not None and account.records:
                effects.append(_notice(state, account))

    def _log(self, state: PartitionState, account: ExpiredHere, now_ms: int, effects: list[Effect]) -> None:
        effects.append(_notice(state, account))
        account.records, account.error = 0, ""
        self._at(now_ms + EVERY_MS, lambda fired_ms, out: self._minute_over(state, account, fired_ms, out))

    def _minute_over(self, state: PartitionState, account: ExpiredHere, now_ms: int, effects: list[Effect]) -> None:
        if state.expired is not account:
            return
        if account.records:
            self._log(state, account, now_ms, effects)
        else:
            state.expired = None


def _notice(state: PartitionState, account: ExpiredHere) -> Notice:
    fields: dict[str, object] = {
        "partition": str(state.topic_partition),
        "records": account.records,
        "offset": account.offset,
    }
    return Notice("records_expired", "warning", {**fields, "error": account.error} if account.error else fields)
