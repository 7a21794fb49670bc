"""A target that dies: the run says so, and the command that it names finds the others a new one."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_output import Run
from plan_runs import filled_topic, plan_document, replicas, throttles
from structlog.testing import capture_logs

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, Part
from ottla.admin.placement.executor import RunOptions
from ottla.admin.placement.plan_watch import Hours, PlanWatch, WatchLimits
from ottla.cli.operations.plan.watching import Watching
from ottla.config import admin_settings
from ottla.testing import wait_until

pytestmark = [pytest.mark.complete, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=4, log_dir_bytes=[100 << 20]) as running:
        yield running


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, timeout_s=20) as made:
        yield made


def is_fenced(admin: Admin, broker: int) -> bool:
    return any(each.id == broker and each.is_fenced for each in admin.facts((Part.TOPICS,)).brokers)


def test_a_run_whose_target_dies_names_the_command_that_finds_another(
    cluster: EmbeddedCluster, admin: Admin, ottla: Run
) -> None:
    topic = filled_topic(admin, cluster.bootstrap_servers, "moved", records=250)
    before = throttles(admin, topic)
    Path("plan.json").write_bytes(plan_document(topic, (4, 2)))
    run = ["plan", "run", "plan.json", "--yes", "--poll", "0.05", "--max-fill", "1", "--sample", "0s"]
    env = {**os.environ, "OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": "none.toml"}
    command = [sys.executable, "-m", "ottla", *run, "--throttle", "1", "--give-up-after", "2"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: admin.facts((Part.MOVES,)).moves or process.poll() is not None, 60)
        cluster.kill(4)
        _, errors = process.communicate(timeout=200)
    assert process.returncode == 1, errors
    assert "not done: moved-0: was given up: waits for broker 4, which is down" in errors
    assert "down: broker 4; 4 moves were given up; their replicas stay where they were" in errors
    assert "the same targets:  ottla plan run plan.json" in errors
    assert replicas(admin, topic) == {(1, 2)}
    assert not admin.facts((Part.MOVES,)).moves

    found = re.search(r"other targets: +ottla (plan rebalance -o plan.again.json)\n", errors)
    assert found is not None, errors
    wait_until(lambda: is_fenced(admin, 4), 60)
    planned = ottla(*shlex.split(found[1]), "--sample", "0s")
    assert planned.exit_code == 0, planned.output
    again = ottla("plan", "run", "plan.again.json", "--yes", "--no-throttle", "--poll", "0.05")
    assert again.exit_code == 0, again.output
    assert any(3 in each for each in replicas(admin, topic))
    assert not any(4 in each for each in replicas(admin, topic))

    cluster.start_broker(4)
    wait_until(lambda: not is_fenced(admin, 4), 60)
    ended = ottla(*run, "--no-throttle")
    assert ended.exit_code == 1, "others are where it wanted to move from"
    assert throttles(admin, topic) == before, "the same command takes away what it could not while broker 4 was down"


def test_a_watch_plans_anew_when_a_target_died_before_its_hours(
    cluster: EmbeddedCluster, admin: Admin, tmp_path: Path
) -> None:
    topic = filled_topic(admin, cluster.bootstrap_servers, "watched", records=250)
    hour = [12]
    watching = Watching(
        kafka=admin_settings(cluster.bootstrap_servers),
        admin=admin,
        watch=PlanWatch(WatchLimits(skew=1.2, skewed_for_s=0.0, max_fill=0.9)),
        options=RunOptions(poll_s=0.05, max_fill=0.9, patience_s=60),
        folder=tmp_path,
        metrics_file=None,
        executes=True,
        hours=Hours(begin=22, end=6),
        hour_now=lambda: hour[0],
    )

    def dies() -> None:
        cluster.kill(4)
        wait_until(lambda: is_fenced(admin, 4), 60)
        hour[0] = 23

    between = iter([dies, lambda: None, lambda: None])

    def wait() -> bool:
        then = next(between, None)
        if then is not None:
            then()
        return then is None

    with capture_logs() as events:
        watching.loop(wait)
    names = [event["event"] for event in events]
    assert names[:5] == ["plan_due", "plan_run_begins", "plan_watch_failed", "plan_due", "plan_run_begins"], events
    assert "broker 4" in events[2]["error"]
    assert names[5:] == ["plan_run_ended", "plan_watch_ended"]
    assert events[5]["not_done"] == []
    assert any(3 in each for each in replicas(admin, topic))
