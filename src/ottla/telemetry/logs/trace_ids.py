"""The ids of the current span for log lines. OpenTelemetry is asked only where something has imported it."""

from __future__ import annotations

import sys
from typing import Any


def trace_ids() -> dict[str, str]:
    """Return `trace_id` and `span_id` of the current span in hexadecimal digits; empty without a span."""
    trace: Any = sys.modules.get("opentelemetry.trace")
    find = getattr(trace, "get_current_span", None)  # absent while another thread imports it
    if find is None:
        return {}
    context = find().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


def add_trace_ids(_: object, __: str, event: dict[str, Any]) -> dict[str, Any]:
    """Return a structlog processor that gives the application's own lines the ids too."""
    return {**event, **trace_ids()}
