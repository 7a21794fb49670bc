from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_embedded.common.clock import ManualClock, SystemClock
from broker_embedded.common.config import TopicConfig
from broker_embedded.common.errors import BrokerError, StartupError
from broker_embedded.common.filesystem import read_whole
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.common.os_filesystem import OsFileSystem
from broker_embedded.storage.file_pool import OpenFiles
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.protocol import ErrorCode

TOPIC_ID = bytes(range(16))


def manager_on(fs: MemoryFileSystem, clock: ManualClock, *dirs: str, **options: Any) -> LogManager:
    manager = LogManager(dirs or ["/data"], fs=fs, clock=clock, **options)
    manager.load_all()
    return manager


def append(log: Any, data: bytes) -> None:
    log.append_as_leader(memoryview(bytearray(data)), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)


def test_the_files_of_a_log_directory_are_kafkas(store: Any) -> None:
    store.append(b"a")
    store.append(b"b")
    store.log.delete_records(1)
    store.manager.directories.bind_identity(cluster_id="c", node_id=3, new_directory_id=lambda: "d")
    store.manager.close()
    assert store.fs.list_dir("/data") == [
        ".kafka_cleanshutdown",
        ".lock",
        "log-start-offset-checkpoint",
        "meta.properties",
        "orders-0",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]
    assert store.files() == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000002.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    content = {name: read_whole(store.fs, f"/data/{name}") for name in store.fs.list_dir("/data") if "point" in name}
    assert content == {
        "log-start-offset-checkpoint": b"0\n1\norders 0 1\n",
        "recovery-point-offset-checkpoint": b"0\n1\norders 0 2\n",
        "replication-offset-checkpoint": b"0\n1\norders 0 2\n",
    }
    assert read_whole(store.fs, "/data/meta.properties") == b"#\ncluster.id=c\ndirectory.id=d\nnode.id=3\nversion=1\n"


def test_a_new_partition_goes_to_the_directory_with_the_fewest(memory_fs: MemoryFileSystem, clock: ManualClock) -> None:
    manager = manager_on(memory_fs, clock, "/a", "/b")
    homes = [manager.get_or_create("t", i).directory for i in range(4)]
    assert homes == ["/a/t-0", "/b/t-1", "/a/t-2", "/b/t-3"]
    assert manager.get_or_create("t", 1) is manager.get("t", 1)
    assert manager.get("t", 9) is None
    assert [len(view.logs) for view in manager.directories.describe()] == [2, 2]


def test_topics_with_dashes_and_dots_are_loaded(memory_fs: MemoryFileSystem, clock: ManualClock) -> None:
    manager = manager_on(memory_fs, clock)
    names = [("a-b-1", 0), ("__consumer_offsets", 49), ("x.y", 3)]
    for topic, partition in names:
        manager.get_or_create(topic, partition)
    manager.close()
    again = manager_on(memory_fs, clock)
    assert sorted((log.topic, log.partition) for log in again.logs) == sorted(names)


def test_a_directory_in_use_is_refused_with_path_and_remedy(memory_fs: MemoryFileSystem, clock: ManualClock) -> None:
    first = manager_on(memory_fs, clock, "/a")
    with pytest.raises(StartupError, match=r"/a is locked by another broker: stop that one, or set log.dirs"):
        LogManager(["/b", "/a"], fs=memory_fs, clock=clock)
    first.close()
    manager_on(memory_fs, clock, "/b", "/a").close()


def test_a_directory_on_the_real_disk_is_locked_against_another_broker(tmp_path: Path) -> None:
    manager = LogManager([str(tmp_path)], fs=OsFileSystem(), clock=SystemClock())
    with pytest.raises(StartupError, match="locked"):
        LogManager([str(tmp_path)], fs=OsFileSystem(), clock=SystemClock())
    manager.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_directory_is_refused_with_path_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    with pytest.raises(StartupError, match=r"data: opening failed, permission denied: give .* write access"):
        LogManager([str(tmp_path / "data")], fs=OsFileSystem(), clock=SystemClock())


@pytest.mark.parametrize(
    ("error", "remedy"), [(13, "permission denied"), (30, "read-only"), (28, "free space"), (5, "the disk failed")]
)
def test_a_directory_that_cannot_be_written_is_refused_with_path_and_remedy(
    memory_fs: MemoryFileSystem, clock: ManualClock, error: int, remedy: str
) -> None:
    def fail(operation: str, path: str) -> None:
        if operation == "create" and "writable" in path:
            raise OSError(error, os.strerror(error), path)

    memory_fs.before_change = fail
    with pytest.raises(StartupError, match=f"/a: writing failed, .*{remedy}"):
        LogManager(["/a"], fs=memory_fs, clock=clock)
    memory_fs.before_change = None
    LogManager(["/a"], fs=memory_fs, clock=clock).close()


def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("x")
    with pytest.raises(StartupError, match="data is not a directory"):
        LogManager([str(tmp_path / "data")], fs=OsFileSystem(), clock=SystemClock())


def test_no_directory_is_refused(memory_fs: MemoryFileSystem, clock: ManualClock) -> None:
    with pytest.raises(StartupError, match=r"log\.dirs is empty"):
        LogManager([], fs=memory_fs, clock=clock)


def test_a_directory_of_another_broker_or_cluster_is_refused(memory_fs: MemoryFileSystem, clock: ManualClock) -> None:
    manager = manager_on(memory_fs, clock)
    ids = manager.directories.bind_identity(cluster_id="c", node_id=1, new_directory_id=lambda: "one")
    assert ids == {"/data": "one"}
    assert manager.directories.bind_identity(cluster_id="c", node_id=1, new_directory_id=lambda: "two") == ids
    for cluster_id, node_id, said in (("c", 2, "node.id is 1, this broker has 2"), ("d", 1, "cluster.id is c")):
        with pytest.raises(StartupError, match=said):
            manager.directories.bind_identity(cluster_id=cluster_id, node_id=node_id, new_directory_id=lambda: "x")


def test_one_partition_in_two_directories_is_refused(memory_fs: MemoryFileSystem, clock: ManualClock) -> None:
    for path in ("/a", "/b"):
        manager = manager_on(memory_fs, clock, path)
        manager.get_or_create("t", 0)
        manager.close()
    manager = LogManager(["/a", "/b"], fs=memory_fs, clock=clock)
    with pytest.raises(StartupError, match=r"/b/t-0 and /a/t-0 hold the same partition"):
        manager.load_all()


def test_a_deleted_partition_is_renamed_at_once_and_removed_later(
    memory_fs: MemoryFileSystem, clock: ManualClock, make_batch: Callable[..., bytes]
) -> None:
    manager = manager_on(memory_fs, clock)
    log = manager.get_or_create("t", 0)
    append(log, make_batch(b"old"))
    fetched = log.read(0, 1000)
    manager.delete("t", 0)
    manager.delete("t", 0)
    assert manager.get("t", 0) is None
    names = [name for name in memory_fs.list_dir("/data") if name.startswith("t-0")]
    assert len(names) == 1
    assert names[0].endswith("-delete")
    assert len(b"".join(fetched.buffers())) == fetched.size  # a response under way is still served
    assert manager.get_or_create("t", 0).log_end_offset == 0
    clock.advance(60_000)
    manager.tick(now_ms=clock.now_ms())
    assert [name for name in memory_fs.list_dir("/data") if name.startswith("t-0")] == ["t-0"]


def test_a_deleted_partition_does_not_come_back(memory_fs: MemoryFileSystem, clock: ManualClock) -> None:
    manager = manager_on(memory_fs, clock)
    manager.get_or_create("t", 0)
    manager.delete("t", 0)
    memory_fs.crash()
    assert manager_on(memory_fs, clock).logs == ()
    assert not [name for name in memory_fs.list_dir("/data") if name.endswith("-delete")]


def test_offsets_saved_of_a_deleted_partition_are_not_believed_of_a_new_one(
    memory_fs: MemoryFileSystem, clock: ManualClock, make_batch: Callable[..., bytes]
) -> None:
    manager = manager_on(memory_fs, clock)
    log = manager.get_or_create("t", 0)
    for _ in range(5):
        append(log, make_batch(b"old"))
    log.delete_records(4)
    log.flush()
    manager.checkpoint()
    manager.delete("t", 0)
    append(manager.get_or_create("t", 0), make_batch(b"new"))
    memory_fs.kill()
    log = manager_on(memory_fs, clock).logs[0]
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)


def test_a_long_topic_name_can_be_deleted(memory_fs: MemoryFileSystem, clock: ManualClock) -> None:
    manager = manager_on(memory_fs, clock)
    manager.get_or_create("t" * 249, 0)
    manager.delete("t" * 249, 0)
    name = next(name for name in memory_fs.list_dir("/data") if name.endswith("-delete"))
    assert len(name) <= 255


def test_a_topic_id_is_remembered_and_another_one_refused(memory_fs: MemoryFileSystem, clock: ManualClock) -> None:
    manager = manager_on(memory_fs, clock)
    manager.get_or_create("t", 0)
    assert manager.get_or_create("t", 0, b"\x01" * 16).topic_id == b"\x01" * 16
    manager.close()
    manager = manager_on(memory_fs, clock)
    assert manager.logs[0].topic_id == b"\x01" * 16
    with pytest.raises(BrokerError) as raised:
        manager.get_or_create("t", 0, b"\x02" * 16)
    assert raised.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_periodic_work_is_done_when_it_is_due(
    memory_fs: MemoryFileSystem, clock: ManualClock, make_batch: Callable[..., bytes]
) -> None:
    config = TopicConfig(segment_bytes=200, retention_bytes=0, flush_ms=10_000)
    manager = manager_on(memory_fs, clock, config_for=lambda topic: config)
    log = manager.get_or_create("t", 0)
    for _ in range(3):
        append(log, make_batch(b"x" * 90))
    clock.advance(3_000)
    manager.tick(now_ms=clock.now_ms())
    assert log.recovery_point == 2  # rolled segments become durable soon
    assert not memory_fs.exists("/data/replication-offset-checkpoint")
    clock.advance(10_000)
    manager.tick(now_ms=clock.now_ms())
    assert log.recovery_point == 3
    assert read_whole(memory_fs, "/data/replication-offset-checkpoint") == b"0\n1\nt 0 3\n"
    assert len(log.segments) == 3
    clock.advance(300_000)
    manager.tick(now_ms=clock.now_ms())
    assert len(log.segments) == 1
    assert read_whole(memory_fs, "/data/recovery-point-offset-checkpoint") == b"0\n1\nt 0 3\n"


def test_a_log_that_cannot_be_changed_does_not_keep_others_from_their_work(
    memory_fs: MemoryFileSystem, clock: ManualClock, make_batch: Callable[..., bytes]
) -> None:
    config = TopicConfig(segment_bytes=200, retention_bytes=0)
    manager = manager_on(memory_fs, clock, config_for=lambda topic: config)
    logs = [manager.get_or_create(topic, 0) for topic in ("bad", "good")]
    for log in logs:
        for _ in range(3):
            append(log, make_batch(b"x" * 90))

    def fail(operation: str, path: str) -> None:
        if "/bad-0/" in path:
            raise OSError(13, "Permission denied", path)

    memory_fs.before_change = fail
    clock.advance(300_000)
    manager.tick(now_ms=clock.now_ms())
    assert [len(log.segments) for log in logs] == [3, 1]


def test_a_directory_that_cannot_be_closed_gets_no_marker_and_is_recovered(
    store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store.append(b"a")

    def fail(operation: str, path: str) -> None:
        if operation == "flush" and path.endswith(".log"):
            raise OSError(5, "Input/output error", path)

    store.fs.before_change = fail
    store.manager.close()
    store.fs.before_change = None
    assert not store.fs.exists("/data/.kafka_cleanshutdown")
    assert "not shut down cleanly" in caplog.text
    store.open()
    assert store.values() == [b"a"]


def test_a_partition_that_is_deleted_frees_the_disk_that_it_has_filled(make_store: Any) -> None:
    """What its indexes have not written yet is not written any more: there is no room for it."""
    store = make_store(index_interval_bytes=0)
    for number in range(10):
        store.append(b"%d" % number)
    store.fs.capacity_bytes = 0
    store.manager.delete("orders", 0)
    store.clock.advance(store.config.file_delete_delay_ms)
    store.manager.tick(now_ms=store.clock.now_ms())
    assert [name for name in store.fs.list_dir("/data") if name.startswith("orders")] == []


def test_few_files_are_open_however_many_partitions_there_are(tmp_path: Path, make_batch: Callable[..., bytes]) -> None:
    manager = LogManager(
        [str(tmp_path)], fs=OsFileSystem(fsync=False), clock=SystemClock(), open_files=OpenFiles(max_open=20)
    )
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for partition in range(60):
        append(manager.get_or_create("t", partition), make_batch(b"v%d" % partition))
    assert len(os.listdir("/proc/self/fd")) - before <= 20  # noqa: PTH208
    for partition in range(60):
        log = manager.get("t", partition)
        assert log is not None
        assert b"v%d" % partition in b"".join(log.read(0, 1000).buffers())
    manager.close()


def counted_syncs(fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    synced: list[str] = []
    flush, sync_dir = fs.flush, fs.sync_dir
    monkeypatch.setattr(fs, "flush", lambda node, path: (synced.append(path), flush(node, path)))
    monkeypatch.setattr(fs, "sync_dir", lambda path: (synced.append(path), sync_dir(path)))
    return synced


def test_a_new_partition_waits_for_no_disk(memory_fs, clock, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manager_on(memory_fs, clock)
    synced = counted_syncs(memory_fs, monkeypatch)
    manager.get_or_create("orders", 0, TOPIC_ID)
    assert synced == []
    manager.close()
    assert [path for path in synced if "orders-0" in path] == [], "there is nothing in it to be kept"


def test_the_first_flush_of_a_new_partition_keeps_its_directory_and_topic_id(memory_fs, clock, make_batch) -> None:
    manager = manager_on(memory_fs, clock)
    log = manager.get_or_create("orders", 0, TOPIC_ID)
    append(log, make_batch(b"a"))
    log.flush()
    memory_fs.crash()
    (again,) = manager_on(memory_fs, clock).logs
    assert (again.topic_id, again.log_end_offset) == (TOPIC_ID, 1)


def test_a_new_partition_that_was_cut_to_nothing_stays_empty_after_a_clean_stop(memory_fs, clock, make_batch) -> None:
    manager = manager_on(memory_fs, clock)
    log = manager.get_or_create("orders", 0, TOPIC_ID)
    append(log, make_batch(b"a"))
    log.truncate_to(0)
    manager.close()
    memory_fs.crash()
    (again,) = manager_on(memory_fs, clock).logs
    assert (again.topic_id, again.log_end_offset) == (TOPIC_ID, 0)


def test_the_directory_of_a_log_that_must_be_whole_is_kept_from_the_start(memory_fs, clock) -> None:
    manager_on(memory_fs, clock, must_be_whole=True).get_or_create("__cluster_metadata", 0, TOPIC_ID)
    memory_fs.crash()
    assert memory_fs.list_dir("/data/__cluster_metadata-0")
