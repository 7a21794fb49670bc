from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.common.filesystem import read_whole, write_whole
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.storage.file_pool import FilePool, PooledFile
from broker_embedded.storage.offset_index import OffsetIndex, OffsetPosition
from broker_embedded.storage.sparse_index import CorruptIndexError


def new_index(fs: MemoryFileSystem, *, base_offset: int = 1000, max_bytes: int = 1 << 20) -> OffsetIndex:
    return OffsetIndex(PooledFile(FilePool(fs), "/data/i.index"), base_offset, max_bytes=max_bytes)


def test_an_entry_is_eight_bytes_relative_offset_then_position(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    index.append(1007, 4200)
    index.append(1300, 8500)
    index.close()
    assert read_whole(memory_fs, "/data/i.index") == bytes.fromhex("00000007 00001068 0000012c 00002134")


@given(
    gaps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9000)), max_size=80),
    probes=st.lists(st.integers(-5, 4500), min_size=1),
    is_closed=st.booleans(),
)
def test_a_lookup_finds_the_last_entry_at_or_before_an_offset(
    gaps: list[tuple[int, int]], probes: list[int], is_closed: bool
) -> None:
    fs = MemoryFileSystem()
    fs.make_dirs("/data")
    index, entries = new_index(fs), []
    offset, position = 1000, 0
    for offset_gap, position_gap in gaps:
        offset, position = offset + offset_gap, position + position_gap
        index.append(offset, position)
        entries.append(OffsetPosition(offset, position))
    if is_closed:
        index.file.create()
        index.stop_writing()
    for probe in probes:
        wanted = max((e for e in entries if e.offset <= 1000 + probe), default=OffsetPosition(1000, 0))
        assert index.lookup(1000 + probe) == wanted


def test_a_large_closed_index_is_searched_on_disk(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs, base_offset=0)
    for i in range(1, 5000):
        index.append(i * 10, i * 100)
    index.stop_writing()
    for offset in (0, 9, 10, 11, 24_985, 49_989, 49_990, 10**9):
        found = min(offset // 10, 4999)
        assert index.lookup(offset) == OffsetPosition(found * 10, found * 100)


def test_truncation_drops_entries_at_and_beyond_the_offset(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    for i in range(1, 200):
        index.append(1000 + i, i * 100)
    index.truncate_to(1150)
    assert (index.count, index.last) == (149, OffsetPosition(1149, 14_900))
    index.append(1500, 20_000)
    index.close()
    assert new_index(memory_fs).last == OffsetPosition(1500, 20_000)


def test_it_is_full_at_its_size_in_bytes(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs, max_bytes=17)
    index.append(1001, 10)
    assert not index.is_full
    index.append(1002, 20)
    assert index.is_full


def test_zeros_that_kafka_allocated_behind_the_entries_do_not_count(memory_fs: MemoryFileSystem) -> None:
    entries = b"".join(struct.pack(">ii", i, i * 100) for i in range(1, 6))
    write_whole(memory_fs, "/data/i.index", entries + bytes(8 * 1000))
    index = new_index(memory_fs)
    assert (index.count, index.last) == (5, OffsetPosition(1005, 500))


def test_a_file_of_broken_entries_is_corrupt(memory_fs: MemoryFileSystem) -> None:
    write_whole(memory_fs, "/data/i.index", b"123456789")
    with pytest.raises(CorruptIndexError, match="9 bytes is not a multiple"):
        _ = new_index(memory_fs).count


def test_an_entry_beyond_the_log_is_corrupt(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    index.append(1001, 500)
    index.check(log_bytes=501)
    with pytest.raises(CorruptIndexError, match="does not fit"):
        index.check(log_bytes=500)


def test_the_upper_bound_of_a_fetch_is_the_first_entry_behind_it(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    for i in range(1, 6):
        index.append(1000 + i * 10, i * 100)
    assert index.upper_bound_offset(position=0, fetch_bytes=250) == 1030
    assert index.upper_bound_offset(position=0, fetch_bytes=300) == 1030
    assert index.upper_bound_offset(position=300, fetch_bytes=1000) is None


def test_a_full_disk_keeps_entries_in_memory_until_they_can_be_written(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    index.file.create()
    memory_fs.capacity_bytes = 0
    for i in range(1, 200):
        index.append(1000 + i, i * 100)
    assert index.lookup(1150) == OffsetPosition(1150, 15_000)
    memory_fs.capacity_bytes = None
    index.close()
    assert new_index(memory_fs).count == 199
