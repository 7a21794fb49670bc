"""First spans of traces that a ratio drops, decided without making a span.

Where one send in a hundred is recorded, the other ninety-nine pay for the SDK's start of a span and for its propagator:
several times what the send itself costs. A ratio sampler decides by the trace id alone (OpenTelemetry's specification
of `TraceIdRatioBased`), so the id is made first. If the sampler drops it, its `traceparent` is all that is needed. If
not, the span gets this id, so that the SDK comes to the same decision when it is asked.

Ids are drawn by the hundred, as the SDK's own generator draws them one by one. A generator of somebody's own is asked
for each.
"""

from __future__ import annotations

import os
import random
import re
import threading
import weakref
from binascii import hexlify
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

from ottla.telemetry.traces.active_tracing import failed

_RATIO: Final = re.compile(r"(?:ParentBased\{root:)?(?:TraceIdRatioBased\{([0-9.e-]+)\}|AlwaysOffSampler\b)")
"""How a ratio sampler, and one that drops everything, describe themselves, by the specification."""

_LOW_BITS: Final = (1 << 64) - 1
RANDOM: Final = 0x02
"""The flag of a trace id that is random (W3C Trace Context, level 2)."""

_TOGETHER: Final = 256
_EACH: Final = 24
"""Bytes of a trace id and a span id."""
_LOW: Final = Struct(">" + "8xQ8x" * _TOGETHER)
"""The bits that a ratio looks at: the lower half of each trace id."""
_ZEROS: Final = bytes(8)
_DIGITS: Final = Struct("32s16s" * _TOGETHER)
_WRITTEN: Final = Struct("55s" * _TOGETHER)


class GivenIds:
    """A tracer's id generator, which hands out the ids that a thread has decided on, once."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self._decided = threading.local()

    def decide(self, trace_id: int) -> None:
        """Give this id to the next span that this thread starts with the tracer."""
        self._decided.__dict__["trace_id"] = trace_id

    def forget(self) -> None:
        """Forget a span that was started, or could not be."""
        self._decided.__dict__.clear()

    def generate_trace_id(self) -> int:
        given: int | None = self._decided.__dict__.pop("trace_id", None)
        return self.inner.generate_trace_id() if given is None else given

    def generate_span_id(self) -> int:
        span_id: int = self.inner.generate_span_id()
        return span_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def flag(self) -> int:
        """The flag of its ids in a `traceparent`."""
        is_random = getattr(self.inner, "is_trace_id_random", None)  # since 1.40 or so
        return RANDOM if is_random is not None and is_random() else 0

    @property
    def is_the_sdks(self) -> bool:
        """Return whether it draws at random, as the SDK's own does."""
        kind = type(self.inner)
        return kind.__module__.startswith("opentelemetry.sdk.") and kind.__name__ == "RandomIdGenerator"


def given_ids(tracer: Any) -> GivenIds | None:
    """Return the ids that the tracer draws from now on; None if the tracer is not built as the SDK's is.

    The SDK may give one tracer to all callers. Its id generator is replaced once only.
    """
    if not hasattr(tracer, "id_generator"):
        return None
    if os.environ.get("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"):  # it counts spans, and what is dropped, as it starts
        return None
    ids = tracer.id_generator
    if not isinstance(ids, GivenIds):
        ids = tracer.id_generator = GivenIds(ids)
    return ids


class SampledOutSpans:
    """Decides on first spans for one tracer. Thread-safe."""

    __slots__ = ("__weakref__", "_bound", "_ids", "_is_random", "_pattern", "_written", "drawn")

    def __init__(self, ids: GivenIds, ratio: float) -> None:
        self._ids = ids
        self._bound = round(ratio * (_LOW_BITS + 1))
        self._is_random = ids.is_the_sdks
        self._pattern = b"00-%%032x-%%016x-%02x" % ids.flag
        self._written = (b"00-%%b-%%b-%02x" % ids.flag) * _TOGETHER
        self.drawn: Iterator[bytes | int] = iter(())
        """Decisions that are there, each the `traceparent` of a trace that is not recorded, or the id of one that is:
        `next(roots.drawn, None) or roots.more()`. An iterator of a tuple: two threads never get the same."""
        if self._is_random:
            _drawn_ahead.add(self)

    @staticmethod
    def of(provider: Any, ids: GivenIds | None) -> SampledOutSpans | None:
        """Return the ids of sampled-out spans for a provider. None if its sampler is not the SDK's ratio sampler in the
        expected form: then the SDK decides each time."""
        sampler: Any = getattr(provider, "sampler", None)
        if ids is None or not type(sampler).__module__.startswith("opentelemetry.sdk."):
            return None
        described = _RATIO.match(str(sampler.get_description()))
        return None if described is None else SampledOutSpans(ids, float(described[1] or 0))

    def forget(self) -> None:
        """Drop what was drawn ahead."""
        self.drawn = iter(())

    def _generated(self) -> bytes | int | None:
        try:
            trace_id, span_id = self._ids.inner.generate_trace_id(), 0
            if trace_id & _LOW_BITS >= self._bound and trace_id:
                span_id = self._ids.inner.generate_span_id()
            return self._pattern % (trace_id, span_id) if span_id else trace_id
        except Exception as error:
            failed("id generator", error)
            return None

    def more(self) -> bytes | int | None:
        """Return the next sampling decision after making some hundred in advance; None if the service's own id
        generator failed, and the SDK has to decide. A decision costs 0.25 µs that way, and 1.5 µs if its ids are drawn
        and formatted one by one."""
        if not self._is_random:
            return self._generated()
        raw = random.randbytes(_LOW.size)
        if _ZEROS in raw:  # not in the lifetime of the sun, but no id is all zeros
            return self.more()
        found: list[bytes | int] = [*_WRITTEN.unpack(self._written % _DIGITS.unpack(hexlify(raw)))]
        low = _LOW.unpack(raw) if self._bound else ()
        if low and min(low) < self._bound:
            for index, bits in enumerate(low):
                if bits < self._bound:
                    at = _EACH * index
                    found[index] = int.from_bytes(raw[at : at + 16])
        drawn = iter(tuple(found))
        first = next(drawn)
        self.drawn = drawn
        return first


_drawn_ahead: weakref.WeakSet[SampledOutSpans] = weakref.WeakSet()


def _in_the_child() -> None:
    """Drop ids that were drawn before the fork: they are the parent's."""
    for roots in list(_drawn_ahead):
        roots.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
