"""First spans of traces that a ratio drops, decided without making a span.

Where one send in a hundred is recorded, the other ninety-nine pay for the SDK's start of a span and for its propagator:
several times what the send itself costs. A ratio sampler decides by the trace id alone (OpenTelemetry's specification
of `TraceIdRatioBased`), so the id is made first. If the sampler drops it, its `traceparent` is all that is needed. If
not, the SDK is asked as ever, and is given this id, so that it comes to the same decision.
"""

from __future__ import annotations

import os
import random
import re
import threading
from binascii import hexlify
from collections.abc import Callable
from functools import partial
from typing import Any, Final

_RATIO: Final = re.compile(r"(?:ParentBased\{root:)?TraceIdRatioBased\{([0-9.e-]+)\}")
"""How a ratio sampler describes itself, by the specification."""

_LOW_BITS: Final = (1 << 64) - 1
_RANDOM: Final = 0x02
"""The flag of a trace id that is random (W3C Trace Context, level 2)."""


class GivenIds:
    """A tracer's id generator, which hands out the trace id that a thread has decided on, once."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.decided = threading.local()

    def generate_trace_id(self) -> int:
        given: int | None = self.decided.__dict__.pop("trace_id", None)
        return self.inner.generate_trace_id() if given is None else given

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Roots:
    """Decides on first spans for one tracer. Thread-safe."""

    __slots__ = ("_bound", "_draw", "_ids", "_written")

    def __init__(self, ids: GivenIds, ratio: float) -> None:
        self._ids = ids
        self._bound = round(ratio * (_LOW_BITS + 1))
        self._draw = _drawing(ids.inner)
        is_random = getattr(ids.inner, "is_trace_id_random", None)  # since 1.40 or so
        self._written = b"00-%%b-%02x" % (_RANDOM if is_random is not None and is_random() else 0)

    @staticmethod
    def of(provider: Any, tracer: Any) -> Roots | None:
        """None where the sampler is no ratio, or anything is not as the SDK has it: then the SDK decides each time."""
        sampler: Any = getattr(provider, "sampler", None)
        if not type(sampler).__module__.startswith("opentelemetry.sdk.") or not hasattr(tracer, "id_generator"):
            return None
        if os.environ.get("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"):  # it counts dropped spans too
            return None
        described = _RATIO.match(str(sampler.get_description()))
        if described is None:
            return None
        ids = tracer.id_generator = GivenIds(tracer.id_generator)
        return Roots(ids, float(described[1]))

    def dropped(self) -> bytes | None:
        """The `traceparent` of a trace that is not recorded. None if it is: the next span of the tracer starts it."""
        # For each send: a half of a microsecond, where drawing two ids and formatting them takes one and a half.
        drawn = self._draw()
        trace_id = drawn >> 64
        if trace_id & _LOW_BITS >= self._bound and trace_id and drawn & _LOW_BITS:
            return self._written % hexlify(drawn.to_bytes(24, "big"), b"-", -16)
        self._ids.decided.trace_id = trace_id
        return None

    @property
    def is_decided(self) -> bool:
        """Whether this thread has decided on a trace that its next span starts."""
        return "trace_id" in self._ids.decided.__dict__

    def forget(self) -> None:
        """The span was started, or could not be."""
        self._ids.decided.__dict__.clear()


def _drawing(generator: Any) -> Callable[[], int]:
    """What draws a trace id and a span id, the first before the second in one number."""
    kind = type(generator)
    if kind.__module__.startswith("opentelemetry.sdk.") and kind.__name__ == "RandomIdGenerator":
        return partial(random.getrandbits, 192)  # as it does, but at once

    def draw() -> int:
        trace_id: int = generator.generate_trace_id()
        span_id: int = generator.generate_span_id()
        return trace_id << 64 | span_id

    return draw
