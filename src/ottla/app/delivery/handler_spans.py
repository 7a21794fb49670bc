"""A span around each delivery to a handler (`process <topic>`), for both shells.

The span of one record is a child of its producer's, where the record names one; that of a batch has links to them. No
span is made for a record whose producer's trace is not recorded: its handler runs in the producer's context, so that
what it sends belongs to that trace, and is not recorded either. Where nearly all records are such, they cost little:
see `stretches`.

A retry in place has a span of its own, with a link to the one before. The handler sees the span as the current one, in
threads and on event loops.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ottla.app.delivery.handler_result import PerRecord, read_batch, read_returned
from ottla.app.handler.handler_context import Context
from ottla.consumer.model.run import AnyRecord
from ottla.failures.exceptions import Failure
from ottla.failures.outcomes import Ack, Skip
from ottla.records import packed_headers_of, packed_headers_of_all
from ottla.telemetry.traces import conventions as names
from ottla.telemetry.traces.active_tracing import active_spans, shows_keys
from ottla.telemetry.traces.open_attempts import FailedSpan, OpenAttempts, context_before, open_attempts
from ottla.telemetry.traces.propagation import places_of_others, recorded_parents

if TYPE_CHECKING:
    from ottla.telemetry.traces.open_span import OpenSpan
    from ottla.telemetry.traces.tracer_spans import TracerSpans

Call = Callable[[Any, Context], Any]
Stretch = tuple[Call, Iterable[AnyRecord]]


Attributes: TypeAlias = dict[str, str | int | bool]

_MOST_PARTITIONS: Final = 10_000
"""Whose attributes are kept: a consumer of ever new topics must not grow by them."""


class HandlerSpans:
    """The spans of one handler. `around` and `stretches` are asked once per run."""

    __slots__ = ("_client_id", "_group", "_handler", "_is_batch", "_of_partition", "_open")

    def __init__(self, *, group: str, handler: str, is_batch: bool, client_id: str | None = None) -> None:
        self._group = group
        self._handler = handler
        self._is_batch = is_batch
        self._client_id = client_id
        self._of_partition: dict[tuple[str, int], Attributes] = {}
        self._open: OpenAttempts = open_attempts(group)

    @property
    def are_off(self) -> bool:
        """Return whether no span is made of any record."""
        return active_spans() is None

    def around(self, call: Call) -> Call:
        """Return the handler with spans around it; the handler itself while tracing is off. Each call must have a
        context of its own (`contextvars.copy_context().run`)."""
        spans = active_spans()
        return call if spans is None else self._traced(spans, call)

    def _traced(self, spans: TracerSpans, call: Call) -> Call:
        begin = self._begin_batch if self._is_batch else self._begin

        def traced(subject: Any, context: Context) -> Any:
            span = begin(spans, subject, context)
            if span is None:
                return call(subject, context)
            try:
                returned = call(subject, context)
            except BaseException as error:
                self._raised(span, subject, error)
                raise
            self._returned(span, subject, returned)
            return returned

        return traced

    def stretches(self, call: Call, records: Sequence[AnyRecord]) -> Generator[Stretch, None, None]:
        """Return the records of a run in their order, cut into stretches, with what to call with each record of a
        stretch.

        When a record is given out, its context is the current one, until the next is or this ends. A call must have a
        context of its own, a copy of that one.
        """
        spans = active_spans()
        if spans is None:
            yield call, records
            return
        from ottla.telemetry.traces.lazy_contexts import current, entering, make_current

        # What a service that samples handles is nearly all in traces that are not recorded. Their handlers are called
        # as without telemetry. All that is done for them costs 0.4 µs a record: to find them, and to make each context
        # the current one, which is in C.
        headers = packed_headers_of_all(records)
        others = places_of_others(headers)
        traced = self._traced(spans, call) if others else call
        before = current()
        begin = 0
        try:
            for place in others:
                if begin < place:
                    yield call, entering(records[begin:place], headers[begin:place])
                make_current(before)
                yield traced, records[place : place + 1]
                begin = place + 1
            if begin < len(records):
                yield call, entering(records[begin:], headers[begin:])
        finally:
            make_current(before)

    def around_async(self, call: Call) -> Call:
        """Return the same for a handler that is awaited. What was current before is current again when it returned."""
        spans = active_spans()
        if spans is None:
            return call
        from ottla.telemetry.traces.tracer_spans import attach, detach, here

        begin = self._begin_batch if self._is_batch else self._begin

        async def traced(subject: Any, context: Context) -> Any:
            token = attach(here())
            try:
                span = begin(spans, subject, context)
                try:
                    returned = call(subject, context)
                    if returned is not None and isawaitable(returned):
                        returned = await returned
                except BaseException as error:
                    if span is not None:
                        self._raised(span, subject, error)
                    raise
                if span is not None:
                    self._returned(span, subject, returned)
                return returned
            finally:
                detach(token)

        return traced

    # Begin

    def _begin(self, spans: TracerSpans, record: AnyRecord, context: Context) -> OpenSpan | None:
        """Make the record's span the current one. Returns it if it is recorded."""
        headers = packed_headers_of(record)
        before = self._open.take(str(record.topic_partition), record.offset) if self._open else None
        if before is None and spans.is_dropped(headers):
            return None
        from ottla.telemetry.traces.lazy_contexts import NOTHING, extracted

        parent = extracted(headers) if headers else NOTHING
        if before is not None and not parent:
            parent = context_before(before)
        opened = spans.open(names.PROCESS, record.topic, self._of_record(record, context), parent)
        if opened is not None and before is not None:
            opened.link([context_before(before)])
        return opened

    def _begin_batch(self, spans: TracerSpans, records: Sequence[AnyRecord], context: Context) -> OpenSpan | None:
        from ottla.telemetry.traces.lazy_contexts import extracted
        from ottla.telemetry.traces.tracer_spans import MOST_LINKS

        first = records[0]
        opened = spans.open_batch(first.topic, partial(self._of_batch, first, len(records), context))
        if opened is not None:
            befores = self._befores(records) if self._open else []
            opened.link(map(context_before, befores))
            opened.link(map(extracted, recorded_parents(records)[: MOST_LINKS - len(befores)]))
        return opened

    def _befores(self, records: Sequence[AnyRecord]) -> list[FailedSpan]:
        found = (self._open.take(str(record.topic_partition), record.offset) for record in records)
        return list({id(before): before for before in found if before is not None}.values())

    def _of_record(self, record: AnyRecord, context: Context) -> Attributes:
        attributes = self._attributes(context, record.topic, record.partition)
        attributes[names.OFFSET] = record.offset
        if record.raw_value is None:
            attributes[names.TOMBSTONE] = True
        if shows_keys() and record.raw_key is not None:
            attributes[names.KEY] = record.raw_key.decode("utf-8", "backslashreplace")
        return attributes

    def _of_batch(self, first: AnyRecord, size: int, context: Context) -> Attributes:
        attributes = self._attributes(context, first.topic, first.partition)
        attributes[names.BATCH_SIZE] = size
        attributes[names.OFFSET] = first.offset
        return attributes

    def _attributes(self, context: Context, topic: str, partition: int) -> Attributes:
        """Return the attributes of a partition's records. A copy: a sampler may change what it is given."""
        found = self._of_partition.get((topic, partition))
        if found is None:
            if len(self._of_partition) >= _MOST_PARTITIONS:
                self._of_partition.clear()
            found = names.base_attributes(
                names.PROCESS, topic, PARTITION=str(partition), GROUP=self._group, CLIENT_ID=self._client_id
            )
            found[names.HANDLER] = self._handler
            self._of_partition[topic, partition] = found
        attributes = found.copy()
        attributes[names.ATTEMPT] = context.attempt
        return attributes

    # End

    def _raised(self, span: OpenSpan, subject: Any, error: BaseException) -> None:
        span.failed(type(error).__qualname__, error)
        self._failed(span, "raised", subject if self._is_batch else [subject])

    def _returned(self, span: OpenSpan, subject: Any, returned: Any) -> None:
        if returned is None or type(returned) is Ack:
            span.end()
            return
        failed = self._failures_in(subject, returned)
        if not failed:
            span.end()
            return
        failure = failed[0][1]
        outcome = "skip" if isinstance(failure.outcome, Skip) else type(failure.outcome).__name__.lower()
        if outcome != "skip":
            span.failed(failure.error_type or type(failure.outcome).__name__)
        kept = [record for record, each in failed if not isinstance(each.outcome, Skip | Ack)]
        self._failed(span, outcome, kept)

    def _failures_in(self, subject: Any, returned: Any) -> list[tuple[AnyRecord, Failure]]:
        if not self._is_batch:
            found = read_returned(returned)
            return [(subject, found)] if isinstance(found, Failure) else []
        answers = read_batch(returned, len(subject))
        if isinstance(answers, PerRecord):
            read = zip(subject, map(read_returned, answers.entries), strict=True)
            return [(record, each) for record, each in read if isinstance(each, Failure)]
        return [(record, answers) for record in subject] if isinstance(answers, Failure) else []

    def _failed(self, span: OpenSpan, outcome: str, records: Sequence[AnyRecord]) -> None:
        from ottla.telemetry.traces.tracer_spans import now_ns

        span.set({names.OUTCOME: outcome})
        if not records:
            span.end()
            return
        failed = FailedSpan(span, now_ns(), is_batch=self._is_batch)
        for record in records:
            self._open.keep(str(record.topic_partition), record.offset, failed)
