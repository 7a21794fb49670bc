"""The plan of a handler for the session: how its records are handed out, and what follows a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Final

from ottla.consumer.partitions.handler_rate import Rate
from ottla.consumer.partitions.lanes import Ordering
from ottla.errors import ConfigError
from ottla.failures.budget import DeadLetterBudget
from ottla.failures.failure import FailurePolicy
from ottla.quantities import MOST_COUNT, count
from ottla.records import TopicPartition
from ottla_wire.facts import fact

DEFAULT_TURN_RECORDS = 128
"""A turn of the scheduler: at 2 µs per record a quarter of a millisecond, and the cost of a run spread over 128."""

DEFAULT_STORED_RECORDS = 500
"""A turn that is marked in a store, as many as `max.poll.records`: commits, fsyncs and round trips are spread over
them. A failure has a transaction done again record by record, and after a crash what was claimed and not marked is
handled again, so more would cost more than they save."""

DEFAULT_TURN_MS = 50
"""A turn of a slow handler is shortened to about this long, so that the others' wait is counted in turns of it."""

MOST_BATCH: Final = 10_000_000
_WHY_MOST_BATCH: Final = "as many records are in memory at a time"

MOST_LINGER_MS: Final = 86_400_000


@fact
class PriorityPlan:
    """The priorities of a handler's topics, 0 is the highest. Retry topics have the priority of their topic."""

    priority_of: Mapping[str, int]
    """By topic."""
    every: tuple[int, ...]
    """Each priority gets at least one of this many turns."""
    reserve: tuple[int, ...] = ()
    """Workers that are reserved for each priority and those above it; empty: none."""


@fact
class RoutePlan:
    """How the records of some topics are handed to one handler."""

    name: str
    topics: frozenset[str]
    ordering: Ordering = Ordering.PARTITION
    concurrency: int = 1
    max_records_per_turn: int = DEFAULT_TURN_RECORDS
    """Records per turn; bytes per turn when `is_fair_by_bytes`."""
    is_fair_by_bytes: bool = False
    turn_ms: int = DEFAULT_TURN_MS
    at_first: int | None = None
    """Records of a turn while their duration is unknown; None: as many as later."""
    is_batch: bool = False
    is_columnar: bool = False
    """A batch handler that gets columns. A batch that fails for good is halved until the bad row is found."""
    linger_ms: int = 0
    """How long a batch that is not full waits for more records."""
    failures: FailurePolicy = field(default_factory=FailurePolicy)
    is_at_most_once: bool = False
    """No record is handed out twice: nothing is retried, and a record that cannot be dead-lettered is dropped."""
    budget: DeadLetterBudget | None = None
    max_rate: Rate | None = None
    """The most records that the handler gets in a span of time."""
    retry_chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Topic → its retry topics, in the order in which a record goes through them."""
    weight_of: Callable[[TopicPartition], int] | None = None
    keeps_offsets: bool = False
    """The offsets of its partitions are in a store of the handler's. The group's offsets only follow."""
    commits_in_transactions: bool = False
    """Its offsets are committed by the Kafka transactions that write its results, and in no other way."""
    priorities: PriorityPlan | None = None
    has_fixed_turns: bool = False
    """A turn never grows beyond `max_records_per_turn`, as the documentation of `Consumer.poll` promises."""

    def __post_init__(self) -> None:
        count(self.name, "concurrency", self.concurrency)
        option, most = ("max_batch", MOST_BATCH) if self.is_batch else ("max_records_per_turn", MOST_COUNT)
        count(self.name, option, self.max_records_per_turn, most=most, why=_WHY_MOST_BATCH)
        count(self.name, "linger_ms", self.linger_ms, least=0, most=MOST_LINGER_MS, why="a batch waits a day at most")
        if self.linger_ms and not self.is_batch:
            raise ConfigError(
                f"{self.name}: linger_ms={self.linger_ms} fills batches; a handler of single records has none"
            )
        if self.linger_ms and self.is_fair_by_bytes:
            raise ConfigError(
                f"{self.name}: linger_ms={self.linger_ms} waits for max_batch records; use fair_by='records'"
            )
        if self.is_columnar and self.is_fair_by_bytes:
            raise ConfigError(f"{self.name}: a columns=True handler takes turns by records; leave out fair_by='bytes'")
        if self.is_columnar and self.ordering is not Ordering.PARTITION:
            raise ConfigError(
                f"{self.name}: a columns=True handler gets stretches of a partition, which needs ordering='partition', "
                f"found {self.ordering.value!r}"
            )
        if self.is_batch and self.ordering is Ordering.KEY:
            raise ConfigError(
                f"{self.name}: a batch handler gets a partition's records together; "
                "ordering='key' has no meaning for it, use 'partition' or 'unordered'"
            )

    @property
    def subscribed(self) -> frozenset[str]:
        """All topics whose records come to this handler."""
        return self.topics.union(*self.retry_chains.values())

    @property
    def has_default_turns(self) -> bool:
        """True if the size of a turn was not chosen, and no transaction or commit depends on it."""
        is_chosen = self.has_fixed_turns or self.max_records_per_turn != DEFAULT_TURN_RECORDS
        is_committed = self.is_at_most_once or self.keeps_offsets or self.commits_in_transactions
        is_one_by_one = not (self.is_batch or self.is_fair_by_bytes)
        return is_one_by_one and not is_chosen and not is_committed and self.at_first is None

    @property
    def keeps_key_order(self) -> bool:
        """True if the order of a key is kept across the retry topics. Handlers without an order have none to keep."""
        retry_topics = self.failures.retry_topics
        return retry_topics is not None and retry_topics.keep_key_order and self.ordering is not Ordering.UNORDERED


def plans_by_topic(plans: Iterable[RoutePlan]) -> dict[str, RoutePlan]:
    """Return the plans by topic. A topic has one plan in a group: two would each get every record, and commit for the
    other. Raises `ConfigError` for two."""
    table: dict[str, RoutePlan] = {}
    for plan in plans:
        for topic in plan.subscribed:
            if topic in table:
                raise ConfigError(
                    f"topic {topic!r} has two handlers in one group, {table[topic].name!r} and {plan.name!r}; "
                    "give one of them a group of its own"
                )
            table[topic] = plan
    return table


def priority_of_topics(plans: Iterable[RoutePlan]) -> dict[str, int] | None:
    """Return the priority of each topic, 0 is the highest; None if no plan has priorities."""
    found = [plan.priorities.priority_of for plan in plans if plan.priorities is not None]
    return {topic: priority for each in found for topic, priority in each.items()} if found else None
