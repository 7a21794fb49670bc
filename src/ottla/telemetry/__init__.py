"""Events and metrics: small protocols that the shells call per batch, and what listens to them."""

from ottla.telemetry.logs.event_log import log_event
from ottla.telemetry.logs.log_sink import configure_logging
from ottla.telemetry.logs.rate_limit import RateLimit
from ottla.telemetry.logs.trace_ids import add_trace_ids
from ottla.telemetry.metrics.hooks import Counters, Hooks
from ottla.telemetry.metrics.listeners import Listeners
from ottla.telemetry.metrics.quota_throttling import Throttling
from ottla.telemetry.traces.active_tracing import configure_tracing

__all__ = [
    "Counters",
    "Hooks",
    "Listeners",
    "RateLimit",
    "Throttling",
    "add_trace_ids",
    "configure_logging",
    "configure_tracing",
    "log_event",
]
