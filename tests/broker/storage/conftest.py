"""Builders for storage tests: batches, and a log in memory that can be closed, killed, crashed and opened again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from broker_embedded.common.clock import ManualClock
from broker_embedded.common.config import TopicConfig
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.storage.append import AppendInfo, AppendOrigin
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.records.batch import iter_batches
from ottla_wire.records.control import ControlType, encode_end_txn_marker
from ottla_wire.records.record import RecordData, decode_batch, encode_batch

DATA_DIR = "/data"
START_MS = 1_700_000_000_000


class Store:
    """One broker's storage with one partition, `orders-0`."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(START_MS)
        self.fs = MemoryFileSystem(clock=self.clock)
        self.config = TopicConfig(**settings)
        self.manager: LogManager
        self.open()

    def open(self) -> Log:
        self.manager = LogManager([DATA_DIR], fs=self.fs, clock=self.clock, config_for=lambda topic: self.config)
        self.manager.load_all()
        self.log = self.manager.get_or_create("orders", 0, b"\x01" * 16)
        return self.log

    def restart(self) -> Log:
        """A clean stop and a start."""
        self.manager.close()
        return self.open()

    def kill(self) -> Log:
        """The process dies; what it wrote is still in the page cache."""
        self.fs.kill()
        return self.open()

    def crash(self, random: Random | None = None) -> Log:
        """The power goes: what was not fsynced is gone, or torn."""
        self.fs.crash(random)
        return self.open()

    @property
    def directory(self) -> str:
        return self.log.directory

    def append(self, *values: bytes | None, **options: Any) -> AppendInfo:
        """Append one batch of records; keys, timestamps and the rest as for `batch`."""
        epoch = options.pop("leader_epoch", 0)
        origin = options.pop("origin", AppendOrigin.CLIENT)
        data = memoryview(bytearray(batch(*values, **options)))
        info = self.log.append_as_leader(data, leader_epoch=epoch, origin=origin)
        self.log.update_high_watermark(self.log.log_end_offset)
        return info

    def end_transaction(self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> AppendInfo:
        return self.append_raw(marker(producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch))

    def append_raw(self, data: bytes, origin: AppendOrigin = AppendOrigin.COORDINATOR) -> AppendInfo:
        info = self.log.append_as_leader(memoryview(bytearray(data)), leader_epoch=0, origin=origin)
        self.log.update_high_watermark(self.log.log_end_offset)
        return info

    def records(self, log: Log | None = None) -> list[RecordData]:
        """Everything a consumer would read, control records included."""
        return read_records(log or self.log)

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]

    def files(self) -> list[str]:
        return self.fs.list_dir(self.directory)


def batch(
    *values: bytes | None,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int] | None = None,
    timestamp_ms: int = START_MS,
    base_offset: int = 0,
    **options: Any,
) -> bytes:
    """One encoded batch; a record per value."""
    records = [
        RecordData(
            base_offset + i,
            timestamps[i] if timestamps else timestamp_ms,
            keys[i] if keys else b"key",
            value,
        )
        for i, value in enumerate(values)
    ]
    return encode_batch(records, base_offset=base_offset, **options)


def marker(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> bytes:
    """A control batch that ends a transaction."""
    key, value = encode_end_txn_marker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch)
    return encode_batch(
        [RecordData(0, START_MS, key, value)],
        producer_id=producer_id,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )


def read_records(log: Log) -> list[RecordData]:
    """Read like a consumer: from the log start offset, batch by batch, to the log end."""
    records: list[RecordData] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(log.read(offset, 1 << 16).buffers())
        found = list(iter_batches(data))
        if not found:
            break
        for position, header in found:
            records += [r for r in decode_batch(data, position) if r.offset >= offset]
            offset = header.next_offset
    return records


@pytest.fixture(scope="session")
def make_batch() -> Callable[..., bytes]:
    return batch


@pytest.fixture(scope="session")
def make_marker() -> Callable[..., bytes]:
    return marker


@pytest.fixture(scope="session")
def make_store() -> Callable[..., Store]:
    """`make_store(segment_bytes=...)`: settings are those of TopicConfig."""
    return Store


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
def memory_fs(clock: ManualClock) -> MemoryFileSystem:
    fs = MemoryFileSystem(clock=clock)
    fs.make_dirs("/data")
    return fs
