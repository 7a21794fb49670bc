"""Links between nodes: which are cut or slow, and who is told."""

from __future__ import annotations

import pytest

from broker_embedded.cluster.faults import Links


@pytest.fixture
def links() -> Links:
    return Links(nodes=lambda: (1, 2, 3))


def test_nothing_is_wrong_with_new_links(links: Links) -> None:
    assert links.problem(1, 2) is None
    assert links.delay_ms(1, 2) == 0
    assert links.to_json() == []


def test_a_cut_link_says_why_in_both_directions(links: Links) -> None:
    links.cut(1, 2)
    assert links.problem(1, 2) == "the link from node 1 to node 2 is cut"
    assert links.problem(2, 1) == "the link from node 2 to node 1 is cut"
    assert links.problem(1, 3) is None


def test_a_link_can_be_cut_one_way(links: Links) -> None:
    links.cut(1, 2, one_way=True)
    assert links.problem(1, 2)
    assert links.problem(2, 1) is None


def test_an_isolated_node_reaches_itself_only(links: Links) -> None:
    links.isolate(2)
    assert [links.problem(*link) for link in ((2, 1), (3, 2))] == ["node 2 is isolated", "node 2 is isolated"]
    assert links.problem(2, 2) is None
    assert links.problem(1, 3) is None


def test_healing_one_pair_leaves_the_others_cut(links: Links) -> None:
    links.cut(1, 2)
    links.cut(1, 3)
    links.slow(1, 2, delay_ms=40)
    links.heal(2, 1)
    assert links.problem(1, 2) is links.problem(2, 1) is None
    assert links.delay_ms(1, 2) == 0
    assert links.problem(1, 3)


def test_healing_a_node_heals_all_its_links(links: Links) -> None:
    links.cut(1, 2)
    links.cut(1, 3)
    links.cut(2, 3)
    links.isolate(1)
    links.heal(1)
    assert links.problem(1, 2) is links.problem(3, 1) is None
    assert links.problem(2, 3)
    links.heal()
    assert links.to_json() == []


def test_healing_a_pair_does_not_end_the_isolation_of_a_node(links: Links) -> None:
    links.isolate(1)
    links.heal(1, 2)
    assert links.problem(1, 2)


def test_a_slow_link_says_by_how_much(links: Links) -> None:
    links.slow(1, 2, delay_ms=40, one_way=True)
    assert (links.delay_ms(1, 2), links.delay_ms(2, 1)) == (40, 0)
    assert links.to_json() == [{"source": 1, "target": 2, "state": "slow", "delay_ms": 40}]
    links.slow(1, 2, delay_ms=0)
    assert links.to_json() == []


def test_who_holds_connections_is_told_after_each_change(links: Links) -> None:
    seen: list[str | None] = []
    links.on_change(lambda: seen.append(links.problem(1, 2)))
    links.cut(1, 2)
    links.heal()
    assert seen == ["the link from node 1 to node 2 is cut", None]


def test_links_that_cannot_be_are_refused_by_name(links: Links) -> None:
    with pytest.raises(ValueError, match="node: found 7, wanted one of 1, 2, 3"):
        links.cut(1, 7)
    with pytest.raises(ValueError, match="node 1 at both ends"):
        links.cut(1, 1)
    with pytest.raises(ValueError, match="delay_ms: found -1"):
        links.slow(1, 2, delay_ms=-1)
    with pytest.raises(ValueError, match="name it first"):
        links.heal(None, 2)
