"""Base of both shells' client commands: where their results are reported.

A shell adds the calls themselves. See `ottla.consumer.model.effects`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.app.member.client_error_log import ClientErrorLog
from ottla.clock import Clock
from ottla.consumer.model import events
from ottla.telemetry.metrics.member_metrics import MemberMetrics


class ClientCommands:
    """The calls of one member's client. `client` is set before anything is done."""

    def __init__(
        self,
        *,
        group: str,
        step: Callable[..., Any],
        error_log: ClientErrorLog,
        watch: MemberMetrics,
        clock: Clock,
        look: Callable[[events.LookedAt], None],
    ) -> None:
        self.client: Any = None
        self._look = look
        self._group = group
        self._step = step
        self._error_log = error_log
        self._watch = watch
        self._clock = clock
