"""A folder written by Apache Kafka 4.0 (`kafka_4_0_folder`), opened, recovered, and its derived files made again.

`orders`: five idempotent producers, one for each compression, and six transactions of which every other one aborted;
index.interval.bytes=500. `state`: compacted, 9 keys written 20 times each, one of them ending in a tombstone.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from broker_embedded.common.clock import ManualClock
from broker_embedded.common.config import TopicConfig
from broker_embedded.common.os_filesystem import OsFileSystem
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.records.batch import iter_batches
from ottla_wire.records.record import RecordData, decode_batch

KAFKAS = Path(__file__).parent / "kafka_4_0_folder"
CONFIGS = {"orders": TopicConfig(index_interval_bytes=500), "state": TopicConfig(cleanup_policy=("compact",))}


def open_folder(folder: Path) -> LogManager:
    manager = LogManager([str(folder)], fs=OsFileSystem(), clock=ManualClock(), config_for=CONFIGS.__getitem__)
    manager.load_all()
    return manager


def the_log(manager: LogManager, topic: str) -> Log:
    log = manager.get(topic, 0)
    assert log is not None
    return log


def data_records(log: Log) -> list[RecordData]:
    found: list[RecordData] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(log.read(offset, 5_000).buffers())
        for position, header in iter_batches(data):
            if not header.is_control:
                found += decode_batch(data, position)
            offset = header.next_offset
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(KAFKAS, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def killed_folder(folder: Path) -> Path:
    """As if Kafka had been killed before it saved anything but the log files."""
    (folder / ".kafka_cleanshutdown").unlink()
    (folder / "recovery-point-offset-checkpoint").unlink()
    for path in folder.glob("*-0/*"):
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            path.unlink()
    return folder


@pytest.mark.parametrize("which", ["folder", "killed_folder"])
def test_everything_kafka_wrote_is_read(which: str, request: pytest.FixtureRequest) -> None:
    manager = open_folder(request.getfixturevalue(which))
    log = the_log(manager, "orders")
    orders = [record for record in data_records(log) if record.key != b"t"]
    assert [r.value for r in orders] == [b"order %d" % (i * 10 + j) for i in range(250) for j in range(i % 4 + 1)]
    assert orders[-1].headers == [("n", b"1")]
    assert (log.log_start_offset, log.log_end_offset) == (0, 647)
    assert log.latest_leader_epoch == 0
    aborted = log.aborted_transactions(0, 647)
    assert [entry.first_offset for entry in aborted] == [623, 631, 639]
    assert log.offset_for_timestamp(orders[100].timestamp_ms) is not None
    assert len(log.active_producers()) == 6
    manager.close()


@pytest.mark.parametrize("which", ["folder", "killed_folder"])
def test_a_topic_that_kafka_compacted_is_read(which: str, request: pytest.FixtureRequest) -> None:
    manager = open_folder(request.getfixturevalue(which))
    log = the_log(manager, "state")
    found = {record.key: record.value for record in data_records(log)}
    keys = {b"k%d" % i: b"2-%d" % (i + 54 if i < 6 else i + 45) for i in range(9)}
    assert found == {**keys, b"k4": None, b"last": b"x"}
    assert (log.log_end_offset, log.cleaned_to) == (181, 180)
    manager.close()


def test_the_files_made_again_are_kafkas_byte_for_byte(killed_folder: Path) -> None:
    open_folder(killed_folder).close()
    for path in sorted(KAFKAS.glob("orders-0/*")):
        assert (killed_folder / "orders-0" / path.name).read_bytes() == path.read_bytes(), path.name


def test_kafkas_identity_and_checkpoints_are_understood(folder: Path) -> None:
    manager = open_folder(folder)
    ids = manager.directories.bind_identity(
        cluster_id="q1Sh-9_ISia_zwGINzRvyQ", node_id=1, new_directory_id=lambda: pytest.fail("it has one")
    )
    assert len(ids[str(folder)]) == 22
    log = the_log(manager, "orders")
    assert (log.high_watermark, log.recovery_point) == (647, 647)
    assert log.topic_id is not None
    assert len(log.topic_id) == 16
    manager.close()
