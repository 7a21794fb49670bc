"""Appending, reading, finding, cutting."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.filesystem import read_whole
from broker_embedded.storage.append import AppendOrigin, TimestampOffset
from broker_embedded.storage.leader_epochs import EpochEndOffset
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.batch import check_crc, iter_batches, parse_header
from ottla_wire.records.record import decode_batch

HOUR_MS = 3_600_000


def read(log: Any, offset: int, max_bytes: int = 1 << 20, **options: Any) -> bytes:
    return b"".join(log.read(offset, max_bytes, **options).buffers())


def first_offset(data: bytes) -> int:
    return parse_header(data).base_offset


# -- append


def test_offsets_are_given_in_order_and_the_batch_is_stored_as_it_came(
    store: Any, make_batch: Callable[..., bytes]
) -> None:
    data = make_batch(b"a", b"b")
    info = store.append_raw(data, origin=AppendOrigin.CLIENT)
    assert info == (0, 1, -1, 0, False)
    assert store.append(b"c").base_offset == 2
    stored = read_whole(store.fs, f"{store.directory}/{0:020d}.log")
    assert stored[: len(data)] == data[:12] + (0).to_bytes(4, "big") + data[16:]
    assert [header.base_offset for _, header in iter_batches(stored)] == [0, 2]


def test_the_callers_buffer_is_patched_in_place(store: Any, make_batch: Callable[..., bytes]) -> None:
    store.append(b"a", b"b", b"c")
    buffer = bytearray(make_batch(b"d"))
    store.log.append_as_leader(buffer, leader_epoch=5)
    header = parse_header(buffer)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 5)
    assert check_crc(buffer, 0, header)


def test_log_append_time_stamps_the_batch_and_is_told_to_the_producer(make_store: Callable[..., Any]) -> None:
    store = make_store(message_timestamp_type="LogAppendTime")
    info = store.append(b"a", b"b", timestamp_ms=5)
    now_ms = store.clock.now_ms()
    assert info.log_append_time_ms == now_ms
    data = read(store.log, 0)
    assert check_crc(data, 0, parse_header(data))
    assert {record.timestamp_ms for record in decode_batch(data)} == {now_ms}


def test_a_refused_batch_leaves_the_log_as_it_was(store: Any, make_batch: Callable[..., bytes]) -> None:
    store.append(b"a")
    broken = bytearray(make_batch(b"b"))
    broken[-1] ^= 1
    with pytest.raises(BrokerError):
        store.log.append_as_leader(broken, leader_epoch=0)
    assert (store.log.log_end_offset, store.values()) == (1, [b"a"])


def test_a_full_disk_is_a_storage_error_that_names_path_and_remedy_and_nothing_is_lost(store: Any) -> None:
    store.append(b"before")
    store.fs.capacity_bytes = 0
    with pytest.raises(BrokerError) as raised:
        store.append(b"refused" * 10)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "/data/orders-0/00000000000000000000.log" in raised.value.message
    assert "free space" in raised.value.message
    assert store.values() == [b"before"]
    store.fs.capacity_bytes = None
    assert store.append(b"after").base_offset == 1
    store.kill()
    assert store.values() == [b"before", b"after"]


def test_a_disk_that_is_full_at_a_roll_refuses_until_there_is_room(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=200)
    store.append(b"x" * 80)
    store.fs.capacity_bytes = 0
    for _ in range(2):
        with pytest.raises(BrokerError, match="full"):
            store.append(b"y" * 80)
    store.fs.capacity_bytes = None
    store.append(b"z" * 80)
    assert [value[:1] for value in store.values()] == [b"x", b"z"]
    assert len(store.log.segments) == 2


# -- append as follower


def copy_of(store: Any) -> bytes:
    data, offset = b"", store.log.log_start_offset
    while offset < store.log.log_end_offset:
        chunk = read(store.log, offset)
        data += chunk
        offset = [header for _, header in iter_batches(chunk)][-1].next_offset
    return data


def test_a_follower_stores_the_leaders_bytes_epochs_and_producers(make_store: Callable[..., Any]) -> None:
    leader, follower = make_store(segment_bytes=500), make_store(segment_bytes=300)
    for i in range(20):
        leader.append(b"v%d" % i, leader_epoch=i // 7, producer_id=7, producer_epoch=0, base_sequence=i)
    data = copy_of(leader)
    info = follower.log.append_as_follower(data + data[:30])
    assert (info.base_offset, info.last_offset) == (0, 19)
    assert copy_of(follower) == data
    assert follower.log.leader_epochs == leader.log.leader_epochs
    assert follower.log.active_producers() == leader.log.active_producers()
    assert len(follower.log.segments) > len(leader.log.segments)


def test_a_follower_with_half_a_batch_appends_nothing(store: Any, make_batch: Callable[..., bytes]) -> None:
    assert store.log.append_as_follower(make_batch(b"a")[:50]) is None
    assert store.log.append_as_follower(b"") is None
    assert store.log.log_end_offset == 0


def test_a_follower_refuses_offsets_it_has_and_broken_batches(store: Any, make_batch: Callable[..., bytes]) -> None:
    store.log.append_as_follower(make_batch(b"a", b"b", base_offset=10))
    with pytest.raises(BrokerError, match="wanted 12 or more"):
        store.log.append_as_follower(make_batch(b"c", base_offset=11))
    broken = bytearray(make_batch(b"c", base_offset=12))
    broken[-1] ^= 1
    with pytest.raises(BrokerError) as raised:
        store.log.append_as_follower(broken)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
    assert store.log.log_end_offset == 12


def test_a_gap_larger_than_an_index_can_hold_starts_a_segment(store: Any, make_batch: Callable[..., bytes]) -> None:
    store.log.append_as_follower(make_batch(b"a", base_offset=1))
    store.log.append_as_follower(make_batch(b"b", base_offset=5_000_000_000))
    assert [segment.base_offset for segment in store.log.segments] == [0, 5_000_000_000]
    assert first_offset(read(store.log, 2)) == 5_000_000_000
    store.restart()
    assert [record.offset for record in store.records()] == [1, 5_000_000_000]


# -- rolling


def test_a_segment_is_rolled_before_it_exceeds_segment_bytes(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=400)
    for _ in range(30):
        store.append(b"x" * 50)
    segments = list(store.log.segments)
    assert len(segments) > 5
    assert all(segment.size <= 400 for segment in segments)
    assert all(f"{segment.base_offset:020d}.log" in store.files() for segment in segments)
    assert [segment.base_offset for segment in segments[1:]] == store.log.producers.snapshot_offsets


def test_a_segment_is_rolled_by_segment_ms_of_its_records(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_ms=HOUR_MS)
    start = store.clock.now_ms() - 5 * HOUR_MS
    for minutes in (0, 30, 60, 61, 90):
        store.append(b"x", timestamp_ms=start + minutes * 60_000)
    assert [segment.base_offset for segment in store.log.segments] == [0, 3]


def test_records_without_timestamps_roll_by_the_clock(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_ms=HOUR_MS)
    store.append(b"x", timestamp_ms=-1)
    store.clock.advance(HOUR_MS)
    store.append(b"y", timestamp_ms=-1)
    assert len(store.log.segments) == 1
    store.clock.advance(1)
    store.append(b"z", timestamp_ms=-1)
    assert [segment.base_offset for segment in store.log.segments] == [0, 2]


def test_a_full_index_rolls_the_segment(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_index_bytes=36, index_interval_bytes=0)
    for i in range(10):
        store.append(b"x", timestamp_ms=store.clock.now_ms() + i)
    assert len(store.log.segments) > 2
    assert all(segment.time_index.count <= 3 for segment in store.log.segments)


# -- read


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=60),
    gaps=st.lists(st.integers(0, 3), min_size=60, max_size=60),
    segment_bytes=st.integers(150, 1500),
    interval=st.sampled_from([0, 100, 4096]),
    seed=st.integers(0, 1000),
)
def test_any_offset_is_found_at_segment_edges_and_inside_gaps(
    make_store: Callable[..., Any],
    make_batch: Callable[..., bytes],
    sizes: list[int],
    gaps: list[int],
    segment_bytes: int,
    interval: int,
    seed: int,
) -> None:
    store = make_store(segment_bytes=segment_bytes, index_interval_bytes=interval)
    spans, offset = [], 0
    for size, gap in zip(sizes, gaps, strict=False):
        offset += gap
        store.log.append_as_follower(make_batch(*[b"v"] * size, base_offset=offset))
        spans.append((offset, offset + size - 1))
        offset += size
    for reopen in (lambda: store.log, store.restart):
        log = reopen()
        for wanted in Random(seed).choices(range(offset), k=15):
            batch_start = next(first for first, last in spans if last >= wanted)
            assert first_offset(read(log, wanted, 1)) == batch_start
        limit = spans[len(spans) // 2][0]
        for wanted in Random(seed).choices(range(offset), k=5):
            data = read(log, wanted, 1 << 20, max_offset=limit)
            assert all(header.last_offset < limit for _, header in iter_batches(data))
            assert bool(data) == any(last >= wanted and last < limit for _, last in spans)


def test_at_least_one_batch_is_read_unless_told_otherwise(store: Any) -> None:
    store.append(b"x" * 1000)
    store.append(b"y")
    first = store.log.read(0, 1).size
    assert first > 1000
    assert store.log.read(0, 1, at_least_one=False).size == 0
    assert store.log.read(0, first + 10).size == first + 10  # a torn batch behind it, as Kafka sends it


def test_a_read_at_the_end_is_empty_and_beyond_it_out_of_range(store: Any) -> None:
    store.append(b"a", b"b")
    assert store.log.read(2, 100).buffers() == []
    assert store.log.read(0, 100, max_offset=0).size == 0
    for offset in (3, -1):
        with pytest.raises(BrokerError) as raised:
            store.log.read(offset, 100)
        assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_slice_survives_the_deletion_of_its_segment_for_file_delete_delay_ms(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=200, retention_bytes=0)
    for i in range(4):
        store.append(b"%d" % i * 60)
    fetched = store.log.read(0, 1000)
    store.log.apply_retention(now_ms=store.clock.now_ms())
    assert store.log.log_start_offset > 0
    assert decode_batch(b"".join(fetched.buffers()))[0].value == b"0" * 60
    store.clock.advance(60_000)
    store.log.purge_deleted(now_ms=store.clock.now_ms())
    assert not [name for name in store.files() if name.endswith(".deleted")]


# -- time


def test_the_first_record_at_or_after_a_time_is_found(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=300, index_interval_bytes=0)
    start = store.clock.now_ms() - 100_000
    for i in range(0, 60, 3):
        times = [start + (i + k) * 10 for k in range(3)]
        store.append(b"a", b"b", b"c", timestamps=times, leader_epoch=2)
    assert len(store.log.segments) > 5
    for reopen in (lambda: store.log, store.restart):
        log = reopen()
        assert log.offset_for_timestamp(0) == TimestampOffset(start, 0, 2)
        assert log.offset_for_timestamp(start + 300) == TimestampOffset(start + 300, 30, 2)
        assert log.offset_for_timestamp(start + 301) == TimestampOffset(start + 310, 31, 2)
        assert log.offset_for_timestamp(start + 591) is None
        assert log.offset_of_max_timestamp() == TimestampOffset(start + 590, 59, 2)


@given(
    times=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=3), min_size=1, max_size=30),
    wanted=st.integers(-1, 55),
    start_at=st.integers(0, 20),
)
def test_time_look_ups_agree_with_a_scan_also_when_times_are_out_of_order(
    make_store: Callable[..., Any], times: list[list[int]], wanted: int, start_at: int
) -> None:
    store = make_store(segment_bytes=250, index_interval_bytes=100)
    flat: list[int] = []
    for batch in times:
        store.append(*[b"v"] * len(batch), timestamps=batch)
        flat += batch
    start_at = min(start_at, len(flat) - 1)
    store.log.delete_records(start_at)
    records = [(time, offset) for offset, time in enumerate(flat) if offset >= start_at]
    by_time = next(((t, o) for t, o in records if t >= wanted), None)
    newest = max(t for t, _ in records)
    for reopen in (lambda: store.log, store.kill):
        log = reopen()
        found = log.offset_for_timestamp(wanted)
        assert (found and found[:2]) == by_time
        found = log.offset_of_max_timestamp()
        assert found is not None
        assert found[:2] == next((t, o) for t, o in records if t == newest)


def test_an_empty_log_has_no_time(store: Any) -> None:
    assert store.log.offset_for_timestamp(0) is None
    assert store.log.offset_of_max_timestamp() is None


# -- leader epochs


def test_an_epoch_ends_where_the_next_one_starts(store: Any) -> None:
    for epoch in (0, 0, 2, 5):
        store.append(b"x", leader_epoch=epoch)
    log = store.restart()
    assert log.leader_epoch_end_offset(0) == EpochEndOffset(0, 2)
    assert log.leader_epoch_end_offset(3) == EpochEndOffset(2, 3)
    assert log.leader_epoch_end_offset(5) == EpochEndOffset(5, 4)
    assert log.leader_epoch_end_offset(6) == EpochEndOffset(-1, -1)
    assert log.latest_leader_epoch == 5


# -- cutting


def test_truncation_drops_everything_from_the_offset_on(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=300)
    for i in range(20):
        store.append(b"v%d" % i, leader_epoch=i // 5)
    assert store.log.truncate_to(7)
    assert (store.log.log_end_offset, store.log.high_watermark, store.log.latest_leader_epoch) == (7, 7, 1)
    assert not store.log.truncate_to(7)
    assert store.append(b"new", leader_epoch=9).base_offset == 7
    store.log.flush()
    store.crash()
    assert store.values() == [b"v%d" % i for i in range(7)] + [b"new"]
    assert store.log.leader_epochs == ((0, 0), (1, 5), (9, 7))


def test_what_was_truncated_does_not_come_back_after_a_crash(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=300)
    for i in range(20):
        store.append(b"v%d" % i)
    store.log.flush()
    store.log.truncate_to(9)
    store.crash()
    assert store.values() == [b"v%d" % i for i in range(9)]


def test_truncation_before_the_first_segment_starts_anew(make_store: Callable[..., Any]) -> None:
    store = make_store()
    store.append(b"a", b"b")
    store.log.truncate_fully_and_start_at(100)
    assert (store.log.log_start_offset, store.log.log_end_offset, store.log.high_watermark) == (100, 100, 100)
    store.append(b"c")
    store.log.truncate_to(50)
    assert (store.log.log_start_offset, store.log.log_end_offset) == (50, 50)
    store.restart()
    assert store.append(b"d").base_offset == 50


def test_deleted_records_are_out_of_range_also_after_a_crash(store: Any) -> None:
    for i in range(10):
        store.append(b"v%d" % i)
    store.log.flush()
    assert store.log.delete_records(4) == 4
    store.crash()
    assert store.log.log_start_offset == 4
    with pytest.raises(BrokerError) as raised:
        store.log.read(3, 100)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert store.values() == [b"v%d" % i for i in range(4, 10)]


def test_records_are_deleted_up_to_the_high_watermark_at_most(store: Any, make_batch: Callable[..., bytes]) -> None:
    store.append(b"a", b"b")
    store.log.append_as_leader(bytearray(make_batch(b"c")), leader_epoch=0)
    with pytest.raises(BrokerError) as raised:
        store.log.delete_records(3)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert store.log.delete_records(-1) == 2
    assert store.log.delete_records(1) == 2  # never back


def test_records_of_a_compacted_topic_cannot_be_deleted(make_store: Callable[..., Any]) -> None:
    store = make_store(cleanup_policy=("compact",))
    store.append(b"a")
    with pytest.raises(BrokerError) as raised:
        store.log.delete_records(1)
    assert raised.value.code is ErrorCode.POLICY_VIOLATION


def test_flush_messages_bounds_what_a_crash_can_take(make_store: Callable[..., Any]) -> None:
    store = make_store(flush_messages=3)
    for i in range(8):
        store.append(b"v%d" % i)
    assert store.log.unflushed_records == 2
    store.crash()
    assert store.values() == [b"v%d" % i for i in range(6)]
