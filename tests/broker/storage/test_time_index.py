from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.common.filesystem import read_whole
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.storage.file_pool import FilePool, PooledFile
from broker_embedded.storage.sparse_index import CorruptIndexError
from broker_embedded.storage.time_index import TimeIndex, TimestampPosition


def new_index(fs: MemoryFileSystem, *, base_offset: int = 1000, max_bytes: int = 1 << 20) -> TimeIndex:
    return TimeIndex(PooledFile(FilePool(fs), "/data/i.timeindex"), base_offset, max_bytes=max_bytes)


def test_an_entry_is_twelve_bytes_timestamp_then_relative_offset(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    index.maybe_append(1_700_000_000_000, 1007)
    index.close()
    assert read_whole(memory_fs, "/data/i.timeindex") == bytes.fromhex("0000018bcfe56800 00000007")


def test_only_a_younger_timestamp_is_added(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    index.maybe_append(50, 1001)
    index.maybe_append(50, 1002)
    index.maybe_append(40, 1003)
    index.maybe_append(51, 1004)
    assert [index.entry(i) for i in range(index.count)] == [TimestampPosition(50, 1001), TimestampPosition(51, 1004)]


@given(steps=st.lists(st.tuples(st.integers(-20, 60), st.integers(1, 9)), max_size=60), probe=st.integers(-30, 2500))
def test_a_lookup_finds_the_last_entry_that_is_not_younger(steps: list[tuple[int, int]], probe: int) -> None:
    fs = MemoryFileSystem()
    fs.make_dirs("/data")
    index, entries = new_index(fs), []
    timestamp, offset, maximum = 0, 1000, -1
    for time_step, offset_step in steps:
        timestamp, offset = max(0, timestamp + time_step), offset + offset_step
        index.maybe_append(timestamp, offset)
        if timestamp > maximum:
            maximum = timestamp
            entries.append(TimestampPosition(timestamp, offset))
    wanted = [e for e in entries if e.timestamp_ms <= probe]
    assert index.lookup(probe) == (wanted[-1] if wanted else TimestampPosition(-1, 1000))


def test_a_full_index_has_room_for_the_entry_that_closes_the_segment(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs, max_bytes=36)
    for i in range(1, 10):
        index.maybe_append(i, 1000 + i)
    assert (index.count, index.is_full) == (2, True)
    index.maybe_append(99, 1099, skip_full_check=True)
    assert index.last == TimestampPosition(99, 1099)


def test_truncation_goes_by_offset(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    for i in range(1, 100):
        index.maybe_append(i * 7, 1000 + i)
    index.truncate_to(1050)
    assert index.last == TimestampPosition(49 * 7, 1049)


def test_an_entry_before_the_segment_is_corrupt(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    index.maybe_append(7, 999)
    with pytest.raises(CorruptIndexError, match="points to 999"):
        index.check()
