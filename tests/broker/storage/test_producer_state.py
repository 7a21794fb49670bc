"""Idempotence and transactions, seen through a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_embedded.common.errors import BrokerError
from broker_embedded.storage.append import AppendOrigin
from ottla_wire.protocol import ErrorCode

DAY_MS = 24 * 3_600_000


def send(store: Any, sequence: int, *, count: int = 1, producer_id: int = 7, epoch: int = 0, **options: Any) -> Any:
    values = [b"v%d" % (sequence + i) for i in range(count)]
    return store.append(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def refusal_of(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(BrokerError) as raised:
        action()
    return raised.value.code


def test_sequences_that_follow_each_other_are_appended(store: Any) -> None:
    assert [send(store, s, count=2).base_offset for s in (0, 2, 4)] == [0, 2, 4]
    assert len(store.values()) == 6


def test_any_of_the_last_five_batches_is_recognised_and_answers_its_first_offset(store: Any) -> None:
    for i in range(6):
        send(store, i * 3, count=3)
    for i in range(1, 6):
        again = send(store, i * 3, count=3)
        assert (again.is_duplicate, again.base_offset, again.last_offset) == (True, i * 3, i * 3 + 2)
    assert store.log.log_end_offset == 18


def test_a_batch_older_than_the_last_five_is_out_of_order(store: Any) -> None:
    for i in range(6):
        send(store, i)
    assert refusal_of(lambda: send(store, 0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequence_is_refused_and_nothing_is_appended(store: Any) -> None:
    send(store, 0)
    assert refusal_of(lambda: send(store, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert store.log.log_end_offset == 1
    send(store, 1)


def test_a_batch_that_overlaps_a_former_one_differently_is_out_of_order(store: Any) -> None:
    send(store, 0, count=3)
    assert refusal_of(lambda: send(store, 0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_that_is_not_known_may_start_anywhere(store: Any) -> None:
    """Its records may have been deleted by retention (KIP-360)."""
    assert send(store, 41).base_offset == 0
    send(store, 42)


def test_a_new_epoch_starts_at_sequence_0(store: Any) -> None:
    send(store, 0)
    assert refusal_of(lambda: send(store, 1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(store, 0, epoch=1)
    send(store, 1, epoch=1)


def test_an_older_epoch_is_fenced(store: Any) -> None:
    send(store, 0, epoch=3)
    assert refusal_of(lambda: send(store, 1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_to_0(store: Any) -> None:
    last = 2**31 - 1
    send(store, last - 2, count=2)
    send(store, last, count=3)  # last, 0, 1
    again = send(store, last, count=3)
    assert (again.is_duplicate, again.base_offset) == (True, 2)
    send(store, 2)
    assert store.log.log_end_offset == 6


def test_a_sequence_that_ends_at_the_largest_is_followed_by_0(store: Any) -> None:
    send(store, 2**31 - 2, count=2)
    assert refusal_of(lambda: send(store, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(store, 0)


def test_producers_do_not_disturb_each_other(store: Any) -> None:
    send(store, 0, producer_id=1)
    send(store, 0, producer_id=2)
    send(store, 1, producer_id=1)
    assert refusal_of(lambda: send(store, 2, producer_id=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("how", ["restart", "kill", "crash"])
def test_the_last_batch_is_recognised_after_a_start(make_store: Callable[..., Any], how: str) -> None:
    store = make_store(segment_bytes=400)
    for i in range(20):
        send(store, i)
    store.log.flush()
    getattr(store, how)()
    again = send(store, 19)
    assert (again.is_duplicate, again.base_offset) == (True, 19)
    assert refusal_of(lambda: send(store, 21)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(store, 20).base_offset == 20


def test_after_a_kill_the_state_is_rebuilt_from_the_batches_behind_the_snapshot(store: Any) -> None:
    for i in range(3):
        send(store, i)
    store.log.roll()
    for i in range(3, 6):
        send(store, i)
    store.kill()
    again = send(store, 3)  # not the last one: it was replayed, not only read from the snapshot
    assert (again.is_duplicate, again.base_offset) == (True, 3)


def test_a_corrupt_snapshot_is_dropped_and_the_log_is_believed(store: Any) -> None:
    for i in range(3):
        send(store, i)
    store.manager.close()
    path = f"{store.directory}/00000000000000000003.snapshot"
    store.fs.open(path).write_at(b"\xff", 12)
    store.open()
    assert send(store, 2).is_duplicate
    assert send(store, 3).base_offset == 3


def test_an_idle_producer_is_forgotten_after_producer_id_expiration_ms(store: Any) -> None:
    send(store, 0, timestamp_ms=store.clock.now_ms() - 40 * DAY_MS)  # old events do not make their producer old
    store.clock.advance(DAY_MS - 1)
    store.manager.tick(now_ms=store.clock.now_ms())
    assert [p.producer_id for p in store.log.active_producers()] == [7]
    store.clock.advance(600_001)
    store.manager.tick(now_ms=store.clock.now_ms())
    assert store.log.active_producers() == []
    send(store, 99)


def test_truncation_takes_the_state_back(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=400)
    for i in range(12):
        send(store, i)
    store.log.truncate_to(5)
    assert refusal_of(lambda: send(store, 12)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(store, 4).is_duplicate
    assert send(store, 5).base_offset == 5


# -- transactions


def test_an_open_transaction_holds_the_last_stable_offset_back_until_its_marker(store: Any) -> None:
    send(store, 0)
    send(store, 0, producer_id=8, is_transactional=True)
    send(store, 1)
    assert (store.log.high_watermark, store.log.last_stable_offset) == (3, 1)
    assert store.log.active_producers()[1].current_transaction_start_offset == 1
    store.end_transaction(8, 0, commit=True)
    assert store.log.last_stable_offset == store.log.high_watermark == 4
    assert store.log.aborted_transactions(0, 4) == []


def test_a_marker_counts_once_it_is_replicated(store: Any, make_marker: Callable[..., bytes]) -> None:
    send(store, 0, producer_id=8, is_transactional=True)
    data = memoryview(bytearray(make_marker(8, 0, commit=True)))
    store.log.append_as_leader(data, leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    assert store.log.last_stable_offset == 0
    store.log.update_high_watermark(2)
    assert store.log.last_stable_offset == 2


def test_aborted_transactions_are_listed_for_the_range_that_is_read(store: Any) -> None:
    send(store, 0, producer_id=8, is_transactional=True)  # 0
    send(store, 0, producer_id=9, is_transactional=True)  # 1
    store.end_transaction(8, 0, commit=False)  # 2
    send(store, 1, producer_id=9, is_transactional=True)  # 3
    store.end_transaction(9, 0, commit=False)  # 4
    assert store.log.aborted_transactions(0, 1) == [(8, 0)]
    assert store.log.aborted_transactions(0, 5) == [(8, 0), (9, 1)]
    assert store.log.aborted_transactions(3, 5) == [(9, 1)]
    assert store.log.aborted_transactions(5, 9) == []
    assert store.log.aborted_transactions_in(store.log.read(0, 1 << 20), 0) == [(8, 0), (9, 1)]


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_open_and_aborted_transactions_are_known_after_a_start(make_store: Callable[..., Any], how: str) -> None:
    store = make_store(segment_bytes=500)
    send(store, 0, producer_id=8, is_transactional=True)
    store.end_transaction(8, 0, commit=False)
    for i in range(8):
        send(store, i)
    send(store, 0, producer_id=9, is_transactional=True)
    for i in range(8, 16):
        send(store, i)
    getattr(store, how)()
    store.log.update_high_watermark(store.log.log_end_offset)
    assert store.log.last_stable_offset == 10
    assert store.log.aborted_transactions(0, 20) == [(8, 0)]
    store.end_transaction(9, 0, commit=False)
    assert store.log.last_stable_offset == store.log.log_end_offset
    assert store.log.aborted_transactions(0, 20) == [(8, 0), (9, 10)]


def test_a_batch_outside_of_the_open_transaction_is_refused(store: Any) -> None:
    send(store, 0, is_transactional=True)
    assert refusal_of(lambda: send(store, 1)) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_an_older_coordinator_is_fenced(store: Any) -> None:
    send(store, 0, is_transactional=True)
    store.end_transaction(7, 0, commit=True, coordinator_epoch=5)
    code = refusal_of(lambda: store.end_transaction(7, 0, commit=True, coordinator_epoch=4))
    assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_with_a_newer_epoch_fences_the_producer(store: Any) -> None:
    send(store, 0, is_transactional=True)
    store.end_transaction(7, 1, commit=False)
    assert refusal_of(lambda: send(store, 1, is_transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH
    send(store, 0, epoch=1, is_transactional=True)


def test_a_producer_with_an_open_transaction_does_not_expire(store: Any) -> None:
    send(store, 0, is_transactional=True)
    store.log.producers.expire(now_ms=store.clock.now_ms() + 10 * DAY_MS, after_ms=DAY_MS)
    assert store.log.last_stable_offset == 0
    assert len(store.log.active_producers()) == 1
