"""What a consumer that is pulled shares between the shells: its one route, and the decoding of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ottla.app.binding import bind
from ottla.app.invoke import Invoker
from ottla.consumer.lanes import Ordering
from ottla.consumer.plan import RoutePlan
from ottla.delivery.exceptions import ExceptionTable
from ottla.delivery.failure import FailurePolicy
from ottla.delivery.retry import RetryPolicy
from ottla.records import Malformed, Record
from ottla.serdes import as_serde

ROUTE: Final = "consumer"
_MANY_PARTITIONS: Final = 100_000


def pull_plan(
    topics: Sequence[str], quantum: int, retry: RetryPolicy | None, dead_letter_topic: str | None
) -> RoutePlan:
    """The plan of a consumer that is pulled: one run per partition may be open."""
    return RoutePlan(
        name=ROUTE,
        topics=frozenset(topics),
        ordering=Ordering.PARTITION,
        concurrency=_MANY_PARTITIONS,
        quantum=quantum,
        failures=FailurePolicy(retry=retry or RetryPolicy(), dead_letter_topic=dead_letter_topic),
    )


def decoder(group: str, value: Any, key: Any) -> Invoker:
    """What decodes the runs."""
    return Invoker(
        name=ROUTE,
        group=group,
        binding=bind(lambda record: None, is_batch=False),
        value=as_serde(value),
        key=as_serde(key),
        exceptions=ExceptionTable(),
        ordering=Ordering.PARTITION,
        is_batch=False,
        state={},
    )


def malformed_part(record: Record[Any]) -> Malformed | None:
    """The part of a record that could not be decoded, if there is one."""
    if isinstance(record.value, Malformed):
        return record.value
    return record.key if isinstance(record.key, Malformed) else None
