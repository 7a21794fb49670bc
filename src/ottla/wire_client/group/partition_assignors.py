"""Who of a classic group gets which partitions, decided by the group's leader. Pure: the same input, the same answer.

`range` gives each member the partitions of the same numbers of all its topics. `cooperative-sticky` lets every member
keep what it has as far as that is fair, and hands a partition on only after its owner has released it (KIP-429): it is
left out of the assignment that takes it away, and the owner's next JoinGroup begins the round that gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.errors import ConfigError
from ottla.topics import TopicPartition

Assignment = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member's JoinGroup data."""

    member_id: str
    instance_id: str | None = None
    topics: frozenset[str] = frozenset()
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    """In which generation it owned them: of two members that name one partition, the newer owner is right."""

    @property
    def rank(self) -> tuple[bool, str]:
        """Static members by their name (KIP-345), so that a restart changes nothing; then the others."""
        return (self.instance_id is None, self.instance_id or self.member_id)


def range_assign(members: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    """Assign topic by topic, a stretch of its partitions for each member in order."""
    found: Assignment = {member.member_id: [] for member in members}
    for topic in sorted(partitions):
        takers = sorted((member for member in members if topic in member.topics), key=lambda member: member.rank)
        if not takers:
            continue
        each, more = divmod(partitions[topic], len(takers))
        start = 0
        for number, member in enumerate(takers):
            end = start + each + (number < more)
            found[member.member_id] += [TopicPartition(topic, index) for index in range(start, end)]
            start = end
    return found


def cooperative_sticky_assign(members: Sequence[Subscriber], partitions: Mapping[str, int]) -> Assignment:
    """Assign evenly, and as before where possible; partitions that move are withheld until the next rebalance
    (KIP-429)."""
    owners = _owners(members)
    wanted = _balanced(members, partitions, owners)
    return {
        name: sorted(place for place in places if owners.get(place, name) == name) for name, places in wanted.items()
    }


def _owners(members: Iterable[Subscriber]) -> dict[TopicPartition, str | None]:
    """Return the current owner of each partition. None if two members of one generation claim the same one: both must
    release it first, as in Kafka's assignor."""
    found: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        for place in set(member.owned):
            generation, _ = found.get(place, (-2, None))
            if member.generation > generation:
                found[place] = (member.generation, member.member_id)
            elif member.generation == generation:
                found[place] = (generation, None)
    return {place: name for place, (_, name) in found.items()}


def _balanced(
    members: Sequence[Subscriber], partitions: Mapping[str, int], owners: Mapping[TopicPartition, str | None]
) -> dict[str, set[TopicPartition]]:
    everything = [TopicPartition(topic, index) for topic in sorted(partitions) for index in range(partitions[topic])]
    topics_of = {member.member_id: member.topics for member in members}
    order = [member.member_id for member in sorted(members, key=lambda member: member.rank)]
    found: dict[str, set[TopicPartition]] = {name: set() for name in order}
    free: list[TopicPartition] = []
    for place in everything:
        owner = owners.get(place)
        if owner is not None and place.topic in topics_of.get(owner, ()):
            found[owner].add(place)
        else:
            free.append(place)
    for place in free:
        takers = [name for name in order if place.topic in topics_of[name]]
        if takers:
            found[min(takers, key=lambda name: len(found[name]))].add(place)
    # Move one partition at a time from whoever has the most to whoever may have it and has two less.
    while True:
        move = _next_move(found, topics_of, order)
        if move is None:
            return found
        place, giver, taker = move
        found[giver].discard(place)
        found[taker].add(place)


def _next_move(
    found: Mapping[str, set[TopicPartition]], topics_of: Mapping[str, frozenset[str]], order: Sequence[str]
) -> tuple[TopicPartition, str, str] | None:
    fullest = sorted(order, key=lambda name: -len(found[name]))
    emptiest = sorted(order, key=lambda name: len(found[name]))
    for giver in fullest:
        for taker in emptiest:
            if len(found[giver]) < len(found[taker]) + 2:
                break  # and those behind have more still
            movable = [place for place in found[giver] if place.topic in topics_of[taker]]
            if movable:
                return max(movable), giver, taker
    return None


Assign = Callable[[Sequence[Subscriber], Mapping[str, int]], Assignment]

ASSIGNORS: Final[Mapping[str, Assign]] = {"cooperative-sticky": cooperative_sticky_assign, "range": range_assign}
COOPERATIVE: Final = frozenset({"cooperative-sticky"})
"""Those with which a member keeps its partitions while the group rebalances."""


def assignors_of(strategy: str) -> tuple[str, ...]:
    """Return the names in `partition.assignment.strategy`. ConfigError for one that this client does not have."""
    names = tuple(name.strip() for name in strategy.split(",") if name.strip())
    for name in names or ("",):
        if name not in ASSIGNORS:
            raise ConfigError(
                f"partition.assignment.strategy: found {name!r}, wanted {' or '.join(ASSIGNORS)}: others need a "
                "handler without columns=True"
            )
    if len({name in COOPERATIVE for name in names}) > 1:
        raise ConfigError(
            f"partition.assignment.strategy: found {strategy!r}, wanted one kind: in a rebalance members "
            "revoke either all partitions, or only those that move"
        )
    return names
