"""`App.handler`: a handler of records, of batches or of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Unpack, overload

from ottla.app.declaration.declaring import Declares, DeclaresOnApp, F, check_concurrency
from ottla.app.declaration.route import DEFAULT_BATCH_RECORDS, DEFAULT_BATCH_ROWS, Route, ordering_of
from ottla.app.handler.event_handlers import EventHandlers
from ottla.app.handler.handler_options import (
    RENAMED_OPTIONS,
    FairBy,
    ForBatch,
    ForOne,
    HandlerOptions,
    OrderingName,
    Value,
)
from ottla.config.arguments import explained
from ottla.config.priorities import topics_of
from ottla.consumer.commit.commits import AtMostOnce
from ottla.consumer.partitions.handler_rate import Rate
from ottla.consumer.partitions.lanes import Ordering
from ottla.errors import ConfigError
from ottla.failures.budget import DeadLetterBudget
from ottla.failures.exceptions import exception_entries
from ottla.failures.outcomes import Dead, Outcome, Skip
from ottla.failures.retry import NO_RETRY, RetryPolicy
from ottla.failures.retry_topics import RetryTopics
from ottla.once.exactly_once import ExactlyOnce
from ottla.once.inbox import Inbox
from ottla.quantities import Span
from ottla.records import TopicPartition
from ottla.serdes.base import SerdeOf
from ottla.showing import shown
from ottla.stores.protocols import TransactionStore


class DeclaresHandlers(Declares):
    """The part of `App` and `Router` that declares handlers."""

    @overload
    def handler(
        self,
        *topics: str,
        value: type[bytes] | type[str] | type[int] | None = None,
        batch: bool = False,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[F], F]: ...

    @overload
    def handler(
        self, *topics: str, value: SerdeOf[Value], batch: Literal[False] = False, **options: Unpack[HandlerOptions]
    ) -> ForOne[Value]: ...

    @overload
    def handler(
        self, *topics: str, value: SerdeOf[Value], batch: Literal[True], **options: Unpack[HandlerOptions]
    ) -> ForBatch[Value]: ...

    @overload
    def handler(
        self, *topics: str, value: Any = None, columns: Literal[True] | Sequence[str], **options: Unpack[HandlerOptions]
    ) -> Callable[[F], F]: ...

    @explained("App.handler", renamed=RENAMED_OPTIONS)
    def handler(
        self,
        *topics: str,
        value: Any = None,
        key: Any = None,
        group: str | None = None,
        retry: RetryPolicy | None = None,
        retry_topics: RetryTopics | None = None,
        dead_letter_topic: str | None = None,
        on_error: Mapping[type[BaseException], Outcome] | None = None,
        concurrency: int = 1,
        ordering: Ordering | OrderingName = Ordering.PARTITION,
        batch: bool = False,
        columns: bool | Sequence[str] = False,
        to: str | None = None,
        max_batch: int | None = None,
        linger_ms: int = 0,
        max_records_per_turn: int | None = None,
        fair_by: FairBy = "records",
        weight_of: Callable[[TopicPartition], int] | None = None,
        max_rate: Rate | None = None,
        budget: DeadLetterBudget | None = None,
        ttl_s: Span | None = None,
        on_expired: Skip | Dead | None = None,
        expires_grace_s: Span = 0.0,
        reserve: Mapping[str, int] | None = None,
        inbox: Inbox | None = None,
        offsets: TransactionStore | None = None,
        exactly_once: ExactlyOnce | None = None,
        name: str | None = None,
    ) -> Callable[[F], F]:
        """Declare a handler for `topics`. Raises `ConfigError` at once for what cannot work; the page "Options of a
        handler" (reference/handler-options) has a table of what goes together.

        `concurrency` is how many runs may be handled at the same time; `ordering` what stays in order meanwhile:
        ``"partition"``, ``"key"`` or ``"unordered"``. With `batch` the handler gets lists, at most `max_batch` records
        of one partition, and may return one outcome per record; a batch that is not full waits `linger_ms` for more.
        With `columns` it gets them as an Arrow `RecordBatch` (or as what its annotation names: `polars.DataFrame`,
        `pandas.DataFrame`, `pyarrow.Table`), of at most `max_batch` rows (20,000 if not given), and may return
        `Outcomes` of single rows; ``columns=["key", "offset"]`` adds those columns to the value's own. Rows that it
        returns or yields are written to the topic `to` before their offsets are committed, or with them in one
        transaction.
        `max_records_per_turn` bounds a partition's turn when several have records: 128 if not given, 500 with `inbox`
        or `offsets`, fewer with a slow handler. With ``fair_by="bytes"`` it counts bytes instead of records.

        With ``max_rate=Rate(200)`` the handler gets at most 200 records per second in this process, each delivery of a
        record counted. What waits for that is ready and not late; its partition is paused once enough is buffered.

        `retry` is for retries in place, which hold the partition or key; `retry_topics` for those that do not: a record
        that failed goes through them when its retries in place are used up. With `retry_topics` and no `retry` there
        are none in place.

        A record that has expired is not handed to the handler. It expires at the time in its header
        `ottla-expires-at` (`send(expires_after=...)` writes it), and `ttl_s` seconds after its timestamp; the earlier
        counts, `expires_grace_s` is added. ``on_expired=Skip()``, the default, passes over it,
        ``on_expired=Dead("too old")`` writes it to the dead letter topic.

        With `Priorities` in place of topics, the highest priority that has records goes next, and each lower one at
        least as often as was declared. ``reserve={"urgent": 1}`` keeps one of the `concurrency` for that priority.

        With ``inbox=Inbox(store)`` a message that was handled before is not handled again, whichever offset its copy
        has. If the store is a database, a parameter named `transaction` is the open transaction in which it is marked.
        ``offsets=store`` keeps the partition's offset in that transaction: what the handler does through it happens
        exactly once per record, in order.

        With ``exactly_once=ExactlyOnce()`` a parameter named `out` sends records: they, the record's offset and a dead
        letter are written in one Kafka transaction. `read_committed` consumers see each result exactly once, in order.
        """
        for topic in topics:
            if not isinstance(topic, str):
                raise ConfigError(
                    f"handler: found {shown(topic)} for a topic, wanted names: @app.handler('orders', 'returns')"
                )
        if fair_by not in ("records", "bytes"):
            raise ConfigError(f"handler: fair_by must be 'records' or 'bytes', got {fair_by!r}")

        check_concurrency("handler", concurrency)
        names, priorities = topics_of("handler", topics)

        def add(app: DeclaresOnApp, function: F) -> None:
            is_once = isinstance(app.commit, AtMostOnce)
            handler_name: str = name or getattr(function, "__name__", None) or type(function).__name__
            if is_once:
                refuse_redelivery(handler_name, retry=retry, retry_topics=retry_topics, budget=budget)
            turn = _most_records(handler_name, batch, columns, max_batch, max_records_per_turn)
            if turn is None and exactly_once is not None:
                turn = getattr(exactly_once, "max_records", 1)
            route = Route(
                name=handler_name,
                handler=function,
                events=function if isinstance(function, EventHandlers) else None,
                topics=frozenset(names),
                group=group or app.group,
                value=value,
                key=key,
                retry=retry or (NO_RETRY if is_once or retry_topics is not None else app._retry),
                is_at_most_once=is_once,
                retry_topics=retry_topics,
                dead_letter_topic=dead_letter_topic or app.dead_letter_topic,
                on_error={**app._on_error, **exception_entries(on_error)},
                concurrency=concurrency,
                ordering=ordering_of(ordering, handler_name),
                is_batch=batch or columns is not False,
                columns=None if columns is False else () if columns is True else tuple(columns),
                to=to,
                linger_ms=linger_ms,
                max_records_per_turn=turn,
                is_fair_by_bytes=fair_by == "bytes",
                weight_of=weight_of,
                max_rate=max_rate,
                budget=budget or app._budget,
                ttl_s=ttl_s,
                on_expired=on_expired,
                expires_grace_s=expires_grace_s,
                priorities=priorities,
                reserve=reserve,
                inbox=inbox,
                offsets=offsets,
                exactly_once=exactly_once,
                hooks=app.hooks,
                resources=app._parts.resources,
            )
            app._add(route)

        return self._declare("a handler", add)


def _most_records(
    name: str, batch: bool, columns: bool | Sequence[str], max_batch: int | None, per_turn: int | None
) -> int | None:
    """Return how many records a handler gets at a time; None: as its route says."""
    if columns is False and not batch:
        if max_batch is not None:
            raise ConfigError(
                f"{name}: found max_batch={shown(max_batch)} for a handler of single records, wanted batch=True or "
                "columns=True beside it, or max_records_per_turn= for the length of a turn"
            )
        return per_turn
    if per_turn is not None:
        raise ConfigError(
            f"{name}: found max_records_per_turn={shown(per_turn)} for a handler of batches, wanted "
            f"max_batch={shown(per_turn)}: a turn of it is a batch"
        )
    if max_batch is not None:
        return max_batch
    return DEFAULT_BATCH_ROWS if columns is not False else DEFAULT_BATCH_RECORDS


def refuse_redelivery(place: str, **given: object) -> None:
    """Refuse what delivers a record again, where records are delivered at most once."""
    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"{place}: {name}= delivers a record again, and commit=AtMostOnce() never does")
