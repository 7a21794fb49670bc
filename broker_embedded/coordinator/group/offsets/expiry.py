"""Expiry of offsets (`offsets.retention.minutes`, KIP-211).

    classic group with members     none; once stable, those of topics that nobody subscribes to any more
    classic group that is empty    all, counted from when it became empty
    no group, only offsets         all, counted from each commit
    KIP-848 group                  those of topics that no member subscribes to, counted from each commit

A commit that brought its own expiry (OffsetCommit 2 to 4) goes by that alone. What an open transaction is about to
commit stays.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla_wire.facts import fact

from .committed import OffsetAndMetadata, OffsetKey
from .store import Offsets


@fact
class ExpiryRule:
    """How one group's offsets age."""

    is_in_use: Callable[[str], bool]
    """Whether a member reads the topic."""
    empty_since_ms: int | None = None
    """Count from here instead of from each commit."""


def expired(offsets: Offsets, rule: ExpiryRule, *, now_ms: int, retention_ms: int) -> list[OffsetKey]:
    """Return the keys to forget at `now_ms` (wall clock)."""
    in_use: dict[str, bool] = {}
    keys = []
    for key, committed in offsets.items():
        if key.topic not in in_use:
            in_use[key.topic] = rule.is_in_use(key.topic)
        if not in_use[key.topic] and _is_over(committed, rule, now_ms=now_ms, retention_ms=retention_ms):
            keys.append(key)
    return keys


def _is_over(committed: OffsetAndMetadata, rule: ExpiryRule, *, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_timestamp_ms is not None:
        return now_ms >= committed.expire_timestamp_ms
    start_ms = committed.commit_timestamp_ms if rule.empty_since_ms is None else rule.empty_since_ms
    return now_ms - start_ms >= retention_ms
