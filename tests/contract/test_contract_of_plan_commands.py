"""Three nodes: plans made, judged, run, slowed down, seen and cancelled by commands, as on the embedded broker."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from command_output import Run, document, rows
from plan_runs import filled_topic, plan_document, replicas, throttles

from ottla.admin import Admin, Part
from ottla.admin.placement.journal import SUBMIT, read_journal
from ottla.admin.placement.run_throttles import FOLLOWERS, LEADERS, RATES
from ottla.testing import wait_until

pytestmark = [pytest.mark.client_contract, pytest.mark.complete, pytest.mark.slow, pytest.mark.timeout(600)]

Started = Callable[..., subprocess.Popen[str]]

_numbers = count(1)
SLOW_S = 60
RUN = ("--yes", "--poll", "0.1", "--max-fill", "1", "--sample", "0s")


@pytest.fixture(scope="module")
def bootstrap_servers(three_brokers: str) -> str:
    return three_brokers


@pytest.fixture(scope="module")
def admin(bootstrap_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers, timeout_s=SLOW_S) as made:
        yield made


@pytest.fixture
def topic(bootstrap_servers: str, admin: Admin) -> Iterator[str]:
    """Four partitions on brokers 1 and 2, led by 1."""
    name = f"planned-{os.getpid()}-{next(_numbers)}"
    yield filled_topic(admin, bootstrap_servers, name)
    admin.delete_topics(name)


def test_every_kind_of_plan_is_made(ottla: Run, topic: str) -> None:
    only = ("--topics", topic, "--sample", "0s", "--max-fill", "1")
    as_json = (*only, "--format", "json")
    balanced = document(ottla("plan", "rebalance", *as_json), "ottla.plan.rebalance/1")["items"]
    assert 3 in {broker for each in balanced for broker in each["new"]}, "it is empty"
    added = document(ottla("plan", "add-brokers", "3", *as_json), "ottla.plan.add-brokers/1")["items"]
    assert {broker for each in added for broker in set(each["new"]) - set(each["old"])} == {3}
    emptied = document(ottla("plan", "remove-brokers", "1", *as_json), "ottla.plan.remove-brokers/1")["items"]
    assert len(emptied) == 4
    assert not [each for each in emptied if 1 in each["new"]]
    more = document(ottla("plan", "replication-factor", topic, "3", *as_json), "ottla.plan.replication-factor/1")
    assert [sorted(each["new"]) for each in more["items"]] == [[1, 2, 3]] * 4
    led = document(ottla("plan", "leaders", *as_json), "ottla.plan.leaders/1")["items"]
    assert all(sorted(each["new"]) == sorted(each["old"]) for each in led)
    between = document(ottla("plan", "dirs", *as_json, "--dirs-are-disks"), "ottla.plan.dirs/1")["items"]
    assert all(each["new"] == each["old"] for each in between)
    watched = ottla("plan", "watch", "--once", "--every", "1s", "--max-fill", "1", "--skew", "50", "--format", "json")
    assert watched.exit_code in (0, 1), watched.output
    disks = document(watched, "ottla.plan.watch/1")["items"]
    assert {each["broker"] for each in disks} == {1, 2, 3}


def test_a_plan_is_judged_run_seen_and_reverted(ottla: Run, admin: Admin, topic: str) -> None:
    Path("plan.json").write_bytes(plan_document(topic, (3, 2)))
    judged = ottla("plan", "check", "plan.json", "--sample", "0s", "--max-fill", "1")
    assert (judged.exit_code, len(rows(judged))) == (0, 4)
    states = document(ottla("plan", "status", "plan.json", "--format", "json"), "ottla.plan.status/1")["items"]
    assert {each["state"] for each in states} == {"waits"}
    assert ottla("plan", "cancel", "plan.json", "--yes").exit_code == 2, "no run of it has begun"
    ran = ottla("plan", "run", "plan.json", *RUN)
    assert ran.exit_code == 0, ran.output
    assert replicas(admin, topic) == {(3, 2)}
    states = document(ottla("plan", "status", "plan.json", "--format", "json"), "ottla.plan.status/1")["items"]
    assert {each["state"] for each in states} == {"done"}
    back = ottla("plan", "cancel", "plan.json", "--revert", "--yes", "--poll", "0.1")
    assert back.exit_code == 0, back.output
    assert replicas(admin, topic) == {(1, 2)}


def begun(admin: Admin, started: Started, topic: str) -> subprocess.Popen[str]:
    """A run at a byte per second, when its moves are under way."""
    Path("plan.json").write_bytes(plan_document(topic, (3, 2)))
    process = started("plan", "run", "plan.json", *RUN, "--throttle", "1")
    journal = Path("plan.json.journal")

    def is_under_way() -> bool:
        assert process.poll() is None, process.communicate()
        return SUBMIT in [line["step"] for line in read_journal(journal)] and bool(admin.facts((Part.MOVES,)).moves)

    wait_until(is_under_way, SLOW_S)
    return process


def test_a_throttle_is_changed_while_the_run_goes_on(ottla: Run, admin: Admin, started: Started, topic: str) -> None:
    before = throttles(admin, topic)
    process = begun(admin, started, topic)
    changed = ottla("plan", "throttle", "plan.json", "50MB", "--yes", "--sample", "0s")
    assert changed.exit_code == 0, changed.output
    _, errors = process.communicate(timeout=3 * SLOW_S)
    assert process.returncode == 0, errors
    assert replicas(admin, topic) == {(3, 2)}
    wait_until(lambda: throttles(admin, topic) == before, SLOW_S)


def test_throttles_that_were_left_are_cleared(ottla: Run, admin: Admin, topic: str) -> None:
    before = throttles(admin, topic)
    admin.alter_topic_settings(topic, {LEADERS: "0:1,1:1", FOLLOWERS: "*"})
    admin.alter_broker_settings(2, {RATES[1]: 5_000_000})
    cleared = ottla("plan", "throttle", "--clear", "--yes", "--format", "json")
    assert cleared.exit_code == 0, cleared.output
    items = document(cleared, "ottla.plan.throttle-clear/1")["items"]
    assert [(each["resource"], each["setting"], each["old"], each["new"]) for each in items] == [
        (topic, FOLLOWERS, "*", None),
        (topic, LEADERS, "0:1,1:1", None),
        ("2", RATES[1], "5000000", None),
    ]
    wait_until(lambda: throttles(admin, topic) == before, SLOW_S)


def test_a_run_that_is_interrupted_is_cancelled(ottla: Run, admin: Admin, started: Started, topic: str) -> None:
    before = throttles(admin, topic)
    process = begun(admin, started, topic)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SLOW_S)
    assert process.returncode == 130, errors
    assert admin.facts((Part.MOVES,)).moves, "they are the brokers' now"
    cancelled = ottla("plan", "cancel", "plan.json", "--yes", "--poll", "0.1")
    assert cancelled.exit_code == 0, cancelled.output
    assert not admin.facts((Part.MOVES,)).moves
    assert replicas(admin, topic) == {(1, 2)}
    wait_until(lambda: throttles(admin, topic) == before, SLOW_S)
