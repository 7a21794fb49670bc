"""Types of handlers and consumers, for type checkers: which functions fit a serde, and which options there are.

A parameter of a handler is bound by its name or its annotation (`ottla.app.handler.binding`), in any order. These
overloads look for the value, or the record with it, among the first three parameters, whatever its name is, and leave
the others open. What they let through is checked again when the handler is declared.

The overload with the widest value comes first, so that a decorated handler keeps its type, and the plain one last: mypy
words its error by the first, pyright by the last. Overloads overlap where a parameter's name decides. Of `key: Any` the
value's come first, and give the same type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import (
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    Protocol,
    Required,
    TypeAlias,
    TypedDict,
    TypeVar,
    overload,
)

from ottla.app.handler.handler_context import Context
from ottla.config.token_argument import TokenFunction
from ottla.config.topic_specs import CreateTopics
from ottla.consumer.commit.commits import CommitPolicy, InTransactions
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.handler_rate import Rate
from ottla.consumer.partitions.lanes import Ordering
from ottla.failures.budget import DeadLetterBudget
from ottla.failures.outcomes import Dead, Outcome, Skip
from ottla.failures.retry import RetryPolicy
from ottla.failures.retry_topics import RetryTopics
from ottla.once.exactly_once import ExactlyOnce
from ottla.once.inbox import Inbox
from ottla.quantities import Span
from ottla.records import Header, Malformed, Record, TopicPartition
from ottla.stores.protocols import TransactionStore
from ottla.telemetry import Hooks

OrderingName: TypeAlias = Literal["partition", "key", "unordered"]
FairBy: TypeAlias = Literal["records", "bytes"]

Value = TypeVar("Value")
T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

First: TypeAlias = Callable[Concatenate[T, P], R]
FirstList: TypeAlias = Callable[Concatenate[list[T], P], R]
Second: TypeAlias = Callable[Concatenate[Any, T, P], R]
Third: TypeAlias = Callable[Concatenate[Any, Any, T, P], R]


RENAMED_OPTIONS: Final[Mapping[str, str]] = {"quantum": "max_records_per_turn"}
"""Options of handlers and consumers by their names before 0.2. The old names go with 0.3."""


class ConsumerOptions(TypedDict, total=False):
    """The arguments of a pulled consumer that its type does not depend on."""

    group: Required[str]
    bootstrap_servers: str | Sequence[str] | None
    key: Any
    retry: RetryPolicy | None
    commit: CommitPolicy | InTransactions | None
    flow: FlowLimits | None
    max_records_per_turn: int
    drain_s: Span
    start_timeout_s: Span | None
    topics_timeout_s: Span | None
    create_topics: CreateTopics
    unready_after_s: Span
    ttl_s: Span | None
    on_expired: Skip | Dead | None
    expires_grace_s: Span
    settings: Mapping[str, Any] | None
    token: TokenFunction | None
    producer_settings: Mapping[str, Any] | None
    hooks: Hooks | None


class TopicOptions(TypedDict, total=False):
    """The arguments of `App.handler` for handlers of single records, and those of `App.topic`."""

    key: Any
    group: str | None
    retry: RetryPolicy | None
    retry_topics: RetryTopics | None
    dead_letter_topic: str | None
    on_error: Mapping[type[BaseException], Outcome] | None
    concurrency: int
    ordering: Ordering | OrderingName
    max_records_per_turn: int
    fair_by: FairBy
    weight_of: Callable[[TopicPartition], int] | None
    max_rate: Rate | None
    budget: DeadLetterBudget | None
    ttl_s: Span | None
    on_expired: Skip | Dead | None
    expires_grace_s: Span
    reserve: Mapping[str, int] | None
    inbox: Inbox | None
    offsets: TransactionStore | None
    exactly_once: ExactlyOnce | None
    name: str | None


class HandlerOptions(TopicOptions, total=False):
    """The arguments of `App.handler` that the type of the handler does not depend on."""

    to: str | None
    max_batch: int
    linger_ms: int


class TakesKey(Protocol[R_co]):
    def __call__(self, key: Any) -> R_co: ...


class TakesHeaders(Protocol[R_co]):
    def __call__(self, headers: list[Header]) -> R_co: ...


class TakesKeyAndContext(Protocol[R_co]):
    def __call__(self, key: Any, context: Context) -> R_co: ...


class ForOne(Protocol[Value]):
    """The decorator of a handler that gets the value of one record at a time."""

    @overload
    def __call__(self, handler: First[Value | Malformed | None, P, R], /) -> First[Value | Malformed | None, P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, handler: First[Value | Malformed, P, R], /) -> First[Value | Malformed, P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, handler: First[Value | None, P, R], /) -> First[Value | None, P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, handler: First[Record[Value], P, R], /) -> First[Record[Value], P, R]: ...

    @overload
    def __call__(self, handler: Second[Value, P, R], /) -> Second[Value, P, R]: ...

    @overload
    def __call__(self, handler: Second[Record[Value], P, R], /) -> Second[Record[Value], P, R]: ...

    @overload
    def __call__(self, handler: Third[Value, P, R], /) -> Third[Value, P, R]: ...

    @overload
    def __call__(self, handler: Third[Record[Value], P, R], /) -> Third[Record[Value], P, R]: ...

    @overload
    def __call__(self, handler: TakesKey[R], /) -> TakesKey[R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, handler: TakesHeaders[R], /) -> TakesHeaders[R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, handler: TakesKeyAndContext[R], /) -> TakesKeyAndContext[R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, handler: Callable[[Context], R], /) -> Callable[[Context], R]: ...

    @overload
    def __call__(self, handler: Callable[[], R], /) -> Callable[[], R]: ...

    @overload
    def __call__(self, handler: First[Value, P, R], /) -> First[Value, P, R]: ...


class ForBatch(Protocol[Value]):
    """The decorator of a handler that gets the values of many records at a time."""

    @overload
    def __call__(
        self, handler: FirstList[Value | Malformed | None, P, R], /
    ) -> FirstList[Value | Malformed | None, P, R]: ...

    @overload
    def __call__(self, handler: FirstList[Value | Malformed, P, R], /) -> FirstList[Value | Malformed, P, R]: ...

    @overload
    def __call__(self, handler: FirstList[Value | None, P, R], /) -> FirstList[Value | None, P, R]: ...

    @overload
    def __call__(
        self, handler: FirstList[Record[Value | Malformed | None], P, R], /
    ) -> FirstList[Record[Value | Malformed | None], P, R]: ...

    @overload
    def __call__(
        self, handler: FirstList[Record[Value | Malformed], P, R], /
    ) -> FirstList[Record[Value | Malformed], P, R]: ...

    @overload
    def __call__(self, handler: FirstList[Record[Value | None], P, R], /) -> FirstList[Record[Value | None], P, R]: ...

    @overload
    def __call__(self, handler: FirstList[Record[Value], P, R], /) -> FirstList[Record[Value], P, R]: ...

    @overload
    def __call__(self, handler: Second[list[Value], P, R], /) -> Second[list[Value], P, R]: ...

    @overload
    def __call__(self, handler: Second[list[Record[Value]], P, R], /) -> Second[list[Record[Value]], P, R]: ...

    @overload
    def __call__(self, handler: Callable[[], R], /) -> Callable[[], R]: ...

    @overload
    def __call__(self, handler: FirstList[Value, P, R], /) -> FirstList[Value, P, R]: ...
