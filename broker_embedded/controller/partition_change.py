"""Decides who leads a partition: from its state and a target to a change record.

The rules are those of Kafka's KRaft controller without eligible leader replicas (KIP-966):

- The ISR is never empty. Its last member stays in it when it is gone: it alone is known to have everything that was
  acknowledged, so no other replica may lead without an unclean election.
- A clean leader is alive and in the ISR: the present one if it still is, else the first in order of preference.
- An unclean election takes the first replica that is alive. It is then alone in the ISR, and RECOVERING.
- The leader epoch moves when the leader changes and when a replica is taken away (its fetches have to be fenced), not
  when the ISR shrinks or grows (KAFKA-15021). The partition epoch moves with every change.
- A reassignment is complete when all replicas that are added are in the ISR and one member remains without those that
  are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from broker_embedded.common.types import NO_LEADER
from broker_embedded.metadata.image import LOST_DIRECTORY, UNASSIGNED_DIRECTORY, ClusterImage, PartitionImage
from broker_embedded.metadata.records import ChangePartition, LeaderRecoveryState
from ottla_wire.facts import fact


class Election(Enum):
    """The replicas that an election may choose from."""

    ONLINE = "online"
    """From the ISR, to keep the partition online; the present leader stays if it can."""
    PREFERRED = "preferred"
    """From the ISR, the first replica before the present leader."""
    UNCLEAN = "unclean"
    """From the ISR, else any live replica: records that only the others had are lost."""


@fact
class PartitionTarget:
    """The target state of a partition; None keeps a field."""

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    recovery: LeaderRecoveryState | None = None


UNCHANGED = PartitionTarget()


def change_partition(
    image: ClusterImage,
    topic_id: bytes,
    state: PartitionImage,
    target: PartitionTarget = UNCHANGED,
    *,
    election: Election = Election.ONLINE,
) -> ChangePartition | None:
    """Return the record that changes the partition to `target` and elects a leader for it; None without a change. Live
    brokers are taken from `image`.

    Who is alive is what `image` says.
    """
    isr = state.isr if target.isr is None else target.isr
    replicas = state.replicas if target.replicas is None else target.replicas
    adding = state.adding_replicas if target.adding is None else target.adding
    removing = state.removing_replicas if target.removing is None else target.removing
    recovery = state.leader_recovery_state if target.recovery is None else target.recovery
    if adding or removing:
        completed = _without(isr, removing)
        if completed and set(adding) <= set(completed):
            isr, replicas = completed, _without(replicas, removing)
            adding = removing = ()
    leader, is_clean = _elect(image, state, replicas, isr, election)
    if not is_clean:
        isr, recovery = (leader,), LeaderRecoveryState.RECOVERING
    isr = isr or state.isr
    takes_replica_away = not set(state.replicas) <= set(replicas)
    names_leader = leader != state.leader or takes_replica_away
    change = ChangePartition(
        topic_id=topic_id,
        partition=state.partition,
        isr=_if_new(isr, state.isr),
        leader=leader if names_leader else None,
        replicas=_if_new(replicas, state.replicas),
        adding_replicas=_if_new(adding, state.adding_replicas),
        removing_replicas=_if_new(removing, state.removing_replicas),
        leader_recovery_state=None if recovery == state.leader_recovery_state else recovery,
        directories=_directories(state, isr, replicas, leader),
    )
    nothing = ChangePartition(topic_id=topic_id, partition=state.partition)
    return None if change == nothing else change


def _elect(
    image: ClusterImage, state: PartitionImage, replicas: Sequence[int], isr: Sequence[int], election: Election
) -> tuple[int, bool]:
    """Return (leader, whether the election was clean); NO_LEADER without a candidate."""
    able = [node for node in replicas if _holds_data(image, state, node, isr)]
    candidates = [node for node in able if node in isr]
    if election is Election.PREFERRED and candidates and candidates[0] == replicas[0]:
        return candidates[0], True
    if state.leader in candidates:
        return state.leader, True
    if candidates:
        return candidates[0], True
    if election is Election.UNCLEAN:
        # Whoever has some of the data comes before who has lost its directory.
        alive = [*able, *(node for node in replicas if image.is_active(node))]
        if alive:
            return alive[0], False
    return NO_LEADER, True


def _holds_data(image: ClusterImage, state: PartitionImage, node: int, isr: Sequence[int]) -> bool:
    """Return whether a replica's broker may lead and still has the replica's directory."""
    broker = image.brokers.get(node)
    if broker is None or not broker.is_active:
        return False
    return _is_whole_again(state, node, isr) or broker.has_directory(state.directory_of(node))


def _is_whole_again(state: PartitionImage, node: int, isr: Sequence[int]) -> bool:
    """Return whether a replica that had lost its directory is in sync again, and so has all records."""
    return state.directory_of(node) == LOST_DIRECTORY and node in isr and node not in state.isr


def _directories(
    state: PartitionImage, isr: Sequence[int], replicas: Sequence[int], leader: int
) -> tuple[bytes, ...] | None:
    """Return the directories without the marks of replicas that are in sync again, or that lead without being so."""
    if LOST_DIRECTORY not in state.directories:
        return None

    def directory(node: int) -> bytes:
        known = state.directory_of(node)
        leads_empty = node == leader and known == LOST_DIRECTORY
        return UNASSIGNED_DIRECTORY if leads_empty or _is_whole_again(state, node, isr) else known

    after = tuple(directory(node) for node in replicas)
    before = tuple(state.directory_of(node) for node in replicas)
    return None if after == before else after


def _without(nodes: Sequence[int], gone: Sequence[int]) -> tuple[int, ...]:
    return tuple(node for node in nodes if node not in gone)


def _if_new(after: tuple[int, ...], before: tuple[int, ...]) -> tuple[int, ...] | None:
    return None if after == before else after
