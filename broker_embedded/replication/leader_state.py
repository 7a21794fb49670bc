"""The in-sync replicas of one partition as its leader sees them, and its high watermark.

Pure: followers' fetches, metadata and the controller's answers go in, the high watermark and ISR changes
come out. One change is under way at a time. Until the controller has decided, the leader counts the *maximal* ISR
(KIP-497): with a replica that is to join it waits for one more, from one that is to leave it does not yet turn away,
so that whatever the controller decides, nothing was acknowledged that the ISR does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from broker_embedded.metadata.image import PartitionImage
from broker_embedded.replication.follower_state import UNKNOWN_EPOCH, FollowerState
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

IsEligible = Callable[[int, int], bool]
"""(node, the broker epoch of its last fetch): whether the controller would take it into an ISR."""


@fact
class IsrProposal:
    """A requested ISR. The controller grants it if nothing has changed since `partition_epoch`."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """(node, broker epoch; -1 for unknown)."""

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(node for node, _ in self.isr)


class NextStep(Enum):
    """Effect of the controller's response to an `IsrProposal`."""

    NOTHING = "nothing"
    """Decided, or superseded by newer metadata."""
    RETRY = "retry"
    """No decision was made: send it again."""


_NOT_TAKEN = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller changed nothing: the change is dropped, and may be requested again."""

_OVERTAKEN = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""The controller has newer state. Until it arrives here the larger of both ISRs counts."""


class LeaderState:
    """Kept by the leader of a partition that has followers, as long as it leads."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.followers: dict[int, FollowerState] = {}
        self.isr: tuple[int, ...] = ()
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = 0
        """Log end offset at the start of this leader epoch."""
        self.pending: IsrProposal | None = None
        self._maximal_isr: frozenset[int] = frozenset()

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Return the ISR with the members of the pending change."""
        return self._maximal_isr

    # --- metadata

    def apply(self, image: PartitionImage, *, log_end_offset: int, now_ms: int) -> None:
        """Apply the controller's state. Any newer state of the partition settles a pending change."""
        others = [node for node in image.replicas if node != self.node_id]
        self.followers = {node: self.followers.get(node) or FollowerState(node) for node in others}
        if image.leader_epoch != self.leader_epoch:
            self.epoch_start_offset = log_end_offset
            for node, follower in self.followers.items():
                follower.on_leader_epoch(is_in_sync=node in image.isr, leader_end_offset=log_end_offset, now_ms=now_ms)
        for node in set(self.isr).difference(image.isr):
            if node in self.followers:
                self.followers[node].on_removed()
        if (image.leader_epoch, image.partition_epoch) != (self.leader_epoch, self.partition_epoch):
            self.pending = None
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.isr = image.isr
        self._count()

    # --- the high watermark

    def high_watermark(
        self,
        *,
        log_end_offset: int,
        min_isr: int,
        now_ms: int,
        max_lag_ms: int,
        is_eligible: IsEligible,
    ) -> int | None:
        """Return the smallest log end offset of the maximal ISR; None if the high watermark has to stay.

        Who is caught up and about to join is waited for as well: it could not join if the high watermark ran ahead of
        it. With fewer in-sync replicas than acks=all asks for nothing more is shown to consumers.
        """
        if len(self.isr) < min_isr:
            return None
        smallest = log_end_offset
        counted = self._maximal_isr
        for node, follower in self.followers.items():
            end_offset = follower.log_end_offset
            if end_offset < smallest and (
                node in counted
                or (
                    follower.is_caught_up(leader_end_offset=log_end_offset, now_ms=now_ms, max_lag_ms=max_lag_ms)
                    and is_eligible(node, follower.broker_epoch)
                )
            ):
                smallest = end_offset
        return smallest

    # --- changing the ISR

    def expansion(
        self, node: int, *, high_watermark: int, broker_epoch: int, is_eligible: IsEligible
    ) -> IsrProposal | None:
        """Return the change that adds `node`, if it has reached the high watermark and this leader's start."""
        follower = self.followers[node]
        end_offset = follower.log_end_offset
        is_in_sync = end_offset >= high_watermark and end_offset >= self.epoch_start_offset
        if self.pending is not None or node in self.isr or not is_in_sync:
            return None
        if not is_eligible(node, follower.broker_epoch):
            return None
        return self._propose((*self.isr, node), broker_epoch)

    def shrinking(self, *, log_end_offset: int, now_ms: int, max_lag_ms: int, broker_epoch: int) -> IsrProposal | None:
        """Return the change without replicas that were not caught up for longer than `max_lag_ms`."""
        if self.pending is not None:
            return None
        slow = {
            node
            for node in self.isr
            if (follower := self.followers.get(node)) is not None
            and not follower.is_caught_up(leader_end_offset=log_end_offset, now_ms=now_ms, max_lag_ms=max_lag_ms)
        }
        if not slow:
            return None
        return self._propose(tuple(node for node in self.isr if node not in slow), broker_epoch)

    def on_answer(self, change: IsrProposal, error: ErrorCode, *, partition_epoch: int = -1) -> NextStep:
        """Handle the controller's response. A granted change takes effect with the metadata."""
        if change is not self.pending:
            return NextStep.NOTHING  # overtaken by metadata
        if error is ErrorCode.NONE:
            if partition_epoch <= self.partition_epoch:  # it was so already: no metadata will come
                self._drop_pending()
            return NextStep.NOTHING
        if error in _NOT_TAKEN:
            self._drop_pending()
            return NextStep.NOTHING
        return NextStep.NOTHING if error in _OVERTAKEN else NextStep.RETRY

    def _propose(self, nodes: tuple[int, ...], broker_epoch: int) -> IsrProposal:
        epochs = {node: follower.broker_epoch for node, follower in self.followers.items()}
        epochs[self.node_id] = broker_epoch
        self.pending = IsrProposal(
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            isr=tuple((node, epochs.get(node, UNKNOWN_EPOCH)) for node in nodes),
        )
        self._count()
        return self.pending

    def _drop_pending(self) -> None:
        self.pending = None
        self._count()

    def _count(self) -> None:
        wished = () if self.pending is None else self.pending.nodes
        self._maximal_isr = frozenset(self.isr) | frozenset(wished)
