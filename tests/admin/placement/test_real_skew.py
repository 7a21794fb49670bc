"""Skew as it is in life: real flights, a partition for each carrier. United has 1,800 times the bytes of SkyWest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import confluent_kafka
import pytest
from placement_models import broker, check_plan, model, partition
from plan_runs import PARTS, run

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.modelling import model_of
from ottla.admin.placement.move_plan import fullest, leader_skew
from ottla.admin.placement.placement_state import Goals
from ottla.admin.placement.plan_judgement import plan_of
from ottla.admin.placement.planners import add_brokers, rebalance, remove_brokers
from ottla.cli.demo.data import read_flights
from ottla.cli.demo.model import Flight
from ottla.serdes import Avro, SerdeContext

pytestmark = pytest.mark.complete

GOALS = Goals()
BY = {"carrier": 16, "origin": 3, "dest": 12, "tailnum": 24}
"""Topics: by what flights are keyed, and how many partitions each has."""


@cache
def flights() -> Sequence[Flight]:
    return read_flights(336_776)


@cache
def sizes(field: str) -> list[int]:
    """The bytes of each partition of a topic that is keyed by a field: a key for itself, or several in turn."""
    counts = Counter(str(getattr(flight, field)) for flight in flights())
    each = len(Avro(Flight).serialize(flights()[0], SerdeContext("flights", "value", ())) or b"")
    found = [0] * BY[field]
    for number, (_, count) in enumerate(sorted(counts.items())):
        found[number % BY[field]] += count * each * 100
    return found


def flown(brokers: int, *, joined: int = 0) -> Model:
    """The four topics on brokers in three racks, two replicas each, placed by number as Kafka places them."""
    made = [broker(number, rack=f"r{number % 3}", disks=[200 << 30]) for number in range(1, brokers + joined + 1)]
    partitions = []
    for shift, field in enumerate(BY):
        for number, size in enumerate(sizes(field)):
            first = (number + shift) % brokers
            held = [first + 1, (first + 1 + (number // brokers) % (brokers - 1)) % brokers + 1]
            partitions.append(partition(f"by-{field}", number, size, held, rate=size / 86_400))
    return model(made, partitions, rates=True)


def test_flights_are_skewed_by_carrier() -> None:
    found = sizes("carrier")
    assert max(found) > 1_000 * min(found)


@pytest.mark.parametrize("brokers", [4, 6, 9])
@pytest.mark.parametrize("what", ["rebalance", "add-brokers", "remove-brokers"])
def test_plans_for_real_skew_come_close_to_what_can_be_reached(what: str, brokers: int) -> None:
    cluster = flown(brokers, joined=2 if what == "add-brokers" else 0)
    removed = [1] if what == "remove-brokers" else []
    if what == "rebalance":
        plan = rebalance(cluster, goals=GOALS)
    elif what == "add-brokers":
        plan = add_brokers(cluster, [brokers + 1, brokers + 2], goals=GOALS)
    else:
        plan = remove_brokers(cluster, removed, goals=GOALS)
    check_plan(cluster, plan, GOALS, removed=removed)
    assert fullest(plan.after) <= max(plan.floor.level * 1.15, fullest(plan.before) if not plan.moves else 0)
    if what != "remove-brokers":
        assert leader_skew(plan.after) <= leader_skew(plan.before) + 1e-9
    again = {"rebalance": rebalance(cluster, goals=GOALS)}.get(what, plan)
    assert again.moves == plan.moves, "the same twice"


@pytest.mark.slow
def test_flights_by_carrier_on_a_cluster_become_even(tmp_path: Path) -> None:
    carriers = sorted({flight.carrier for flight in flights()})
    serde, context = Avro(Flight), SerdeContext("flights", "value", ())
    with (
        EmbeddedCluster(brokers=3, log_dir_bytes=[1 << 30]) as cluster,
        Admin(cluster.bootstrap_servers, timeout_s=20) as admin,
    ):
        admin.create_topics({"flights": TopicSpec(partitions=len(carriers), replication_factor=1)})
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 20})
        for flight in flights()[:20_000]:
            producer.produce("flights", serde.serialize(flight, context), partition=carriers.index(flight.carrier))
            producer.poll(0)
        assert producer.flush(60) == 0
        joined = cluster.add_broker()
        now = model_of(admin.facts(PARTS))
        plan = add_brokers(now, [joined], goals=GOALS)
        assert run(admin, plan.moves, tmp_path / "journal", patience_s=60).is_complete
        after = plan_of((), model_of(admin.facts(PARTS)), goals=GOALS)
    assert fullest(after.before) < fullest(plan.before)
    assert fullest(after.before) <= plan.floor.level * 1.15
    assert min(load.level or 0.0 for load in after.before) > 0.5
    records = sum(each.size for each in now.partitions)
    assert sum(load.bytes for load in after.before) == pytest.approx(records, rel=0.01), "nothing is lost"
