"""The code that heartbeats of KIP-848 groups and of share groups share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from broker_embedded.common.errors import BrokerError
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

from .consumer.assignment import Assignment
from .consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, MemberSubscription
from .member_records import CurrentAssignment, MemberMetadata, TargetEpoch, TargetMember
from .timed_group import TimedGroup


@fact
class MembershipConfig:
    """The settings that the members of a group obey, its own or the broker's."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 0
    """Minimum time between two targets (KIP-1263)."""
    max_size: int = 2_147_483_647
    assignors: tuple[str, ...] = ("uniform", "range")
    """Assignors of KIP-848 groups. The first is the default."""


@fact
class HeartbeatRequest:
    """None and -1 mean "unchanged". Members of share groups leave the fields from `instance_id` on as they are."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] | None = None
    instance_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Assignment | None = None
    may_describe: Callable[[str], bool] | None = None
    """Topics that the client may describe; None: all. A pattern matches no others."""

    @property
    def is_leaving(self) -> bool:
        return self.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)

    @property
    def is_full(self) -> bool:
        """Return whether the request is full: a member that joins or lost a response sends and gets everything."""
        subscribes = self.topic_names is not None or self.topic_regex is not None
        says_everything = self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None
        return self.member_epoch == JOIN_EPOCH or says_everything

    def subscription(self, before: MemberSubscription) -> MemberSubscription:
        """Return the member's subscription: missing fields stay, but a joining member sends all topics."""
        is_joining = self.member_epoch == JOIN_EPOCH
        names, regex = self.topic_names, self.topic_regex
        keeps_names = names is None and not is_joining
        keeps_regex = regex is None and not is_joining
        return MemberSubscription(
            instance_id=before.instance_id if self.instance_id is None else self.instance_id,
            rack_id=before.rack_id if self.rack_id is None else self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            topic_names=before.topic_names if keeps_names else (names or frozenset()),
            # An empty pattern says that there is none any more.
            topic_regex=before.topic_regex if keeps_regex else (regex or None),
            rebalance_timeout_ms=(
                before.rebalance_timeout_ms if self.rebalance_timeout_ms == -1 else self.rebalance_timeout_ms
            ),
            server_assignor=before.server_assignor if self.server_assignor is None else self.server_assignor,
        )


@fact
class HeartbeatResponse:
    """`assignment` None: unchanged."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


G = TypeVar("G", bound=TimedGroup[Any])


class Recorder(Generic[G]):
    """Makes records of a group and replays them at once."""

    def __init__(self, group: G) -> None:
        self.group = group
        self.records: list[Any] = []

    def add(self, record: Any) -> None:
        self.group.replay(record)
        self.records.append(record)

    def remove(self, member_id: str) -> None:
        """Remove a member. Its partitions are free at once."""
        self.add(CurrentAssignment(member_id=member_id, progress=None))
        self.add(TargetMember(member_id=member_id, assignment=None))
        self.add(MemberMetadata(member_id=member_id, subscription=None))

    def set_target(self, target: Mapping[str, Assignment], *, now_ms: int, wall_ms: int = 0) -> None:
        """Add the differences of the new target from the last one, and its epoch."""
        known = self.group.targets
        self.group.assigned_at_ms = now_ms
        gone = {member_id: None for member_id in known if member_id not in target}
        for member_id, assignment in {**target, **gone}.items():
            if known.get(member_id) != assignment:
                self.add(TargetMember(member_id=member_id, assignment=assignment))
        self.add(TargetEpoch(epoch=self.group.epoch, timestamp_ms=wall_ms))


def require(condition: bool, message: str) -> None:
    """Raise BrokerError (INVALID_REQUEST) with `message` unless `condition` holds."""
    if not condition:
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)
