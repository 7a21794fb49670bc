"""Passes telemetry calls to the application's own `Hooks`, and to OpenTelemetry's meters.

What a listener raises is logged, at a limited rate, and stops nothing.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from ottla.telemetry.metrics.hooks import Hooks
from ottla.telemetry.traces.active_tracing import failed

if TYPE_CHECKING:
    from ottla.telemetry.metrics.instruments import Metrics

_found: Metrics | None = None
_making = threading.Lock()


class Listeners(Hooks):
    """Passes every call on. True while there is a listener; `refresh` checks that about once a second."""

    def __init__(self, own: Hooks | None) -> None:
        self._own = own
        self._all: tuple[Hooks, ...] = ()
        self.refresh()

    def __bool__(self) -> bool:
        return bool(self._all)

    def refresh(self) -> bool:
        """Return whether anybody listens now."""
        metrics = active_metrics()
        self._all = tuple(hooks for hooks in (self._own, metrics) if hooks is not None)
        return bool(self._all)

    @classmethod
    def of(cls, hooks: Hooks | None) -> Listeners:
        """Return these hooks among the listeners."""
        return hooks if isinstance(hooks, Listeners) else cls(hooks)


def _passing_on(name: str) -> Any:
    def call(self: Listeners, **fields: Any) -> None:
        for hooks in self._all:
            try:
                getattr(hooks, name, _nothing)(**fields)
            except Exception as error:
                failed(f"{type(hooks).__name__}.{name}", error)

    call.__name__ = name
    return call


def _nothing(**fields: Any) -> None:
    """Do nothing, for hooks that do not derive from `Hooks` and lack a method."""


for _name in [name for name in vars(Hooks) if not name.startswith("_")]:
    setattr(Listeners, _name, _passing_on(_name))


def active_metrics() -> Metrics | None:
    """Return OpenTelemetry's instruments, or None while the process has no meter provider of its own."""
    global _found
    provider = _provider()
    if provider is None:
        return None
    found = _found
    if found is not None and found.provider is provider:
        return found
    try:
        from ottla.telemetry.metrics.instruments import Metrics

        # The members and producers of a process see a new provider at about the same time. A second set of instruments
        # would not be read: an SDK makes each name once.
        with _making:
            if _found is None or _found.provider is not provider:
                _found = Metrics(provider)
            return _found
    except Exception as error:  # an SDK that is half installed, or of another age
        failed("meter", error)
        return None


def _provider() -> Any:
    metrics: Any = sys.modules.get("opentelemetry.metrics")
    find = getattr(metrics, "get_meter_provider", None)  # absent while another thread imports it
    if find is None:
        return None
    try:
        provider = find()
    except Exception as error:
        failed("meter provider", error)
        return None
    is_none = isinstance(provider, metrics.NoOpMeterProvider) or type(provider).__name__ == "_ProxyMeterProvider"
    return None if is_none else provider


def _in_the_child() -> None:
    """Replace the lock: another thread of the parent may have held it at the fork, and is not there to release it."""
    global _making
    _making = threading.Lock()
    if _found is not None:
        _found.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_the_child)
