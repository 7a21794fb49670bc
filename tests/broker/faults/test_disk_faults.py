"""Disks that fill up, fail, tear writes and lose power: what the file system does, and what logs make of it."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from broker_embedded.cluster.faults import Disks, Faults, FaultyFileSystem
from broker_embedded.cluster.faults.disk_fault import DiskFault, DiskFaultKind
from broker_embedded.common.clock import ManualClock
from broker_embedded.common.config import TopicConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.filesystem import FileSystem, read_whole, write_whole
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.common.os_filesystem import OsFileSystem
from broker_embedded.storage.file_pool import OpenFiles
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.batch import iter_batches
from ottla_wire.records.compression import CompressionType
from ottla_wire.records.record import RecordData, encode_batch


@pytest.fixture(params=["os", "memory"])
def fs(request: pytest.FixtureRequest, tmp_path: Path) -> FaultyFileSystem:
    inner: FileSystem = OsFileSystem() if request.param == "os" else MemoryFileSystem()
    inner.make_dirs(str(tmp_path))
    return FaultyFileSystem(inner)


@pytest.fixture
def root(tmp_path: Path, fs: FaultyFileSystem) -> str:
    fs.make_dirs(f"{tmp_path}/a")
    fs.make_dirs(f"{tmp_path}/b")
    return str(tmp_path)


def written(fs: FaultyFileSystem, path: str, data: bytes, *, flush: bool = False) -> None:
    """Append to a file."""
    file = fs.open(path, create=True)
    file.write_at(data, file.size())
    if flush:
        file.flush()
    file.close()


# --- the file system


def test_a_full_disk_refuses_growth_and_serves_what_it_has(fs: FaultyFileSystem, root: str) -> None:
    written(fs, f"{root}/a/file", b"old")
    full = fs.add(DiskFault(DiskFaultKind.FULL, f"{root}/a"))
    file = fs.open(f"{root}/a/file")
    with pytest.raises(OSError, match="No space") as refused:
        file.write_at(b"x", 3)
    assert refused.value.errno == errno.ENOSPC
    file.write_at(b"OLD", 0)
    assert file.read_at(10, 0) == b"OLD"
    with pytest.raises(OSError, match="No space"):
        fs.open(f"{root}/a/new", create=True)
    assert fs.usage(f"{root}/a").usable == 0
    written(fs, f"{root}/b/file", b"another disk")
    fs.remove_fault(full)
    file.write_at(b"x", 3)
    assert full.hits == 2


def test_a_limited_disk_holds_so_many_bytes_and_says_so(fs: FaultyFileSystem, root: str) -> None:
    written(fs, f"{root}/a/file", b"x" * 60)
    faults = Faults()
    disks = Disks(fs, faults, log_dirs=lambda node: [f"{root}/a"])
    limit = disks.limited(1, limit_bytes=100)
    assert (fs.usage(f"{root}/a").total, fs.usage(f"{root}/a").usable) == (100, 40)
    written(fs, f"{root}/a/file", b"x" * 40)
    with pytest.raises(OSError, match="No space"):
        written(fs, f"{root}/a/file", b"x")
    fs.remove(f"{root}/a/file")
    written(fs, f"{root}/a/another", b"x" * 90)
    disks.heal()
    with pytest.raises(OSError, match="No space"):
        written(fs, f"{root}/a/another", b"x" * 11)
    disks.limited(1, limit_bytes=200)
    written(fs, f"{root}/a/another", b"x" * 11)
    (shown,) = disks.to_json()
    assert (shown["kind"], shown["bytes"]) == ("limited", 200)
    assert limit.hits == 2
    with pytest.raises(ValueError, match="bytes: found 0 for limited, wanted 1 or more"):
        disks.limited(1, limit_bytes=0)


def test_a_directory_that_is_offline_fails_in_everything(fs: FaultyFileSystem, root: str) -> None:
    written(fs, f"{root}/a/file", b"old")
    file = fs.open(f"{root}/a/file")
    fs.add(DiskFault(DiskFaultKind.OFFLINE, f"{root}/a"))
    for attempt in (
        lambda: file.read_at(1, 0),
        lambda: file.write_at(b"x", 0),
        lambda: file.flush(),
        lambda: file.fileno(),
        lambda: fs.open(f"{root}/a/file"),
        lambda: fs.list_dir(f"{root}/a"),
        lambda: fs.sync_dir(f"{root}/a"),
        lambda: fs.rename(f"{root}/a/file", f"{root}/a/other"),
        lambda: fs.remove(f"{root}/a/file"),
        lambda: fs.usage(f"{root}/a"),
    ):
        with pytest.raises(OSError, match="Input/output error") as failed:
            attempt()
        assert failed.value.errno == errno.EIO
    assert fs.list_dir(f"{root}/b") == []


def test_an_fsync_error_comes_as_often_as_it_was_asked_for(fs: FaultyFileSystem, root: str) -> None:
    fault = fs.add(DiskFault(DiskFaultKind.FSYNC_ERROR, root, count=1))
    file = fs.open(f"{root}/a/file", create=True)
    file.write_at(b"x", 0)
    with pytest.raises(OSError, match="Input/output error"):
        file.flush()
    file.flush()
    assert fault.hits == 1


def test_a_torn_write_leaves_its_first_half(fs: FaultyFileSystem, root: str) -> None:
    fs.add(DiskFault(DiskFaultKind.TORN_WRITE, root, count=1))
    file = fs.open(f"{root}/a/file", create=True)
    with pytest.raises(OSError, match="Input/output error"):
        file.write_at(b"12345678", 0)
    assert file.read_at(10, 0) == b"1234"
    file.write_at(b"12345678", 0)
    assert file.read_at(10, 0) == b"12345678"


def test_a_slow_disk_counts_what_it_costs(fs: FaultyFileSystem, root: str) -> None:
    slow = fs.add(DiskFault(DiskFaultKind.SLOW, f"{root}/a", delay_ms=7))
    written(fs, f"{root}/a/file", b"x", flush=True)
    written(fs, f"{root}/b/file", b"x", flush=True)
    assert slow.debt_ms == 14


# --- what a crash takes away


def test_a_crash_keeps_what_was_flushed_and_loses_the_rest(fs: FaultyFileSystem, root: str) -> None:
    written(fs, f"{root}/a/file", b"safe", flush=True)
    fs.sync_dir(f"{root}/a")
    written(fs, f"{root}/a/file", b" and not")
    written(fs, f"{root}/b/file", b"elsewhere")
    fs.crash(f"{root}/a")
    assert read_whole(fs, f"{root}/a/file") == b"safe"
    assert read_whole(fs, f"{root}/b/file") == b"elsewhere"


def test_a_crash_brings_back_durable_bytes_that_were_written_over(fs: FaultyFileSystem, root: str) -> None:
    written(fs, f"{root}/a/file", b"0123456789", flush=True)
    fs.sync_dir(f"{root}/a")
    file = fs.open(f"{root}/a/file")
    file.write_at(b"abc", 2)
    file.write_at(b"XYZ__", 8)
    file.write_at(b"c", 3)
    file.close()
    fs.crash(root)
    assert read_whole(fs, f"{root}/a/file") == b"0123456789"


def test_a_crash_loses_files_whose_directory_was_not_synced(fs: FaultyFileSystem, root: str) -> None:
    written(fs, f"{root}/a/synced", b"x", flush=True)
    fs.sync_dir(f"{root}/a")
    written(fs, f"{root}/a/new", b"x", flush=True)
    fs.crash(root)
    assert fs.list_dir(f"{root}/a") == ["synced"]


def test_a_file_is_followed_through_closing_and_renaming(fs: FaultyFileSystem, root: str) -> None:
    written(fs, f"{root}/a/file", b"safe", flush=True)
    file = fs.open(f"{root}/a/file")
    fs.rename(f"{root}/a/file", f"{root}/a/renamed")
    file.write_at(b" not", 4)
    fs.sync_dir(f"{root}/a")
    fs.rename(f"{root}/a", f"{root}/c")
    file.close()
    fs.crash(root)
    assert read_whole(fs, f"{root}/c/renamed") == b"safe"


def test_directories_are_renamed_removed_and_crash_without_their_neighbours(fs: FaultyFileSystem, root: str) -> None:
    for name in ("t-1", "t-1/below", "t-10"):
        fs.make_dirs(f"{root}/a/{name}")
        fs.sync_dir(f"{root}/a/{name}")
        written(fs, f"{root}/a/{name}/file", b"safe", flush=True)
        fs.sync_dir(f"{root}/a/{name}")
        written(fs, f"{root}/a/{name}/file", b" lost")
    fs.rename(f"{root}/a/t-1", f"{root}/a/t-2")
    fs.crash(f"{root}/a/t-2")
    assert [read_whole(fs, f"{root}/a/{name}/file") for name in ("t-2", "t-2/below")] == [b"safe"] * 2
    assert read_whole(fs, f"{root}/a/t-10/file") == b"safe lost"
    fs.remove_tree(f"{root}/a/t-2")
    written(fs, f"{root}/a/file", b"no directory was synced")
    fs.crash(f"{root}/a")
    assert fs.list_dir(f"{root}/a") == ["t-10"]
    assert read_whole(fs, f"{root}/a/t-10/file") == b"safe"


def test_a_small_file_that_is_replaced_as_a_whole_survives(fs: FaultyFileSystem, root: str) -> None:
    write_whole(fs, f"{root}/a/checkpoint", b"one")
    write_whole(fs, f"{root}/a/checkpoint", b"two, longer")
    fs.crash(root)
    assert read_whole(fs, f"{root}/a/checkpoint") == b"two, longer"
    assert fs.list_dir(f"{root}/a") == ["checkpoint"]


def test_a_truncation_is_durable_at_once(fs: FaultyFileSystem, root: str) -> None:
    written(fs, f"{root}/a/file", b"0123456789", flush=True)
    fs.sync_dir(f"{root}/a")
    file = fs.open(f"{root}/a/file")
    file.write_at(b"__________", 0)
    file.truncate(4)
    file.write_at(b"new", 4)
    file.close()
    fs.crash(root)
    assert read_whole(fs, f"{root}/a/file") == b"0123"


# --- what the logs of a broker make of it


class Store:
    """A log manager with two directories, and one partition in each."""

    def __init__(self, fs: FaultyFileSystem, root: str) -> None:
        self.fs = fs
        self.dirs = [f"{root}/a", f"{root}/b"]
        self.clock = ManualClock()
        self.open()

    def open(self) -> None:
        self.manager = LogManager(
            self.dirs, fs=self.fs, clock=self.clock, config_for=lambda topic: TopicConfig(segment_bytes=1_000)
        )
        self.manager.load_all()
        self.first, self.second = (self.manager.get_or_create("t", number) for number in (0, 1))

    def power_cut(self) -> None:
        self.manager.abandon()
        for path in self.dirs:
            self.fs.crash(path)
        self.open()


@pytest.fixture
def store(fs: FaultyFileSystem, root: str) -> Iterator[Store]:
    store = Store(fs, root)
    yield store
    fs.faults = ()
    store.manager.close()


def append(log: Log, *values: bytes) -> int:
    """The offset of the last of them."""
    offset = -1
    for value in values:
        record = RecordData(offset=0, timestamp_ms=1_700_000_000_000, key=None, value=value, headers=())
        batch = memoryview(bytearray(encode_batch([record], compression=CompressionType.NONE)))
        offset = log.append_as_leader(batch, leader_epoch=1).last_offset
        log.update_high_watermark(log.log_end_offset)
    return offset


def offsets(log: Log) -> list[int]:
    """The base offsets that can be read."""
    found: list[int] = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = memoryview(b"".join(log.read(at, 1_000_000).buffers()))
        for _, header in iter_batches(data):
            found.append(header.base_offset)
            at = header.base_offset + 1
    return found


def refused(log: Log) -> BrokerError:
    """How an append ends."""
    with pytest.raises(BrokerError) as error:
        append(log, b"refused")
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    return error.value


def test_a_full_disk_refuses_appends_with_the_remedy_and_goes_on_when_there_is_room(store: Store) -> None:
    append(store.first, *[b"x" * 100] * 5)
    full = store.fs.add(DiskFault(DiskFaultKind.FULL, parent_of(store.first)))
    for _ in range(3):
        assert "free space" in refused(store.first).message
    assert offsets(store.first) == list(range(5))
    append(store.second, b"the other directory has room")
    store.fs.remove_fault(full)
    assert append(store.first, *[b"x" * 100] * 20) == 24
    assert offsets(store.first) == list(range(25))
    store.first.flush()
    store.power_cut()
    assert offsets(store.first) == list(range(25))
    assert store.manager.directories.offline == {}


def test_a_disk_that_fails_takes_its_directory_offline_and_no_other(store: Store) -> None:
    told: list[tuple[str, Sequence[Log]]] = []
    store.manager.directories.add_listener(lambda path, logs: told.append((path, logs)))
    append(store.first, b"a")
    append(store.second, b"b")
    gone = parent_of(store.first)
    bad = store.fs.add(DiskFault(DiskFaultKind.OFFLINE, gone))
    refused(store.first)
    assert told == [(gone, [store.first])]
    assert "offline since" in refused(store.first).message
    with pytest.raises(BrokerError, match="offline since"):
        store.first.read(0, 1_000)
    assert append(store.second, b"c") == 1
    assert parent_of(store.manager.get_or_create("t", 2)) == parent_of(store.second)
    views = {view.path: view for view in store.manager.directories.describe()}
    assert views[gone].offline_reason is not None
    assert views[gone].logs == ()
    store.clock.advance(3_600_000)
    store.manager.tick(now_ms=store.clock.now_ms())
    store.fs.remove_fault(bad)
    refused(store.first)  # nobody has looked at the disk yet: it stays offline until the next start
    store.manager.close()
    store.open()
    assert offsets(store.first) == [0]
    assert offsets(store.second) == [0, 1]


def test_a_directory_that_failed_unnoticed_is_described_as_offline(store: Store) -> None:
    append(store.first, b"a")
    gone = parent_of(store.first)
    store.fs.add(DiskFault(DiskFaultKind.OFFLINE, gone))
    views = {view.path: view for view in store.manager.directories.describe()}
    assert "Input/output error" in str(views[gone].offline_reason)
    assert [view.offline_reason for path, view in views.items() if path != gone] == [None]
    assert list(store.manager.directories.offline) == [gone]


def test_a_new_partition_passes_a_directory_over_whose_disk_fails(store: Store) -> None:
    for number in (2, 3, 4):
        store.manager.get_or_create("t", number)
    counts = {path: sum(parent_of(log) == path for log in store.manager.logs) for path in store.dirs}
    emptier = min(counts, key=lambda path: counts[path])
    store.fs.add(DiskFault(DiskFaultKind.OFFLINE, emptier))
    assert parent_of(store.manager.get_or_create("t", 5)) != emptier
    assert set(store.manager.directories.offline) == {emptier}
    (other,) = set(store.dirs) - {emptier}
    store.fs.add(DiskFault(DiskFaultKind.OFFLINE, other))
    with pytest.raises(BrokerError, match="all log directories are offline"):
        store.manager.get_or_create("t", 6)


def test_a_full_disk_makes_no_partition_and_stays_online(store: Store) -> None:
    for path in store.dirs:
        store.fs.add(DiskFault(DiskFaultKind.FULL, path))
    with pytest.raises(BrokerError, match="creating failed, the disk is full"):
        store.manager.get_or_create("t", 2)
    assert store.manager.directories.offline == {}


def test_a_failed_fsync_takes_the_directory_offline_and_acknowledges_nothing(store: Store) -> None:
    append(store.first, b"a")
    store.first.flush()
    store.fs.add(DiskFault(DiskFaultKind.FSYNC_ERROR, parent_of(store.first), count=1))
    append(store.first, b"b")
    with pytest.raises(BrokerError, match="fsync failed"):
        store.first.flush()
    assert store.first.recovery_point == 1
    refused(store.first)
    store.power_cut()
    assert offsets(store.first) == [0]


def test_a_torn_write_is_never_served_and_is_cut_by_the_next_start(store: Store) -> None:
    append(store.first, b"a")
    store.first.flush()
    store.fs.add(DiskFault(DiskFaultKind.TORN_WRITE, parent_of(store.first), count=1))
    refused(store.first)
    assert store.first.log_end_offset == 1
    store.manager.abandon()
    store.open()
    assert offsets(store.first) == [0]
    assert append(store.first, b"b") == 1
    assert offsets(store.first) == [0, 1]


def test_a_power_cut_loses_what_was_not_fsynced_and_nothing_else(store: Store) -> None:
    append(store.first, *[b"x" * 100] * 20)
    append(store.second, b"b")
    store.first.flush()
    append(store.first, *[b"y" * 100] * 20)
    store.power_cut()
    assert offsets(store.first) == list(range(20))
    assert offsets(store.second) == []
    assert append(store.first, b"z") == 20


def test_segments_that_were_closed_and_opened_behind_the_log_are_followed(fs: FaultyFileSystem, root: str) -> None:
    manager = LogManager([root], fs=fs, clock=ManualClock(), open_files=OpenFiles(max_open=4))
    logs = [manager.get_or_create("t", number) for number in range(6)]
    for round_ in range(3):
        for log in logs:
            append(log, b"%d" % round_)
            if round_ == 1:
                log.flush()
    manager.abandon()
    fs.crash(root)
    again = LogManager([root], fs=fs, clock=ManualClock(), open_files=OpenFiles(max_open=4))
    again.load_all()
    assert [offsets(log) for log in again.logs] == [[0, 1]] * 6
    again.close()


# --- the disks of a cluster


def test_disks_are_named_by_broker_and_directory(fs: FaultyFileSystem, root: str) -> None:
    faults = Faults()
    view = faults.on_broker(1)

    def log_dirs(node: int) -> Sequence[str]:
        return [f"{root}/a", f"{root}/b"]

    disks = Disks(fs, faults, log_dirs=log_dirs)
    with disks.full(1, dir=0) as full:
        with pytest.raises(OSError, match="No space"):
            written(fs, f"{root}/a/file", b"x")
        written(fs, f"{root}/b/file", b"x")
        assert full.wait(hits=1).hits == 1
        with pytest.raises(TimeoutError, match=r"disk of broker 1 \(full\): found 1 hits .*wanted 2"):
            full.wait(hits=2, timeout_s=0.01)
        assert disks.to_json() == [{"broker": 1, "kind": "full", "path": f"{root}/a", "count": None, "hits": 1}]
    written(fs, f"{root}/a/file", b"x")
    disks.offline(1)
    disks.slow(1, delay_ms=5)
    assert view.is_armed  # requests wait for the slow disk
    disks.heal(2)
    assert len(disks.to_json()) == 4
    disks.heal()
    assert (disks.to_json(), fs.faults, view.is_armed) == ([], (), False)
    with pytest.raises(ValueError, match="dir: found 2, wanted 0 to 1: broker 1 has 2"):
        disks.full(1, dir=2)
    with pytest.raises(ValueError, match="count: found 0"):
        disks.fail_fsync(1, count=0)
    with pytest.raises(ValueError, match="delay_ms: found 0 for slow"):
        disks.slow(1, delay_ms=0)


def parent_of(log: Log) -> str:
    return log.directory.rpartition("/")[0]
