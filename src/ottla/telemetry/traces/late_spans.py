"""Spans of ours that become objects of the SDK's when they end, or when somebody looks at them.

Starting and ending a span costs the SDK 40 to 60 µs: it asks its sampler, checks each attribute, and makes one object
that can be changed and one that cannot. Most spans of handlers and sends are looked at by nobody before they end, and
all that is to be told of them is known here. So only the one that cannot be changed is made, at the end, and given to
the processors: the same facts for a fifth of the time. Where a handler, a log line or a tracer asks for the current
span, and where more than attributes is to be told, the SDK makes it, with the ids and the start that it has.

That is done only where nobody can tell the difference: with a sampler whose decisions are known, processors that do
nothing when a span starts, and limits that our attributes do not reach. Anything else is asked of the SDK, each time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags

from ottla.telemetry.traces.active_tracing import failed
from ottla.telemetry.traces.conventions import OFFSET, PARTITION, with_old_names
from ottla.telemetry.traces.lazy_contexts import lazily
from ottla.telemetry.traces.open_span import Attributes, OpenSpan
from ottla.telemetry.traces.sampled_out_spans import RANDOM, GivenIds

_MOST_ATTRIBUTES: Final = 32
"""No span of Ottla's has more."""


class LateSpan(OpenSpan):
    """A span that is recorded. Thread-safe: who ends it and who looks at it first may be two threads."""

    __slots__ = ("_attributes", "_kind", "_lock", "_made", "_name", "_parent", "_sdk", "_started_ns", "_within", "own")

    def __init__(
        self,
        sdk: KnownSdk,
        own: SpanContext,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        within: Context,
        parent: SpanContext | None,
        has_both: bool,
    ) -> None:
        # Positional, and without the parent's: one is made for each record of a trace.
        self._has_both = has_both
        self._sdk = sdk
        self._name = name
        self._kind = kind
        self._attributes = attributes
        self._within = within
        self._parent = parent
        self._made: Span | None = None
        self._lock = threading.Lock()
        self._started_ns = time.time_ns()
        self.own = own

    def made(self) -> Span:
        """The SDK's span; one that records nothing where it has ended."""
        with self._lock:
            if self._made is None:
                self._made = self._sdk.made(
                    self.own, self._name, self._kind, self._attributes, self._within, self._parent, self._started_ns
                )
            return self._made

    @property
    def span(self) -> Span:  # type: ignore[override]
        """The SDK's span."""
        return self.made()

    @property
    def context(self) -> Context:
        return lazily(self)

    @property
    def ids(self) -> dict[str, str]:
        return {"trace_id": f"{self.own.trace_id:032x}", "span_id": f"{self.own.span_id:016x}"}

    def set(self, attributes: Mapping[str, str | int | bool]) -> None:
        with self._lock:
            if self._made is None:
                self._attributes.update(attributes)
                return
        super().set(attributes)

    def link(self, linked: Iterable[Context]) -> None:
        found = list(linked)
        if found:
            super().link(found)

    def end(self, at_ns: int | None = None) -> None:
        with self._lock:
            is_ours = self._made is None
            if is_ours:
                self._made = NonRecordingSpan(self.own)  # for who looks at it from now on
        if not is_ours:
            super().end(at_ns)
            return
        try:
            self._sdk.ended(
                self.own,
                self._name,
                self._kind,
                self._attributes,
                self._parent,
                self._started_ns,
                at_ns or time.time_ns(),
            )
        except Exception as error:
            failed("span processor", error)

    def delivered(self, partition: int, offset: int | None) -> None:
        if self._made is not None:
            super().delivered(partition, offset)
            return
        attributes: Attributes = {PARTITION: str(partition)}
        if offset is not None and offset >= 0:
            attributes[OFFSET] = offset
        self.set(with_old_names(attributes) if self._has_both else attributes)
        self.end()


class KnownSdk:
    """An SDK of which it is known what it does with a span. Thread-safe."""

    def __init__(self, provider: Any, tracer: Any, ids: GivenIds) -> None:
        """Raises where the SDK is of another kind."""
        from opentelemetry.sdk.trace import ReadableSpan, SynchronousMultiSpanProcessor, TracerProvider

        self._tracer = tracer
        self._ids = ids
        self._has_random_ids = hasattr(ids.inner, "is_trace_id_random")
        self._readable = ReadableSpan
        self._all = provider._active_span_processor
        self._processors: Any = None
        self._are_known = False
        limits = tracer._span_limits
        most = limits.max_span_attributes
        self._is_known = (
            type(provider) is TracerProvider
            and type(self._all) is SynchronousMultiSpanProcessor
            and limits.max_span_attribute_length is None
            and (most is None or most >= _MOST_ATTRIBUTES)
        )
        self.records_roots, self.records_in_remote, self.records_in_local = _recorded_by(provider.sampler)

    @staticmethod
    def of(provider: Any, tracer: Any, ids: GivenIds | None) -> KnownSdk | None:
        """None where anything is not as it is known."""
        if ids is None:
            return None
        try:
            found = KnownSdk(provider, tracer, ids)
            if not found._is_known:
                return None
            _ = found.is_ready
            found._as_ended(INVALID_SPAN_CONTEXT, "", SpanKind.INTERNAL, {}, None, 0, 0)
            return found
        except Exception:  # of another age, or not OpenTelemetry's own
            return None

    @property
    def is_ready(self) -> bool:
        """Whether spans may be late now: a processor can be added at any time, and a tracer switched off."""
        processors = self._all._span_processors
        if processors is not self._processors:
            self._are_known = _do_nothing_at_starts(processors)
            self._processors = processors
        return self._are_known and self._is_enabled()

    def begin(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        within: Context,
        parent: SpanContext | None,
        trace_id: int = 0,
        *,
        has_both: bool,
    ) -> LateSpan:
        """A span that the sampler records. `trace_id`: of a root on which it was decided."""
        ids = self._ids
        state = None
        if parent is not None:
            trace_id, state = parent.trace_id, parent.trace_state
            flags = _RECORDED[self._has_random_ids and bool(parent.trace_flags & RANDOM)]
        else:
            trace_id = trace_id or ids.inner.generate_trace_id()
            flags = _RECORDED[bool(ids.flag)]
        own = SpanContext(trace_id, ids.inner.generate_span_id(), False, flags, state)
        if has_both:
            attributes = with_old_names(attributes)
        return LateSpan(self, own, name, kind, attributes, within, parent, has_both)

    def made(
        self,
        own: SpanContext,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        within: Context,
        parent: SpanContext | None,
        started_ns: int,
    ) -> Span:
        """The span as the SDK makes it."""
        try:
            self._ids.decide(trace_id=own.trace_id if parent is None else None, span_id=own.span_id)
            made: Span = self._tracer.start_span(name, within, kind, attributes, start_time=started_ns)
            return made
        except Exception as error:
            failed("span processor", error)
            return NonRecordingSpan(own)
        finally:
            self._ids.forget()

    def ended(
        self,
        own: SpanContext,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        parent: SpanContext | None,
        started_ns: int,
        ended_ns: int,
    ) -> None:
        """Give the processors a span that nobody has looked at."""
        self._all.on_end(self._as_ended(own, name, kind, attributes, parent, started_ns, ended_ns))

    def _as_ended(
        self,
        own: SpanContext,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        parent: SpanContext | None,
        started_ns: int,
        ended_ns: int,
    ) -> Any:
        """The SDK's object that cannot be changed any more. Raises where the SDK makes it in another way."""
        tracer = self._tracer
        return self._readable(
            name,
            own,
            parent,
            tracer.resource,
            attributes,
            kind=kind,
            start_time=started_ns,
            end_time=ended_ns,
            instrumentation_info=tracer.instrumentation_info,
            instrumentation_scope=tracer._instrumentation_scope,
        )

    def _is_enabled(self) -> bool:
        is_enabled = getattr(self._tracer, "_is_enabled", None)  # since 1.40 or so
        return is_enabled is None or bool(is_enabled())


_RECORDED: Final = (TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.SAMPLED | RANDOM))


def given_ids(tracer: Any) -> GivenIds | None:
    """What the tracer draws its ids from, from now on; None where that is not as the SDK has it.

    The SDK may give one tracer to all who ask. It has these ids once: ids behind ids would not look like the SDK's own.
    """
    if not hasattr(tracer, "id_generator"):
        return None
    if os.environ.get("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"):  # it counts spans, and what is dropped, as it starts
        return None
    ids = tracer.id_generator
    if not isinstance(ids, GivenIds):
        ids = tracer.id_generator = GivenIds(ids)
    return ids


def _recorded_by(sampler: Any) -> tuple[bool, bool, bool]:
    """Whether it is known to record every root, and everything in a remote and in a local trace that is recorded."""
    from opentelemetry.sdk.trace import sampling

    def is_on(each: Any) -> bool:
        return (
            isinstance(each, sampling.StaticSampler)
            and type(each).__module__ == sampling.__name__
            and each._decision is sampling.Decision.RECORD_AND_SAMPLE
        )

    if isinstance(sampler, sampling.ParentBased) and type(sampler).__module__ == sampling.__name__:
        return is_on(sampler._root), is_on(sampler._remote_parent_sampled), is_on(sampler._local_parent_sampled)
    return (is_on(sampler),) * 3


def _do_nothing_at_starts(processors: Iterable[Any]) -> bool:
    """Whether all of them wait for the end of a span."""
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    return {*map(type, processors)} <= {BatchSpanProcessor, SimpleSpanProcessor}
