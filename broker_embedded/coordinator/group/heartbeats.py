"""What the heartbeats of KIP-848 groups and of share groups have in common."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

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


class ReplayingGroup(Protocol):
    def replay(self, record: Any) -> None: ...


G = TypeVar("G", bound=ReplayingGroup)
R = TypeVar("R")


class Recorder(Generic[G, R]):
    """Makes records and replays them at once."""

    def __init__(self, group: G) -> None:
        self.group = group
        self.records: list[R] = []

    def add(self, record: R) -> None:
        self.group.replay(record)
        self.records.append(record)


def require(condition: bool, message: str) -> None:
    """Refuse a request that is invalid for any group. Raises BrokerError."""
    if not condition:
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)
