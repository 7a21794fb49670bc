"""The benchmark of plans has Kafka's own method beside it: what it takes for that is what the tool really proposes."""

from __future__ import annotations

import json
from itertools import permutations, product
from pathlib import Path

import pytest
from apache_kafka import Unavailable, run_tool, tools
from kafka_placement import by_rack, rotated, stripe

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec

COMMAND = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
PARTITIONS = 12

pytestmark = [pytest.mark.complete, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("racks", [None, ["a", "b", "c", "a", "b"]], ids=["without racks", "in three racks"])
@pytest.mark.parametrize("factor", [2, 3])
def test_kafka_generates_what_the_benchmark_takes_for_its_method(
    racks: list[str] | None, factor: int, tmp_path: Path
) -> None:
    try:
        tools()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with EmbeddedCluster(brokers=5, racks=racks) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics({"t": TopicSpec(partitions=PARTITIONS, replication_factor=factor)})
        topics = tmp_path / "topics.json"
        topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
        chosen = ["--topics-to-move-json-file", str(topics), "--broker-list", "1,2,3,4,5", "--generate"]
        printed = run_tool(COMMAND, "--bootstrap-server", cluster.bootstrap_servers, *chosen)
    proposal = json.loads(printed.partition("Proposed partition reassignment configuration")[2])
    theirs = {each["partition"]: tuple(each["replicas"]) for each in proposal["partitions"]}
    lists = by_rack(dict(zip(range(1, 6), racks or [""] * 5, strict=True)))
    orders = [list(order) for held in product(*(permutations(each) for each in lists)) for order in permutations(held)]
    possible = [stripe(order, factor) for order in orders]
    for first in range(0, PARTITIONS, 5):
        found = [theirs[number] for number in range(first, min(first + 5, PARTITIONS))]
        assert found in [each[: len(found)] for each in possible], f"partitions {first} and following"
    begun = product(*([rotated(held, by) for by in range(len(held))] for held in lists))
    first_stripes = [stripe(rotated(each, at), factor) for each in begun for at in range(len(lists))]
    assert [theirs[number] for number in range(5)] in first_stripes, "the first stripe is not shuffled"
