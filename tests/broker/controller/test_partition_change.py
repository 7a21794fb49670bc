"""Who leads a partition and who is in sync, decided from its state: the rules one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker_embedded.controller.partition_change import UNCHANGED, Election, PartitionTarget, change_partition
from broker_embedded.metadata.delta import changed_partition
from broker_embedded.metadata.image import (
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    ClusterImage,
    PartitionImage,
)
from broker_embedded.metadata.records import ChangePartition, LeaderRecoveryState

TOPIC_ID = bytes(15) + b"t"


def cluster(*alive: int, shutting_down: int = -1) -> ClusterImage:
    """Brokers 1 to 5, of which some are alive."""
    return ClusterImage(
        cluster_id="c",
        brokers={
            node: BrokerImage(
                broker_id=node,
                epoch=node,
                incarnation_id=bytes(16),
                host="h",
                port=1,
                fenced=node not in alive,
                in_controlled_shutdown=node == shutting_down,
            )
            for node in range(1, 6)
        },
    )


def partition(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionImage:
    return PartitionImage(partition=0, replicas=replicas, isr=isr, leader=leader, leader_epoch=7, partition_epoch=20)


def after(
    image: ClusterImage,
    state: PartitionImage,
    target: PartitionTarget = UNCHANGED,
    election: Election = Election.ONLINE,
) -> PartitionImage:
    change = change_partition(image, TOPIC_ID, state, target, election=election)
    return state if change is None else changed_partition(state, change)


def test_a_leader_that_is_alive_and_in_sync_stays_and_nothing_is_written() -> None:
    assert change_partition(cluster(1, 2, 3), TOPIC_ID, partition(2, (1, 2, 3))) is None


def test_the_first_in_sync_replica_in_order_of_preference_follows_a_dead_leader() -> None:
    changed = after(cluster(1, 2, 3), partition(1, (3, 2, 1)), PartitionTarget(isr=(3, 2)))
    assert (changed.leader, changed.isr, changed.leader_epoch, changed.partition_epoch) == (2, (3, 2), 8, 21)


def test_a_replica_out_of_sync_does_not_lead_however_much_alive() -> None:
    changed = after(cluster(2, 3), partition(1, (1,)), PartitionTarget(isr=()))
    assert (changed.leader, changed.isr) == (-1, (1,))


def test_the_last_in_sync_replica_leads_again_when_it_is_back() -> None:
    changed = after(cluster(1, 2, 3), partition(-1, (1,)))
    assert (changed.leader, changed.isr, changed.leader_epoch) == (1, (1,), 8)


def test_an_unclean_election_takes_who_is_alive_alone_and_says_so() -> None:
    changed = after(cluster(2, 3), partition(1, (1,)), PartitionTarget(isr=()), Election.UNCLEAN)
    assert (changed.leader, changed.isr) == (2, (2,))
    assert changed.leader_recovery_state is LeaderRecoveryState.RECOVERING


def test_an_unclean_election_is_clean_as_long_as_somebody_in_sync_is_alive() -> None:
    changed = after(cluster(2, 3), partition(1, (1, 3)), PartitionTarget(isr=(3,)), Election.UNCLEAN)
    assert (changed.leader, changed.isr) == (3, (3,))
    assert changed.leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_with_nobody_alive_there_is_no_leader_unclean_or_not() -> None:
    for election in Election:
        changed = after(cluster(), partition(1, (1, 2)), PartitionTarget(isr=(2,)), election)
        assert (changed.leader, changed.isr) == (-1, (2,))


def test_a_broker_that_shuts_down_is_not_elected() -> None:
    assert after(cluster(1, 2, 3, shutting_down=2), partition(1, (1, 2, 3)), PartitionTarget(isr=(2, 3))).leader == 3


def test_an_isr_that_shrinks_or_grows_leaves_the_leader_epoch_alone() -> None:
    for isr in ((1, 2), (1, 3, 2)):
        changed = after(cluster(1, 2, 3), partition(1, (1, 2, 3)), PartitionTarget(isr=isr))
        assert (changed.isr, changed.leader_epoch, changed.partition_epoch) == (isr, 7, 21)


def test_a_preferred_election_moves_leadership_only_to_a_preferred_replica_that_is_in_sync() -> None:
    image = cluster(1, 2, 3)
    assert after(image, partition(3, (1, 3)), election=Election.PREFERRED).leader == 1
    assert after(image, partition(3, (2, 3)), election=Election.PREFERRED).leader == 3
    assert after(cluster(2, 3), partition(3, (1, 2, 3)), election=Election.PREFERRED).leader == 3
    assert after(cluster(2), partition(3, (1, 2, 3)), election=Election.PREFERRED).leader == 2


def test_a_reassignment_waits_until_every_added_replica_is_in_sync() -> None:
    state = replace(partition(1, (1, 2), (3, 4, 1, 2)), adding_replicas=(3, 4), removing_replicas=(1, 2))
    waiting = after(cluster(1, 2, 3, 4), state, PartitionTarget(isr=(1, 2, 3)))
    assert (waiting.replicas, waiting.isr, waiting.leader) == ((3, 4, 1, 2), (1, 2, 3), 1)
    done = after(cluster(1, 2, 3, 4), waiting, PartitionTarget(isr=(1, 2, 3, 4)))
    assert (done.replicas, done.isr, done.adding_replicas, done.removing_replicas) == ((3, 4), (3, 4), (), ())
    assert (done.leader, done.leader_epoch) == (3, 8)


def test_a_replica_taken_away_raises_the_leader_epoch_also_when_the_leader_stays() -> None:
    state = replace(partition(1, (1, 2), (1, 2)), removing_replicas=(2,))
    done = after(cluster(1, 2), state)
    assert (done.replicas, done.isr, done.leader, done.leader_epoch) == ((1,), (1,), 1, 8)


def test_a_reassignment_never_completes_into_an_empty_isr() -> None:
    state = replace(partition(1, (1,), (2, 1)), removing_replicas=(1,))
    assert after(cluster(1, 2), state) == state


def lost(node: int, state: PartitionImage) -> PartitionImage:
    marks = tuple(LOST_DIRECTORY if replica == node else UNASSIGNED_DIRECTORY for replica in state.replicas)
    return replace(state, directories=marks)


def test_a_replica_whose_directory_is_gone_does_not_lead_even_as_the_last_in_sync() -> None:
    state = lost(1, partition(-1, (1,)))
    assert after(cluster(1, 2, 3), state).leader == -1
    unclean = after(cluster(1, 2, 3), state, election=Election.UNCLEAN)
    assert (unclean.leader, unclean.isr) == (2, (2,))


def test_a_replica_whose_directory_is_gone_leads_uncleanly_when_nobody_else_is_left() -> None:
    unclean = after(cluster(1), lost(1, partition(-1, (1,))), election=Election.UNCLEAN)
    assert (unclean.leader, unclean.directory_of(1)) == (1, UNASSIGNED_DIRECTORY)


def test_a_replica_that_is_in_sync_again_has_a_directory_again() -> None:
    state = lost(1, partition(2, (2,)))
    joined = after(cluster(1, 2, 3), state, PartitionTarget(isr=(2, 1)))
    assert (joined.isr, joined.directory_of(1)) == ((2, 1), UNASSIGNED_DIRECTORY)
    assert after(cluster(1), joined, PartitionTarget(isr=(1,))).leader == 1


@pytest.mark.parametrize("leader", [1, 2, -1])
def test_a_record_without_a_leader_keeps_leader_and_epoch(leader: int) -> None:
    state = partition(leader, (1, 2))
    changed = changed_partition(state, ChangePartition(topic_id=TOPIC_ID, partition=0, isr=(1,)))
    assert (changed.leader, changed.leader_epoch, changed.partition_epoch) == (leader, 7, 21)
