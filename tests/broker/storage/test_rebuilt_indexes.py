"""Indexes that a start has rebuilt are as durable as what they stand for: another crash does not take them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest


def with_an_aborted_transaction(make_store: Any, *, rolled: bool) -> Any:
    """All of it fsynced, and known to be."""
    store = make_store(segment_bytes=100_000)
    for number in range(20):
        store.append(b"%d" % number)
    store.append(b"never", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    store.end_transaction(7, 0, commit=False)
    if rolled:
        store.log.roll()
        store.append(b"after")
    store.log.flush()
    store.manager.checkpoint()
    return store


def aborted(store: Any) -> list[Any]:
    return store.log.aborted_entries(0, store.log.log_end_offset)  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("start", ["restart", "kill"])
def test_indexes_of_which_one_was_damaged_are_rebuilt_once(make_store: Any, start: str, seed: int) -> None:
    store = with_an_aborted_transaction(make_store, rolled=True)
    wanted = aborted(store)
    index = store.fs.open(f"{store.directory}/00000000000000000000.timeindex")
    index.write_at(b"x", index.size())
    index.close()
    getattr(store, start)()
    assert aborted(store) == wanted
    store.crash(Random(seed))
    assert aborted(store) == wanted
    assert len(wanted) == 1


@pytest.mark.parametrize("seed", range(20))
def test_an_active_segment_that_was_scanned_and_rolled_keeps_its_indexes(make_store: Any, seed: int) -> None:
    store = with_an_aborted_transaction(make_store, rolled=False)
    wanted = aborted(store)
    store.kill()
    store.log.roll()
    store.append(b"after")
    store.log.flush()
    store.manager.checkpoint()
    store.crash(Random(seed))
    assert aborted(store) == wanted
    assert len(wanted) == 1
    assert store.log.offset_for_timestamp(0).offset == 0
