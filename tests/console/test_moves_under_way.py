"""Moves that the console did not begin: seen, throttled and cancelled there, and what is set is put back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from console_kit import Running, running_console
from plan_runs import filled_topic, interrupt_when, moves, moving, replicas, run, throttles

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, Part
from ottla.admin.placement import move_requests as asks
from ottla.admin.placement.move_plan import Move
from ottla.admin.placement.run_throttles import RATES
from ottla.cli.shared.cluster_options import cluster_settings
from ottla.console.state import ConsoleOptions
from ottla.records import TopicPartition
from ottla.testing import wait_until

_numbers = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, timeout_s=20) as made:
        yield made


class Foreign:
    """A plan that a command began and left to the brokers, throttled so that it does not end by itself."""

    def __init__(self, admin: Admin, cluster: EmbeddedCluster, folder: Path) -> None:
        self.admin = admin
        self.topic = filled_topic(admin, cluster.bootstrap_servers, f"foreign-{next(_numbers)}", partitions=2)
        self.journal = folder / "foreign.journal"
        self.before = throttles(admin, self.topic)
        self.planned: tuple[Move, ...] = moves(admin, self.topic, numbers=range(2))
        interrupt_when(admin, self.planned, self.journal, lambda seen: moving(seen) == 2, throttle=1_000)
        self.left = throttles(admin, self.topic)

    @property
    def throttles(self) -> dict[str, object]:
        return throttles(self.admin, self.topic)

    def end(self) -> None:
        """The same command again: it sees the moves to their end, and puts its throttles back."""
        assert run(self.admin, self.planned, self.journal).is_complete


@pytest.fixture
def foreign(admin: Admin, cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Foreign]:
    yield Foreign(admin, cluster, tmp_path)
    admin.carry_out(
        asks.cancel([TopicPartition(each.topic, each.partition) for each in admin.facts({Part.MOVES}).moves])
    )


@pytest.fixture
def console(cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Running]:
    kafka = cluster_settings(cluster.bootstrap_servers, {}, environ={})
    with running_console(kafka, ConsoleOptions(may_write=True, folder=tmp_path, every_s=1.0)) as running:
        yield running


def state_of_throttle(console: Running) -> str:
    (job,) = [each for each in console.get("jobs")["items"] if each["kind"] == "throttle"]
    return str(job["state"])


def audit(folder: Path, what: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "ottla-console-audit.jsonl").read_text().splitlines()]
    return [each for each in lines if each["what"] == what]


def test_moves_of_others_are_cancelled_one_and_then_all(
    console: Running, admin: Admin, foreign: Foreign, tmp_path: Path
) -> None:
    topic = foreign.topic
    assert {(each["partition"], tuple(each["adding"])) for each in console.get("moves")["items"]} == {
        (0, (3,)),
        (1, (3,)),
    }
    done = console.post("moves/cancel", moves=[[topic, 1], [topic, 77]]).json
    assert (done["cancelled"], done["refused"], done["over"]) == ([f"{topic}-1"], [], [f"{topic}-77"])
    assert [each["partition"] for each in console.get("moves")["items"]] == [0]
    assert console.post("moves/cancel", moves=[[topic, 0], [topic, 1]]).json["cancelled"] == [f"{topic}-0"]
    assert not admin.facts({Part.MOVES}).moves
    assert {frozenset(each) for each in replicas(admin, topic)} == {frozenset({1, 2})}
    assert foreign.throttles == foreign.left, "what another tool has set stays as it set it"
    first, second = audit(tmp_path, "moves.cancel")
    assert (first["subject"], set(first["after"][f"{topic}-1"])) == (f"{topic}-1", {1, 2})
    assert second["subject"] == f"{topic}-0"
    assert console.post("moves/cancel", moves=[[topic, 0]]).json["over"] == [f"{topic}-0"]
    assert len(audit(tmp_path, "moves.cancel")) == 2, "nothing was changed, so nothing is in the audit file"
    foreign.end()


def test_what_a_move_waits_for_is_told(console: Running, cluster: EmbeddedCluster, foreign: Foreign) -> None:
    assert {each["why"] for each in console.get("moves")["items"]} == {""}
    cluster.kill(3)
    try:
        down = {"waits for broker 3, which is down"}
        wait_until(lambda: {each["why"] for each in console.get("moves")["items"]} == down, 60)
    finally:
        cluster.start_broker(3)
    foreign.end()


@pytest.mark.complete
def test_a_throttle_of_moves_of_others_is_taken_away_when_they_are_over(
    console: Running, admin: Admin, foreign: Foreign, tmp_path: Path
) -> None:
    begun = console.post("moves/throttle", throttle="2kB")
    assert (begun.status, begun.json["progress"]["throttle"]) == (200, 2_000), begun.content
    assert {admin.broker_settings(each)[RATES[0]].value for each in (1, 2, 3)} == {"2000"}
    again = console.post("moves/throttle", throttle="500MB").json
    assert (again["id"], again["progress"]["throttle"]) == (begun.json["id"], 500_000_000)
    wait_until(lambda: not admin.facts({Part.MOVES}).moves, 60, what="the moves have ended")
    wait_until(lambda: state_of_throttle(console) == "done", 60)
    assert foreign.throttles == foreign.left
    lines = audit(tmp_path, "moves.throttle")
    rate = f"broker 1 {RATES[0]}"
    assert [(each["before"][rate], each["after"][rate]) for each in lines] == [("1000", "2000"), ("1000", "500000000")]
    foreign.end()
    assert foreign.throttles == foreign.before
    assert console.post("moves/throttle", throttle="1MB").status == 400, "nothing moves"


def test_a_throttle_is_taken_away_by_hand_and_the_moves_go_on(console: Running, admin: Admin, foreign: Foreign) -> None:
    job = console.post("moves/throttle", throttle="2kB").json
    assert foreign.throttles != foreign.left
    assert console.post("jobs/stop", id=job["id"]).status == 200
    wait_until(lambda: state_of_throttle(console) == "stopped", 60)
    assert foreign.throttles == foreign.left
    assert admin.facts({Part.MOVES}).moves
    foreign.end()


def test_what_somebody_changed_meanwhile_is_not_put_back(console: Running, foreign: Foreign) -> None:
    assert console.post("moves/throttle", throttle="2kB").status == 200
    foreign.end()  # its throttles are as before it, while ours still waits for the end of the moves
    wait_until(lambda: state_of_throttle(console) == "done", 60)
    assert foreign.throttles == foreign.before


def test_a_console_that_ends_leaves_the_throttle_to_the_moves(console: Running, admin: Admin, foreign: Foreign) -> None:
    assert console.post("moves/throttle", throttle="2kB").status == 200
    console.console.jobs.close()
    assert admin.facts({Part.MOVES}).moves
    assert {admin.broker_settings(each)[RATES[0]].value for each in (1, 2, 3)} == {"2000"}
    foreign.end()
    assert foreign.throttles == foreign.before


def test_a_throttle_without_a_place_for_its_audit_is_not_set(
    console: Running, foreign: Foreign, tmp_path: Path
) -> None:
    (tmp_path / "ottla-console-audit.jsonl").mkdir()
    for name, given in (("moves/throttle", {"throttle": "2kB"}), ("moves/cancel", {"moves": [[foreign.topic, 0]]})):
        refused = console.post(name, **given)
        assert (refused.status, "nothing was changed" in refused.json["error"]["message"]) == (400, True)
    assert foreign.throttles == foreign.left
    assert len(console.get("moves")["items"]) == 2
    foreign.end()


@pytest.mark.parametrize(
    "wrong", [None, [], {}, "orders-0", [["orders"]], [["orders", "0"]], [["orders", -1]], [[1, 0]]]
)
def test_moves_that_are_none_are_refused(console: Running, wrong: Any) -> None:
    refused = console.post("moves/cancel", moves=wrong)
    assert (refused.status, refused.json["error"]["message"].startswith("moves: ")) == (400, True)


def test_moves_of_a_cluster_that_asks_its_name_are_changed_with_it_alone(
    cluster: EmbeddedCluster, foreign: Foreign, tmp_path: Path
) -> None:
    kafka = cluster_settings(cluster.bootstrap_servers, {}, environ={})
    with running_console(
        kafka, ConsoleOptions(may_write=True, folder=tmp_path, name="prod", asks_name=True)
    ) as console:
        chosen = [[foreign.topic, 0]]
        for typed in ({}, {"confirm": "PROD"}):
            for name, given in (("moves/throttle", {"throttle": "2kB"}), ("moves/cancel", {"moves": chosen})):
                refused = console.post(name, **given, **typed)
                assert (refused.status, "prod" in refused.json["error"]["message"]) == (400, True)
        assert not (tmp_path / "ottla-console-audit.jsonl").exists()
        assert console.post("moves/cancel", moves=chosen, confirm="prod").json["cancelled"] == [f"{foreign.topic}-0"]
    foreign.end()
