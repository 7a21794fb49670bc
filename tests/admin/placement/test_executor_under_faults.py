"""Runs whose disks fail: a log directory of a target, a target's disk that is full, the disk of the tool itself."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from plan_runs import (
    PARTS,
    filled_topic,
    interrupt_when,
    moves,
    moving,
    options,
    paths,
    replicas,
    run,
    throttles,
)

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, Part
from ottla.admin.placement.deciding import MoveState
from ottla.admin.placement.executor import Executor
from ottla.admin.placement.journal import BEGIN, SUBMIT, Journal
from ottla.admin.placement.move_progress import MoveProgress
from ottla.admin.placement.run_throttles import RATES
from ottla.errors import InputError
from ottla.records import TopicPartition
from ottla.testing import wait_until

_numbers = count(1)


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=4, log_dirs=2) as running:
        yield running


@pytest.fixture
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, timeout_s=20) as made:
        yield made


@pytest.fixture
def topic(cluster: EmbeddedCluster, admin: Admin) -> str:
    """Four partitions on brokers 1 and 2, each larger than what a follower fetches at once."""
    return filled_topic(admin, cluster.bootstrap_servers, f"faulty-{next(_numbers)}", records=750)


@pytest.mark.complete
def test_a_target_whose_log_directory_fails_is_given_up_and_says_why(
    admin: Admin, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    before = throttles(admin, topic)
    chosen = paths(admin.facts(PARTS), 3)[0]
    planned = moves(admin, topic, (3, 2), dirs=(chosen, "any"))
    path = tmp_path / "journal"
    interrupt_when(admin, planned, path, lambda progress: moving(progress) == 2, throttle=1)
    cluster.disks.offline(3, dir=0)
    outcome = run(admin, planned, path, patience_s=1)
    assert {status.state for status in outcome.not_done} == {MoveState.GIVEN_UP}, outcome
    whys = {status.why for status in outcome.not_done}
    assert any("of broker 3 failed" in why for why in whys), whys
    assert not admin.facts((Part.MOVES,)).moves
    assert throttles(admin, topic) == before
    cluster.disks.heal()
    cluster.kill(3)
    cluster.start_broker(3)
    wait_until(lambda: not any(broker.is_fenced for broker in admin.facts((Part.TOPICS,)).brokers), 60)
    assert run(admin, planned, path).is_complete
    assert replicas(admin, topic) == {(3, 2)}


def test_a_target_whose_disk_fills_up_is_given_up_and_goes_on_when_there_is_room(
    admin: Admin, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    planned = moves(admin, topic, (4, 2))
    path = tmp_path / "journal"
    interrupt_when(admin, planned, path, lambda progress: moving(progress) == 2, throttle=1)
    cluster.disks.full(4)
    outcome = run(admin, planned, path, patience_s=1)
    assert len(outcome.not_done) == 4, outcome
    assert any("of broker 4 is full" in status.why for status in outcome.not_done), outcome.not_done
    assert replicas(admin, topic) == {(1, 2)}
    assert not admin.facts((Part.MOVES,)).moves
    cluster.disks.heal()
    assert run(admin, planned, path).is_complete
    assert replicas(admin, topic) == {(4, 2)}


@pytest.mark.complete
def test_what_has_no_room_waits_for_it_and_is_left_when_none_comes(
    admin: Admin, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    planned = moves(admin, topic, (4, 2))
    cluster.disks.limited(4, limit_bytes=4_000_000)
    outcome = run(admin, planned, tmp_path / "journal", patience_s=1)
    assert {status.why for status in outcome.not_done} == {"waits for room on the disk of its target"}
    dirs = next(each.log_dirs for each in admin.facts(PARTS).brokers if each.id == 4) or ()
    used = [(log_dir.total_bytes or 0) - (log_dir.usable_bytes or 0) for log_dir in dirs]
    assert max(used) <= 4_000_000
    cluster.disks.limited(4, limit_bytes=1 << 30)
    assert run(admin, planned, tmp_path / "journal").is_complete


@pytest.mark.complete
def test_a_source_that_dies_is_copied_from_its_other_replica(
    admin: Admin, cluster: EmbeddedCluster, topic: str, tmp_path: Path
) -> None:
    planned = moves(admin, topic, (3, 2))
    path = tmp_path / "journal"
    interrupt_when(admin, planned, path, lambda progress: moving(progress) == 2, throttle=1)
    cluster.kill(1)
    wait_until(lambda: any(broker.is_fenced for broker in admin.facts((Part.TOPICS,)).brokers), 60)
    outcome = run(admin, planned, path, patience_s=2)
    assert replicas(admin, topic) == {(3, 2)}, outcome
    assert not outcome.not_done
    assert {left.split(":")[0] for left in outcome.throttles_left} == {"broker 1"}
    cluster.start_broker(1)
    wait_until(lambda: not any(broker.is_fenced for broker in admin.facts((Part.TOPICS,)).brokers), 60)
    assert run(admin, planned, path).is_complete


@pytest.mark.complete
def test_a_cancel_that_would_leave_nobody_in_sync_is_shown_as_refused_and_the_move_ends_later(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=5) as cluster, Admin(cluster.bootstrap_servers, timeout_s=20) as admin:
        topic = filled_topic(admin, cluster.bootstrap_servers, "grows", on=(1,), partitions=1, records=750)
        place = TopicPartition(topic, 0)
        planned = moves(admin, topic, (3, 4), numbers=[0])
        path = tmp_path / "journal"
        interrupt_when(admin, planned, path, lambda progress: moving(progress) == 1, throttle=1)
        cluster.kill(4)
        for broker in (1, 3):
            admin.alter_broker_settings(broker, dict.fromkeys(RATES))
        wait_until(lambda: 3 in admin.facts((Part.TOPICS,)).by_partition[place].in_sync, 60)
        cluster.kill(1)
        wait_until(lambda: admin.facts((Part.TOPICS,)).by_partition[place].leader == 3, 60)
        with Journal(path) as book:
            outcome = Executor(admin.carry_out, planned, book, options(patience_s=1)).cancel()
        assert len(outcome.refused) == 1, outcome
        assert outcome.refused[0].startswith("grows-0: cannot be cancelled: replicas: ")
        for broker in (1, 4):
            cluster.start_broker(broker)
        wait_until(lambda: not any(broker.is_fenced for broker in admin.facts((Part.TOPICS,)).brokers), 60)
        assert run(admin, planned, path).is_complete
        assert replicas(admin, topic) == {(3, 4)}


def test_a_journal_that_cannot_be_written_stops_the_tool_before_it_acts(
    admin: Admin, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = moves(admin, topic)
    path = tmp_path / "journal"
    written = os.fsync

    def full(file: int) -> None:
        if SUBMIT.encode() in path.read_bytes():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written(file)

    with Journal(path) as book, monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(
            InputError, match="No space left on device: no further move is begun, and moves under way continue"
        ):
            Executor(admin.carry_out, planned, book, options()).run()
    assert not admin.facts((Part.MOVES,)).moves
    assert replicas(admin, topic) == {(1, 2)}
    assert run(admin, planned, path).is_complete


@pytest.mark.complete
def test_a_move_that_copies_nothing_for_a_minute_says_so(admin: Admin, topic: str, tmp_path: Path) -> None:
    planned = moves(admin, topic)
    clock = count(0, 31)
    seen: list[MoveProgress] = []

    class Enough(Exception):
        pass

    def report(progress: MoveProgress) -> None:
        seen.append(progress)
        if any("has copied nothing for" in status.why for status in progress.statuses):
            raise Enough

    path = tmp_path / "journal"
    with Journal(path) as book:
        executor = Executor(
            admin.carry_out, planned, book, options(throttle=1), report=report, now=lambda: float(next(clock))
        )
        with pytest.raises(Enough):
            executor.run()
        assert book.lines[0]["step"] == BEGIN
    assert "is its throttle too low?" in " ".join(status.why for status in seen[-1].statuses)
    assert run(admin, planned, path).is_complete
