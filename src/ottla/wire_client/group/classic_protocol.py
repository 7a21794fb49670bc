"""A member of a classic consumer group, sans IO: what to ask the coordinator next, and what its answers mean.

    ask = membership.next_ask(now_ms)            # send it; None: nothing is due before `next_ms`
    changes = membership.answered(ask, answer, now_ms)
    changes = membership.tick(now_ms)            # time passed: a session may have ended

Changes are what the shell carries out: `Revoke` of partitions (then call `revoke_done`), `Fenced` partitions, `Assign`
ones, `ElectedLeader` (find the partitions of these topics and call `led`), `CoordinatorLost`, `Failed`.

| phase | asks | goes on when |
|---|---|---|
| `OUT` | JoinGroup | it is answered |
| `LEADING` | Heartbeat | `led` was called with the partitions of the topics |
| `SYNCING` | SyncGroup | it is answered |
| `STABLE` | Heartbeat | the coordinator says that the group rebalances |
| `REVOKING` | Heartbeat | `revoke_done` was called: what is in flight may end, and is committed before |
| `OVER` | nothing | never |

With a cooperative assignor a member keeps what it has while it joins, and gives up what the assignment takes away;
with `range` it gives up everything first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NotRequired, TypeAlias, TypedDict

from ottla.errors import AuthenticationError, FencedError, OttlaError
from ottla.topics import TopicPartition, by_topic
from ottla.wire_client.cluster.coordinator_calls import MOVED
from ottla.wire_client.errors import BrokerRefused
from ottla.wire_client.group.partition_assignors import ASSIGNORS, COOPERATIVE, Subscriber
from ottla_wire.protocol import ApiKey, ErrorCode, ProtocolError, codec

PROTOCOL_TYPE: Final = "consumer"
_SUBSCRIPTION: Final = 3
_ASSIGNMENT: Final = 1


class MembershipPhase(Enum):
    OUT = "out"
    LEADING = "leading"
    SYNCING = "syncing"
    STABLE = "stable"
    REVOKING = "letting go"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """One request to the coordinator."""

    api_key: ApiKey
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Revoke:
    """Others are to have these partitions: finish what is in flight, commit, then `revoke_done`."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Fenced:
    """Other members may own these partitions already, so their offsets must not be committed."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions are assigned to this member."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ElectedLeader:
    """This member was elected leader: fetch the partition counts of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """Find the coordinator again."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The membership has ended with a fatal error."""

    error: OttlaError


Change: TypeAlias = Revoke | Fenced | Assign | ElectedLeader | CoordinatorLost | Failed


class MembershipOptions(TypedDict):
    """The options of a member of either protocol. Times are milliseconds."""

    group: str
    topics: Sequence[str]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    heartbeat_ms: int
    backoff_ms: NotRequired[int]
    instance_id: NotRequired[str | None]
    rack: NotRequired[str]


class Membership:
    """See the module. Times are monotonic milliseconds."""

    commit_version = 8
    """The newest OffsetCommit that names a member of such a group."""

    def __init__(
        self,
        *,
        group: str,
        topics: Sequence[str],
        assignors: Sequence[str],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        heartbeat_ms: int,
        backoff_ms: int = 100,
        instance_id: str | None = None,
        rack: str = "",
    ) -> None:
        self.group = group
        self.topics = frozenset(topics)
        self.instance_id = instance_id
        self.phase = MembershipPhase.OUT
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[TopicPartition] = frozenset()
        self.topic_ids: Mapping[bytes, str] = {}
        """The names of topics, as the shell knows them."""
        self._assignors = tuple(assignors)
        self._is_cooperative = all(name in COOPERATIVE for name in assignors)
        self._session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self._heartbeat_ms = heartbeat_ms
        self._backoff_ms = backoff_ms
        self._rack = rack
        self._protocol = ""
        self._members: list[Subscriber] = []
        self._assignments: list[dict[str, Any]] = []
        self._counts: Mapping[str, int] | None = None
        """Partition counts that this member, as the leader, has assigned by; None if another member leads."""
        self._next_ms = 0
        self._last_response_ms: int | None = None
        """When the coordinator last confirmed this member; None while it is none."""
        self._is_awaited = False
        """A JoinGroup or SyncGroup is under way."""
        self._leaving: frozenset[TopicPartition] = frozenset()

    # What to do next

    @property
    def is_member(self) -> bool:
        """Return whether the coordinator takes commits of this member."""
        return self.generation >= 0 and self.phase is not MembershipPhase.OVER

    @property
    def is_nameless(self) -> bool:
        """Return whether it cannot say yet who leaves: the coordinator's first answer says so (KIP-394)."""
        return not self.member_id and self.instance_id is None

    @property
    def takes_commits(self) -> bool:
        """Return whether a commit may be sent now. While the member joins it would be refused, or wait behind the
        others."""
        return self.phase in (MembershipPhase.STABLE, MembershipPhase.REVOKING, MembershipPhase.LEADING)

    @property
    def next_ms(self) -> int:
        """Before this time nothing is to be asked."""
        return self._next_ms

    @property
    def leads(self) -> bool:
        """Return whether it assigns the group's partitions, and so is to notice when topics grow."""
        return self._counts is not None and self.phase is MembershipPhase.STABLE

    def next_ask(self, now_ms: int) -> GroupRequest | None:
        """Return the request that is due. One at a time: the next when it was answered, or its connection was lost."""
        if now_ms < self._next_ms:
            return None
        match self.phase:
            case MembershipPhase.OUT:
                self._is_awaited = True
                return self._join()
            case MembershipPhase.SYNCING:
                self._is_awaited = True
                return self._sync()
            case MembershipPhase.STABLE | MembershipPhase.REVOKING | MembershipPhase.LEADING:
                return self._heartbeat()
        return None

    def leave(self) -> GroupRequest | None:
        """Return the request that ends the membership; None for a static member, whose place is kept for its return,
        and for one that never joined. No request may follow it."""
        was_member, self.phase = bool(self.member_id), MembershipPhase.OVER
        if not was_member or self.instance_id is not None:
            return None
        return GroupRequest(ApiKey.LEAVE_GROUP, leave_request(self.group, self.member_id))

    # What happened

    def answered(self, ask: GroupRequest, answer: Any, now_ms: int) -> list[Change]:
        """Handle a response of the coordinator."""
        self._is_awaited = False
        code = ErrorCode.of(answer.error_code)
        if self.phase is MembershipPhase.OVER:
            return []
        if code in MOVED:
            self._next_ms = now_ms + self._backoff_ms
            return [CoordinatorLost(code.name)]
        return self._answered(ask, code, answer, now_ms)

    def _answered(self, ask: GroupRequest, code: ErrorCode, answer: Any, now_ms: int) -> list[Change]:
        match ask.api_key:
            case ApiKey.JOIN_GROUP:
                return self._joined(code, answer, now_ms)
            case ApiKey.SYNC_GROUP:
                return self._synced(code, answer, now_ms)
            case _:
                return self._heartbeat_answered(code, now_ms)

    def unanswered(self, now_ms: int) -> None:
        """Ask again a little later: the connection was lost, or could not be made."""
        self._is_awaited = False
        self._next_ms = now_ms + self._backoff_ms

    def tick(self, now_ms: int) -> list[Change]:
        """Let time pass. Without a response of the coordinator for a session, other members may have our partitions."""
        is_silent = self._last_response_ms is not None and now_ms - self._last_response_ms >= self._session_timeout_ms
        # The coordinator keeps a member whose JoinGroup it has not answered: it may wait for others for minutes.
        if not is_silent or self._is_awaited:
            return []
        return self._expelled(now_ms)

    def led(self, counts: Mapping[str, int], now_ms: int) -> list[Change]:
        """Assign the partitions, as the leader, now that the partition counts of the topics are known."""
        if self.phase is not MembershipPhase.LEADING:
            return []
        self._counts = dict(counts)
        assigned = ASSIGNORS[self._protocol](self._members, counts)
        self._assignments = [
            {"member_id": name, "assignment": _encoded_assignment(places)} for name, places in assigned.items()
        ]
        self.phase = MembershipPhase.SYNCING
        self._next_ms = now_ms
        return []

    def topics_seen(self, counts: Mapping[str, int], now_ms: int) -> list[Change]:
        """Start a rebalance of the group where topics have grown: the leader has read their partition counts."""
        if not self.leads or self._counts is None or all(self._counts.get(name) == n for name, n in counts.items()):
            return []
        return self._rebalance(now_ms)

    def revoke_done(self, now_ms: int) -> None:
        """Join again: what `Revoke` named is finished and committed, as far as it could be."""
        if self.phase is MembershipPhase.REVOKING:
            self.owned = self.owned - self._leaving
            self.phase = MembershipPhase.OUT
            self._next_ms = now_ms

    def refused_commit(self, code: ErrorCode, now_ms: int) -> list[Change]:
        """Return what a refused commit says of the membership."""
        if code is ErrorCode.FENCED_INSTANCE_ID:
            return self._fenced()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION) and self.phase is MembershipPhase.STABLE:
            self._next_ms = now_ms  # the heartbeat says what has become of us
        return []

    # Asking

    def _join(self) -> GroupRequest:
        subscription = codec.encode_record_value(
            "ConsumerProtocolSubscription",
            _SUBSCRIPTION,
            {
                "topics": sorted(self.topics),
                "user_data": None,
                "owned_partitions": _by_topic(self.owned if self._is_cooperative else ()),
                "generation_id": self.generation,
                "rack_id": self._rack or None,
            },
        )
        return GroupRequest(
            ApiKey.JOIN_GROUP,
            {
                "group_id": self.group,
                "session_timeout_ms": self._session_timeout_ms,
                "rebalance_timeout_ms": self.rebalance_timeout_ms,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id,
                "protocol_type": PROTOCOL_TYPE,
                "protocols": [{"name": name, "metadata": subscription} for name in self._assignors],
            },
        )

    def _sync(self) -> GroupRequest:
        return GroupRequest(
            ApiKey.SYNC_GROUP,
            {
                **self.identity(),
                "protocol_type": PROTOCOL_TYPE,
                "protocol_name": self._protocol,
                "assignments": self._assignments,
            },
        )

    def _heartbeat(self) -> GroupRequest:
        return GroupRequest(ApiKey.HEARTBEAT, self.identity())

    def identity(self) -> dict[str, Any]:
        """Return what names this member and its generation to the coordinator."""
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }

    # Answers

    def _joined(self, code: ErrorCode, answer: Any, now_ms: int) -> list[Change]:
        self._next_ms = now_ms
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return []
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            return self._expelled(now_ms)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._next_ms = now_ms + self._backoff_ms
            return []
        if code is not ErrorCode.NONE:
            return self._refused("JoinGroup", code)
        self.member_id = answer.member_id
        self.generation = answer.generation_id
        self._protocol = answer.protocol_name or ""
        self._last_response_ms = now_ms
        self._assignments, self._counts = [], None
        if answer.leader != self.member_id or getattr(answer, "skip_assignment", False):
            self.phase = MembershipPhase.SYNCING
            return []
        if self._protocol not in ASSIGNORS:
            self.phase = MembershipPhase.OVER
            return [Failed(BrokerRefused(f"group {self.group}: the coordinator chose {self._protocol!r} to assign by"))]
        self._members = [
            _subscriber(member.member_id, getattr(member, "group_instance_id", None), member.metadata)
            for member in answer.members
        ]
        self.phase = MembershipPhase.LEADING
        self._next_ms = now_ms + self._heartbeat_ms
        return [ElectedLeader(tuple(sorted(frozenset().union(*(member.topics for member in self._members)))))]

    def _synced(self, code: ErrorCode, answer: Any, now_ms: int) -> list[Change]:
        self._next_ms = now_ms
        self._assignments = []
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.phase = MembershipPhase.OUT
            return []
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            return self._expelled(now_ms)
        if code is not ErrorCode.NONE:
            return self._refused("SyncGroup", code)
        try:
            assigned = frozenset(_places(answer.assignment, self.topics))
        except ProtocolError as error:
            self.phase = MembershipPhase.OVER
            return [Failed(BrokerRefused(f"group {self.group}: the assignment cannot be read: {error}"))]
        self._last_response_ms = now_ms
        self.phase = MembershipPhase.STABLE
        self._next_ms = now_ms + self._heartbeat_ms
        taken, given = self.owned - assigned, assigned - self.owned
        self.owned = self.owned | given
        changes: list[Change] = []
        if given:
            changes.append(Assign(tuple(sorted(given))))
        if taken:
            changes += self._revoke(taken)
        return changes

    def _heartbeat_answered(self, code: ErrorCode, now_ms: int) -> list[Change]:
        self._next_ms = now_ms + self._heartbeat_ms
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            return self._expelled(now_ms)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._last_response_ms = now_ms
            if self.phase is MembershipPhase.STABLE:
                return self._rebalance(now_ms)
            if self.phase is MembershipPhase.LEADING:
                self.phase = MembershipPhase.OUT
                self._next_ms = now_ms
            return []
        if code is not ErrorCode.NONE:
            return self._refused("Heartbeat", code)
        self._last_response_ms = now_ms
        return []

    def _rebalance(self, now_ms: int) -> list[Change]:
        if self._is_cooperative or not self.owned:
            self.phase = MembershipPhase.OUT
            self._next_ms = now_ms
            return []
        return self._revoke(self.owned)

    def _revoke(self, partitions: frozenset[TopicPartition]) -> list[Change]:
        self._leaving = partitions
        self.phase = MembershipPhase.REVOKING
        return [Revoke(tuple(sorted(partitions)))]

    def _expelled(self, now_ms: int) -> list[Change]:
        """Join as a new member: the coordinator does not know this one, or not in this generation."""
        lost, self.owned = self.owned, frozenset()
        self.member_id = ""
        self.generation = -1
        self._last_response_ms = None
        self._counts = None
        self.phase = MembershipPhase.OUT
        self._next_ms = now_ms
        return [Fenced(tuple(sorted(lost)))] if lost else []

    def _refused(self, what: str, code: ErrorCode) -> list[Change]:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            return self._fenced()
        self.phase = MembershipPhase.OVER
        if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return [Failed(AuthenticationError(f"group {self.group}: {what} was refused, needs READ on the group"))]
        return [Failed(BrokerRefused(f"group {self.group}: the coordinator returned {what} with {code.name}"))]

    def _fenced(self) -> list[Change]:
        lost, self.owned = self.owned, frozenset()
        self.phase = MembershipPhase.OVER
        error = FencedError(
            f"another member runs with the same group.instance.id: {self.instance_id!r} was taken in group {self.group}"
        )
        return [Fenced(tuple(sorted(lost))), Failed(error)] if lost else [Failed(error)]


def leave_request(group: str, member_id: str) -> dict[str, Any]:
    """Return the LeaveGroup request of a dynamic member of a classic group."""
    member = {"member_id": member_id, "group_instance_id": None, "reason": "the consumer is being closed"}
    return {"group_id": group, "member_id": member_id, "members": [member]}


def _subscriber(member_id: str, instance_id: str | None, metadata: Any) -> Subscriber:
    """Return a member's subscription. A member whose bytes cannot be read gets no partitions, and disturbs no other."""
    try:
        version, found = codec.decode_record_value("ConsumerProtocolSubscription", bytes(metadata))
    except ProtocolError:
        return Subscriber(member_id=member_id, instance_id=instance_id)
    owned = found.owned_partitions if version >= 1 else ()
    return Subscriber(
        member_id=member_id,
        instance_id=instance_id,
        topics=frozenset(found.topics),
        owned=tuple(TopicPartition(topic.topic, index) for topic in owned for index in topic.partitions),
        generation=found.generation_id if version >= 2 else -1,
    )


def _encoded_assignment(places: Iterable[TopicPartition]) -> bytes:
    body = {"assigned_partitions": _by_topic(places), "user_data": None}
    return codec.encode_record_value("ConsumerProtocolAssignment", _ASSIGNMENT, body)


def _places(assignment: Any, topics: frozenset[str]) -> list[TopicPartition]:
    if not len(assignment):
        return []
    _, found = codec.decode_record_value("ConsumerProtocolAssignment", bytes(assignment))
    return [
        TopicPartition(topic.topic, index)
        for topic in found.assigned_partitions
        for index in topic.partitions
        if topic.topic in topics
    ]


def _by_topic(places: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    topics = by_topic((place, place.partition) for place in sorted(places))
    return [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()]
