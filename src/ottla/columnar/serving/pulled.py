"""`ottla.columnar.consume`: batches of columns by iterating or polling, as a member of a group.

    with ottla.columnar.consume("orders", group="report", value=Avro(Order)) as batches:
        for batch in batches:
            totals.append(polars.DataFrame(batch))   # done when the next batch is asked for

    batch = batches.poll(timeout_s=1.0)
    batch.ack(Outcomes((rows, Dead("why"))))               # or batch.ack(), or batch.failed(error)

Fetching, heartbeats and commits run in the background, so the time between two calls does not matter to the group.
Neither confluent-kafka nor aiokafka is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from ottla.app.declaration.route import COLUMNS, DEFAULT_BATCH_ROWS, Route
from ottla.app.delivery.handler_result import failure_in, is_open, mistake, read_returned
from ottla.app.member.member_base import MemberOptions
from ottla.app.once.result_settings import ResultOptions
from ottla.app.pull.partition_controls import SLICE_S, PartitionControls
from ottla.columnar.serving.group_member import ColumnGroupMember
from ottla.columnar.serving.handlers import ColumnInvoker, HandlerCall
from ottla.columnar.serving.results import RowSink
from ottla.config import consumer_settings, dead_letter_arguments, producer_settings, settings_beside
from ottla.config.arguments import explained
from ottla.config.priorities import topics_of
from ottla.config.token_argument import TokenFunction, with_token
from ottla.consumer.commit.commits import CommitPolicy
from ottla.consumer.model.events import RunFinished
from ottla.consumer.model.run import RunResult
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.pulled.choice import given_back
from ottla.errors import ConfigError, LifecycleError
from ottla.failures.exceptions import ExceptionTable
from ottla.failures.outcomes import Dead, Outcome, Outcomes, Skip
from ottla.failures.retry import RetryPolicy
from ottla.quantities import Span, optional_seconds, seconds, timeout
from ottla.raising import again
from ottla.records import TopicPartition
from ottla.telemetry import Hooks
from ottla.wire_client.producing.writable_topics import await_writable

_MANY_PARTITIONS: Final = 100_000
"""One batch of each partition may be open."""


@explained("consume")
def consume(
    *topics: str,
    group: str,
    bootstrap_servers: str | Sequence[str] | None = None,
    value: Any = None,
    key: Any = None,
    columns: Sequence[str] = (),
    max_batch: int = DEFAULT_BATCH_ROWS,
    linger_ms: int = 0,
    dead_letter_topic: str | None = None,
    retry: RetryPolicy | None = None,
    commit: CommitPolicy | None = None,
    flow: FlowLimits | None = None,
    drain_s: Span = 5.0,
    start_timeout_s: Span | None = None,
    topics_timeout_s: Span | None = None,
    ttl_s: Span | None = None,
    on_expired: Skip | Dead | None = None,
    settings: Mapping[str, Any] | None = None,
    token: TokenFunction | None = None,
    producer_settings: Mapping[str, Any] | None = None,
    hooks: Hooks | None = None,
) -> ColumnConsumer:
    """Return a member of `group` that gives batches of columns. It starts with the first batch asked for, or with
    `with`.

    Options are those of `App` and `App.handler`. Without a `dead_letter_topic` a row that does not decode stops its
    partition. Raises `ConfigError` for what cannot work.
    """
    if not group:
        raise ConfigError("consume: the group must not be empty; services that share a group share its records")
    if isinstance(columns, str):
        raise ConfigError(f"consume: columns: found {columns!r}, wanted a list of {', '.join(COLUMNS)}")
    names, priorities = topics_of("consume", topics)
    if priorities is not None:
        raise ConfigError("consume: found priorities, which only handlers have")
    route = Route(
        name="consume",
        handler=_nothing,
        topics=frozenset(names),
        group=group,
        columns=tuple(columns),
        is_batch=True,
        concurrency=_MANY_PARTITIONS,
        value=value,
        key=key,
        max_records_per_turn=max_batch,
        linger_ms=linger_ms,
        retry=retry or RetryPolicy(),
        dead_letter_topic=dead_letter_topic,
        ttl_s=ttl_s,
        on_expired=on_expired,
    )
    settings = with_token("consume", settings, token)
    options = MemberOptions(
        group=group,
        topics=sorted(route.subscribed),
        plans=[route.plan()],
        settings=consumer_settings(bootstrap_servers, group_id=group, settings=settings),
        flow=(flow or FlowLimits()).for_batches(route.most_records),
        commits=commit,
        drain_s=seconds("consume", "drain_s", drain_s),
        start_timeout_s=optional_seconds("consume", "start_timeout_s", start_timeout_s),
        topics_timeout_s=optional_seconds("consume", "topics_timeout_s", topics_timeout_s),
        hooks=hooks,
    )
    results = ResultOptions(
        handlers=(),
        group=group,
        bootstrap_servers=bootstrap_servers,
        producer_settings=settings_beside(settings, producer_settings),
    )
    return ColumnConsumer(route, options, results)


class ConsumedBatch:
    """Rows of one partition. Whatever takes an Arrow stream takes it: `polars.DataFrame`, `pyarrow.table`."""

    __slots__ = ("_call", "_owner", "is_settled", "topic_partition")

    def __init__(self, call: HandlerCall, owner: ColumnConsumer) -> None:
        self._call = call
        self._owner = owner
        self.topic_partition: TopicPartition = call.frame.topic_partition
        self.is_settled = False

    def __len__(self) -> int:
        return len(self._call.frame)

    @property
    def data(self) -> pa.RecordBatch:
        """The fields of the values, and the columns that were asked for."""
        batch: pa.RecordBatch = self._call.frame.data
        return batch

    @property
    def keys(self) -> pa.Array:
        """The keys of the rows, as bytes."""
        return self._call.frame.keys

    @property
    def offsets(self) -> pa.Array:
        """The offsets of the rows."""
        return self._call.frame.offsets

    @property
    def timestamps(self) -> pa.Array:
        """The timestamps of the rows: microseconds since the epoch, in UTC."""
        return self._call.frame.timestamps

    @property
    def headers(self) -> pa.Array:
        return self._call.frame.headers

    @property
    def attempt(self) -> int:
        """Return the delivery attempt of these rows; 1 is the first."""
        return self._call.run.attempt

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self.data.schema, [self.data])
        return reader.__arrow_c_stream__(requested_schema)

    def ack(self, outcome: Outcome | Outcomes | None = None) -> None:
        """Settle all rows as done, or with an outcome that a handler of columns could return. Counts once."""
        if isinstance(outcome, Outcomes):
            self._settle(self._call.outcomes(outcome))
            return
        found = read_returned(outcome)
        self._settle(
            self._call.failed(mistake(f"ack: found {outcome!r}, wanted an outcome"))
            if is_open(found)
            else self._call.answered(failure_in(found))
        )

    def failed(self, error: BaseException) -> None:
        """Settle rows whose handling raised `error`: they are delivered again as the retry policy says, and then
        halved."""
        self._settle(self._call.failed(self._owner._exceptions.failure_of(error)))

    def _settle(self, result: RunResult) -> None:
        if not self.is_settled:
            self.is_settled = True
            self._owner._finish(RunFinished(self._call.run, result))


class ColumnConsumer(PartitionControls):
    """Made by `consume`, which raises `ConfigError` for what cannot work. One thread uses it."""

    _member: ColumnGroupMember

    def __init__(self, route: Route, options: MemberOptions, results: ResultOptions) -> None:
        self._dead_letter_topic = route.dead_letter_topic
        self._results = results
        self._invoker = ColumnInvoker(route, (), {})
        self._exceptions = ExceptionTable(keeps_errors=route.retry.has_strategies)
        sink = RowSink()
        self._member = ColumnGroupMember(replace(options, results=results), execute={}, dead_letters=sink)
        sink.submit = self._member.write
        self._current: ConsumedBatch | None = None
        self._is_started = False
        self._is_closed = False

    def __iter__(self) -> Iterator[ConsumedBatch]:
        """Yield batches without end. A batch is done when the next one is asked for; leaving the loop at a batch leaves
        it open (it will be delivered again), unless you `ack` it first."""
        while not self._is_closed:
            batch = self.poll()
            if batch is None:
                continue
            self._current = batch
            yield batch
            current, self._current = self._current, None
            if current is not None and not self._is_closed:
                current.ack()

    def poll(self, timeout_s: Span = 1.0) -> ConsumedBatch | None:
        """Return the next batch, or None after `timeout_s` seconds. Settle it with `ack` or `failed`: until then no
        further batch of its partition is returned. Raises the error that ended the member."""
        deadline_s = timeout("poll", timeout_s)
        self.start()
        deadline_s += monotonic()
        while True:
            if self._member.error is not None:
                raise again(self._member.error)
            left_s = deadline_s - monotonic()
            run = self._member.take_run(max(0.0, min(SLICE_S, left_s)))
            if run is None:
                if left_s <= 0 or self._is_closed:
                    return None
                continue
            if self._is_closed:  # by another thread, in the meantime
                self._finish(given_back(run))
                return None
            call = self._invoker.begin(run)
            if isinstance(call, HandlerCall):
                return ConsumedBatch(call, self)
            self._finish(RunFinished(run, call))

    def start(self) -> Self:
        """Connect and subscribe. Raises `BrokerUnavailable` when no broker answers, `UnknownTopic` when a topic is
        still missing after `topics_timeout_s` (3 s if not given).

        Raises `LifecycleError` when it is closed.
        """
        if self._is_closed:
            raise LifecycleError("the consumer is closed: make a new one")
        if not self._is_started:
            if self._dead_letter_topic is not None:
                self._member.reach()
                arguments = dead_letter_arguments(self._results.producer_settings)
                writes = producer_settings(self._results.bootstrap_servers, **arguments)
                await_writable(writes, self._member.topics_awaited([self._dead_letter_topic]))
            self._member.start()
            self._is_started = True
        return self

    def close(self) -> None:
        """Commit what is done and leave the group. A batch that was taken and not settled will be delivered again."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._is_started:
            current, self._current = self._current, None
            if current is not None and not current.is_settled:
                current._settle(RunResult(done=(), untouched=current._call.run.records))
            self._member.stop()
            self._member.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def seek_to_time(self, topic_partition: TopicPartition, timestamp_ms: int) -> int:
        """Go on from the first record at or after `timestamp_ms` (epoch), or from the end. Returns the offset."""
        return self._member.seek_to_time(topic_partition, timestamp_ms)

    def _finish(self, finished: RunFinished) -> None:
        self._member.finish(finished)


def _nothing(batch: Any) -> None:
    """Do nothing: the placeholder handler of a pulled consumer."""
