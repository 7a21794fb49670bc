"""The leader's view of its followers: who is in sync, what may be acknowledged, what the controller's answers mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_embedded.metadata.image import PartitionImage
from broker_embedded.replication.follower_state import FollowerState
from broker_embedded.replication.leader_state import IsrProposal, LeaderState, NextStep
from ottla_wire.protocol import ErrorCode

LAG_MS = 30_000


def eligible(node: int, broker_epoch: int) -> bool:
    return True


def nobody(node: int, broker_epoch: int) -> bool:
    return False


class Leader:
    """Broker 1 leads; the log ends at `end`."""

    def __init__(
        self, *, replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] = (1, 2, 3), end: int = 0
    ) -> None:
        self.state = LeaderState(1)
        self.replicas = replicas
        self.end = end
        self.now_ms = 1_000_000
        self.partition_epoch = 0
        self.apply(isr=isr)

    def apply(self, *, isr: tuple[int, ...], leader_epoch: int = 5) -> None:
        self.partition_epoch += 1
        image = PartitionImage(
            partition=0,
            replicas=self.replicas,
            isr=isr,
            leader=1,
            leader_epoch=leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        self.state.apply(image, log_end_offset=self.end, now_ms=self.now_ms)

    def fetch(self, node: int, offset: int, *, broker_epoch: int = 9) -> None:
        self.state.followers[node].on_fetch(
            fetch_offset=offset,
            log_start_offset=0,
            broker_epoch=broker_epoch,
            leader_end_offset=self.end,
            now_ms=self.now_ms,
        )

    def high_watermark(self, *, min_isr: int = 1, is_eligible: Callable[[int, int], bool] = eligible) -> int | None:
        return self.state.high_watermark(
            log_end_offset=self.end,
            min_isr=min_isr,
            now_ms=self.now_ms,
            max_lag_ms=LAG_MS,
            is_eligible=is_eligible,
        )

    def expansion(
        self, node: int, *, high_watermark: int = 0, is_eligible: Callable[[int, int], bool] = eligible
    ) -> IsrProposal | None:
        return self.state.expansion(node, high_watermark=high_watermark, broker_epoch=7, is_eligible=is_eligible)

    def shrinking(self) -> IsrProposal | None:
        return self.state.shrinking(log_end_offset=self.end, now_ms=self.now_ms, max_lag_ms=LAG_MS, broker_epoch=7)


def test_the_high_watermark_is_the_end_of_the_slowest_in_sync_replica() -> None:
    leader = Leader()
    leader.end = 10
    assert leader.high_watermark() == -1, "nobody has fetched from this leader yet"
    leader.fetch(2, 10)
    leader.fetch(3, 4)
    assert leader.high_watermark() == 4


def test_a_replica_out_of_sync_does_not_hold_the_high_watermark() -> None:
    leader = Leader(isr=(1, 2), end=10)
    leader.fetch(2, 10)
    leader.fetch(3, 4)
    assert leader.high_watermark() == 10


def test_a_replica_that_keeps_up_and_is_about_to_join_is_waited_for() -> None:
    leader = Leader(isr=(1, 2), end=10)
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.end = 12
    leader.fetch(2, 12)
    assert leader.high_watermark() == 10
    assert leader.high_watermark(is_eligible=nobody) == 12, "unless the controller would not take it"
    leader.now_ms += LAG_MS + 1
    assert leader.high_watermark() == 12, "or it stopped to keep up"


def test_who_was_taken_out_of_the_isr_is_not_waited_for_until_it_fetches_again() -> None:
    """The controller knows that it is dead, and so does nobody here."""
    leader = Leader(end=10)
    leader.fetch(2, 10)
    leader.fetch(3, 10)
    leader.apply(isr=(1, 2))
    leader.end = 12
    leader.fetch(2, 12)
    assert leader.high_watermark() == 12
    leader.fetch(3, 12)
    leader.end = 14
    leader.fetch(2, 14)
    assert leader.high_watermark() == 12, "it lives, and is about to join"


def test_below_min_insync_replicas_the_high_watermark_stays() -> None:
    leader = Leader(isr=(1,), end=10)
    assert leader.high_watermark(min_isr=2) is None
    assert leader.high_watermark(min_isr=1) == 10


def test_while_a_change_is_pending_the_larger_isr_counts() -> None:
    joining = Leader(isr=(1, 2), end=10)
    joining.fetch(2, 10)
    joining.fetch(3, 10)
    assert joining.expansion(3) is not None
    assert joining.state.maximal_isr == {1, 2, 3}
    joining.end = 11
    joining.fetch(2, 11)
    assert joining.high_watermark(is_eligible=nobody) == 10
    leaving = Leader(end=10)
    leaving.fetch(2, 10)
    leaving.fetch(3, 4)
    leaving.now_ms += LAG_MS + 1
    leaving.fetch(2, 10)
    assert leaving.shrinking() is not None
    assert leaving.state.maximal_isr == {1, 2, 3}
    assert leaving.high_watermark() == 4


def test_one_change_at_a_time() -> None:
    leader = Leader(isr=(1,), end=0)
    leader.fetch(2, 0)
    leader.fetch(3, 0)
    assert leader.expansion(2) is not None
    assert leader.expansion(3) is None
    leader.apply(isr=(1, 2))
    change = leader.expansion(3)
    assert change is not None
    assert change.isr == ((1, 7), (2, 9), (3, 9)), "each with the broker epoch that it has"


def test_who_is_behind_the_high_watermark_or_the_start_of_the_epoch_does_not_join() -> None:
    leader = Leader(isr=(1, 2), end=10)
    leader.fetch(3, 6)
    assert leader.expansion(3, high_watermark=7) is None
    assert leader.expansion(3, high_watermark=5) is None, "the leader's epoch began at 10"
    leader.fetch(3, 10)
    assert leader.expansion(3, high_watermark=7, is_eligible=nobody) is None
    assert leader.expansion(3, high_watermark=7) is not None


def test_who_asked_for_nothing_in_the_lag_time_leaves_and_who_is_at_the_end_stays() -> None:
    leader = Leader(end=10)
    leader.fetch(2, 10)
    leader.fetch(3, 9)
    leader.now_ms += LAG_MS
    assert leader.shrinking() is None, "not before the time is over"
    leader.now_ms += 1
    change = leader.shrinking()
    assert change is not None
    assert change.nodes == (1, 2), "broker 2 has everything, however long ago it asked"


def test_a_follower_that_is_always_one_fetch_behind_a_busy_leader_keeps_up() -> None:
    leader = Leader(end=0)
    for _ in range(10):
        offset = leader.end
        leader.end += 5
        leader.now_ms += LAG_MS // 2
        leader.fetch(2, offset)
        leader.fetch(3, 0)
    change = leader.shrinking()
    assert change is not None
    assert change.nodes == (1, 2)


def test_a_new_epoch_gives_the_in_sync_replicas_the_whole_lag_time_again() -> None:
    leader = Leader(end=10)
    leader.now_ms += 10 * LAG_MS
    leader.apply(isr=(1, 2, 3), leader_epoch=6)
    assert leader.shrinking() is None
    leader.now_ms += LAG_MS + 1
    change = leader.shrinking()
    assert change is not None
    assert change.nodes == (1,)


def test_the_epoch_start_stays_when_only_the_isr_changes() -> None:
    leader = Leader(end=3)
    leader.end = 8
    leader.apply(isr=(1, 2))
    assert leader.state.epoch_start_offset == 3
    leader.apply(isr=(1, 2), leader_epoch=6)
    assert leader.state.epoch_start_offset == 8


@pytest.mark.parametrize(
    ("error", "step", "is_dropped"),
    [
        (ErrorCode.OPERATION_NOT_ATTEMPTED, NextStep.NOTHING, True),
        (ErrorCode.INELIGIBLE_REPLICA, NextStep.NOTHING, True),
        (ErrorCode.FENCED_LEADER_EPOCH, NextStep.NOTHING, False),
        (ErrorCode.INVALID_UPDATE_VERSION, NextStep.NOTHING, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, NextStep.NOTHING, False),
        (ErrorCode.NEW_LEADER_ELECTED, NextStep.NOTHING, False),
        (ErrorCode.NOT_CONTROLLER, NextStep.RETRY, False),
        (ErrorCode.REQUEST_TIMED_OUT, NextStep.RETRY, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, NextStep.RETRY, False),
    ],
)
def test_an_error_drops_the_change_leaves_it_to_newer_metadata_or_is_tried_again(
    error: ErrorCode, step: NextStep, is_dropped: bool
) -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 0)
    change = leader.expansion(3)
    assert change is not None
    assert leader.state.on_answer(change, error) is step
    assert (leader.state.pending is None) is is_dropped
    assert leader.state.maximal_isr == ({1, 2} if is_dropped else {1, 2, 3})


def test_what_was_granted_is_true_when_the_metadata_says_so() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 0)
    change = leader.expansion(3)
    assert change is not None
    assert leader.state.on_answer(change, ErrorCode.NONE, partition_epoch=2) is NextStep.NOTHING
    assert leader.state.isr == (1, 2)
    assert leader.state.maximal_isr == {1, 2, 3}
    leader.apply(isr=(1, 2, 3))
    assert leader.state.isr == (1, 2, 3)
    assert leader.state.pending is None


def test_an_answer_that_changed_nothing_settles_the_change() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 0)
    change = leader.expansion(3)
    assert change is not None
    leader.state.on_answer(change, ErrorCode.NONE, partition_epoch=1)
    assert leader.state.pending is None


def test_an_answer_to_a_change_that_metadata_has_overtaken_is_ignored() -> None:
    leader = Leader(isr=(1, 2))
    leader.fetch(3, 0)
    change = leader.expansion(3)
    assert change is not None
    leader.apply(isr=(1,))
    newer = leader.expansion(3)
    assert leader.state.on_answer(change, ErrorCode.NOT_CONTROLLER) is NextStep.NOTHING
    assert leader.state.pending is newer


def test_replicas_come_and_go_and_what_is_known_of_the_others_stays() -> None:
    leader = Leader(replicas=(1, 2), isr=(1, 2))
    leader.fetch(2, 0)
    leader.replicas = (1, 2, 4)
    leader.apply(isr=(1, 2))
    assert set(leader.state.followers) == {2, 4}
    assert leader.state.followers[2].has_fetched
    leader.replicas = (1, 4)
    leader.apply(isr=(1, 4))
    assert set(leader.state.followers) == {4}


def test_a_follower_that_never_fetched_is_not_caught_up() -> None:
    fresh: Any = FollowerState(2)
    assert not fresh.is_caught_up(leader_end_offset=0, now_ms=0, max_lag_ms=LAG_MS)
