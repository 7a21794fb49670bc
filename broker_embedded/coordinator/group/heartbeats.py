"""The code that heartbeats of KIP-848 groups and of share groups share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from broker_embedded.common.errors import BrokerError
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

from .consumer.assignment import Assignment


@fact
class HeartbeatResponse:
    """`assignment` None: unchanged."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


G = TypeVar("G")
R = TypeVar("R")


class Recorder(Generic[G, R]):
    """Makes records and replays them at once. `replay` is the group's."""

    def __init__(self, group: G, replay: Callable[[R], None]) -> None:
        self.group = group
        self._replay = replay
        self.records: list[R] = []

    def add(self, record: R) -> None:
        self._replay(record)
        self.records.append(record)


def require(condition: bool, message: str) -> None:
    """Raise BrokerError (INVALID_REQUEST) with `message` unless `condition` holds."""
    if not condition:
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)
