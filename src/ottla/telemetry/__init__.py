"""Events and metrics: small protocols that the shells call per batch, and what listens to them."""

from ottla.telemetry.hooks import Counters, Hooks
from ottla.telemetry.log import RateLimit, log_event
from ottla.telemetry.throttling import Throttling

__all__ = ["Counters", "Hooks", "RateLimit", "Throttling", "log_event"]
