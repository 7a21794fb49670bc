"""The declaration of one handler, checked when it is made."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.app.delivery.batch_invoker import BatchInvoker
from ottla.app.delivery.event_invoker import EventDecoder, EventInvoker
from ottla.app.delivery.invoker import Invoker, InvokerParts
from ottla.app.delivery.record_invoker import RecordInvoker
from ottla.app.delivery.run_decoder import DecoderParts, RunDecoder
from ottla.app.handler.annotations import chosen_serde
from ottla.app.handler.binding import Binding, BindingError, bind, restore_original_record
from ottla.app.handler.event_handlers import EventHandlers
from ottla.app.handler.handler_function import refuse_generators
from ottla.app.handler.middleware import Middleware, wrap
from ottla.app.handler.resources import Resources
from ottla.app.once.exactly_once_invoker import AnyInvoker, ExactlyOnceInvoker, ExactlyOnceSettings, with_outputs
from ottla.app.once.once_invoker import OnceInvoker
from ottla.app.once.once_settings import OnceSettings
from ottla.app.once.resource_invoker import ResourceInvoker
from ottla.app.once.result_settings import ResultSettings
from ottla.app.queue.queue_options import QueueOptions
from ottla.clock import Clock
from ottla.config.priorities import Priorities
from ottla.consumer.partitions.handler_rate import Rate
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import (
    DEFAULT_STORED_RECORDS,
    DEFAULT_TURN_RECORDS,
    PriorityPlan,
    RoutePlan,
)
from ottla.errors import ConfigError
from ottla.failures.budget import DeadLetterBudget
from ottla.failures.exceptions import ExceptionTable
from ottla.failures.expiry import Expiry
from ottla.failures.failure import FailurePolicy
from ottla.failures.outcomes import Dead, Outcome, Skip
from ottla.failures.retry import RetryPolicy
from ottla.failures.retry_topics import RetryTopics
from ottla.once.exactly_once import ExactlyOnce
from ottla.once.inbox import Inbox
from ottla.quantities import Span, check_kinds
from ottla.records import TopicPartition, topic_problem
from ottla.serdes import Serde, as_serde
from ottla.showing import shown
from ottla.stores.protocols import TransactionStore
from ottla.telemetry import Hooks, Listeners
from ottla.topics import text_problem

DEFAULT_BATCH_RECORDS = 500
DEFAULT_BATCH_ROWS = 20_000
"""A call costs a columnar handler some hundred microseconds, whatever the number of rows."""

COLUMNS = ("key", "partition", "offset", "timestamp", "headers")
"""Columns that a columns handler may request beside the value's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One decorated handler: what it takes, and what is to happen when it fails."""

    name: str
    handler: Callable[..., Any]
    topics: frozenset[str]
    group: str
    value: Any = None
    key: Any = None
    retry: RetryPolicy
    retry_topics: RetryTopics | None = None
    dead_letter_topic: str | None = None
    on_error: Mapping[type[BaseException], Outcome] | None = None
    is_at_most_once: bool = False
    concurrency: int = 1
    ordering: Ordering = Ordering.PARTITION
    is_batch: bool = False
    columns: tuple[str, ...] | None = None
    """Columns of a columns handler beside the value; None for a handler of records."""
    to: str | None = None
    """The topic of the rows that a columns handler returns."""
    linger_ms: int = 0
    max_records_per_turn: int | None = None
    """The most records of a run; `most_records` where it was not said."""
    is_fair_by_bytes: bool = False
    weight_of: Callable[[TopicPartition], int] | None = None
    max_rate: Rate | None = None
    budget: DeadLetterBudget | None = None
    ttl_s: Span | None = None
    on_expired: Skip | Dead | None = None
    expires_grace_s: Span = 0.0
    priorities: Priorities | None = None
    reserve: Mapping[str, int] | None = None
    inbox: Inbox | None = None
    offsets: TransactionStore | None = None
    exactly_once: ExactlyOnce | None = None
    hooks: Hooks | None = None
    resources: Resources | None = None
    """Opens what the handler is given by `Provide`."""
    events: EventHandlers | None = None
    """The handlers by event type, where there are several; `handler` is the same then."""
    queue: QueueOptions | None = None
    """Options of a handler whose records are leased one by one."""
    once: OnceSettings | None = field(init=False)
    """Settings of `inbox` or `offsets`, if declared."""
    exactly: ExactlyOnceSettings | None = field(init=False)
    """Settings of `exactly_once`, if declared."""
    results: ResultSettings | None = field(init=False)
    """Settings of returned rows, if declared."""
    value_serde: Serde[Any] = field(init=False)
    """The given serde, or the one that the handler's annotation implies."""
    key_serde: Serde[Any] = field(init=False)
    expiry: Expiry = field(init=False)
    opens_per_run: bool = field(init=False)
    """It is given a resource that is opened per run."""

    def __post_init__(self) -> None:
        if not self.topics:
            raise ConfigError(f"{self.name}: a handler needs at least one topic")
        for topic in (*self.topics, *(() if self.dead_letter_topic is None else (self.dead_letter_topic,))):
            problem = topic_problem(topic)
            if problem is not None:
                raise ConfigError(f"{self.name}: {problem}")
        if not isinstance(self.group, str):
            raise ConfigError(f"{self.name}: group: found {shown(self.group)}, wanted text")
        if (problem := text_problem(self.group)) is not None:
            raise ConfigError(f"{self.name}: group: {problem}")
        check_kinds(
            self.name,
            concurrency=(self.concurrency, int),
            **{"max_batch" if self.is_batch else "max_records_per_turn": (self.max_records_per_turn, int)},
            linger_ms=(self.linger_ms, int),
            retry=(self.retry, RetryPolicy),
            retry_topics=(self.retry_topics, RetryTopics),
            budget=(self.budget, DeadLetterBudget),
            max_rate=(self.max_rate, Rate),
        )
        if self.dead_letter_topic in self.topics:
            raise ConfigError(
                f"{self.name}: {self.dead_letter_topic!r} is both a topic it handles and its dead letter topic; "
                "a record that fails would come back for ever"
            )
        if self.queue is not None and self.dead_letter_topic is None:
            raise ConfigError(
                f"{self.name}: found no dead_letter_topic=, wanted one, here or in App(...): the broker keeps "
                "nothing of a record that a queue gives up"
            )
        if self.is_at_most_once and self.ordering is not Ordering.PARTITION:
            raise ConfigError(
                f"{self.name}: commit=AtMostOnce() commits before it handles, which needs ordering='partition', "
                f"found {self.ordering.value!r}"
            )
        if self.retry_topics is not None and self.retry.stop is not None and self.retry.last_attempt is None:
            raise ConfigError(
                f"{self.name}: retry_topics= counts the deliveries in each topic, which needs "
                "stop=stop_after_attempt(n) alone, or max_attempts=, in RetryPolicy, found another stop="
            )
        if self.retry_topics is not None and self.dead_letter_topic in self.subscribed:
            raise ConfigError(
                f"{self.name}: {self.dead_letter_topic!r} is both a retry topic and its dead letter topic"
            )
        expiry = Expiry.declared(
            self.name,
            ttl_s=self.ttl_s,
            grace_s=self.expires_grace_s,
            on_expired=self.on_expired,
            has_dead_letters=self.dead_letter_topic is not None,
        )
        object.__setattr__(self, "expiry", expiry)
        if self.reserve is not None and self.priorities is None:
            raise ConfigError(f"{self.name}: reserve= keeps workers for a priority, and its topics have none")
        if self.to is not None and not self.is_columnar:
            raise ConfigError(
                f"{self.name}: found to= without columns=, wanted both: to= takes the rows that it returns"
            )
        if self.events is None:
            refuse_generators(self.handler, f"{self.name}: the handler", may_yield=self.to is not None)
        results = None if self.to is None else ResultSettings(self.to, name=self.name, reads=self.subscribed)
        object.__setattr__(self, "results", results)
        binding = self._bound()
        object.__setattr__(self, "opens_per_run", binding.opens_per_run)
        if binding.opens_per_run:
            self._check_resources()
        if self.is_columnar:
            self._check_columns()
        object.__setattr__(self, "exactly", self._exactly(wants_out=binding.wants_out))
        object.__setattr__(self, "once", self._once(wants_transaction=binding.wants_transaction))
        events = self.events
        value_serde = self._serde("value", self.value, binding.value_hint) if events is None else events.serde
        object.__setattr__(self, "value_serde", value_serde)
        key_hint = binding.key_hint if events is None else events.key_hint
        object.__setattr__(self, "key_serde", self._serde("key", self.key, key_hint))
        ExceptionTable(self.on_error)
        self.plan()

    @property
    def retry_chains(self) -> dict[str, tuple[str, ...]]:
        """Topic → its retry topics."""
        if self.retry_topics is None:
            return {}
        return {topic: self.retry_topics.names(topic, self.group) for topic in sorted(self.topics)}

    @property
    def subscribed(self) -> frozenset[str]:
        """All topics whose records come to the handler: its own and their retry topics."""
        return self.topics.union(*self.retry_chains.values())

    @property
    def most_records(self) -> int:
        """The most records that the handler gets in one run."""
        if self.max_records_per_turn is not None:
            return self.max_records_per_turn
        is_larger = self.once is not None and not self.is_fair_by_bytes
        return DEFAULT_STORED_RECORDS if is_larger else DEFAULT_TURN_RECORDS

    @property
    def is_columnar(self) -> bool:
        """Return whether the handler gets columns."""
        return self.columns is not None

    def _check_columns(self) -> None:
        if self.inbox is not None or self.offsets is not None:
            raise ConfigError(f"{self.name}: inbox= and offsets= are for handlers of records; leave out columns=")
        unknown = [name for name in self.columns or () if name not in COLUMNS]
        if unknown:
            raise ConfigError(
                f"{self.name}: columns=: found {unknown[0]!r}, wanted True or some of {', '.join(COLUMNS)}"
            )

    def _check_resources(self) -> None:
        if self.is_at_most_once:
            raise ConfigError(
                f"{self.name}: Provide(scope='run') does a run again after a failure, and commit=AtMostOnce() delivers "
                "nothing twice; wanted scope='call'"
            )
        if self.exactly_once is not None:
            raise ConfigError(
                f"{self.name}: exactly_once= commits runs in transactions of Kafka, and Provide(scope='run') does not "
                "wait for them; wanted scope='call'"
            )

    def plan(self) -> RoutePlan:
        """Return the route's plan for the session."""
        return RoutePlan(
            name=self.name,
            topics=self.topics,
            ordering=self.ordering,
            concurrency=self.concurrency,
            max_records_per_turn=self.most_records,
            at_first=DEFAULT_TURN_RECORDS if self.once is not None and not self.is_batch else None,
            is_fair_by_bytes=self.is_fair_by_bytes,
            is_batch=self.is_batch,
            is_columnar=self.is_columnar,
            linger_ms=self.linger_ms,
            failures=FailurePolicy(
                retry=self.retry,
                retry_topics=self.retry_topics,
                dead_letter_topic=self.dead_letter_topic,
                expiry=self.expiry,
            ),
            retry_chains=self.retry_chains,
            is_at_most_once=self.is_at_most_once,
            budget=self.budget,
            weight_of=self.weight_of,
            max_rate=self.max_rate,
            priorities=self._priority_plan(),
            keeps_offsets=self.offsets is not None,
            commits_in_transactions=self.exactly_once is not None,
        )

    def _priority_plan(self) -> PriorityPlan | None:
        if self.priorities is None:
            return None
        lines = self.retry_chains
        order = {
            name: priority
            for priority, topic in enumerate(self.priorities.topics)
            for name in (topic, *lines.get(topic, ()))
        }
        reserve = self.priorities.reserved(self.name, self.reserve or {}, concurrency=self.concurrency)
        return PriorityPlan(priority_of=order, every=self.priorities.at_least_every, reserve=reserve)

    def is_async(self, middlewares: Sequence[Middleware]) -> bool:
        """Return whether it is called on an event loop: the handler is `async def`, or a middleware is."""
        return wrap(self._bound(), middlewares).is_async

    def invoker(
        self, middlewares: list[Middleware], state: dict[str, Any], *, clock: Clock | None = None
    ) -> AnyInvoker:
        """Return the handler, ready to be called with runs. `clock` (the system's if not given) says what has
        expired."""
        if self.is_columnar:
            # By name: only who has handlers of columns needs pyarrow.
            columnar = importlib.import_module("ottla.columnar.serving.handlers")
            of_columns: Invoker = columnar.ColumnInvoker(self, middlewares, state, clock=clock)
            return of_columns
        once = self.once
        is_outage = once.is_outage if once is not None and once.is_transactional else None
        exceptions = ExceptionTable(self.on_error, is_outage=is_outage, keeps_errors=self.retry.has_strategies)
        bare = self._invoker(middlewares, state, clock, exceptions)
        if self.exactly is not None:
            return ExactlyOnceInvoker(bare, self.exactly, is_batch=self.is_batch, exceptions=exceptions, clock=clock)
        invoker: Invoker | ResourceInvoker = bare
        if self.opens_per_run:
            invoker = ResourceInvoker(
                bare, group=self.group, ordering=self.ordering, is_batch=self.is_batch, exceptions=exceptions
            )
        if once is None:
            return invoker
        return OnceInvoker(invoker, once, ordering=self.ordering, is_batch=self.is_batch, exceptions=exceptions)

    def _invoker(
        self, middlewares: list[Middleware], state: dict[str, Any], clock: Clock | None, exceptions: ExceptionTable
    ) -> Invoker:
        # A middleware may look for `context.out`, and behind a retry topic the record is not the one of the log.
        is_bare = not (self.is_batch or middlewares or self.retry_chains)
        bound = self._bound(may_make_out=is_bare)
        binding = wrap(bound, middlewares)
        if self.retry_chains:
            binding = restore_original_record(binding, is_batch=self.is_batch)
        if self.exactly is not None and not bound.makes_out:
            binding = with_outputs(binding, is_batch=self.is_batch)
        origins = {name: topic for topic, names in self.retry_chains.items() for name in names}
        serdes: DecoderParts = {
            "key": self.key_serde,
            "exceptions": exceptions,
            "fails_in_order": self.ordering is Ordering.PARTITION and not self.is_batch,
            "origins": origins,
        }
        parts: InvokerParts = {
            "name": self.name,
            "group": self.group,
            "binding": binding,
            "exceptions": exceptions,
            "ordering": self.ordering,
            "is_at_most_once": self.is_at_most_once,
            "state": state,
            "origins": origins,
            "expiry": self.expiry,
            "clock": clock,
        }
        if self.events is not None:
            of_events = EventDecoder(self.events, is_async=binding.is_async, **serdes)
            return EventInvoker(self.events, Listeners.of(self.hooks), decoder=of_events, **parts)
        make = BatchInvoker if self.is_batch else RecordInvoker
        return make(decoder=RunDecoder(value=self.value_serde, **serdes), **parts)

    def _bound(self, *, may_make_out: bool = False) -> Binding:
        if self.events is not None:
            return self.events.binding()
        return bind(
            self.handler,
            is_batch=self.is_batch,
            is_columnar=self.is_columnar,
            may_make_out=may_make_out,
            resources=self.resources,
        )

    def _exactly(self, *, wants_out: bool) -> ExactlyOnceSettings | None:
        if self.exactly_once is None:
            if wants_out:
                raise BindingError(f"{self.name}: it has a parameter named out, which needs exactly_once=")
            return None
        if self.is_columnar and (self.exactly_once.value is not None or self.exactly_once.key is not None):
            raise ConfigError(
                f"{self.name}: exactly_once: value= and key= are serdes of out.send, and a handler of columns returns "
                "rows whose values are bytes or text"
            )
        if self.is_at_most_once:
            raise ConfigError(f"{self.name}: commit=AtMostOnce() commits before it handles; leave out exactly_once=")
        if self.inbox is not None or self.offsets is not None:
            raise ConfigError(
                f"{self.name}: exactly_once= commits in Kafka, inbox= and offsets= in a store: no transaction has both"
            )
        if self.ordering is not Ordering.PARTITION:
            raise ConfigError(
                f"{self.name}: exactly_once= commits one offset per partition, which needs ordering='partition', found "
                f"{self.ordering.value!r}"
            )
        if self.retry_topics is not None and self.retry_topics.keep_key_order:
            raise ConfigError(
                f"{self.name}: exactly_once= needs RetryTopics(keep_key_order=False): records that wait for an earlier "
                "one of their key are forwarded out of offset order"
            )
        return ExactlyOnceSettings(self.exactly_once, name=self.name)

    def _once(self, *, wants_transaction: bool) -> OnceSettings | None:
        if self.inbox is None and self.offsets is None:
            if wants_transaction:
                raise BindingError(
                    f"{self.name}: it has a parameter named transaction, which needs offsets= or inbox= with a database"
                )
            return None
        if self.is_at_most_once:
            raise ConfigError(f"{self.name}: commit=AtMostOnce() delivers nothing twice; leave out inbox= and offsets=")
        if self.offsets is not None and self.ordering is not Ordering.PARTITION:
            raise ConfigError(
                f"{self.name}: offsets= saves one offset per partition, which needs ordering='partition', found "
                f"{self.ordering.value!r}"
            )
        if self.offsets is not None and self.retry_topics is not None:
            raise ConfigError(
                f"{self.name}: offsets= delivers records in order; retry in place (retry=), not in retry topics"
            )
        return OnceSettings(
            name=self.name,
            group=self.group,
            inbox=self.inbox,
            offsets=self.offsets,
            wants_transaction=wants_transaction,
            hooks=self.hooks,
        )

    def _serde(self, part: str, given: Any, hint: Any) -> Serde[Any]:
        place = f"{self.name}: {f'no {part}= is given' if given is None else f'{part}={shown(given)}'}"
        try:
            as_serde(given)
        except TypeError as error:
            raise ConfigError(f"{place}: {error}") from error
        try:
            return chosen_serde(given, hint)
        except TypeError as error:
            raise BindingError(f"{place}: {error}") from None


def ordering_of(given: Ordering | str, name: str) -> Ordering:
    """Return an ordering by its name, or itself."""
    try:
        return Ordering(given)
    except ValueError:
        wanted = ", ".join(repr(ordering.value) for ordering in Ordering)
        raise ConfigError(f"{name}: ordering must be one of {wanted}, got {given!r}") from None
