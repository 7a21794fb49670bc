"""State of a quorum member and its role transitions. `machine.step` decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.controller.raft.effects import AppendLeaderChange, Effect, ElectionState, SaveState
from broker_embedded.controller.raft.log_view import LogView, last_epoch
from broker_embedded.controller.raft.messages import NO_LEADER
from broker_embedded.controller.raft.progress import LeaderProgress
from broker_embedded.controller.raft.roles import VALID_PREVIOUS, RaftRole
from ottla_wire.facts import fact

NOBODY = -1


@fact
class Timeouts:
    """Kafka's controller.quorum settings, in milliseconds."""

    fetch_ms: int = 2000
    """controller.quorum.fetch.timeout.ms: a follower without a response for this long stands for election."""
    election_ms: int = 1000
    """controller.quorum.election.timeout.ms: an election takes from this to twice as long, by chance."""
    election_backoff_max_ms: int = 1000
    """controller.quorum.election.backoff.max.ms: the longest that a resigned leader's later successors hold back."""
    retry_ms: int = 5
    """A peer that cannot be reached is asked again after this, then after twice as long, and so on."""

    @classmethod
    def of(cls, config: BrokerConfig) -> Timeouts:
        """Return the timeouts of the broker's settings."""
        return cls(
            fetch_ms=config.controller_quorum_fetch_timeout_ms,
            election_ms=config.controller_quorum_election_timeout_ms,
            election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        )

    @property
    def check_quorum_ms(self) -> int:
        """A leader that no majority fetches from resigns after this; longer than a follower waits, as in Kafka."""
        return self.fetch_ms * 3 // 2

    @property
    def begin_interval_ms(self) -> int:
        """Return the interval after which BeginQuorumEpoch is repeated to a voter that does not fetch."""
        return self.fetch_ms // 2

    @property
    def max_retry_ms(self) -> int:
        return max(self.retry_ms, self.fetch_ms // 4)


class Member:
    """State and transitions. Every change of epoch, leader or vote is saved before any of its effects.

    `elections` and `replication` are functions of what comes in; `machine.step` calls them.
    """

    def __init__(
        self,
        *,
        node_id: int,
        voters: Sequence[int],
        log: LogView,
        state: ElectionState | None,
        random: Random,
        timeouts: Timeouts,
    ) -> None:
        self.node_id = node_id
        self.voters = tuple(voters)
        self.log = log
        self.timeouts = timeouts
        self.role = RaftRole.UNATTACHED
        self.state = _not_behind(state or ElectionState(), log)
        self.high_watermark = 0
        self.progress: LeaderProgress | None = None
        """Progress of the replicas, while this node leads."""
        self.random = random
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.outbox = SendQueue(retry_ms=timeouts.retry_ms, max_retry_ms=timeouts.max_retry_ms)
        self.granted: set[int] = set()
        self.rejected: set[int] = set()
        self.successors: tuple[int, ...] = ()
        self.deadline_ms: int | None = None
        self.is_forgiven = False
        self.has_fetched = False
        """Last response from the leader of this epoch: it is alive, and other candidates get no pre-vote here
        (KIP-996).
        """
        self._last_contact: tuple[int, int] = (NOBODY, 0)
        """The last known leader, and when it responded."""
        self.ended_epoch = NOBODY
        """The leader resigned from this epoch: older claims about it are ignored."""
        self.fetch_due_ms: int | None = None
        self.fetch_in_flight: int | None = None
        self.fetch_failures = 0
        self.fetch_number = 0
        self.asked_last = 0
        self.leader_high_watermark = 0
        """The leader's last high watermark, once the logs are known to agree."""

    # --- what may be asked at any time

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def leader_id(self) -> int:
        return self.state.leader_id

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.voters

    @property
    def is_active_leader(self) -> bool:
        """Leads, and a batch of its own epoch is committed: so is everything before it."""
        return self.progress is not None and self.high_watermark > self.progress.epoch_start_offset

    @property
    def other_voters(self) -> list[int]:
        return [voter for voter in self.voters if voter != self.node_id]

    def silence_of(self, node: int, now_ms: int) -> int:
        """Return for how long the previous leader did not respond; 0 for any other node.

        No longer than a fetch timeout: what went beyond may be this node's own lateness.
        """
        contact_id, contact_ms = self._last_contact
        return min(max(0, now_ms - contact_ms), self.timeouts.fetch_ms) if node == contact_id else 0

    # --- transitions

    def become_unattached(self, epoch: int) -> None:
        """Become a voter without a leader in `epoch`. A vote given in it stays given."""
        voted_id = self.state.voted_id if epoch == self.epoch else NOBODY
        self._enter(RaftRole.UNATTACHED, ElectionState(epoch=epoch, voted_id=voted_id))
        self.set_deadline(self.election_timeout_ms() if self.is_voter else None)
        self._look_for_leader()

    def become_follower(self, epoch: int, leader_id: int) -> None:
        voted_id = self.state.voted_id if epoch == self.epoch else NOBODY
        self._enter(RaftRole.FOLLOWER, ElectionState(epoch=epoch, leader_id=leader_id, voted_id=voted_id))
        self.has_fetched = False
        self.leader_high_watermark = 0
        self.hear_from_leader()
        self.fetch_failures = 0
        self.fetch_due_ms = self.now_ms

    def become_prospective(self) -> None:
        """Request pre-votes in the same epoch; the unreachable leader is remembered."""
        self._enter(RaftRole.PROSPECTIVE, self.state)
        self._stand_for_election()

    def become_candidate(self) -> None:
        self._enter(RaftRole.CANDIDATE, ElectionState(epoch=self.epoch + 1, voted_id=self.node_id))
        self._stand_for_election()

    def become_leader(self) -> None:
        self._enter(
            RaftRole.LEADER, ElectionState(epoch=self.epoch, leader_id=self.node_id, voted_id=self.state.voted_id)
        )
        self.progress = LeaderProgress(
            node_id=self.node_id,
            voters=self.voters,
            granting=self.granted,
            epoch_start_offset=self.log.end_offset,
            since_ms=self.now_ms,
        )
        self.outbox.begin(self.other_voters, now_ms=self.now_ms)
        self.set_deadline(self.timeouts.check_quorum_ms if self.other_voters else None)
        self.effects.append(
            AppendLeaderChange(
                epoch=self.epoch,
                leader_id=self.node_id,
                voters=self.voters,
                granting_voters=self.progress.granting,
            )
        )

    def resign(self, successors: Sequence[int]) -> None:
        """Notify the others and become a follower-to-be from the next epoch on."""
        self._enter(RaftRole.RESIGNED, ElectionState(epoch=self.epoch, voted_id=self.state.voted_id))
        self.outbox.begin(successors, now_ms=self.now_ms)
        self.successors = tuple(successors)
        self.set_deadline(self.election_timeout_ms())

    def _enter(self, role: RaftRole, state: ElectionState) -> None:
        if self.role not in VALID_PREVIOUS[role]:
            raise AssertionError(f"node {self.node_id}: {role.value} cannot follow {self.role.value}")
        if state.epoch < self.epoch:
            raise AssertionError(f"node {self.node_id}: epoch {state.epoch} cannot follow {self.epoch}")
        self.role = role
        self.progress = None
        self.outbox.clear()
        self.fetch_due_ms = None
        self.fetch_in_flight = None
        self.remember(state)

    def remember(self, state: ElectionState) -> None:
        if state != self.state:
            self.state = state
            if self.effects and isinstance(self.effects[-1], SaveState):
                self.effects.pop()  # nothing follows from it yet: one write is enough
            self.effects.append(SaveState(state=state))

    # --- elections

    def _stand_for_election(self) -> None:
        self.granted = {self.node_id}
        self.rejected = set()
        self.outbox.begin(self.other_voters, now_ms=self.now_ms)
        self.set_deadline(self.election_timeout_ms())
        self.count_votes()

    def count_votes(self) -> None:
        majority = len(self.voters) // 2 + 1
        if len(self.granted) >= majority:
            if self.role is RaftRole.PROSPECTIVE:
                self.become_candidate()
            else:
                self.become_leader()
        elif len(self.voters) - len(self.rejected) < majority and self.role is RaftRole.PROSPECTIVE:
            self.give_up_election()  # a candidate waits for its timeout instead: the others need time to elect

    def give_up_election(self) -> None:
        """Stop the candidacy: return to the previous leader, if any."""
        if self.role is RaftRole.CANDIDATE:
            self.become_prospective()
        elif self.leader_id != NO_LEADER:
            self.become_follower(self.epoch, self.leader_id)
        else:
            self.become_unattached(self.epoch)

    # --- time

    def election_timeout_ms(self) -> int:
        return self.timeouts.election_ms + self.random.randrange(self.timeouts.election_ms)

    def hear_from_leader(self) -> None:
        """Restart the fetch timeout, after a response of the leader."""
        self._last_contact = (self.leader_id, self.now_ms)
        self.set_deadline(self.timeouts.fetch_ms + self.random.randrange(self.timeouts.fetch_ms // 4 + 1))

    def set_deadline(self, after_ms: int | None) -> None:
        self.deadline_ms = None if after_ms is None else self.now_ms + after_ms
        self.is_forgiven = False

    def set_deadline_if_earlier(self, after_ms: int) -> None:
        if self.deadline_ms is None or self.now_ms + after_ms < self.deadline_ms:
            self.set_deadline(after_ms)

    def _look_for_leader(self) -> None:
        """Fetch from any voter to find the leader. A voter waits for a candidate first."""
        self.fetch_failures = 0
        if self.other_voters:
            self.fetch_due_ms = self.now_ms + (self.timeouts.max_retry_ms if self.is_voter else 0)


def _not_behind(state: ElectionState, log: LogView) -> ElectionState:
    """Return the epoch of a log with a missing or older quorum-state, as Kafka does: written batches imply an
    election.
    """
    return state if state.epoch >= last_epoch(log) else ElectionState(epoch=last_epoch(log))


class SendQueue:
    """Requests of one kind that the present role owes its peers."""

    def __init__(self, *, retry_ms: int, max_retry_ms: int) -> None:
        self._retry_ms = retry_ms
        self._max_retry_ms = max_retry_ms
        self._due: dict[int, int] = {}
        self._failures: dict[int, int] = {}

    def begin(self, peers: Iterable[int], *, now_ms: int) -> None:
        """Start a new role: send to all `peers` now, and drop requests of the previous role."""
        self._due = dict.fromkeys(peers, now_ms)
        self._failures = {}

    def clear(self) -> None:
        self.begin((), now_ms=0)

    @property
    def next_due_ms(self) -> int | None:
        return min(self._due.values(), default=None)

    def take_due(self, now_ms: int) -> list[int]:
        """Return the peers to ask now. Each is asked once until `again` or `failed`."""
        due = [peer for peer, at_ms in self._due.items() if at_ms <= now_ms]
        for peer in due:
            del self._due[peer]
        return due

    def again(self, peer: int, at_ms: int) -> None:
        """Schedule the next request at `at_ms`, after a response."""
        self._failures.pop(peer, None)
        self._due[peer] = at_ms

    def failed(self, peer: int, *, now_ms: int) -> None:
        """Schedule a retry after a failure."""
        failures = self._failures.get(peer, 0)
        self._failures[peer] = failures + 1
        self._due[peer] = now_ms + min(self._retry_ms << min(failures, 16), self._max_retry_ms)
