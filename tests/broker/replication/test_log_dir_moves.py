"""Replicas that move to another log directory of their broker, while they are led, followed, cut and interrupted."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from refusing_disk import refuse

from ottla_wire.protocol import ApiKey, ErrorCode

MakeCluster = Callable[..., Any]
DIRS = ("/one", "/two")


def with_two_dirs(make_cluster: MakeCluster, nodes: int = 2, **settings: Any) -> Any:
    cluster = make_cluster(nodes, dirs=DIRS, **settings)
    cluster.create(tuple(range(1, nodes + 1)))
    for number in range(5):
        cluster[1].append(b"%d" % number)
    cluster.settle()
    return cluster


def directory(cluster: Any, node: int) -> str:
    return str(cluster[node].partition().log.directory)


def move(cluster: Any, node: int, path: str, *, topic: str = "t") -> int:
    body = {"dirs": [{"path": path, "topics": [{"name": topic, "partitions": [0]}]}]}
    (answer,) = cluster.ask(node, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, body)
    return int(answer.results[0].partitions[0].error_code)


def described(cluster: Any, node: int) -> dict[str, list[tuple[bool, int]]]:
    (answer,) = cluster.ask(node, ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None})
    return {
        result.log_dir: [(each.is_future_key, each.offset_lag) for topic in result.topics for each in topic.partitions]
        for result in answer.results
    }


@pytest.mark.parametrize("node", [1, 2])
def test_a_replica_moves_with_its_records_epochs_and_high_watermark(make_cluster: MakeCluster, node: int) -> None:
    cluster = with_two_dirs(make_cluster)
    cluster.advance(1_000)
    before = cluster[node].partition().log
    assert directory(cluster, node) == "/one/t-0"
    assert move(cluster, node, "/two") == 0
    cluster.advance(100)
    after = cluster[node].partition().log
    assert after.directory == "/two/t-0"
    assert cluster[node].values() == [b"%d" % number for number in range(5)]
    assert (after.high_watermark, after.leader_epochs) == (before.high_watermark, before.leader_epochs)
    assert not cluster[node].fs.is_dir("/one/t-0")
    assert cluster[node].logs.get("t", 0) is after


def test_it_goes_on_being_replicated(make_cluster: MakeCluster) -> None:
    cluster = with_two_dirs(make_cluster)
    for node in (1, 2):
        move(cluster, node, "/two")
    during = cluster[1].append(b"during")
    cluster.advance(100)
    after = cluster[1].append(b"after")
    cluster.settle()
    assert [each[0].error for each in (during, after)] == [ErrorCode.NONE] * 2
    assert cluster[1].values() == cluster[2].values()
    cluster[1].stop()
    cluster[1].start()
    cluster.settle()
    assert cluster[1].values() == cluster[2].values()
    assert directory(cluster, 1) == "/two/t-0"


def test_a_throttled_move_shows_its_progress_and_can_be_cancelled(make_cluster: MakeCluster) -> None:
    cluster = with_two_dirs(make_cluster, **{"replica.alter.log.dirs.io.max.bytes.per.second": 0})
    move(cluster, 1, "/two")
    cluster.advance(5_000)
    assert described(cluster, 1) == {"/one": [(False, 0)], "/two": [(True, 5)]}
    move(cluster, 1, "/one")
    cluster.advance(1_000)
    assert described(cluster, 1) == {"/one": [(False, 0)], "/two": []}
    assert not [name for name in cluster[1].fs.list_dir("/two") if name.startswith("t-0")]


def test_what_the_log_loses_while_it_is_copied_is_not_in_the_copy(make_cluster: MakeCluster) -> None:
    cluster = with_two_dirs(make_cluster)
    cluster.wire.cut.add((2, 1))
    cluster.wire.fail(2, 1)
    cluster[1].append(b"only 1", acks=1)
    partition, moves = cluster[1].partition(), cluster[1].replicas.moves
    moves.move(partition, "/two")
    moves._copy_some(partition)  # it has what only broker 1 has
    cluster.elect(2, isr=(2,))
    cluster[2].append(b"instead", acks=1)
    cluster.wire.cut.clear()
    cluster.advance(2_000)
    assert directory(cluster, 1) == "/two/t-0"
    assert cluster[1].values() == cluster[2].values() == [*(b"%d" % number for number in range(5)), b"instead"]


def test_where_it_cannot_go_is_refused(make_cluster: MakeCluster) -> None:
    cluster = with_two_dirs(make_cluster)
    assert move(cluster, 1, "/three") == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(cluster, 1, "/two", topic="missing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster[1].logs.directories.fail("/two", "broken")
    assert move(cluster, 1, "/two") == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_replica_that_is_not_here_is_refused(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(2, dirs=DIRS)
    cluster.create((1,))
    assert move(cluster, 2, "/two") == ErrorCode.REPLICA_NOT_AVAILABLE


def test_a_topic_that_is_deleted_takes_its_copy_along(make_cluster: MakeCluster) -> None:
    cluster = with_two_dirs(make_cluster, **{"replica.alter.log.dirs.io.max.bytes.per.second": 0})
    move(cluster, 1, "/two")
    cluster.change(replicas=(2,), isr=(2,), leader=2)
    cluster.advance(1_000)
    assert not [name for name in cluster[1].fs.list_dir("/two") if name.startswith("t-0")]


class Stopped(Exception):
    """The process ends here."""


def stop_after(steps: int) -> Callable[[str, str], None]:
    left = iter(range(steps))

    def before_change(operation: str, path: str) -> None:
        if next(left, None) is None:
            raise Stopped

    return before_change


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_broker_that_dies_at_any_step_of_a_move_has_the_whole_log_once(
    make_cluster: MakeCluster, loses_power: bool
) -> None:
    """Broker 1 is the only replica: what its disk loses is lost."""
    wanted = [b"%d" % number for number in range(5)]
    survived = 0
    while True:
        cluster = with_two_dirs(make_cluster, nodes=1)
        cluster[1].partition().log.flush()
        move(cluster, 1, "/two")
        cluster[1].fs.before_change = stop_after(survived)
        try:
            cluster.advance(100)
            is_done = True
        except (Stopped, AssertionError):
            is_done = False
        cluster[1].fs.before_change = lambda operation, path: None
        cluster.loop.errors.clear()
        if is_done:
            break
        cluster[1].stop(cleanly=False, crash=Random(survived) if loses_power else None)
        cluster[1].start()
        cluster.tell()
        assert cluster[1].values() == wanted, f"after {survived} steps"
        places = [path for path in DIRS if cluster[1].fs.is_dir(f"{path}/t-0")]
        assert len(places) == 1, f"after {survived} steps"
        survived += 1
    assert survived > 3, "the move changed something"
    assert directory(cluster, 1) == "/two/t-0"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.__getitem__)
def test_what_is_acknowledged_after_any_step_of_a_move_was_refused_is_there_after_a_restart(
    make_cluster: MakeCluster, code: int
) -> None:
    """Whichever log goes on, it is the one that the next start finds."""
    refused = 0
    while True:
        cluster = with_two_dirs(make_cluster, nodes=1)
        cluster[1].partition().log.flush()
        move(cluster, 1, "/two")
        seen: list[str] = []
        cluster[1].fs.before_change = refuse(refused, seen, code)
        cluster.advance(100)
        cluster[1].fs.before_change = None
        if len(seen) <= refused:
            break
        (result,) = cluster[1].append(b"after", acks=1)
        cluster.advance(cluster[1].partition().log.config.file_delete_delay_ms)
        cluster[1].logs.tick(now_ms=cluster.clock.now_ms())  # what was moved away is removed
        cluster[1].stop(cleanly=False)
        cluster[1].start()
        cluster.tell()
        wanted = [b"%d" % number for number in range(5)] + [b"after"] * (result.error is ErrorCode.NONE)
        assert cluster[1].values() == wanted, f"refused: {seen[refused]}"
        assert cluster[1].logs.get("t", 0) is cluster[1].partition().log
        refused += 1
    assert refused > 20, "the move changed something"
