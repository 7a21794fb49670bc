"""Spans and contexts, over `opentelemetry-api`. Imported only where a tracer provider is: see `tracing`.

Nothing here raises: a sampler, propagator or span processor that does costs its span, and is logged.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar, Token
from functools import lru_cache
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ottla.records import Header
from ottla.telemetry.conventions import (
    ERROR_TYPE,
    OFFSET,
    PARTITION,
    SCHEMA_URL,
    SCOPE,
    sets_both_names,
    with_old_names,
)
from ottla.telemetry.propagation import (
    TRACEPARENT,
    header_texts,
    parent_is_sampled,
    traceparent,
    with_context,
    with_traceparent,
)
from ottla.telemetry.roots import Roots
from ottla.telemetry.tracing import failed

MOST_LINKS: Final = 128
"""What an SDK keeps of a span's links by default."""

_W3C: Final = frozenset((TRACEPARENT, "tracestate", "baggage"))

_TRACEPARENT: Final = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")

Attributes = dict[str, str | int | bool]


class _HeaderGetter(Getter[Sequence[Header]]):
    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        return header_texts(carrier, key)

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        return [name for name, _ in carrier]


_GETTER: Final = _HeaderGetter()


NOTHING: Final = Context()
"""No parent: a span in it is the first of its trace."""


class RemoteContext(Context):
    """The context in a record's headers, read when somebody asks for it: most handlers ask for nothing.

    Made and attached by `enter_remote`, for a third of a microsecond; extracting at once costs some ten.
    """

    __slots__ = ("_source",)

    _source: Sequence[Header] | Context
    """The headers; once they were read, the context in them. The dictionary that this is itself stays empty. Set from
    outside: an `__init__` would cost as much again as everything else that is done for the record."""

    def read(self) -> Context:
        """The context as OpenTelemetry makes it."""
        source = self._source
        if not isinstance(source, Context):
            source = self._source = extracted(source)
        return source

    def get(self, key: Any, default: Any = None) -> Any:
        return self.read().get(key, default)

    def __getitem__(self, key: Any) -> Any:
        return self.read()[key]

    def __contains__(self, key: object) -> bool:
        return key in self.read()

    def __iter__(self) -> Any:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> dict[Any, Any]:
        return self.read().copy()

    def keys(self) -> Any:
        return self.read().keys()

    def items(self) -> Any:
        return self.read().items()

    def values(self) -> Any:
        return self.read().values()


def _straight() -> tuple[Callable[[], Context], Callable[[Context], object]]:
    """`contexts.get_current` and `attach`, without the calls between them and the context variable where it is
    OpenTelemetry's own."""
    runtime = getattr(contexts, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)
    if type(runtime) is ContextVarsRuntimeContext and isinstance(variable, ContextVar):
        return variable.get, variable.set
    return contexts.get_current, contexts.attach


_current, _make_current = _straight()


def extracted(headers: Sequence[Header]) -> Context:
    """The context in these headers; an empty one where there is none that can be read."""
    try:
        only = _usual_traceparent(headers)
        if only is not None and _reads_w3c(propagate.get_global_textmap()):
            parent = SpanContext(int(only[1], 16), int(only[2], 16), True, TraceFlags(int(only[3], 16)))
            return trace.set_span_in_context(NonRecordingSpan(parent), NOTHING) if parent.is_valid else Context()
        return propagate.extract(headers, Context(), _GETTER)
    except Exception as error:
        failed("propagator", error)
        return Context()


def _usual_traceparent(headers: Sequence[Header]) -> re.Match[bytes] | None:
    """The `traceparent` of headers that have one of version 00, and nothing else that W3C's propagators read."""
    found = None
    for name, value in headers:
        if name in _W3C:
            if found is not None or name != TRACEPARENT or value is None:
                return None
            found = _TRACEPARENT.fullmatch(value)
            if found is None:
                return None
    return found


@lru_cache(maxsize=1)
def _reads_w3c(textmap: Any) -> bool:
    """Whether a propagator is the one that OpenTelemetry begins with: then it is known here what it reads."""
    if type(textmap) is not CompositePropagator:
        return False
    kinds = set(map(type, getattr(textmap, "_propagators", ())))
    return TraceContextTextMapPropagator in kinds and kinds <= {TraceContextTextMapPropagator, W3CBaggagePropagator}


class OpenSpan:
    """A span that is recorded. Its methods never raise."""

    __slots__ = ("_has_both", "span")

    def __init__(self, span: Span, *, has_both: bool = False) -> None:
        """`has_both`: whether it has attributes under the names of 1.44 too."""
        self.span = span
        self._has_both = has_both

    @property
    def context(self) -> Context:
        """For children of the span."""
        return trace.set_span_in_context(self.span, Context())

    @property
    def ids(self) -> dict[str, str]:
        """For log lines that are written after it."""
        own = self.span.get_span_context()
        return {"trace_id": f"{own.trace_id:032x}", "span_id": f"{own.span_id:016x}"}

    def set(self, attributes: Mapping[str, str | int | bool]) -> None:
        try:
            self.span.set_attributes(attributes)
        except Exception as error:
            failed("span", error)

    def event(self, name: str, attributes: Mapping[str, str | int | float | bool]) -> None:
        try:
            self.span.add_event(name, attributes)
        except Exception as error:
            failed("span", error)

    def link(self, linked: Iterable[Context]) -> None:
        try:
            for context in linked:
                other = trace.get_current_span(context).get_span_context()
                if other.is_valid:
                    self.span.add_link(other)
        except Exception as error:
            failed("span", error)

    def failed(self, error_type: str, error: BaseException | None = None) -> None:
        """The operation ended with an error. It is not ended yet."""
        try:
            self.span.set_attribute(ERROR_TYPE, error_type)
            self.span.set_status(Status(StatusCode.ERROR, error_type))
            if error is not None:
                self.span.record_exception(error)
        except Exception as raised:
            failed("span", raised)

    def end(self, at_ns: int | None = None) -> None:
        """`at_ns`: the time of day, if it is over since then."""
        try:
            if self.span.is_recording():
                self.span.end(at_ns)
        except Exception as error:
            failed("span processor", error)

    def delivered(self, partition: int, offset: int | None) -> None:
        """Of a send: the broker acknowledged it."""
        attributes: Attributes = {PARTITION: str(partition)}
        if offset is not None and offset >= 0:
            attributes[OFFSET] = offset
        try:
            self.span.set_attributes(with_old_names(attributes) if self._has_both else attributes)
            self.span.end()
        except Exception as error:
            failed("span processor", error)

    def not_delivered(self, error: BaseException) -> None:
        """Of a send: it failed."""
        self.failed(type(error).__name__)
        self.end()


class Spans:
    """What one tracer provider makes."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self.provider = provider
        self._tracer = provider.get_tracer(SCOPE, schema_url=SCHEMA_URL)
        self._has_both = sets_both_names()
        self._roots = Roots.of(provider, self._tracer)
        self._textmap: Any = None
        self._knows_w3c = False

    def send(
        self, name: str, attributes: Callable[[], Attributes], headers: Sequence[Header]
    ) -> tuple[Sequence[Header], OpenSpan | None]:
        """A producer's span, and the headers with its context. No span inside of a trace that is not recorded.

        `attributes` is called for a span that may be recorded.
        """
        current = _current()
        parent = trace.get_current_span(current).get_span_context() if current else INVALID_SPAN_CONTEXT
        if parent.is_valid:
            if not parent.trace_flags.sampled:
                return self._headers_in(headers, parent, current), None
        elif headers and ((is_sampled := parent_is_sampled(headers)) is not None or not self._is_w3c()):
            if is_sampled is False:
                return headers, None
            carried = extracted(headers)  # sent on as it came: a dead letter, a retry, a redrive
            if trace.get_current_span(carried).get_span_context().is_valid:
                current = carried
        elif self._roots is None or not self._roots.is_decided:
            dropped = self.dropped_root()
            if dropped is not None:
                return with_traceparent(headers, dropped), None
        span = self.start(name, SpanKind.PRODUCER, attributes(), current)
        if self._roots is not None:
            self._roots.forget()
        if span is None:
            return self.headers_with(headers, current), None
        try:
            own = span.get_span_context()
            opened = OpenSpan(span, has_both=self._has_both) if span.is_recording() else None
            if not current and self._is_told_by_traceparent(own):
                # The usual one, which needs no context to be made of it.
                return with_traceparent(headers, traceparent(own.trace_id, own.span_id, own.trace_flags)), opened
            inside = trace.set_span_in_context(span, current)
        except Exception as error:
            failed("span", error)
            return headers, None
        return self._headers_in(headers, own, inside), opened

    def dropped_root(self) -> bytes | None:
        """The `traceparent` of what is sent outside of any trace, where the sampler does not record the one that begins
        with it. None: that has to be asked of the SDK, by `send`."""
        roots = self._roots
        if roots is None or _current() or not self._is_w3c():
            return None
        return roots.dropped()

    def start(self, name: str, kind: SpanKind, attributes: Attributes, parent: Context) -> Span | None:
        """A span of which the sampler may have decided that it is not recorded; None when the SDK raised."""
        try:
            return self._tracer.start_span(
                name, parent, kind, with_old_names(attributes) if self._has_both else attributes
            )
        except Exception as error:
            failed("span processor", error)
            return None

    def open(self, operation: str, topic: str, attributes: Attributes, parent: Context) -> OpenSpan | None:
        """A consumer's span, made the current one. Returns it if it is recorded."""
        span = self.start(f"{operation} {topic}", SpanKind.CONSUMER, attributes, parent)
        if span is None:
            return None
        try:
            contexts.attach(trace.set_span_in_context(span, parent))
        except Exception as error:
            failed("span", error)
        return OpenSpan(span) if span.is_recording() else None

    def received(self, topic: str, attributes: Attributes) -> OpenSpan | None:
        """The span of records that were asked for. Returns it if it is recorded."""
        span = self.start(f"receive {topic}", SpanKind.CLIENT, attributes, contexts.get_current())
        return OpenSpan(span) if span is not None and span.is_recording() else None

    def _headers_in(self, headers: Sequence[Header], own: SpanContext, context: Context) -> Sequence[Header]:
        """The headers with the context of a span."""
        if len(context) == 1 and self._is_told_by_traceparent(own):  # it holds no baggage either
            return with_traceparent(headers, traceparent(own.trace_id, own.span_id, own.trace_flags))
        return self.headers_with(headers, context)

    def _is_told_by_traceparent(self, own: SpanContext) -> bool:
        """Whether that header says all of a span that is to travel."""
        return own.is_valid and not own.trace_state and self._is_w3c()

    def _is_w3c(self) -> bool:
        """Whether the process propagates by W3C's headers alone, so that they can be read and written without it."""
        textmap = propagate.get_global_textmap()
        if textmap is not self._textmap:
            self._knows_w3c = _writes_w3c(textmap)
            self._textmap = textmap
        return self._knows_w3c

    def carried(self, headers: Sequence[Header]) -> Sequence[Header]:
        """The headers of a record that is sent later, with the current context."""
        return self.headers_with(headers, contexts.get_current())

    @staticmethod
    def headers_with(headers: Sequence[Header], context: Context) -> Sequence[Header]:
        """The headers with a context's own, never over what is there."""
        carrier: dict[str, str] = {}
        try:
            propagate.inject(carrier, context)
            return with_context(headers, carrier) if carrier else headers
        except Exception as error:
            failed("propagator", error)
            return headers


def _writes_w3c(textmap: Any) -> bool:
    """Whether a propagator writes W3C's headers and no others, as tried on one context."""
    carrier: dict[str, str] = {}
    span = NonRecordingSpan(SpanContext(trace_id=1, span_id=2, is_remote=False))
    try:
        textmap.inject(carrier, trace.set_span_in_context(span, Context()))
        return textmap.fields <= _W3C and carrier == {TRACEPARENT: traceparent(1, 2, 0).decode()}
    except Exception as error:
        failed("propagator", error)
        return False


def here() -> Context:
    """The current context."""
    return contexts.get_current()


def enter_remote(headers: Sequence[Header]) -> None:
    """Make the context in a record's headers the current one."""
    made = RemoteContext()
    made._source = headers
    _make_current(made)


def attach(context: Context) -> Token[Context]:
    """Make it the current context of this task, or of this call in a context of its own."""
    return contexts.attach(context)


def detach(token: Token[Context]) -> None:
    """What was current before is current again."""
    contexts.detach(token)


def now_ns() -> int:
    """The time of day, as spans have it."""
    return time.time_ns()
