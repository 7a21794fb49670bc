"""Each kind of plan for a cluster in a file: six brokers in three racks, two disks each, the sixth of them empty."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from placement_models import broker, facts_of, model, partition

from ottla.admin import ClusterFacts, dump_facts
from ottla.cli import main

GIB = 1 << 30
Plan = Callable[..., Result]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """`plan("rebalance")`, for the first of two samples; for both of them with `samples=2`."""
    monkeypatch.chdir(tmp_path)
    brokers = [broker(number, rack="abc"[number % 3], disks=[100 * GIB, 101 * GIB]) for number in range(1, 7)]
    partitions = [
        partition("orders", at, (at + 1) * GIB, [1 + at % 5, 1 + (at + 1) % 5], rate=at % 5 == 0) for at in range(10)
    ]
    cluster = model(brokers, partitions)
    first = facts_of(cluster)
    later = facts_of(replace(cluster, partitions=tuple(map(written, cluster.partitions))))
    Path("first.json").write_bytes(dump_facts(with_offsets(first, 0)))
    Path("later.json").write_bytes(dump_facts(replace(with_offsets(later, 1_000), at_ms=30_000)))

    def run(*arguments: str, samples: int = 1) -> Result:
        files = [f"--facts={name}" for name in ("first.json", "later.json")[:samples]]
        return CliRunner().invoke(main, ["plan", *arguments, *files], env={"OTTLA_CLUSTERS": "none.toml"})

    return run


def written(each: Any) -> Any:
    """Every fifth partition, each of which broker 1 leads, grows by 300 MB in half a minute; the others by 3 MB."""
    return replace(each, size=each.size + (300_000_000 if each.rate else 3_000_000))


def with_offsets(facts: ClusterFacts, end: int) -> ClusterFacts:
    """Without offsets nobody can tell what was written."""
    topics = tuple(
        replace(
            topic, partitions=tuple(replace(each, log_start=0, high_watermark=1 + end) for each in topic.partitions)
        )
        for topic in facts.topics
    )
    return replace(facts, topics=topics)


def lines_of(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout)["items"])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["rebalance"], "above its fair share"),
        (["add-brokers", "6"], "above its fair share"),
        (["remove-brokers", "1,2"], "is to be emptied"),
        (["replication-factor", "orders", "3"], "it has 2 replicas, 3 are wanted"),
        (["dirs"], "is fuller than its other disks"),
        (["leaders"], "× the mean"),
    ],
)
def test_every_kind_of_plan_says_why_each_partition_moves_and_shows_brokers_and_disks(
    plan: Plan, arguments: list[str], why: str
) -> None:
    items = lines_of(plan(*arguments, "--format", "json"))
    assert items
    assert all(each["why"] for each in items)
    assert any(why in each["why"] for each in items), {each["why"] for each in items}
    picture = plan(*arguments, "--format", "table")
    assert "░" in picture.stdout
    assert "█" in picture.stdout
    assert "/d1" in picture.stdout, "each disk before and after"
    assert "can be reached" in picture.stderr


def test_two_samples_weigh_leaders_by_what_is_written(plan: Plan) -> None:
    by_size = plan("leaders", "--format", "json")
    by_rate = plan("leaders", "--format", "json", samples=2)
    assert "leaders by size" in by_size.stderr
    assert "leaders by write rate 5.77 → 2.94 × the mean" in by_rate.stderr, by_rate.stderr
    assert {each["partition"] for each in lines_of(by_rate)} & {0, 5}, "what is written most has another leader"


def test_what_may_not_move_stays(plan: Plan) -> None:
    assert lines_of(plan("rebalance", "--topics", "other*", "--format", "json")) == []
    assert lines_of(plan("rebalance", "--exclude", "ord*", "--format", "json")) == []
    refused = plan("remove-brokers", "1", "--max-fill", "0.05")
    assert refused.exit_code == 2
    assert "found no broker that can take its replica" in refused.stderr


def test_a_plan_is_the_same_every_time(plan: Plan) -> None:
    assert plan("rebalance", "--format", "json").stdout == plan("rebalance", "--format", "json").stdout
