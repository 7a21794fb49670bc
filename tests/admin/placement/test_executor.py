"""Plans carried out on a running cluster: killed after every line of the journal, with brokers killed, cancelled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from plan_runs import (
    PARTS,
    Dying,
    Killed,
    filled_topic,
    interrupt_when,
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
from ottla.admin import Admin, Part, ReplicaMove
from ottla.admin.placement import journal
from ottla.admin.placement import move_requests as asks
from ottla.admin.placement.deciding import MoveState
from ottla.admin.placement.executor import Executor
from ottla.admin.placement.journal import Journal
from ottla.admin.placement.move_progress import MoveProgress
from ottla.admin.placement.run_throttles import FOLLOWERS, LEADERS, RATES
from ottla.cli.operations.plan.progress_view import broker_lines, progress_line
from ottla.errors import InputError
from ottla.records import TopicPartition
from ottla.testing import wait_until

_numbers = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=4, log_dirs=2) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, timeout_s=20) as made:
        yield made


@pytest.fixture
def topic(cluster: EmbeddedCluster, admin: Admin) -> str:
    """A topic of four partitions with a replica on brokers 1 and 2, and some bytes in each."""
    return filled_topic(admin, cluster.bootstrap_servers, f"moved-{next(_numbers)}")


def test_a_run_moves_what_was_planned_and_throttles_are_as_before(admin: Admin, topic: str, tmp_path: Path) -> None:
    admin.alter_topic_settings(topic, {LEADERS: "0:1,3:2"})
    admin.alter_broker_settings(1, {RATES[0]: 12_345_678})
    before = throttles(admin, topic)
    seen: list[MoveProgress] = []
    planned = moves(admin, topic)
    with Journal(tmp_path / "journal") as book:
        executor = Executor(admin.carry_out, planned, book, options(throttle=50_000_000), report=seen.append)
        outcome = executor.run()
    assert outcome.is_complete, outcome
    assert replicas(admin, topic) == {(3, 2)}
    assert {each.leader for each in admin.describe_topics(topic, parts=())[0].partitions} == {3}
    assert throttles(admin, topic) == before
    assert seen[-1].copied == seen[-1].bytes == sum(move.copied for move in planned) > 4 * 200_000
    admin.alter_broker_settings(1, {RATES[0]: None})


def test_progress_has_bytes_a_rate_and_the_time_that_is_left(admin: Admin, topic: str, tmp_path: Path) -> None:
    seen: list[MoveProgress] = []
    planned = moves(admin, topic)
    with Journal(tmp_path / "journal") as book:
        executor = Executor(admin.carry_out, planned, book, options(throttle=400_000), report=seen.append)
        assert executor.run().is_complete
    copied = [each.copied for each in seen]
    assert copied == sorted(copied)
    assert seen[-1].copied == seen[-1].bytes
    amid = [each for each in seen if 0 < each.copied < each.bytes]
    assert amid, "it was seen while it copied"
    assert any(each.rate and each.left_s for each in amid)
    text = next(progress_line(each) for each in amid if each.rate)
    assert all(sum(part.copied for part in each.brokers) == each.copied for each in seen)
    (line,) = next(list(broker_lines(each)) for each in amid if each.rate)
    assert re.fullmatch(r"  broker 3: [\d.]+ KiB of [\d.]+ KiB, [\d.]+ [KM]iB/s, [\d,]+ s left, \d moves? to it", line)
    assert not list(broker_lines(seen[-1])), "nothing is left"
    assert re.search(r"of 4 partitions, [\d.]+ KiB of [\d.]+ KiB, [\d.]+ [KM]iB/s, [\d,]+ s left", text), text


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
                Executor(admin.carry_out, planned, book, options(throttle=50_000_000)).run()
            except Killed:
                last = book.lines[-1]["step"]
            else:
                if last == journal.DONE:
                    break
                lines = len(book.lines) - 1  # it had fewer to write than the one before: kill it after its last
        outcome = run(admin, planned, path, throttle=50_000_000)
        assert outcome.is_complete, f"killed after line {lines} ({last}): {outcome}"
        assert replicas(admin, topic) == {there}
        assert throttles(admin, topic) == before, f"killed after line {lines} ({last})"
        there, back = back, there
    assert last == journal.DONE, "killed after each line up to the last"
    assert lines > 5


def test_a_line_that_was_cut_off_was_never_acted_on(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path) as book:
        book.write(journal.BEGIN, moves=1)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"step": "subm')
    with Journal(path) as book:
        assert [line["step"] for line in book.lines] == [journal.BEGIN]
        book.write(journal.DONE)
    assert path.read_bytes() == whole + b'{"step": "done"}\n'
    path.write_bytes(b"rubbish\n" + whole)
    with pytest.raises(InputError, match="line 1: found b'rubbish', wanted a step of a run"), Journal(path):
        pass


def test_a_plan_is_run_by_one_command_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal"), pytest.raises(InputError, match="another command runs this plan"):
        Journal(tmp_path / "journal").__enter__()


def test_a_cancelled_run_leaves_everything_as_it_was(admin: Admin, topic: str, tmp_path: Path) -> None:
    before = throttles(admin, topic)
    planned = moves(admin, topic)
    path = tmp_path / "journal"
    interrupt_when(admin, planned, path, lambda progress: moving(progress) == 2, throttle=1)
    with Journal(path) as book:
        outcome = Executor(admin.carry_out, planned, book, options()).cancel()
    assert not outcome.throttles_left
    assert replicas(admin, topic) == {(1, 2)}
    assert not admin.facts((Part.MOVES,)).moves
    assert throttles(admin, topic) == before


def test_moves_of_others_are_neither_touched_nor_waited_for_for_ever(
    admin: Admin, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    planned = moves(admin, topic)
    slow = {LEADERS: "*", FOLLOWERS: "*"}
    admin.alter_topic_settings(topic, slow)
    for broker in (1, 2, 4):
        admin.alter_broker_settings(broker, dict.fromkeys(RATES, 1))
    admin.alter_replicas([ReplicaMove(topic=topic, partition=0, old=(1, 2), new=(4, 2))], wait=False)
    foreign = admin.facts((Part.MOVES,)).moves
    assert [each.adding for each in foreign] == [(4,)]
    path = tmp_path / "journal"
    with Journal(path) as book:
        Executor(admin.carry_out, planned[:1], book, options(patience_s=0.5)).cancel()
    assert admin.facts((Part.MOVES,)).moves == foreign, "a cancel is for what is ours"
    outcome = run(admin, planned[:1], tmp_path / "another", patience_s=0.5)
    assert [status.state for status in outcome.not_done] == [MoveState.FOREIGN]
    assert admin.facts((Part.MOVES,)).moves == foreign
    for broker in (1, 2, 4):
        admin.alter_broker_settings(broker, dict.fromkeys(RATES))
    admin.alter_topic_settings(topic, dict.fromkeys(slow))
    wait_until(lambda: not admin.facts((Part.MOVES,)).moves)


def test_a_target_that_dies_is_given_up_and_the_same_command_goes_on_when_it_is_back(
    admin: Admin, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    before = throttles(admin, topic)
    path = tmp_path / "journal"
    planned = moves(admin, topic, (4, 2))
    interrupt_when(admin, planned, path, lambda progress: moving(progress) == 2, throttle=1)
    cluster.kill(4)
    outcome = run(admin, planned, path, throttle=1, patience_s=1)
    assert {status.state for status in outcome.not_done} == {MoveState.GIVEN_UP}
    assert [left.split(":")[0] for left in outcome.throttles_left] == ["broker 4"]
    assert replicas(admin, topic) == {(1, 2)}
    cluster.start_broker(4)
    wait_until(lambda: all(not broker.is_fenced for broker in admin.facts((Part.TOPICS,)).brokers))
    again = run(admin, planned, path)
    assert not again.throttles_left
    assert throttles(admin, topic) == before
    assert run(admin, planned, path).is_complete, "what was given up is tried again when that run has ended"
    assert replicas(admin, topic) == {(4, 2)}


def test_the_same_command_with_another_throttle_changes_it_and_without_one_takes_it_away(
    admin: Admin, topic: str, tmp_path: Path
) -> None:
    before = throttles(admin, topic)
    path = tmp_path / "journal"
    planned = moves(admin, topic)
    interrupt_when(admin, planned, path, lambda progress: moving(progress) == 2, throttle=1)
    assert throttles(admin, topic)[f"3: {RATES[1]}"] == ("1", "DYNAMIC_BROKER_CONFIG")
    interrupt_when(admin, planned, path, lambda progress: moving(progress) == 2, throttle=2)
    assert throttles(admin, topic)[f"3: {RATES[1]}"] == ("2", "DYNAMIC_BROKER_CONFIG")
    assert run(admin, planned, path).is_complete
    assert throttles(admin, topic) == before


def test_a_controller_that_fails_over_in_the_middle_costs_nothing(
    admin: Admin, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    planned = moves(admin, topic)
    path = tmp_path / "journal"
    interrupt_when(admin, planned, path, lambda progress: moving(progress) > 0, throttle=1)
    controller = cluster.controller_id
    cluster.kill(controller)
    wait_until(lambda: cluster.controller_id not in (-1, controller))
    cluster.start_broker(controller)
    assert run(admin, planned, path).is_complete
    assert replicas(admin, topic) == {(3, 2)}


def test_replicas_are_put_in_the_directories_of_the_plan(admin: Admin, topic: str, tmp_path: Path) -> None:
    here = paths(admin.facts(PARTS), 3)
    outcome = run(admin, moves(admin, topic, (3, 2), dirs=(here[1], "any")), tmp_path / "there")
    assert outcome.is_complete
    assert where(admin.facts(PARTS), topic, 3) == {here[1]}
    outcome = run(admin, moves(admin, topic, (3, 2), dirs=(here[0], "any")), tmp_path / "back")
    assert outcome.is_complete
    assert where(admin.facts(PARTS), topic, 3) == {here[0]}


def test_what_somebody_else_changed_meanwhile_is_left_alone(admin: Admin, topic: str, tmp_path: Path) -> None:
    planned = moves(admin, topic)
    admin.alter_replicas([ReplicaMove(topic=topic, partition=1, old=(1, 2), new=(2, 4))])
    outcome = run(admin, planned, tmp_path / "journal")
    assert [(status.move.partition, status.state) for status in outcome.not_done] == [(1, MoveState.CHANGED)]
    assert "2, 4" in outcome.not_done[0].why


@pytest.mark.complete
def test_a_move_that_somebody_cancels_is_not_begun_again(admin: Admin, topic: str, tmp_path: Path) -> None:
    before = throttles(admin, topic)
    planned = moves(admin, topic)
    cancelled: set[TopicPartition] = set()

    def report(progress: MoveProgress) -> None:
        under_way = {each.move.place for each in progress.statuses if each.state is MoveState.MOVING}
        assert not under_way & cancelled, "it was begun again"
        assert not admin.carry_out(asks.cancel(under_way))
        cancelled.update(under_way)

    with Journal(tmp_path / "journal") as book:
        outcome = Executor(admin.carry_out, planned, book, options(throttle=1_000), report=report).run()
    assert {status.state for status in outcome.statuses} == {MoveState.CANCELLED}
    assert "1, 2 again" in outcome.statuses[0].why
    assert replicas(admin, topic) == {(1, 2)}
    assert throttles(admin, topic) == before
    assert run(admin, planned, tmp_path / "journal").is_complete, "the same command begins it again"
    assert replicas(admin, topic) == {(3, 2)}
