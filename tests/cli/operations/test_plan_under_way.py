"""`ottla plan status` and `cancel` without a file: all that moves, also of other tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_output import Run, document
from plan_runs import filled_topic, interrupt_when, moves, moving, replicas, run, throttles

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, Part
from ottla.admin.placement.move_plan import Move
from ottla.testing import wait_until

pytestmark = [pytest.mark.complete, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def topic(admin: Admin, cluster: EmbeddedCluster) -> Iterator[str]:
    """Two partitions on brokers 1 and 2."""
    name = filled_topic(admin, cluster.bootstrap_servers, "foreign", partitions=2)
    yield name
    admin.delete_topics(name)
    wait_until(lambda: name not in admin.facts((Part.TOPICS,)).by_topic)


@pytest.fixture
def planned(admin: Admin, topic: str, tmp_path: Path) -> tuple[Move, ...]:
    """Their moves to broker 3, begun by another tool and throttled so that they do not end by themselves."""
    found: tuple[Move, ...] = moves(admin, topic, numbers=range(2))
    interrupt_when(admin, found, tmp_path / "foreign.journal", lambda seen: moving(seen) == 2, throttle=1_000)
    return found


def test_all_that_moves_is_shown_and_cancelled(
    ottla: Run, admin: Admin, topic: str, planned: tuple[Move, ...], tmp_path: Path
) -> None:
    shown = document(ottla("plan", "status", "--format", "json"), "ottla.plan.status/1")
    assert [(each["topic"], each["partition"], each["state"]) for each in shown["items"]] == [
        (topic, 0, "moves"),
        (topic, 1, "moves"),
    ]
    assert [each["bytes"] for each in shown["items"]] == [each.bytes for each in planned]
    assert all(0 <= each["copied"] <= each["bytes"] for each in shown["items"])
    (receives,) = shown["brokers"]
    assert (receives["broker"], receives["moves"]) == (3, 2)
    assert receives["bytes"] == sum(each["bytes"] for each in shown["items"])
    assert receives["copied"] <= receives["bytes"]
    held = throttles(admin, topic)
    unasked = ottla("plan", "cancel", "--format", "json")
    assert unasked.exit_code == 2
    (_, second) = document(unasked, "ottla.plan.cancel/1")["items"]
    assert (second["topic"], second["partition"], sorted(second["replicas"])) == (topic, 1, [1, 2])
    assert "Cancel all 2 moves in progress, also those of other tools?" in unasked.stderr
    assert ottla("plan", "cancel", "--dry-run").exit_code == 0
    assert len(admin.facts({Part.MOVES}).moves) == 2
    done = ottla("plan", "cancel", "--yes")
    assert done.exit_code == 0, done.output
    assert "2 moves are cancelled" in done.stderr
    assert f"throttles of {topic} are left" in done.stderr
    assert not admin.facts({Part.MOVES}).moves
    assert {frozenset(each) for each in replicas(admin, topic)} == {frozenset({1, 2})}
    assert throttles(admin, topic) == held, "they belong to who set them"
    assert document(ottla("plan", "status", "--format", "json"), "ottla.plan.status/1")["items"] == []
    assert "nothing moves" in ottla("plan", "cancel", "--yes").stderr
    run(admin, planned, tmp_path / "foreign.journal")  # takes its throttles away


def test_what_a_move_waits_for_is_told(
    ottla: Run, admin: Admin, cluster: EmbeddedCluster, planned: tuple[Move, ...], tmp_path: Path
) -> None:
    cluster.kill(3)
    try:
        wait_until(
            lambda: "waits for broker 3, which is down" in ottla("plan", "status").stdout, 60, what="the dead is named"
        )
    finally:
        cluster.start_broker(3)
    assert ottla("plan", "cancel", "--yes").exit_code == 0
    run(admin, planned, tmp_path / "foreign.journal")


@pytest.mark.parametrize("option", [("--revert",), ("--throttle", "5MB")])
def test_what_needs_the_plan_is_refused_without_it(ottla: Run, option: tuple[str, ...]) -> None:
    refused = ottla("plan", "cancel", *option, "--yes")
    assert refused.exit_code == 2
    assert "found --revert or --throttle without FILE" in refused.stderr
