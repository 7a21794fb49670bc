"""Replicas of new partitions: spread over racks, leaders over brokers."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.controller import placement
from broker_embedded.metadata.image import BrokerImage, ClusterImage


def cluster(racks: list[str | None], *, fenced: frozenset[int] = frozenset()) -> ClusterImage:
    """Brokers 1, 2, ... in the given racks."""
    return ClusterImage(
        cluster_id="c",
        brokers={
            node: BrokerImage(
                broker_id=node,
                epoch=node,
                incarnation_id=bytes(16),
                host="h",
                port=node,
                rack=rack,
                fenced=node in fenced,
            )
            for node, rack in enumerate(racks, 1)
        },
    )


def test_no_rack_holds_two_replicas_while_another_holds_none() -> None:
    image = cluster(["a", "a", "b", "b", "c", "c"])
    racks = {node: broker.rack for node, broker in image.brokers.items()}
    for replicas in placement.place(image, partitions=60, replication_factor=3):
        assert sorted(racks[node] or "" for node in replicas) == ["a", "b", "c"]


def test_replicas_and_leaders_are_even_over_brokers_where_racks_are_even() -> None:
    placed = placement.place(cluster(["a", "a", "b", "b", "c", "c"]), partitions=60, replication_factor=3)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    shares = Counter(node for replicas in placed for node in replicas)
    assert sum(shares.values()) == 180
    assert max(shares.values()) - min(shares.values()) <= 1


def test_a_rack_gets_a_second_replica_when_there_are_more_replicas_than_racks() -> None:
    image = cluster(["a", "a", "b", "b"])
    racks = {node: broker.rack for node, broker in image.brokers.items()}
    for replicas in placement.place(image, partitions=8, replication_factor=3):
        assert set(Counter(racks[node] for node in replicas).values()) == {1, 2}


@given(
    racks=st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=7),
    fenced=st.frozensets(st.integers(1, 7), max_size=3),
    partitions=st.integers(1, 12),
    data=st.data(),
)
def test_placements_are_possible_live_first_and_balanced(
    racks: list[str | None], fenced: frozenset[int], partitions: int, data: st.DataObject
) -> None:
    image = cluster(racks, fenced=fenced)
    live = [broker.broker_id for broker in image.live_brokers()]
    if not live:
        return
    factor = data.draw(st.integers(1, len(racks)))
    placed = placement.place(image, partitions=partitions, replication_factor=factor)
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in live
        live_replicas = [node for node in replicas if node in live]
        assert len(live_replicas) == min(factor, len(live))
    leads = Counter(replicas[0] for replicas in placed)
    assert max(leads.values()) - min(leads[node] for node in live) <= 1
