"""A log that is cut while the disk refuses a step, any of them: the next attempt does all of it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from refusing_disk import refuse, refused_in_turn

from broker_embedded.common.errors import BrokerError

Cut = Callable[[Any], object]


def filled(make_store: Any) -> Any:
    """Three segments, all on the disk, with a producer that is only in the part that goes."""
    store = make_store(segment_bytes=100_000)
    for number in range(9):
        if number % 3 == 0:
            store.log.roll()
        options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number - 4} if number >= 4 else {}
        store.append(b"%d" % number, leader_epoch=number // 4, **options)
    store.log.flush()
    store.manager.checkpoint()
    return store


def state(store: Any) -> tuple[Any, ...]:
    log = store.log
    files = sorted(name for name in store.files() if name.endswith((".log", ".snapshot")))
    return (
        store.values(),
        (log.log_start_offset, log.high_watermark, log.log_end_offset),
        [each.base_offset for each in log.segments],
        log.leader_epochs,
        log.active_producers(),
        files,
    )


@pytest.mark.parametrize(
    "cut",
    [
        lambda log: log.truncate_to(4),
        lambda log: log.truncate_to(6),
        lambda log: log.truncate_fully_and_start_at(9),
        lambda log: log.truncate_fully_and_start_at(20),
    ],
    ids=["inside a segment", "between segments", "everything", "everything, and further on"],
)
def test_a_cut_that_was_refused_is_done_by_the_next_attempt(make_store: Any, cut: Cut) -> None:
    wanted = filled(make_store)
    cut(wanted.log)
    refused = 0
    for store, was_refused, step in refused_in_turn(lambda: filled(make_store), lambda store: cut(store.log)):
        assert was_refused, "who asked for it is told"
        assert len(store.log.segments) > 0
        cut(store.log)
        assert state(store) == state(wanted), f"refused: {step}"
        store.append(b"instead", leader_epoch=9)
        store.log.flush()
        found = state(store)
        store.crash(Random(refused))
        store.log.update_high_watermark(store.log.log_end_offset)
        assert state(store)[:3] == found[:3], f"refused: {step}"
        refused += 1
    assert refused > 10, "the log was cut"


def test_an_epoch_that_could_not_be_written_down_is_with_the_next_attempt(make_store: Any) -> None:
    """Else a clean start would take its records for those of the epoch before."""
    refused = 0
    while True:
        store = make_store()
        store.append(b"a", leader_epoch=3)
        seen: list[str] = []
        store.fs.before_change = refuse(refused, seen)
        try:
            store.append(b"b", leader_epoch=5)
            was_refused = False
        except BrokerError:
            was_refused = True
        store.fs.before_change = None
        if was_refused:
            store.append(b"b", leader_epoch=5)
        store.restart()
        assert store.values() == [b"a", b"b"]
        assert [tuple(each) for each in store.log.leader_epochs] == [(3, 0), (5, 1)], f"refused: {seen}"
        if not was_refused:
            break
        refused += 1
    assert refused > 3, "the epoch was written down"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_deletion_that_was_refused_is_undone_or_done_whole(make_store: Any, code: int) -> None:
    """Never a log that is listed and whose files are under another name."""
    values = filled(make_store).values()
    refused = 0
    for store, was_refused, step in refused_in_turn(
        lambda: filled(make_store), lambda store: store.manager.delete("orders", 0), code
    ):
        left = [name for name in store.fs.list_dir("/data") if name == "orders-0"]
        if was_refused:
            assert store.manager.get("orders", 0) is store.log
            assert (store.values(), left) == (values, ["orders-0"]), f"refused: {step}"
            store.manager.delete("orders", 0)
        assert store.manager.get("orders", 0) is None
        assert not [name for name in store.fs.list_dir("/data") if name == "orders-0"], f"refused: {step}"
        refused += 1
    assert refused >= 2, "it was renamed, and the new name flushed"


def test_records_that_were_deleted_at_the_second_attempt_stay_deleted(make_store: Any) -> None:
    """The second request finds the log start where it wants it: it must still not answer before that is kept."""
    refused = 0
    for store, was_refused, step in refused_in_turn(
        lambda: filled(make_store), lambda store: store.log.delete_records(5)
    ):
        assert was_refused, "who asked for it is told"
        assert store.log.delete_records(5) == 5
        store.crash(Random(refused))
        store.log.update_high_watermark(store.log.log_end_offset)
        assert store.values() == [b"5", b"6", b"7", b"8"], f"refused: {step}"
        refused += 1
    assert refused > 2, "the log start was kept"
