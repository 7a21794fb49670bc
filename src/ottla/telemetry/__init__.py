"""Events and metrics: small protocols that the shells call per batch, and what listens to them."""

from ottla.telemetry.hooks import Counters, Hooks
from ottla.telemetry.listeners import Listeners
from ottla.telemetry.log import log_event
from ottla.telemetry.log_sink import configure_logging
from ottla.telemetry.rate_limit import RateLimit
from ottla.telemetry.throttling import Throttling
from ottla.telemetry.trace_ids import add_trace_ids
from ottla.telemetry.tracing import configure_tracing

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
