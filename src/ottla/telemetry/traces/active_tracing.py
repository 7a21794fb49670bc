"""Detects whether the process records traces. OpenTelemetry is never imported here: a process that records has done so.

`opentelemetry-api` is installed with Ottla and does nothing by itself. Spans are made once the process has a tracer
provider of its own: `trace.set_tracer_provider(...)`, `ottla run --otel`, or `opentelemetry-instrument`.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from ottla.telemetry.logs.event_log import log_event

if TYPE_CHECKING:
    from ottla.telemetry.traces.tracer_spans import TracerSpans

_found: TracerSpans | None = None
_making = threading.Lock()
_shows_keys = False


def active_spans() -> TracerSpans | None:
    """Return the creator of spans, or None if no SDK would record them. Called per run, per batch and per producer."""
    global _found
    provider = _provider()
    if provider is None:
        return None
    found = _found
    if found is not None and found.provider is provider:
        return found
    with _making:  # each client's thread asks: two that find a new provider must not both change its tracer
        if _found is None or _found.provider is not provider:
            try:
                from ottla.telemetry.traces.tracer_spans import TracerSpans

                _found = TracerSpans(provider)
            except Exception as error:  # an SDK that is half installed, or of another age
                failed("tracer", error)
                return None
        return _found


def configure_tracing(*, record_keys: bool = False) -> None:
    """Choose what spans show. With `record_keys` they have the keys of records as text (`kafka.message.key`).

    Keys are often personal data: without it no span holds a key, and none ever holds a value.
    """
    global _shows_keys
    _shows_keys = record_keys


def shows_keys() -> bool:
    """Return whether spans show the keys of records."""
    return _shows_keys


def failed(what: str, error: BaseException) -> None:
    """Log that a listener raised. Only what it was called with is lost."""
    log_event("telemetry_failed", "warning", {"callback": what, "error": f"{type(error).__name__}: {error}"})


def _provider() -> Any:
    trace: Any = sys.modules.get("opentelemetry.trace")
    find = getattr(trace, "get_tracer_provider", None)  # absent while another thread imports it
    if find is None:
        return None
    try:
        provider = find()
    except Exception as error:
        failed("tracer provider", error)
        return None
    return None if isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)) else provider
