"""The loop of `ottla plan watch`, for several rounds: what it plans, when it moves, and how it is ended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from plan_runs import filled_topic, replicas
from structlog.testing import capture_logs

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, Part, ReplicaMove
from ottla.admin.placement.executor import RunOptions
from ottla.admin.placement.journal import DONE, read_journal
from ottla.admin.placement.plan_watch import Hours, PlanWatch, WatchLimits
from ottla.admin.placement.run_throttles import FOLLOWERS, LEADERS, RATES
from ottla.cli.operations.plan.watching import Watching
from ottla.config import admin_settings
from ottla.testing import wait_until

pytestmark = [pytest.mark.complete, pytest.mark.slow, pytest.mark.timeout(300)]

_numbers = count(1)
DAY, NIGHT = 12, 23


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, log_dir_bytes=[100 << 20]) as running:
        yield running


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, timeout_s=20) as made:
        yield made


def skewed(cluster: EmbeddedCluster, admin: Admin, *, records: int = 250) -> str:
    """A topic that fills two brokers, and leaves the third one as it is."""
    return filled_topic(admin, cluster.bootstrap_servers, f"watched-{next(_numbers)}", records=records)


class Nights:
    """A watch that may move things at night, by a clock that a test sets."""

    def __init__(self, cluster: EmbeddedCluster, admin: Admin, folder: Path, **changed: Any) -> None:
        self.hour = DAY
        self.rounds = 0
        self.watching = Watching(
            kafka=admin_settings(cluster.bootstrap_servers),
            admin=admin,
            watch=PlanWatch(WatchLimits(skew=1.2, skewed_for_s=0.0, max_fill=0.9)),
            options=RunOptions(**{"poll_s": 0.05, "max_fill": 0.9, "patience_s": 60, **changed}),
            folder=folder,
            metrics_file=folder / "ottla.prom",
            executes=True,
            hours=Hours(begin=22, end=6),
            hour_now=lambda: self.hour,
        )

    def run(self, *between: Callable[[], object]) -> list[dict[str, Any]]:
        """A round before each of these, and one after the last. Returns the events."""
        left = iter(between)

        def wait() -> bool:
            then = next(left, None)
            if then is not None:
                then()
            return then is None

        with capture_logs() as events:
            self.watching.loop(wait)
        return [dict(event) for event in events]


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events if event["event"] != "call_retried"]


def metric(folder: Path, name: str) -> float:
    (found,) = re.findall(rf"^ottla_placement_{name} (\S+)$", (folder / "ottla.prom").read_text(), re.MULTILINE)
    return float(found)


def plans(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("watch-*.json") if not path.name.endswith(".rollback.json"))


def test_a_plan_waits_for_its_hours_and_what_becomes_skewed_afterwards_is_planned_anew(
    cluster: EmbeddedCluster, admin: Admin, tmp_path: Path
) -> None:
    first = skewed(cluster, admin)
    watch = Nights(cluster, admin, tmp_path)
    by_day = watch.run(lambda: None, lambda: None)
    assert names(by_day) == ["plan_due", "plan_watch_ended"], "written once, in three rounds"
    assert replicas(admin, first) == {(1, 2)}
    assert (metric(tmp_path, "plan_due"), metric(tmp_path, "plan_running")) == (1, 0)
    assert metric(tmp_path, "skew_ratio") > 1.2
    written = plans(tmp_path)
    assert len(written) == 1
    assert not list(tmp_path.glob("*.journal"))

    watch.hour = NIGHT
    by_night = watch.run(lambda: None)
    assert names(by_night) == ["plan_run_begins", "plan_run_ended", "plan_watch_ended"]
    assert {event["file"] for event in by_night[:2]} == {str(written[0])}
    assert any(3 in each for each in replicas(admin, first))
    assert (metric(tmp_path, "plan_due"), metric(tmp_path, "plan_running")) == (0, 0)
    assert metric(tmp_path, "skew_ratio") < 1.2

    again = watch.run(lambda: skewed(cluster, admin, records=1_000), lambda: None)
    assert names(again) == ["plan_due", "plan_run_begins", "plan_run_ended", "plan_watch_ended"]
    assert metric(tmp_path, "skew_ratio") < 1.2
    assert not admin.facts((Part.MOVES,)).moves


def test_a_plan_that_its_hours_end_is_finished_in_the_next_and_none_is_written_meanwhile(
    cluster: EmbeddedCluster, admin: Admin, tmp_path: Path
) -> None:
    topic = skewed(cluster, admin)
    watch = Nights(cluster, admin, tmp_path, throttle=1)
    hours = iter([NIGHT] * 4)
    watch.watching.hour_now = lambda: next(hours, DAY)
    begun = watch.run()
    assert names(begun) == ["plan_due", "plan_run_begins", "plan_run_pauses", "plan_watch_ended"]
    (file,) = plans(tmp_path)
    assert begun[-1]["file"] == str(file)
    assert admin.facts((Part.MOVES,)).moves, "a byte per second"

    watch.watching.written_at_s = float("-inf")  # as an hour later
    assert names(watch.run(lambda: None, lambda: None)) == ["plan_watch_ended"], "one plan at a time"
    assert metric(tmp_path, "plan_running") == 1
    assert plans(tmp_path) == [file]

    other = Nights(cluster, admin, tmp_path)  # another process, the next night
    other.hour = NIGHT
    ended = other.run()
    assert names(ended) == ["plan_run_begins", "plan_run_ended", "plan_watch_ended"]
    assert (ended[1]["file"], ended[1]["not_done"], ended[2]["file"]) == (str(file), [], "")
    assert any(3 in each for each in replicas(admin, topic))


def test_a_plan_waits_while_others_move_something(cluster: EmbeddedCluster, admin: Admin, tmp_path: Path) -> None:
    topic = skewed(cluster, admin)
    admin.alter_topic_settings(topic, {LEADERS: "*", FOLLOWERS: "*"})
    for broker in (1, 2, 3):
        admin.alter_broker_settings(broker, dict.fromkeys(RATES, 1))
    admin.alter_replicas([ReplicaMove(topic=topic, partition=0, old=(1, 2), new=(3, 2))], wait=False)
    foreign = admin.facts((Part.MOVES,)).moves
    watch = Nights(cluster, admin, tmp_path)
    watch.hour = NIGHT
    assert names(watch.run(lambda: None)) == ["plan_due", "plan_waits", "plan_waits", "plan_watch_ended"]
    assert admin.facts((Part.MOVES,)).moves == foreign

    for broker in (1, 2, 3):
        admin.alter_broker_settings(broker, dict.fromkeys(RATES))
    wait_until(lambda: not admin.facts((Part.MOVES,)).moves, 60)
    assert "plan_run_begins" in names(watch.run())


def test_brokers_that_do_not_answer_end_no_watch(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with Admin(cluster.bootstrap_servers, timeout_s=2) as admin, ExitStack() as faults:
        watch = Nights(cluster, admin, tmp_path)
        events = watch.run(
            lambda: faults.enter_context(cluster.faults.add(api="METADATA", disconnect=True)),
            faults.close,
        )
    assert names(events) == ["plan_watch_failed", "plan_watch_ended"], events


@pytest.fixture
def start(cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`ottla plan watch ...` as a process, in the test's folder; its events are in the file `events`."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        named = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": "none.toml"}
        watch = ["plan", "watch", "--every", "200ms", "--skew-for", "0s", "--skew", "1.2", "--max-fill", "0.9"]
        command = [sys.executable, "-m", "ottla", *watch, "--poll", "0.05", "--metrics", "ottla.prom", *arguments]
        with (tmp_path / "events").open("w") as events:
            begun.append(subprocess.Popen(command, cwd=tmp_path, env={**os.environ, **named}, stderr=events, text=True))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.wait()


def seen(folder: Path) -> str:
    return (folder / "events").read_text()


def looked_s(folder: Path) -> float:
    return metric(folder, "looked_seconds") if (folder / "ottla.prom").exists() else 0.0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_watch_that_waits_is_ended_by_a_signal(
    start: Callable[..., subprocess.Popen[str]], admin: Admin, tmp_path: Path, number: int, code: int
) -> None:
    process = start()
    looks: set[float] = set()
    wait_until(lambda: looks.add(looked_s(tmp_path)) or len(looks) > 4 or process.poll() is not None, 60)
    process.send_signal(number)
    assert process.wait(60) == code, seen(tmp_path)
    assert "plan_watch_ended" in seen(tmp_path)
    assert "Traceback" not in seen(tmp_path)
    assert not plans(tmp_path)


def test_a_watch_that_is_terminated_while_something_moves_leaves_it_and_the_next_one_finishes_it(
    start: Callable[..., subprocess.Popen[str]], cluster: EmbeddedCluster, admin: Admin, tmp_path: Path
) -> None:
    topic = skewed(cluster, admin)
    process = start("--execute", "--throttle", "1")
    wait_until(lambda: admin.facts((Part.MOVES,)).moves or process.poll() is not None, 60)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0, seen(tmp_path)
    (file,) = plans(tmp_path)
    assert re.search(rf"plan_watch_ended.*{file.name}", seen(tmp_path)), seen(tmp_path)
    assert "Traceback" not in seen(tmp_path)
    assert admin.facts((Part.MOVES,)).moves
    journal = file.with_name(f"{file.name}.journal")
    assert read_journal(journal)[-1]["step"] != DONE

    again = start("--execute", "--no-throttle")
    wait_until(lambda: "plan_run_ended" in seen(tmp_path) or again.poll() is not None, 120)
    again.send_signal(signal.SIGTERM)
    assert again.wait(60) == 0, seen(tmp_path)
    assert read_journal(journal)[-1]["step"] == DONE
    moved = {(line["topic"], line["partition"]) for line in json.loads(file.read_bytes())["partitions"]}
    assert {place[0] for place in moved} == {topic}
    assert any(3 in each for each in replicas(admin, topic))
    assert not admin.facts((Part.MOVES,)).moves
