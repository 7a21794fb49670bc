"""Three nodes: plans carried out by Ottla, killed, cancelled and with a target that dies; and by Kafka's own tool."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from apache_kafka import ApacheKafka, Unavailable, run_tool, tools, wanted
from click.testing import CliRunner
from plan_runs import (
    PARTS,
    Dying,
    Killed,
    filled_topic,
    interrupt_when,
    leaders,
    moves,
    moving,
    options,
    paths,
    replicas,
    run,
    throttles,
    where,
)

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, Part
from ottla.admin.placement.deciding import MoveState
from ottla.admin.placement.executor import Executor
from ottla.admin.placement.journal import DONE, Journal
from ottla.admin.placement.run_throttles import LEADERS, RATES
from ottla.cli import main
from ottla.testing import wait_until

pytestmark = [pytest.mark.client_contract, pytest.mark.complete, pytest.mark.slow, pytest.mark.timeout(600)]

_numbers = count(1)
SLOW_S = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster | ApacheKafka]:
    with ExitStack() as cleanup:
        if wanted() is None:
            yield cleanup.enter_context(EmbeddedCluster(brokers=3, log_dirs=2))
            return
        try:
            real = ApacheKafka(3, log_dirs=2)
        except Unavailable as reason:
            pytest.skip(str(reason))
        yield cleanup.enter_context(real)


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster | ApacheKafka) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, timeout_s=SLOW_S) as made:
        yield made


@pytest.fixture
def topic(cluster: EmbeddedCluster | ApacheKafka, admin: Admin) -> str:
    """Four partitions on brokers 1 and 2, led by 1."""
    name = f"placed-{os.getpid()}-{next(_numbers)}"
    return filled_topic(admin, cluster.bootstrap_servers, name)


def test_a_run_copies_what_was_planned_and_leaves_throttles_as_they_were(
    admin: Admin, topic: str, tmp_path: Path
) -> None:
    admin.alter_topic_settings(topic, {LEADERS: "0:1,3:2"})
    admin.alter_broker_settings(1, {RATES[0]: 12_345_678})
    before = throttles(admin, topic)
    outcome = run(admin, moves(admin, topic), tmp_path / "journal", throttle=50_000_000, patience_s=SLOW_S)
    assert outcome.is_complete, outcome
    assert replicas(admin, topic) == {(3, 2)}
    wait_until(lambda: leaders(admin, topic) == {3}, timeout_s=SLOW_S)
    wait_until(lambda: throttles(admin, topic) == before, timeout_s=SLOW_S)
    admin.alter_broker_settings(1, {RATES[0]: None})


def test_a_run_that_is_killed_after_any_line_goes_on_by_the_same_command(
    admin: Admin, topic: str, tmp_path: Path
) -> None:
    before = throttles(admin, topic)
    there, back = (3, 2), (1, 2)
    last = None
    lines = 0
    for number in range(60):
        lines += 1
        path = tmp_path / f"{number}.journal"
        planned = moves(admin, topic, there)
        with Dying(path) as book:
            book.lines_left = lines
            try:
                changed = options(throttle=50_000_000, patience_s=SLOW_S)
                Executor(admin.carry_out, planned, book, changed).run()
            except Killed:
                last = book.lines[-1]["step"]
            else:
                if last == DONE:
                    break
                lines = len(book.lines) - 1  # it had fewer to write than the one before: kill it after its last
        outcome = run(admin, planned, path, throttle=50_000_000, patience_s=SLOW_S)
        assert outcome.is_complete, f"killed after line {lines} ({last}): {outcome}"
        assert replicas(admin, topic) == {there}
        wait_until(lambda: throttles(admin, topic) == before, timeout_s=SLOW_S)
        there, back = back, there
    assert last == DONE, "killed after each line up to the last"


def test_a_cancelled_run_leaves_everything_as_it_was(admin: Admin, topic: str, tmp_path: Path) -> None:
    before = throttles(admin, topic)
    planned = moves(admin, topic)
    path = tmp_path / "journal"
    interrupt_when(admin, planned, path, lambda progress: moving(progress) == 2, throttle=1, patience_s=SLOW_S)
    with Journal(path) as book:
        outcome = Executor(admin.carry_out, planned, book, options(patience_s=SLOW_S)).cancel()
    assert not outcome.throttles_left
    assert not outcome.refused
    assert replicas(admin, topic) == {(1, 2)}
    assert not admin.facts((Part.MOVES,)).moves
    wait_until(lambda: throttles(admin, topic) == before, timeout_s=SLOW_S)


def test_replicas_are_put_in_the_directories_of_the_plan(admin: Admin, topic: str, tmp_path: Path) -> None:
    here = paths(admin.facts(PARTS), 3)
    assert len(here) == 2
    planned = moves(admin, topic, (3, 2), dirs=(here[1], "any"))
    assert run(admin, planned, tmp_path / "there", patience_s=SLOW_S).is_complete
    assert where(admin.facts(PARTS), topic, 3) == {here[1]}
    planned = moves(admin, topic, (3, 2), dirs=(here[0], "any"))
    assert run(admin, planned, tmp_path / "back", patience_s=SLOW_S).is_complete
    assert where(admin.facts(PARTS), topic, 3) == {here[0]}


def test_a_target_that_dies_is_given_up_and_the_same_command_goes_on_when_it_is_back(
    admin: Admin, cluster: EmbeddedCluster | ApacheKafka, topic: str, tmp_path: Path
) -> None:
    before = throttles(admin, topic)
    path = tmp_path / "journal"
    planned = moves(admin, topic)
    interrupt_when(admin, planned, path, lambda progress: moving(progress) == 2, throttle=1, patience_s=SLOW_S)
    cluster.kill(3)
    wait_until(lambda: 3 not in alive(admin), timeout_s=SLOW_S)
    outcome = run(admin, planned, path, throttle=1, patience_s=5)
    assert {status.state for status in outcome.not_done} == {MoveState.GIVEN_UP}, outcome
    assert [left.split(":")[0] for left in outcome.throttles_left] == ["broker 3"]
    assert replicas(admin, topic) == {(1, 2)}
    (cluster.start_broker if isinstance(cluster, EmbeddedCluster) else cluster.start)(3)
    wait_until(lambda: 3 in alive(admin), timeout_s=2 * SLOW_S)
    assert not run(admin, planned, path, patience_s=SLOW_S).throttles_left
    wait_until(lambda: throttles(admin, topic) == before, timeout_s=SLOW_S)
    assert run(admin, planned, path, patience_s=SLOW_S).is_complete
    assert replicas(admin, topic) == {(3, 2)}


def alive(admin: Admin) -> set[int]:
    """Before Kafka 4 a broker that is fenced is not named at all (KIP-1073)."""
    return {each.id for each in admin.facts((Part.TOPICS,)).brokers if not each.is_fenced}


def test_kafkas_own_tool_carries_our_file_out_and_verifies_it(
    cluster: EmbeddedCluster | ApacheKafka, admin: Admin, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        tools()
    except Unavailable as reason:
        pytest.skip(str(reason))
    monkeypatch.chdir(tmp_path)
    env = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": "none.toml"}
    arguments = ["plan", "rebalance", "--sample", "0s", "--topics", topic, "-o", "ours.json"]
    made = CliRunner().invoke(main, arguments, env=env)
    assert made.exit_code == 0, made.output
    document = json.loads(Path("ours.json").read_bytes())
    assert document["ottla"]["cluster_id"], "it has what Kafka's tool does not know"
    assert document["partitions"], "broker 3 is empty, so something moves"
    connected = ["--bootstrap-server", cluster.bootstrap_servers, "--reassignment-json-file", "ours.json"]
    command = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    assert "Successfully started" in run_tool(command, *connected, "--execute")
    wanted_now = {(each["topic"], each["partition"]): tuple(each["replicas"]) for each in document["partitions"]}

    def is_there() -> bool:
        facts = admin.facts((Part.TOPICS, Part.MOVES))
        now = {(place.topic, place.partition): each.replicas for place, each in facts.by_partition.items()}
        return not facts.moves and all(now[place] == new for place, new in wanted_now.items())

    wait_until(is_there, timeout_s=2 * SLOW_S)
    verified = run_tool(command, *connected, "--verify")
    assert verified.count("is completed") == len(wanted_now), verified
    status = CliRunner().invoke(main, ["plan", "check", "ours.json", "--sample", "0s"], env=env)
    assert status.exit_code == 0, status.output


def test_a_file_that_kafkas_own_tool_generated_is_judged_and_run_by_ottla(
    cluster: EmbeddedCluster | ApacheKafka, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        tools()
    except Unavailable as reason:
        pytest.skip(str(reason))
    monkeypatch.chdir(tmp_path)
    Path("topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    command = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    chosen = ["--topics-to-move-json-file", "topics.json", "--broker-list", "2,3", "--generate"]
    printed = run_tool(command, "--bootstrap-server", cluster.bootstrap_servers, *chosen)
    Path("theirs.json").write_text(printed.partition("Proposed partition reassignment configuration")[2].strip())
    env = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": "none.toml"}
    assert "copies" in CliRunner().invoke(main, ["plan", "check", "theirs.json", "--sample", "0s"], env=env).stderr
    ran = CliRunner().invoke(main, ["plan", "run", "theirs.json", "--yes", "--poll", "0.1", "--max-fill", "1"], env=env)
    assert ran.exit_code == 0, ran.output
