"""A clean stop waits for the disk once, not for each of a thousand logs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from broker_embedded.common.clock import SystemClock
from broker_embedded.common.os_filesystem import OsFileSystem
from broker_embedded.storage.log_manager import MANY_LOGS, LogManager
from ottla_wire.records.record import RecordData, encode_batch

LOGS = 3 * MANY_LOGS


def manager_with_records(path: Path, logs: int) -> LogManager:
    manager = LogManager([str(path)], fs=OsFileSystem(), clock=SystemClock())
    manager.load_all()
    for number in range(logs):
        record = RecordData(offset=0, timestamp_ms=1, key=None, value=b"v", headers=())
        data = memoryview(bytearray(encode_batch([record])))
        manager.get_or_create("t", number).append_as_leader(data, leader_epoch=0)
    return manager


def test_many_logs_are_synced_together_and_found_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manager_with_records(tmp_path, LOGS)
    waits: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (waits.append(fd), fsync(fd)))
    manager.close()
    assert len(waits) < MANY_LOGS
    again = LogManager([str(tmp_path)], fs=OsFileSystem(), clock=SystemClock())
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    again.load_all()
    assert [log.log_end_offset for log in again.logs] == [1] * LOGS
    again.abandon()


def test_a_disk_that_refuses_to_sync_is_not_called_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        def syncfs(fd: int) -> None:
            raise OSError(5, "Input/output error")

        return syncfs

    manager = manager_with_records(tmp_path, LOGS)
    monkeypatch.setattr("broker_embedded.common.os_filesystem._syncfs", refuse)
    manager.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_without_a_sync_of_the_whole_volume_each_file_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = manager_with_records(tmp_path, LOGS)
    monkeypatch.setattr("broker_embedded.common.os_filesystem._syncfs", lambda: None)
    waits: list[int] = []
    monkeypatch.setattr(os, "fsync", waits.append)
    manager.close()
    assert len(waits) > LOGS
