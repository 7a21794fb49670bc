"""A span around each delivery to a handler (`process <topic>`), for both shells.

The span of one record is a child of its producer's, where the record names one; that of a batch has links to them. No
span is made for a record whose producer's trace is not recorded: its handler runs in the producer's context, so that
what it sends belongs to that trace, and is not recorded either.

A retry in place has a span of its own, with a link to the one before. The handler sees the span as the current one, in
threads and on event loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from ottla.app.context import Context
from ottla.app.returned import ForEach, read_batch, read_returned
from ottla.consumer.model.run import AnyRecord
from ottla.failures.exceptions import Failure
from ottla.failures.outcomes import Ack, Skip
from ottla.records import headers_of
from ottla.telemetry import conventions as names
from ottla.telemetry.open_attempts import FailedSpan, OpenAttempts, context_before, open_attempts
from ottla.telemetry.propagation import parent_is_sampled
from ottla.telemetry.tracing import active_spans, shows_keys

if TYPE_CHECKING:
    from ottla.telemetry.spans import OpenSpan, Spans

Call = Callable[[Any, Context], Any]


class HandlerSpans:
    """The spans of one handler. `around` is asked once per run."""

    __slots__ = ("_client_id", "_group", "_handler", "_is_batch", "_open")

    def __init__(self, *, group: str, handler: str, is_batch: bool, client_id: str | None = None) -> None:
        self._group = group
        self._handler = handler
        self._is_batch = is_batch
        self._client_id = client_id
        self._open: OpenAttempts = open_attempts(group)

    def around(self, call: Call) -> Call:
        """The handler with spans around it; the handler itself while nobody listens. Each call must have a context
        of its own (`contextvars.copy_context().run`)."""
        spans = active_spans()
        if spans is None:
            return call
        from ottla.telemetry.spans import enter_remote

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

        if self._is_batch:
            return traced

        def of_record(record: AnyRecord, context: Context) -> Any:
            # Nearly all records of a service that samples: every call less here is seen in its rate.
            headers = headers_of(record)
            if headers and parent_is_sampled(headers) is False:
                enter_remote(headers)
                return call(record, context)
            return traced(record, context)

        return of_record

    def around_async(self, call: Call) -> Call:
        """The same for a handler that is awaited. What was current before is current again when it returned."""
        spans = active_spans()
        if spans is None:
            return call
        from ottla.telemetry.spans import attach, detach, enter_remote, here

        begin = self._begin_batch if self._is_batch else self._begin

        async def traced(subject: Any, context: Context) -> Any:
            token = attach(here())
            try:
                span = None
                headers = None if self._is_batch else headers_of(subject)
                if headers and parent_is_sampled(headers) is False:
                    enter_remote(headers)
                else:
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

    def _begin(self, spans: Spans, record: AnyRecord, context: Context) -> OpenSpan | None:
        """Make the record's span the current one. Returns it if it is recorded."""
        from ottla.telemetry.spans import NOTHING, extracted

        headers = headers_of(record)
        parent = extracted(headers) if headers else NOTHING
        before = self._open.take(str(record.topic_partition), record.offset) if self._open else None
        if before is not None and not parent:
            parent = context_before(before)
        attributes = self._attributes(context, record.topic, record.partition)
        attributes[names.OFFSET] = record.offset
        if record.raw_value is None:
            attributes[names.TOMBSTONE] = True
        if shows_keys() and record.raw_key is not None:
            attributes[names.KEY] = record.raw_key.decode("utf-8", "backslashreplace")
        opened = spans.open(names.PROCESS, record.topic, attributes, parent)
        if opened is not None and before is not None:
            opened.link([context_before(before)])
        return opened

    def _begin_batch(self, spans: Spans, records: Sequence[AnyRecord], context: Context) -> OpenSpan | None:
        from ottla.telemetry.spans import MOST_LINKS, NOTHING, extracted

        first = records[0]
        attributes = self._attributes(context, first.topic, first.partition)
        attributes[names.BATCH_SIZE] = len(records)
        attributes[names.OFFSET] = first.offset
        opened = spans.open(names.PROCESS, first.topic, attributes, NOTHING)
        if opened is not None:
            befores = self._befores(records) if self._open else []
            sampled = [headers for record in records if parent_is_sampled(headers := headers_of(record)) and headers]
            opened.link(map(context_before, befores))
            opened.link(map(extracted, sampled[: MOST_LINKS - len(befores)]))
        return opened

    def _befores(self, records: Sequence[AnyRecord]) -> list[FailedSpan]:
        found = (self._open.take(str(record.topic_partition), record.offset) for record in records)
        return list({id(before): before for before in found if before is not None}.values())

    def _attributes(self, context: Context, topic: str, partition: int) -> dict[str, str | int | bool]:
        attributes = names.base_attributes(
            names.PROCESS, topic, PARTITION=str(partition), GROUP=self._group, CLIENT_ID=self._client_id
        )
        attributes[names.HANDLER] = self._handler
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
        if isinstance(answers, ForEach):
            read = zip(subject, map(read_returned, answers.entries), strict=True)
            return [(record, each) for record, each in read if isinstance(each, Failure)]
        return [(record, answers) for record in subject] if isinstance(answers, Failure) else []

    def _failed(self, span: OpenSpan, outcome: str, records: Sequence[AnyRecord]) -> None:
        from ottla.telemetry.spans import now_ns

        span.set({names.OUTCOME: outcome})
        if not records:
            span.end()
            return
        failed = FailedSpan(span, now_ns(), is_batch=self._is_batch)
        for record in records:
            self._open.keep(str(record.topic_partition), record.offset, failed)
