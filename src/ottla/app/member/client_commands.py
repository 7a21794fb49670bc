"""Base of both shells' client commands: where their results are reported.

A shell adds the calls themselves. See `ottla.consumer.model.effects`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, Unpack

from ottla.app.member.client_error_log import ClientErrorLog
from ottla.app.member.handler_workers import Step
from ottla.clock import Clock
from ottla.consumer.model import events
from ottla.telemetry.metrics.member_metrics import MemberMetrics


class CommandParts(TypedDict):
    """What client commands are given by their member."""

    group: str
    step: Step
    error_log: ClientErrorLog
    watch: MemberMetrics
    clock: Clock
    look: Callable[[events.LookedAt], None]


class ClientCommands:
    """The calls of one member's client. `client` is set before anything is done."""

    def __init__(self, **parts: Unpack[CommandParts]) -> None:
        self.client: Any = None
        self._look = parts["look"]
        self._group = parts["group"]
        self._step = parts["step"]
        self._error_log = parts["error_log"]
        self._watch = parts["watch"]
        self._clock = parts["clock"]
