"""Ottla's lazy contexts for OpenTelemetry, parsed when they are read. Imported only with a tracer provider.

Nearly every handler of a service that samples asks for nothing. So what is made for its record is one small object that
keeps where the context is to be read from. It is never changed for another record: tasks, and threads with a copied
context, find their own record's trace in it whenever they look.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import lru_cache
from itertools import compress
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, cast

import msgspec
from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ottla.records import Header
from ottla.telemetry.traces.active_tracing import failed
from ottla.telemetry.traces.propagation import TRACEPARENT, W3C, header_texts, is_sampled

T = TypeVar("T")

Carried: TypeAlias = Sequence[Header] | bytes
"""Headers, packed or not."""

NOTHING: Final = Context()
"""No parent: a span in it is the first of its trace."""

_TRACEPARENT: Final = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
"""Validity as in `SpanContext.is_valid`: no id is all zeros."""

_FLAGS: Final = tuple(map(TraceFlags, range(256)))


class LazyContext(msgspec.Struct, gc=False, eq=False):
    """A context that is read when it is first used. What it is made of never changes.

    No dictionary, as OpenTelemetry's are: making one costs twice as much (0.08 → 0.16 µs), and the garbage collector
    follows it. It answers as one does, and OpenTelemetry itself asks for `get` and `copy` alone.
    """

    source: Any
    """Headers, packed or not; or, once it was read, the context itself."""

    is_remote: ClassVar[bool] = True
    """Whether a `traceparent` came from elsewhere."""

    def read(self) -> Context:
        """Return the context as OpenTelemetry makes it."""
        source = self.source
        kind = source.__class__
        if kind is Context:
            return cast(Context, source)
        if kind is bytes and not self.is_remote:
            own = usual_parent(source, is_remote=False)
            found = Context() if own is None else _with(NonRecordingSpan(own))
        else:
            found = extracted(source)
        self.source = found
        return found

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

    def __bool__(self) -> bool:
        """Return whether there may be something in it: each send asks, and `len` would read it."""
        return self.source.__class__ is not Context or bool(self.source)

    def copy(self) -> dict[Any, Any]:
        return self.read().copy()

    def keys(self) -> Any:
        return self.read().keys()

    def items(self) -> Any:
        return self.read().items()

    def values(self) -> Any:
        return self.read().values()


class LazyRoot(LazyContext, gc=False, eq=False):
    """The context of a trace that began here and is not recorded: its `traceparent`."""

    is_remote: ClassVar[bool] = False


def lazily(source: Carried) -> Context:
    """Return the context of a record's headers."""
    return cast(Context, LazyContext(source))


def begun(root: bytes) -> Context:
    """Return the context of a trace that began here and is not recorded."""
    return cast(Context, LazyRoot(root))


class _HeaderGetter(Getter[Sequence[Header]]):
    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        return header_texts(carrier, key)

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        return [name for name, _ in carrier]


_GETTER: Final = _HeaderGetter()


def _straight() -> tuple[Callable[[], Context], Callable[[Context], object]]:
    """Return `contexts.get_current` and `attach` without the calls between them, where the context variable is
    OpenTelemetry's own."""
    runtime = getattr(contexts, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)
    if type(runtime) is ContextVarsRuntimeContext and isinstance(variable, ContextVar):
        return variable.get, variable.set
    return contexts.get_current, contexts.attach


current, make_current = _straight()


def entering(records: Sequence[T], headers: Iterable[Any]) -> Iterable[T]:
    """Return the records one by one. When one is given out, the context in its packed headers is the current one."""
    # All of it is in C, for 0.2 µs a record. `make_current` returns a token, which is true: `compress` leaves none out.
    return compress(records, map(make_current, map(LazyContext, headers)))  # type: ignore[arg-type]


def extracted(headers: Carried) -> Context:
    """Return the context in these headers; an empty one if none can be read."""
    if isinstance(headers, bytes):
        headers = ((TRACEPARENT, headers),)
    try:
        if reads_w3c() and (value := only_traceparent(headers)) is not None:
            parent = usual_parent(value, is_remote=True)
            return Context() if parent is None else _with(NonRecordingSpan(parent))
        return propagate.extract(headers, Context(), _GETTER)
    except Exception as error:
        failed("propagator", error)
        return Context()


def only_traceparent(headers: Carried) -> bytes | None:
    """Return the `traceparent` of headers that have one of version 00, and nothing else that W3C's propagators read."""
    if isinstance(headers, bytes):
        return headers if len(headers) == 55 and headers[:3] == b"00-" else None
    found = None
    for name, value in headers:
        if name in W3C:
            if found is not None or name != TRACEPARENT or value is None or len(value) != 55 or value[:3] != b"00-":
                return None
            found = value
    return found


def usual_parent(value: bytes, *, is_remote: bool) -> SpanContext | None:
    """Return the parsed `traceparent` of version 00, or None if it is invalid."""
    found = _TRACEPARENT.fullmatch(value)
    if found is None:
        return None
    trace_id, span_id, flags = found.groups()
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote, _FLAGS[int(flags, 16)])


def parent_in(context: Context) -> SpanContext:
    """Return the span context in a context."""
    return trace.get_current_span(context).get_span_context()


def unsampled_traceparent(context: Context) -> bytes | None:
    """Return the `traceparent` of a lazy context that is not recorded and holds nothing else; None if the context must
    be parsed."""
    source = getattr(context, "source", None)
    if isinstance(source, bytes) and isinstance(context, LazyRoot):
        return source
    if isinstance(source, (bytes, list, tuple)) and (value := only_traceparent(source)) is not None:
        return value if not is_sampled(value) and _TRACEPARENT.fullmatch(value) else None
    return None


def reads_w3c() -> bool:
    """Return whether the process reads W3C's headers as OpenTelemetry's own propagators do, so that it is known here
    how."""
    return _is_w3c(propagate.get_global_textmap())


@lru_cache(maxsize=1)
def _is_w3c(textmap: Any) -> bool:
    """Return whether a propagator is the one that OpenTelemetry begins with."""
    if type(textmap) is not CompositePropagator:
        return False
    kinds = set(map(type, getattr(textmap, "_propagators", ())))
    return TraceContextTextMapPropagator in kinds and kinds <= {TraceContextTextMapPropagator, W3CBaggagePropagator}


def _with(span: Span) -> Context:
    return trace.set_span_in_context(span, NOTHING)
