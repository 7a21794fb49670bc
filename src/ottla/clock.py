"""Time as an argument: the sans-IO core gets `now_ms` as a number, and the shells read a `Clock` once per batch."""

from __future__ import annotations

from ottla_wire.clock import Clock, ManualClock, SystemClock

__all__ = ["Clock", "ManualClock", "SystemClock"]
