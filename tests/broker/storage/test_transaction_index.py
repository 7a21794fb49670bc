from __future__ import annotations

import pytest

from broker_embedded.common.filesystem import read_whole, write_whole
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.storage.file_pool import FilePool, PooledFile
from broker_embedded.storage.sparse_index import CorruptIndexError
from broker_embedded.storage.transaction_index import AbortedTransactionEntry, TransactionIndex

FIRST = AbortedTransactionEntry(producer_id=7, first_offset=1002, last_offset=1010, last_stable_offset=1005)
SECOND = AbortedTransactionEntry(producer_id=8, first_offset=1005, last_offset=1020, last_stable_offset=1021)


def new_index(fs: MemoryFileSystem) -> TransactionIndex:
    return TransactionIndex(PooledFile(FilePool(fs), "/data/i.txnindex"), 1000)


def test_an_entry_has_version_producer_first_last_and_stable_offset(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    index.append(FIRST)
    index.close()
    assert read_whole(memory_fs, "/data/i.txnindex") == bytes.fromhex(
        "0000 0000000000000007 00000000000003ea 00000000000003f2 00000000000003ed"
    )
    assert new_index(memory_fs).entries == [FIRST]


def test_there_is_no_file_before_the_first_entry(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    assert index.entries == []
    index.flush()
    index.reset()
    assert memory_fs.list_dir("/data") == []


def test_overlapping_transactions_are_found_and_the_search_knows_when_to_stop(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    index.append(FIRST)
    index.append(SECOND)
    assert index.overlapping(1000, 1003) == ([FIRST], True)
    assert index.overlapping(1011, 1015) == ([SECOND], True)
    assert index.overlapping(1000, 1021) == ([FIRST, SECOND], True)
    assert index.overlapping(1021, 1100) == ([], False)


def test_truncation_drops_markers_at_and_beyond_the_offset(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    index.append(FIRST)
    index.append(SECOND)
    index.truncate_to(1020)
    index.close()
    assert new_index(memory_fs).entries == [FIRST]


def test_entries_out_of_order_or_of_a_later_version_are_refused(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    index.append(SECOND)
    with pytest.raises(ValueError, match="in order of their markers"):
        index.append(FIRST)
    write_whole(memory_fs, "/data/i.txnindex", bytes.fromhex("0001") + bytes(32))
    with pytest.raises(CorruptIndexError, match="version 1"):
        _ = new_index(memory_fs).entries


def test_a_full_disk_keeps_an_entry_until_it_can_be_written(memory_fs: MemoryFileSystem) -> None:
    index = new_index(memory_fs)
    memory_fs.capacity_bytes = 0
    index.append(FIRST)
    memory_fs.capacity_bytes = None
    index.append(SECOND)
    index.close()
    assert new_index(memory_fs).entries == [FIRST, SECOND]
