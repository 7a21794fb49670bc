"""What one tracer provider makes, over `opentelemetry-api`. Imported only where a tracer provider is: see `tracing`.

Nothing here raises: a sampler, propagator or span processor that does costs its span, and is logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextvars import Token
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN_CONTEXT, NonRecordingSpan, Span, SpanContext, SpanKind

from ottla.records import Header, Packed
from ottla.telemetry.traces.active_tracing import failed
from ottla.telemetry.traces.conventions import PROCESS, SCHEMA_URL, SCOPE, sets_both_names, with_old_names
from ottla.telemetry.traces.lazy_contexts import (
    NOTHING,
    begun,
    current,
    extracted,
    lazily,
    make_current,
    parent_in,
    reads_w3c,
    unsampled_traceparent,
)
from ottla.telemetry.traces.open_span import Attributes, OpenSpan
from ottla.telemetry.traces.propagation import (
    TRACEPARENT,
    W3C,
    parent_is_sampled,
    traceparent,
    with_context,
    with_traceparent,
)
from ottla.telemetry.traces.sampled_out_spans import SampledOutSpans, given_ids

MOST_LINKS: Final = 128
"""Default maximum of a span's links in the SDK."""


class TracerSpans:
    """Spans of one tracer provider."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self.provider = provider
        self._tracer = provider.get_tracer(SCOPE, schema_url=SCHEMA_URL)
        self._has_both = sets_both_names()
        ids = given_ids(self._tracer)
        self._ids = ids
        self._roots = SampledOutSpans.of(provider, ids)
        self._textmap: Any = None
        self._knows_w3c = False

    # Sends

    def root(self) -> bytes | int | None:
        """Return how a record that is sent outside of any trace begins one: the `traceparent` of a trace that the
        sampler does not record, or the id of one that it does. None if there is a trace already, or only the SDK can
        decide."""
        roots = self._roots
        if roots is None or current():
            return None
        # Asked for each send, so a call is spared where the answer is known: 0.05 µs.
        if not (self._knows_w3c if propagate.get_global_textmap() is self._textmap else self._is_w3c()):
            return None
        return next(roots.drawn, None) or roots.more()

    def send(
        self,
        name: str,
        attributes: Callable[[], Attributes],
        headers: Sequence[Header],
        root: bytes | int | None = None,
    ) -> tuple[Sequence[Header], OpenSpan | None]:
        """Return a producer's span, and the headers with its context. No span inside of a trace that is not recorded.

        `attributes` is called for a span that may be recorded. `root`: what was decided on, if it was.
        """
        within = current()
        parent = INVALID_SPAN_CONTEXT
        if within:
            dropped = unsampled_traceparent(within)
            if dropped is not None and self._is_w3c():
                return with_traceparent(headers, dropped), None
            parent = parent_in(within)
        if parent.is_valid:
            if not parent.trace_flags.sampled:
                return self._headers_in(headers, parent, within), None
        elif headers and ((said := parent_is_sampled(headers)) is not None or not self._is_w3c()):
            if said is False:
                return headers, None
            carried = extracted(headers)  # sent on as it came: a dead letter, a retry, a redrive
            if (found := parent_in(carried)).is_valid:
                within, parent = carried, found
        elif root is None:
            root = self.root()
        if isinstance(root, bytes):
            return with_traceparent(headers, root), None
        return self._started(name, attributes(), headers, within, parent if parent.is_valid else None, root)

    def _started(
        self,
        name: str,
        attributes: Attributes,
        headers: Sequence[Header],
        within: Context,
        parent: SpanContext | None,
        trace_id: int | None,
    ) -> tuple[Sequence[Header], OpenSpan | None]:
        """Return the headers with the context of the span of a send, and the span if it is recorded."""
        if trace_id is not None and self._ids is not None:
            self._ids.decide(trace_id)
        span = self.start(name, SpanKind.PRODUCER, attributes, within)
        if span is None:
            return self.headers_with(headers, within), None
        try:
            own = span.get_span_context()
            opened = OpenSpan(span, has_both=self._has_both) if span.is_recording() else None
        except Exception as error:
            failed("span", error)
            return headers, None
        if (not within or (parent is not None and len(within) == 1)) and self._fits_traceparent(own):
            # The usual one, which needs no context to be made of it.
            return with_traceparent(headers, traceparent(own.trace_id, own.span_id, own.trace_flags)), opened
        return self.headers_with(headers, trace.set_span_in_context(span, within)), opened

    # Spans

    def start(self, name: str, kind: SpanKind, attributes: Attributes, parent: Context) -> Span | None:
        """Return a span that the sampler may have dropped; None if the SDK raised."""
        try:
            return self._tracer.start_span(
                name, parent, kind, with_old_names(attributes) if self._has_both else attributes
            )
        except Exception as error:
            failed("span processor", error)
            return None
        finally:
            if self._ids is not None:
                self._ids.forget()

    def open(self, operation: str, topic: str, attributes: Attributes, parent: Context) -> OpenSpan | None:
        """Return a consumer's span, made the current one. Returns it if it is recorded."""
        span = self.start(f"{operation} {topic}", SpanKind.CONSUMER, attributes, parent)
        try:
            contexts.attach(parent if span is None else trace.set_span_in_context(span, parent))
        except Exception as error:
            failed("span", error)
        return OpenSpan(span) if span is not None and span.is_recording() else None

    def is_dropped(self, headers: Packed) -> bool:
        """Return whether the trace of a record is known not to be recorded; then its context is the current one.

        If it is not known, the SDK is to be asked next, by `open`.
        """
        said = parent_is_sampled(headers)
        if headers and (said is False or isinstance(headers, bytes)):
            make_current(lazily(headers))
            return True
        if headers and (said or any(name in W3C for name, _ in headers) or not reads_w3c()):
            return False
        if self._roots is None:
            return False
        root = next(self._roots.drawn, None) or self._roots.more()
        if isinstance(root, bytes):
            make_current(begun(root))
            return True
        if root is not None and self._ids is not None:
            self._ids.decide(root)
        return False

    def open_batch(self, topic: str, attributes: Callable[[], Attributes]) -> OpenSpan | None:
        """Return the span of a batch that is handled, which begins a trace, made the current one. Returns it if it is
        recorded."""
        return None if self.is_dropped(None) else self.open(PROCESS, topic, attributes(), NOTHING)

    def received(self, topic: str, attributes: Attributes) -> OpenSpan | None:
        """Return the span of records that were asked for. Returns it if it is recorded."""
        span = self.start(f"receive {topic}", SpanKind.CLIENT, attributes, contexts.get_current())
        return OpenSpan(span) if span is not None and span.is_recording() else None

    # Headers

    def _headers_in(self, headers: Sequence[Header], own: SpanContext, context: Context) -> Sequence[Header]:
        """Return the headers with the context of a span."""
        if len(context) == 1 and self._fits_traceparent(own):  # it holds no baggage either
            return with_traceparent(headers, traceparent(own.trace_id, own.span_id, own.trace_flags))
        return self.headers_with(headers, context)

    def _fits_traceparent(self, own: SpanContext) -> bool:
        """Return whether that header says all of a span that is to travel."""
        return own.is_valid and not own.trace_state and self._is_w3c()

    def _is_w3c(self) -> bool:
        """Return whether the process propagates by W3C's headers alone, so that they can be read and written without
        it."""
        textmap = propagate.get_global_textmap()
        if textmap is not self._textmap:
            self._knows_w3c = _writes_w3c(textmap)
            self._textmap = textmap
        return self._knows_w3c

    def carried(self, headers: Sequence[Header]) -> Sequence[Header]:
        """Return the headers of a record that is sent later, with the current context."""
        return self.headers_with(headers, contexts.get_current())

    @staticmethod
    def headers_with(headers: Sequence[Header], context: Context) -> Sequence[Header]:
        """Return the headers with a context's headers added; existing ones are kept."""
        carrier: dict[str, str] = {}
        try:
            propagate.inject(carrier, context)
            return with_context(headers, carrier) if carrier else headers
        except Exception as error:
            failed("propagator", error)
            return headers


def _writes_w3c(textmap: Any) -> bool:
    """Return whether a propagator writes W3C's headers and no others, as tried on one context."""
    carrier: dict[str, str] = {}
    span = NonRecordingSpan(SpanContext(trace_id=1, span_id=2, is_remote=False))
    try:
        textmap.inject(carrier, trace.set_span_in_context(span, Context()))
        return textmap.fields <= W3C and carrier == {TRACEPARENT: traceparent(1, 2, 0).decode()}
    except Exception as error:
        failed("propagator", error)
        return False


def here() -> Context:
    """Return the current context."""
    return contexts.get_current()


def attach(context: Context) -> Token[Context]:
    """Make it the current context of this task, or of this call in a context of its own."""
    return contexts.attach(context)


def detach(token: Token[Context]) -> None:
    """Make current again what was current before."""
    contexts.detach(token)


def now_ns() -> int:
    """Return the time of day, as spans have it."""
    return time.time_ns()
