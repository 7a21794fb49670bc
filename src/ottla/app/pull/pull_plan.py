"""The one route of a pulled consumer, in both shells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.config.priorities import Priorities
from ottla.consumer.commit.commits import CommitPolicy, InTransactions
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import DEFAULT_TURN_MS, PriorityPlan, RoutePlan
from ottla.errors import ConfigError
from ottla.failures.expiry import NEVER, Expiry
from ottla.failures.failure import FailurePolicy
from ottla.failures.retry import RetryPolicy
from ottla.records import topic_problem

ROUTE: Final = "consumer"
_MANY_PARTITIONS: Final = 100_000
_ANY_TIME_MS: Final = 1 << 40


def pull_plan(
    topics: Sequence[str],
    max_records_per_turn: int,
    retry: RetryPolicy | None,
    dead_letter_topic: str | None,
    commit: CommitPolicy | InTransactions | None,
    expiry: Expiry = NEVER,
    priorities: Priorities | None = None,
) -> RoutePlan:
    """Return the plan of a consumer that is pulled: one run per partition may be open. Raises `ConfigError` for bad
    names."""
    if not topics:
        raise ConfigError("Consumer: found no topic, wanted at least one: Consumer('orders', ...)")
    for topic in topics:
        problem = topic_problem(topic)
        if problem is not None:
            raise ConfigError(f"Consumer: {problem}; name each topic: Consumer('orders', 'returns', ...)")
    if dead_letter_topic is not None and (problem := topic_problem(dead_letter_topic)) is not None:
        raise ConfigError(f"Consumer: dead_letter_topic: {problem}")
    of_topics = None
    if priorities is not None:
        order = {topic: number for number, topic in enumerate(priorities.topics)}
        of_topics = PriorityPlan(priority_of=order, every=priorities.at_least_every)
    return RoutePlan(
        name=ROUTE,
        topics=frozenset(topics),
        ordering=Ordering.PARTITION,
        concurrency=_MANY_PARTITIONS,
        max_records_per_turn=max_records_per_turn,
        has_fixed_turns=True,
        # A transaction takes its time whatever it holds: shorter runs would only make more of them.
        turn_ms=_ANY_TIME_MS if isinstance(commit, InTransactions) else DEFAULT_TURN_MS,
        failures=FailurePolicy(retry=retry or RetryPolicy(), dead_letter_topic=dead_letter_topic, expiry=expiry),
        priorities=of_topics,
    )
