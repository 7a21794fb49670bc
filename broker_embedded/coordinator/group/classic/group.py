"""State of one classic group, and queries on it. The event files change it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

from ..subscription import PROTOCOL_TYPE as CONSUMER_PROTOCOL_TYPE
from ..subscription import subscribed_topics
from .answers import NO_ASSIGNMENT, JoinedMember
from .effects import GroupSnapshot
from .events import Join
from .member import ClassicMember
from .states import State, may_move

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a member that never completed a join is kept while its JoinGroup is held; Kafka's own constant."""


@fact
class ClassicGroupConfig:
    """The broker's settings that a classic group obeys."""

    initial_rebalance_delay_ms: int = 0
    """`group.initial.rebalance.delay.ms`. Kafka's default of 3 s lets the members of a big service start together; a
    laptop and a test want the first record at once, so it is 0 here."""
    max_size: int = 2_147_483_647
    """`group.max.size`."""


@fact
class StoringAssignment:
    """The leader's assignment is being written; the group is stable once it is durable."""

    generation: int
    assignments: Mapping[str, bytes]


@fact
class StoringStaticMember:
    """A restarted static member has replaced its predecessor; it gets a response once that is durable."""

    join: Join
    old_member: ClassicMember
    new_member_id: str
    leader_before: str | None


@fact
class StoringEmptyGroup:
    """The group became empty. No member waits: if the append fails, the old generation times out after a restart."""


Storing = StoringAssignment | StoringStaticMember | StoringEmptyGroup


class ClassicGroup:
    """One group. Owned by the coordinator's event loop; only `machine.step` changes it."""

    def __init__(self, group_id: str, config: ClassicGroupConfig | None = None) -> None:
        self.group_id = group_id
        self.config = config or ClassicGroupConfig()
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_members: dict[str, str] = {}
        """group.instance.id -> member id."""
        self.pending_join: dict[str, int] = {}
        """Member ids given out (KIP-394) and not yet used -> when they lapse."""
        self.pending_sync: set[str] = set()
        """Members that have the current generation and have not asked for their assignment."""
        self.subscribed_topics: frozenset[str] | None = None
        """None: not a consumer group, or unreadable metadata."""

        self.is_initial_rebalance = False
        self.new_member_added = False
        self.initial_delay_remaining_ms = 0
        self.initial_delay_ms = 0
        self.join_deadline_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        self.wake_at_ms: int | None = None
        """Not later than the earliest deadline. May be too early: heartbeats only postpone deadlines."""

        self.state_since_ms = -1
        """Wall clock, kept by the shard, because the machine knows durations only. Offsets expire by it."""
        self.storing: dict[int, Storing] = {}
        self.next_store_id = 1

    # -- restoring ---------------------------------------------------------------------------------------------------

    @classmethod
    def restore(
        cls, group_id: str, snapshot: GroupSnapshot, *, config: ClassicGroupConfig, now_ms: int
    ) -> ClassicGroup:
        """Restore the group from the log: stable with its members, each with a full session, or empty."""
        group = cls(group_id, config)
        group.generation = snapshot.generation
        group.protocol_type = snapshot.protocol_type or None
        group.protocol = snapshot.protocol
        group.leader = snapshot.leader
        for stored in snapshot.members:
            member = ClassicMember(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                session_timeout_ms=stored.session_timeout_ms,
                # Version 0 of the record knows no rebalance timeout.
                rebalance_timeout_ms=(
                    stored.session_timeout_ms if stored.rebalance_timeout_ms == -1 else stored.rebalance_timeout_ms
                ),
                protocols=((snapshot.protocol or "", stored.subscription),),
                assignment=stored.assignment,
            )
            group.members[member.member_id] = member
            if member.group_instance_id is not None:
                group.static_members[member.group_instance_id] = member.member_id
            group.reset_session(member, now_ms=now_ms)
        if group.members:
            group.state = State.STABLE
            if group.leader not in group.members:
                group.leader = next(iter(group.members))
        group.subscribed_topics = group.compute_subscribed_topics()
        return group

    # -- questions ---------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def awaiting_join_count(self) -> int:
        return sum(member.is_awaiting_join for member in self.members.values())

    @property
    def has_everyone_joined(self) -> bool:
        return not self.pending_join and all(member.is_awaiting_join for member in self.members.values())

    @property
    def can_rebalance(self) -> bool:
        return may_move(self.state, State.PREPARING_REBALANCE)

    def is_leader(self, member_id: str) -> bool:
        return self.leader == member_id

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Check that the member id is current. A static member that was replaced is fenced (KIP-345)."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_generation(self, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Check that the member belongs to this generation."""
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.check_member(member_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def check_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation: int, *, is_transactional: bool = False
    ) -> ErrorCode:
        """Check that these offsets may be committed. Generation -1 without a member id is an operator, or a consumer
        with manual assignment: allowed while the group has no members.
        """
        if self.state is State.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.is_empty:
            return ErrorCode.NONE
        is_member_request = generation >= 0 or member_id != "" or group_instance_id is not None
        if is_member_request:
            error = self.check_generation(member_id, group_instance_id, generation)
            if error is not ErrorCode.NONE:
                return error
        elif not is_transactional and not self.is_empty:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not is_transactional and self.state is State.COMPLETING_REBALANCE:
            # The member has the new generation and not yet its assignment: what it commits belongs to the old one.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        """Check that the group may be deleted."""
        if self.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def check_offset_delete(self) -> ErrorCode:
        """Check that the group's offsets may be deleted at all; `is_subscribed_to` decides by topic."""
        if self.state is State.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        may_have_readers = not self.is_empty and not self.uses_consumer_protocol
        return ErrorCode.NON_EMPTY_GROUP if may_have_readers else ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member is subscribed to `topic` (True if unknown)."""
        if self.is_empty:
            return False
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def supports(self, protocol_type: str, names: Collection[str]) -> bool:
        """Return whether a member with these protocols fits: all members need a common protocol."""
        if self.is_empty:
            return protocol_type != "" and len(names) > 0
        if not self.members:  # they left a rebalance that still waits
            return protocol_type == self.protocol_type and len(names) > 0
        return protocol_type == self.protocol_type and not self.candidates().isdisjoint(names)

    def accepts(self, member_id: str) -> bool:
        """Return whether `group.max.size` leaves room. During a rebalance the joining members are counted, not the
        group's: a group that exceeds a lowered limit loses the members that rejoin last."""
        match self.state:
            case State.EMPTY | State.DEAD:
                return True
            case State.PREPARING_REBALANCE:
                member = self.members.get(member_id)
                is_waiting = member is not None and member.is_awaiting_join
                return is_waiting or self.awaiting_join_count < self.config.max_size
            case _:
                return member_id in self.members or len(self.members) < self.config.max_size

    def candidates(self) -> set[str]:
        """Return the protocols that every member supports."""
        counts = Counter(name for member in self.members.values() for name in {name for name, _ in member.protocols})
        return {name for name, count in counts.items() if count == len(self.members)}

    def select_protocol(self) -> str:
        """Return the common protocol with the most votes; the first vote wins a tie."""
        candidates = self.candidates()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            found = subscribed_topics(member.metadata_of(self.protocol))
            if found is None:
                return None
            topics.update(found)
        return frozenset(topics)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(member.as_joined(self.protocol) for member in self.members.values())

    def snapshot(self, assignments: Mapping[str, bytes] | None = None) -> GroupSnapshot:
        """Return the group for the log: with `assignments`, or with the members' current ones."""
        return GroupSnapshot(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            members=tuple(
                member.as_snapshot(
                    self.protocol,
                    member.assignment if assignments is None else assignments.get(member.member_id, NO_ASSIGNMENT),
                )
                for member in self.members.values()
            ),
        )

    # -- changes -----------------------------------------------------------------------------------------------------

    def move_to(self, state: State) -> None:
        if not may_move(self.state, state):
            raise AssertionError(f"group {self.group_id}: {self.state.value} does not lead to {state.value}")
        self.state = state

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending_join.pop(member.member_id, None)

    def discard(self, member_id: str) -> ClassicMember | None:
        """Remove a member, or an unused id. The caller responds to its waiting request."""
        self.pending_join.pop(member_id, None)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader = next(iter(self.members), None)
        return member

    def elect_joined_leader(self) -> bool:
        """Elect a leader among the joined members. Returns False without any."""
        if self.leader is not None and self.members[self.leader].is_awaiting_join:
            return True
        for member in self.members.values():
            if member.is_awaiting_join:
                self.leader = member.member_id
                return True
        return False

    def begin_generation(self) -> None:
        self.generation += 1
        self.pending_sync.clear()
        self.is_initial_rebalance = False
        self.new_member_added = False
        if self.members:
            self.protocol = self.select_protocol()
            self.move_to(State.COMPLETING_REBALANCE)
        else:
            self.protocol = None
            self.move_to(State.EMPTY)
        self.subscribed_topics = self.compute_subscribed_topics()

    def new_store_id(self, what: Storing) -> int:
        store_id = self.next_store_id
        self.next_store_id += 1
        self.storing[store_id] = what
        return store_id

    # -- deadlines ---------------------------------------------------------------------------------------------------

    def reset_session(self, member: ClassicMember, *, now_ms: int, timeout_ms: int | None = None) -> None:
        """Restart the member's session: it may be silent for that long (or `timeout_ms`) from now."""
        member.session_deadline_ms = self._wake_by(
            now_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms)
        )

    def set_join_deadline(self, deadline_ms: int) -> None:
        self.join_deadline_ms = self._wake_by(deadline_ms)

    def set_sync_deadline(self, deadline_ms: int) -> None:
        self.sync_deadline_ms = self._wake_by(deadline_ms)

    def add_pending_join(self, member_id: str, deadline_ms: int) -> None:
        self.pending_join[member_id] = self._wake_by(deadline_ms)

    def earliest_deadline_ms(self) -> int | None:
        """Return the exact earliest deadline, from all members."""
        deadlines = [self.join_deadline_ms, self.sync_deadline_ms, *self.pending_join.values()]
        deadlines += [member.session_deadline_ms for member in self.members.values()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _wake_by(self, deadline_ms: int) -> int:
        if self.wake_at_ms is None or deadline_ms < self.wake_at_ms:
            self.wake_at_ms = deadline_ms
        return deadline_ms
