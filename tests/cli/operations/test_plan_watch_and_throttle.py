"""`ottla plan watch`, `plan throttle`, and `plan run` as a process that is killed with SIGKILL."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from click.testing import Result
from command_output import Run, document
from plan_runs import fill, filled_topic, plan_document, replicas, throttles

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, Part
from ottla.admin.placement.journal import DONE, SUBMIT, read_journal
from ottla.admin.placement.run_throttles import FOLLOWERS, LEADERS, RATES
from ottla.testing import wait_until

pytestmark = [pytest.mark.complete, pytest.mark.slow, pytest.mark.timeout(300)]

_numbers = count(1)
ROOM = 100 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, log_dir_bytes=[ROOM]) as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster, admin: Admin) -> Iterator[str]:
    """Four partitions on brokers 1 and 2."""
    name = filled_topic(admin, cluster.bootstrap_servers, f"watched-{next(_numbers)}", records=250)
    yield name
    admin.delete_topics(name)
    wait_until(lambda: name not in admin.facts((Part.TOPICS,)).by_topic)


WATCH = ("plan", "watch", "--once", "--every", "1s", "--max-fill", "0.9", "--skew", "1.2")
RUN = ("plan", "run", "plan.json", "--yes", "--poll", "0.05", "--max-fill", "1", "--sample", "0s")


def test_a_watch_without_execute_writes_a_plan_and_moves_nothing(ottla: Run, admin: Admin, topic: str) -> None:
    before = replicas(admin, topic)
    result = ottla(*WATCH, "--metrics", "ottla.prom", "--format", "json")
    assert result.exit_code == 1, result.output
    found = document(result, "ottla.plan.watch/1")
    assert found["reasons"] == ["the fullest broker has 1.33 × the best reachable level"]
    assert [disk["broker"] for disk in found["items"]] == [1, 2, 3]
    assert {disk["total"] for disk in found["items"]} == {ROOM}
    assert json.loads(Path(found["file"]).read_bytes())["partitions"]
    assert "ottla_placement_plan_due 1\n" in Path("ottla.prom").read_text()
    assert "ottla_placement_skew_ratio 1.33" in Path("ottla.prom").read_text()
    assert "plan_due" in result.stderr
    assert replicas(admin, topic) == before
    assert not list(Path().glob("*.journal"))


def test_a_watch_plans_before_a_disk_is_full(ottla: Run, cluster: EmbeddedCluster, topic: str) -> None:
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            fill(cluster.bootstrap_servers, topic, records=2)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        result = ottla(*WATCH, "--skew", "50", "--before", "48h", "--format", "json")
    finally:
        stop.set()
        writer.join()
    found = document(result, "ottla.plan.watch/1")
    assert result.exit_code == 1, result.output
    full = re.compile(r"of broker 1 is 90% full in \d+\.\d h")
    assert any(full.search(reason) for reason in found["reasons"]), found["reasons"]
    assert found["items"][0]["bytes_per_s"] > 0


def test_a_watch_that_may_executes_its_plan_and_is_content_afterwards(ottla: Run, admin: Admin, topic: str) -> None:
    result = ottla(*WATCH, "--execute", "--no-throttle", "--poll", "0.05")
    assert result.exit_code == 1, "a plan was due"
    assert "plan_run_ended" in result.stderr
    assert any(3 in each for each in replicas(admin, topic))
    again = ottla(*WATCH, "--execute", "--no-throttle", "--format", "json")
    assert again.exit_code == 0, again.output
    assert document(again, "ottla.plan.watch/1")["skew"] < 1.2


def test_outside_its_hours_a_watch_moves_nothing_and_one_that_was_killed_goes_on(
    ottla: Run, admin: Admin, topic: str
) -> None:
    import datetime as dt

    hour = dt.datetime.now(dt.UTC).hour
    closed = f"{(hour + 3) % 24}-{(hour + 4) % 24 or 24}"
    before = replicas(admin, topic)
    outside = ottla(*WATCH, "--execute", "--no-throttle", "--hours", closed, "--format", "json")
    assert outside.exit_code == 1, outside.output
    assert replicas(admin, topic) == before
    file = Path(document(outside, "ottla.plan.watch/1")["file"])
    # A run of it that was killed when its first line was on disk:
    assert (
        ottla("plan", "run", str(file), "--no-throttle", "--yes", "--poll", "0.05", "--max-fill", "0.9").exit_code == 0
    )
    moved = replicas(admin, topic)
    journal = file.with_name(f"{file.name}.journal")
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    result = ottla(*WATCH, "--execute", "--no-throttle", "--poll", "0.05")
    assert f"{file.name}" in result.stderr
    assert read_journal(journal)[-1]["step"] == DONE
    assert replicas(admin, topic) == moved


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--execute"], "--execute: wanted --throttle SIZE or --no-throttle"),
        (["--execute", "--throttle", "1MB", "--no-throttle"], "--execute: wanted --throttle SIZE or --no-throttle"),
        (["--hours", "22-6"], "are for plans that are carried out: wanted --execute"),
        (["--execute", "--no-throttle", "--hours", "7"], "found '7', wanted two hours of the day"),
        (["--plans", "none"], "Directory 'none' does not exist"),
    ],
)
def test_what_a_watch_cannot_do_is_refused(ottla: Run, arguments: list[str], message: str) -> None:
    result = ottla("plan", "watch", "--once", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_a_read_only_cluster_is_watched_and_nothing_is_executed_on_it(ottla: Run, cluster: EmbeddedCluster) -> None:
    lines = ["[clusters.prod]", f'bootstrap.servers = "{cluster.bootstrap_servers}"', "read_only = true"]
    Path("clusters.toml").write_text("\n".join(lines) + "\n")
    result = ottla(*WATCH, "--cluster", "prod", "--execute", "--no-throttle", OTTLA_CLUSTERS="clusters.toml")
    assert result.exit_code == 2
    assert "read_only" in result.stderr


@pytest.fixture
def start(cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`ottla ...` as a process, in the test's folder."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        named = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": "none.toml"}
        env = {**os.environ, **named}
        command = [sys.executable, "-m", "ottla", *arguments]
        pipe = subprocess.PIPE
        begun.append(subprocess.Popen(command, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe, text=True))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def steps(journal: Path) -> list[str]:
    return [line["step"] for line in read_journal(journal)]


@pytest.mark.parametrize("lines", [1, 2, 3])
def test_a_run_that_is_killed_is_finished_by_the_same_command(
    ottla: Run, admin: Admin, topic: str, start: Callable[..., subprocess.Popen[str]], lines: int
) -> None:
    before = throttles(admin, topic)
    Path("plan.json").write_bytes(plan_document(topic, (3, 2)))
    process = start(*RUN, "--throttle", "1")
    journal = Path("plan.json.journal")
    wait_until(lambda: len(read_journal(journal)) >= lines or process.poll() is not None, 60)
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL, process.communicate()
    again = ottla(*RUN, "--no-throttle")
    assert again.exit_code == 0, again.output
    assert steps(journal)[-1] == DONE
    assert replicas(admin, topic) == {(3, 2)}
    assert throttles(admin, topic) == before


def test_ctrl_c_leaves_the_moves_and_says_how_to_go_on(
    ottla: Run, admin: Admin, topic: str, start: Callable[..., subprocess.Popen[str]]
) -> None:
    before = throttles(admin, topic)
    Path("plan.json").write_bytes(plan_document(topic, (3, 2)))
    process = start(
        "plan", "run", "plan.json", "--yes", "--poll", "0.05", "--max-fill", "1", "--throttle", "1", "--sample", "0s"
    )
    wait_until(lambda: admin.facts((Part.MOVES,)).moves or process.poll() is not None, 60)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "continue: ottla plan run plan.json" in errors
    assert "cancel:   Ctrl-C again within 1 s, or ottla plan cancel plan.json" in errors
    assert "cancelling" not in errors
    assert admin.facts((Part.MOVES,)).moves
    assert ottla("plan", "cancel", "plan.json", "--yes", "--poll", "0.05").exit_code == 0
    assert replicas(admin, topic) == {(1, 2)}
    assert throttles(admin, topic) == before


def test_a_second_ctrl_c_cancels_what_is_under_way(
    ottla: Run, admin: Admin, topic: str, start: Callable[..., subprocess.Popen[str]]
) -> None:
    before = throttles(admin, topic)
    Path("plan.json").write_bytes(plan_document(topic, (3, 2)))
    process = start(*RUN, "--throttle", "1")
    assert process.stderr is not None
    wait_until(lambda: admin.facts((Part.MOVES,)).moves or process.poll() is not None, 60)
    process.send_signal(signal.SIGINT)
    said = iter(process.stderr.readline, "")
    assert any("cancel:   Ctrl-C again within 1 s, or ottla plan cancel plan.json" in line for line in said)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "cancelling the moves under way" in errors
    assert "cancelled; 0 moves are done and stay" in errors
    assert "Traceback" not in errors
    assert not admin.facts((Part.MOVES,)).moves
    assert replicas(admin, topic) == {(1, 2)}
    assert throttles(admin, topic) == before
    again = ottla(*RUN, "--no-throttle")
    assert again.exit_code == 0, again.output
    assert replicas(admin, topic) == {(3, 2)}


def test_ctrl_c_before_anything_was_begun_is_said_as_such(
    topic: str, start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "plan.json").write_bytes(plan_document(topic, (3, 2)))
    process = start("plan", "run", "plan.json", "--yes", "--max-fill", "1", "-v", "--throttle", "1", "--sample", "300s")
    assert process.stderr is not None
    assert any("DESCRIBE_LOG_DIRS in" in line for line in iter(process.stderr.readline, ""))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, "interrupted" in errors) == (130, True), errors
    assert "go on" not in errors
    assert not (tmp_path / "plan.json.journal").exists()


def test_a_throttle_is_changed_while_the_run_goes_on(
    ottla: Run, admin: Admin, topic: str, start: Callable[..., subprocess.Popen[str]]
) -> None:
    before = throttles(admin, topic)
    Path("plan.json").write_bytes(plan_document(topic, (3, 2)))
    none = ottla("plan", "throttle", "plan.json", "50MB", "--yes")
    assert none.exit_code == 2
    assert "its run has set no throttle: ottla plan run plan.json --throttle 50MB sets one" in none.stderr
    process = start(
        "plan", "run", "plan.json", "--yes", "--poll", "0.05", "--max-fill", "1", "--throttle", "1", "--sample", "0s"
    )
    wait_until(lambda: SUBMIT in steps(Path("plan.json.journal")) or process.poll() is not None, 60)
    assert process.poll() is None, "a byte per second"
    changed = ottla("plan", "throttle", "plan.json", "50MB", "--yes", "--sample", "0s", "--format", "json")
    assert changed.exit_code == 0, changed.output
    rates = document(changed, "ottla.plan.throttle/1")["items"]
    assert {each["new"] for each in rates} == {50_000_000}
    assert {each["broker"] for each in rates} == {1, 2, 3}
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert replicas(admin, topic) == {(3, 2)}
    assert throttles(admin, topic) == before


def cleared(result: Result) -> list[tuple[str, str, str, str | None, str | None]]:
    return [
        (f"{each['kind']} {each['resource']}", each["setting"], each["old"], each["new"], each["run"])
        for each in document(result, "ottla.plan.throttle-clear/1")["items"]
    ]


def test_throttles_that_were_left_are_shown_and_cleared(ottla: Run, admin: Admin, topic: str) -> None:
    before = throttles(admin, topic)
    none = ottla("plan", "throttle", "--clear", "--format", "json")
    assert (none.exit_code, cleared(none)) == (0, [])
    admin.alter_topic_settings(topic, {LEADERS: "0:1,1:1", FOLLOWERS: "*"})
    admin.alter_broker_settings(2, {RATES[1]: 5_000_000})
    held = throttles(admin, topic)
    shown = ottla("plan", "throttle", "--clear", "--dry-run", "--format", "json")
    assert shown.exit_code == 0, shown.output
    assert cleared(shown) == [
        (f"topic {topic}", FOLLOWERS, "*", None, None),
        (f"topic {topic}", LEADERS, "0:1,1:1", None, None),
        ("broker 2", RATES[1], "5000000", None, None),
    ]
    unasked = ottla("plan", "throttle", "--clear")
    assert unasked.exit_code == 2
    assert "Change 3 settings?" in unasked.stderr
    assert throttles(admin, topic) == held
    done = ottla("plan", "throttle", "--clear", "--yes")
    assert done.exit_code == 0, done.output
    assert "3 settings are changed" in done.stderr
    wait_until(lambda: throttles(admin, topic) == before)


def test_of_a_run_that_was_killed_what_was_before_comes_back_and_one_that_goes_on_keeps_its_throttle(
    ottla: Run, admin: Admin, topic: str, start: Callable[..., subprocess.Popen[str]]
) -> None:
    admin.alter_broker_settings(1, {RATES[0]: 12_345_678})
    before = throttles(admin, topic)
    Path("plan.json").write_bytes(plan_document(topic, (3, 2)))
    process = start(*RUN, "--throttle", "1")
    wait_until(lambda: admin.facts((Part.MOVES,)).moves or process.poll() is not None, 60)
    held = throttles(admin, topic)
    kept = ottla("plan", "throttle", "--clear", "--yes", "--format", "json")
    assert (kept.exit_code, cleared(kept)) == (0, []), kept.output
    assert "the throttle of plan.json stays: a command runs it now" in kept.stderr
    assert throttles(admin, topic) == held
    process.kill()
    process.wait(30)
    moved = ottla("plan", "throttle", "--clear", "--yes", "--format", "json")
    assert moved.exit_code == 0, moved.output
    assert ("broker 1", RATES[0], "1", "12345678", "plan.json") in cleared(moved)
    assert {run for *_, run in cleared(moved)} == {"plan.json"}
    assert "the run of plan.json is not over" in moved.stderr
    wait_until(lambda: throttles(admin, topic) == before)
    again = ottla(*RUN, "--no-throttle")
    assert again.exit_code == 0, again.output
    assert replicas(admin, topic) == {(3, 2)}
    assert throttles(admin, topic) == before
    admin.alter_broker_settings(1, {RATES[0]: None})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "wanted FILE and SIZE, as in rebalance.json 100MB, or --clear"),
        (["plan.json"], "wanted FILE and SIZE, as in rebalance.json 100MB, or --clear"),
        (["plan.json", "--clear"], "found FILE plan.json, wanted none: ottla plan run plan.json --no-throttle"),
    ],
)
def test_what_cannot_be_throttled_is_refused(ottla: Run, arguments: list[str], message: str) -> None:
    result = ottla("plan", "throttle", *arguments, "--yes")
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_throttle_below_what_is_written_is_refused(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, topic: str
) -> None:
    Path("plan.json").write_bytes(plan_document(topic, (3, 2)))
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            fill(cluster.bootstrap_servers, topic, records=2)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        result = ottla("plan", "run", "plan.json", "--yes", "--max-fill", "1", "--throttle", "1", "--sample", "1s")
    finally:
        stop.set()
        writer.join()
    assert result.exit_code == 2, result.output
    assert "bytes/s to what moves to broker 3" in result.stderr
    assert "the move would never end" in result.stderr
    assert not Path("plan.json.journal").exists()
    assert replicas(admin, topic) == {(1, 2)}
