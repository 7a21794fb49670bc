"""Compaction: the last value of each key stays, offsets never change, a crash at any step loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_embedded.common.config import TopicConfig
from broker_embedded.storage.cleaner import Cleaning, log_to_clean
from ottla_wire.records.compression import CompressionType
from ottla_wire.records.record import RecordData, encode_batch

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def put(store: Any, *pairs: tuple[bytes, bytes | None], **options: Any) -> None:
    store.append(*[value for _, value in pairs], keys=[key for key, _ in pairs], **options)


def clean(store: Any, *, max_keys: int = 1_000_000) -> None:
    now_ms = store.clock.now_ms()
    Cleaning(log_to_clean(store.log, now_ms=now_ms), now_ms=now_ms, max_keys=max_keys).run()


def content(store: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in store.records()]


def compacted(make_store: Callable[..., Any], **options: Any) -> Any:
    return make_store(**{"cleanup_policy": ("compact",), "segment_bytes": 300, "index_interval_bytes": 0, **options})


def test_only_the_last_value_of_a_key_stays_and_keeps_its_offset(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store)
    for i in range(20):
        put(store, (b"k%d" % (i % 3), b"v%d" % i))
    store.log.roll()
    clean(store)
    assert content(store) == [(17, b"k2", b"v17"), (18, b"k0", b"v18"), (19, b"k1", b"v19")]
    assert store.log.cleaned_to == 20
    assert store.log.log_start_offset == 0
    assert store.append(b"next").base_offset == 20


def test_header_keys_that_are_not_utf8_survive_a_cleaning_with_their_bytes(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store)
    headers = [("caf\udce9", b"\xff")]
    records = [
        RecordData(0, store.clock.now_ms(), b"a", b"1"),
        RecordData(1, store.clock.now_ms(), b"b", b"2", headers),
    ]
    store.append_raw(encode_batch(records))
    put(store, (b"a", b"3"))
    store.log.roll()
    clean(store)
    assert [(record.offset, record.headers) for record in store.records()] == [(1, headers), (2, [])]


def test_the_active_segment_is_not_cleaned(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store, segment_bytes=100_000)
    put(store, (b"k", b"1"))
    store.log.roll()
    put(store, (b"k", b"2"))
    put(store, (b"k", b"3"))
    clean(store)
    assert [value for _, _, value in content(store)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("codec", list(CompressionType))
def test_a_batch_keeps_its_compression_and_its_offsets_when_records_leave_it(
    make_store: Callable[..., Any], codec: CompressionType
) -> None:
    store = compacted(make_store)
    put(store, (b"a", b"1"), (b"b", b"2" * 50), (b"a", b"3"), compression=codec, timestamps=None)
    put(store, (b"b", b"4"), compression=codec)
    store.log.roll()
    clean(store)
    headers = [header for segment in store.log.segments for _, header in segment.headers()]
    assert (headers[0].base_offset, headers[0].last_offset, headers[0].record_count) == (0, 2, 1)
    assert {header.compression for header in headers} == {codec}
    assert content(store) == [(2, b"a", b"3"), (3, b"b", b"4")]


def test_a_tombstone_stays_for_delete_retention_ms_after_it_was_cleaned_first(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store, delete_retention_ms=HOUR_MS)
    put(store, (b"k", b"1"), timestamp_ms=5)
    put(store, (b"k", None), timestamp_ms=6)
    put(store, (b"other", b"x"))
    store.log.roll()
    clean(store)
    assert content(store) == [(1, b"k", None), (2, b"other", b"x")]
    assert store.records()[0].timestamp_ms == 6  # the delete horizon changes the base, not the time
    horizon = next(h.delete_horizon_ms for s in store.log.segments for _, h in s.headers() if h.delete_horizon_ms)
    assert horizon == store.clock.now_ms() + HOUR_MS
    store.clock.advance(HOUR_MS - 1)
    clean(store)
    assert len(content(store)) == 2
    store.clock.advance(1)
    clean(store)
    assert content(store) == [(2, b"other", b"x")]
    store.restart()
    assert content(store) == [(2, b"other", b"x")]


def batch_ends(store: Any) -> list[tuple[int, int]]:
    """The last offset and the number of records of each batch, segment by segment."""
    return [(header.last_offset, header.record_count) for s in store.log.segments for _, header in s.headers()]


def superseded(make_store: Callable[..., Any]) -> Any:
    """Twelve records of one key in segments of two, which are too big to be merged before they are cleaned."""
    store = compacted(make_store)
    for i in range(12):
        put(store, (b"k", b"%d" % i * 50))
    store.log.roll()
    return store


def test_a_segment_whose_records_are_all_superseded_stays_as_an_empty_file(make_store: Callable[..., Any]) -> None:
    store = superseded(make_store)
    before = [segment.base_offset for segment in store.log.segments]
    assert len(before) > 4
    clean(store)
    assert [segment.base_offset for segment in store.log.segments] == before
    assert batch_ends(store) == [(11, 1)]
    assert store.log.read(0, 1000).size == store.log.segments[-2].size
    store.restart()
    assert batch_ends(store) == [(11, 1)]
    clean(store)
    assert [segment.base_offset for segment in store.log.segments] == [0, 12]


def test_the_batch_that_ends_the_log_is_kept_without_its_records(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store, delete_retention_ms=0)
    put(store, (b"k", b"1"))
    put(store, (b"k", None))
    store.log.roll()
    clean(store)
    clean(store)
    assert batch_ends(store) == [(1, 0)]
    store.log.update_high_watermark(store.append(b"next", keys=[b"other"]).last_offset + 1)
    clean(store)
    assert batch_ends(store) == [(2, 1)]


@pytest.mark.parametrize("ends", ["crash", "kill"])
def test_cleaned_segments_are_whole_after_a_crash_also_when_the_topic_is_no_longer_compacted(
    make_store: Callable[..., Any], ends: str
) -> None:
    store = superseded(make_store)
    put(store, (b"other", b"x"))
    store.manager.clean(now_ms=store.clock.now_ms())
    store.config = TopicConfig(segment_bytes=300, index_interval_bytes=0, cleanup_policy=("delete",))
    store.log.flush()
    getattr(store, ends)()
    assert [offset for offset, _, _ in content(store)] == [11, 12]


def test_small_segments_are_merged(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store, segment_bytes=1000)
    for i in range(40):
        put(store, (b"k%d" % (i % 2), b"v" * 40))
        if i % 4 == 3:
            store.log.roll()
    assert len(store.log.segments) == 11
    clean(store)
    assert len(store.log.segments) == 6
    clean(store)
    assert len(store.log.segments) == 2  # the clean one and the active one
    assert [offset for offset, _, _ in content(store)] == [38, 39]


def test_readers_go_on_with_the_segment_they_have(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store)
    for i in range(12):
        put(store, (b"k", b"v%d" % i))
    store.log.roll()
    fetched = store.log.read(0, 10_000)
    before = store.log.segments.first.log_file.read_at(fetched.size, 0)
    clean(store)
    assert b"".join(fetched.buffers()) == before
    assert store.records()[0].offset == 11


def test_a_full_key_map_cleans_a_part_and_goes_on_from_there(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store)
    for round_ in range(3):
        for key in range(10):
            put(store, (b"k%d" % key, b"%d" % round_))
    store.log.roll()
    for _ in range(12):
        clean(store, max_keys=4)
    assert [(key, value) for _, key, value in content(store)] == [(b"k%d" % key, b"2") for key in range(10)]
    assert store.log.cleaned_to == 30


@given(
    steps=st.lists(
        st.one_of(
            st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 99))), min_size=1, max_size=4),
            st.sampled_from(["roll", "clean", "restart", "wait"]),
        ),
        max_size=40,
    ),
    max_keys=st.sampled_from([1, 3, 1000]),
)
def test_the_last_value_of_every_key_survives_and_offsets_never_change(
    make_store: Callable[..., Any], steps: list[Any], max_keys: int
) -> None:
    store = compacted(make_store, delete_retention_ms=HOUR_MS, segment_bytes=500)
    written: dict[int, tuple[bytes, bytes | None]] = {}
    last: dict[bytes, int] = {}
    for step in steps:
        if isinstance(step, list):
            pairs = [(b"k%d" % key, None if value is None else b"%d" % value) for key, value in step]
            base = store.log.log_end_offset
            put(store, *pairs)
            for i, pair in enumerate(pairs):
                written[base + i] = pair
                last[pair[0]] = base + i
        elif step == "roll":
            store.log.roll()
        elif step == "clean":
            clean(store, max_keys=max_keys)
        elif step == "wait":
            store.clock.advance(HOUR_MS)
        else:
            store.restart()
            store.log.update_high_watermark(store.log.log_end_offset)
        found = content(store)
        assert [(offset, (key, value)) for offset, key, value in found if written[offset] != (key, value)] == []
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets))
        latest_values = {key: offset for key, offset in last.items() if written[offset][1] is not None}
        assert set(latest_values.values()) <= set(offsets)
        for key, offset in last.items():
            if written[offset][1] is None and offset not in offsets:  # a tombstone may go only after what it deletes
                assert not [o for o, k, _ in found if k == key]
        assert store.log.log_end_offset == len(written)


# -- producers and transactions


def test_a_producers_last_sequence_survives_the_cleaning_of_its_records(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store)
    put(store, (b"k", b"1"), producer_id=7, producer_epoch=3, base_sequence=0)
    put(store, (b"k", b"2"), producer_id=7, producer_epoch=3, base_sequence=1)
    for i in range(5):
        put(store, (b"k", b"x%d" % i))
    store.log.roll()
    clean(store)
    assert [offset for offset, _, _ in content(store)] == [6]
    empty = [h for s in store.log.segments for _, h in s.headers() if h.producer_id == 7]
    assert [(h.base_offset, h.record_count, h.base_sequence) for h in empty] == [(1, 0, 1)]
    for name in store.files():
        if name.endswith(".snapshot"):
            store.fs.remove(f"{store.directory}/{name}")
    store.kill()
    again = store.append(b"2", producer_id=7, producer_epoch=3, base_sequence=1)
    assert (again.is_duplicate, again.base_offset) == (True, 1)


def test_aborted_records_go_and_their_marker_follows(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store, delete_retention_ms=HOUR_MS)
    transaction = {"producer_id": 8, "producer_epoch": 0, "is_transactional": True}
    put(store, (b"k", b"kept"))
    put(store, (b"k", b"aborted"), base_sequence=0, **transaction)
    store.end_transaction(8, 0, commit=False)
    put(store, (b"new", b"1"), base_sequence=1, **transaction)
    store.end_transaction(8, 0, commit=True)
    for i in range(3):
        put(store, (b"fill", b"%d" % i))
    store.log.roll()
    clean(store)
    data = [(o, v) for o, k, v in content(store) if k in (b"k", b"new")]
    assert data == [(0, b"kept"), (3, b"1")]
    assert store.log.aborted_transactions(0, 8) == [(8, 1)]
    markers = lambda: [h.base_offset for s in store.log.segments for _, h in s.headers() if h.is_control]  # noqa: E731
    assert markers() == [2, 4]
    clean(store)  # no record of the aborted transaction is left: its marker gets a delete horizon
    assert markers() == [2, 4]
    store.clock.advance(HOUR_MS)
    clean(store)
    assert markers() == [4]
    assert store.log.aborted_transactions(0, 8) == []
    assert [(o, v) for o, k, v in content(store) if k in (b"k", b"new")] == data


def test_records_of_an_open_transaction_are_not_cleaned(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store)
    for i in range(4):
        put(store, (b"k", b"%d" % i))
    store.log.roll()
    put(store, (b"k", b"open"), producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True)
    store.log.roll()
    put(store, (b"k", b"after"))
    store.log.roll()
    assert log_to_clean(store.log, now_ms=store.clock.now_ms()).end_offset == 4
    clean(store)
    assert [value for _, _, value in content(store)] == [b"3", b"open", b"after"]


# -- a crash at any step


class Stopped(BaseException):
    """The machine stops here."""


def prepared(make_store: Callable[..., Any]) -> Any:
    store = compacted(make_store, segment_bytes=400, delete_retention_ms=0)
    for i in range(30):
        put(store, (b"k%d" % (i % 4), None if i % 11 == 5 else b"v%d" % i))
        if i == 14:
            store.log.roll()
            clean(store)  # so that the second cleaning replaces cleaned and fresh segments together
    store.log.roll()
    store.log.flush()
    store.manager.checkpoint()
    return store


def live(records: list[tuple[int, bytes | None, bytes | None]]) -> set[tuple[int, bytes | None, bytes | None]]:
    """Without tombstones, which may go a cleaning earlier or later."""
    return {record for record in records if record[2] is not None}


def count_steps(make_store: Callable[..., Any]) -> int:
    store, steps = prepared(make_store), 0

    def count(operation: str, path: str) -> None:
        nonlocal steps
        steps += 1

    store.fs.before_change = count
    clean(store)
    return steps


def stop_after(steps: int) -> Callable[[str, str], None]:
    countdown = iter(range(steps))

    def stop(operation: str, path: str) -> None:
        if next(countdown, None) is None:
            raise Stopped

    return stop


@pytest.mark.representative("3")
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_crash_at_any_step_of_cleaning_loses_nothing(make_store: Callable[..., Any], seed: int | None) -> None:
    steps = count_steps(make_store)
    assert steps > 30
    reference = prepared(make_store)
    before = content(reference)
    clean(reference)
    after = content(reference)
    assert len(after) < len(before)
    outcomes = set()
    for stop_at in range(steps):
        store = prepared(make_store)
        store.fs.before_change = stop_after(stop_at)
        with pytest.raises(Stopped):
            clean(store)
        store.fs.before_change = None
        if seed is None:
            store.kill()
        else:
            store.crash(Random(seed * 1000 + stop_at))
        store.log.update_high_watermark(store.log.log_end_offset)
        found = content(store)
        assert live(after) <= set(found) <= set(before)
        assert store.log.log_end_offset == 30
        leftovers = [n for n in store.files() if n.endswith((".cleaned", ".swap", ".deleted"))]
        assert leftovers == []
        clean(store)
        assert live(content(store)) == live(after)
        outcomes.add(len(found))
    assert {len(before), len(after)} <= outcomes


# -- when


def test_a_log_is_cleaned_when_more_than_the_dirty_ratio_is_dirty(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store, min_cleanable_dirty_ratio=0.5)
    for i in range(10):
        put(store, (b"k%d" % i, b"v" * 60))
    store.log.roll()
    target = log_to_clean(store.log, now_ms=store.clock.now_ms())
    assert (target.first_dirty_offset, target.end_offset, target.dirty_ratio, target.is_worth_it) == (0, 10, 1.0, True)
    clean(store)
    put(store, (b"k1", b"new"))
    store.log.roll()
    target = log_to_clean(store.log, now_ms=store.clock.now_ms())
    assert 0 < target.dirty_ratio < 0.2
    assert not target.is_worth_it


def test_young_records_wait_for_min_compaction_lag_ms(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store, min_compaction_lag_ms=HOUR_MS)
    now_ms = store.clock.now_ms()
    for minutes in (180, 120, 30, 0):
        put(store, (b"k", b"v" * 150), timestamp_ms=now_ms - minutes * 60_000)
    store.log.roll()
    assert log_to_clean(store.log, now_ms=now_ms).end_offset == 2
    assert log_to_clean(store.log, now_ms=now_ms + HOUR_MS).end_offset == 4


def test_max_compaction_lag_ms_cleans_what_is_hardly_dirty(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=HOUR_MS)
    put(store, (b"k", b"v"))
    store.log.roll()
    now_ms = store.clock.now_ms()
    assert not log_to_clean(store.log, now_ms=now_ms + HOUR_MS).is_worth_it
    assert log_to_clean(store.log, now_ms=now_ms + HOUR_MS + 1).is_worth_it


def test_the_manager_cleans_in_the_background_and_remembers_how_far(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store)
    for i in range(12):
        put(store, (b"k", b"v%d" % i))
    store.log.roll()
    store.clock.advance(15_000)
    store.manager.tick(now_ms=store.clock.now_ms())
    assert [offset for offset, _, _ in content(store)] == [11]
    store.kill()
    assert store.log.cleaned_to == 12


def test_cleaning_in_small_steps_lets_appends_in_between(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store)
    for i in range(12):
        put(store, (b"k", b"v%d" % i))
    store.log.roll()
    for i in range(40):
        store.manager.clean(now_ms=store.clock.now_ms(), max_steps=1)
        put(store, (b"other", b"v%d" % i))
    assert [value for _, key, value in content(store) if key == b"k"] == [b"v11"]


def test_a_truncation_during_cleaning_stops_it(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store)
    for i in range(12):
        put(store, (b"k%d" % i, b"v%d" % i))
    store.log.roll()
    store.manager.clean(now_ms=store.clock.now_ms(), max_steps=1)
    store.log.truncate_to(3)
    store.manager.clean(now_ms=store.clock.now_ms())
    assert not [name for name in store.files() if name.endswith(".cleaned")]
    assert store.values()[-1] == b"v2"


def test_a_log_that_cannot_be_cleaned_is_left_alone(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store)
    for i in range(12):
        put(store, (b"k", b"v%d" % i))
    store.log.roll()
    before = content(store)
    store.fs.capacity_bytes = 0
    store.manager.clean(now_ms=store.clock.now_ms())
    assert store.manager.cleaner.uncleanable == {"orders-0"}
    store.fs.capacity_bytes = None
    assert content(store) == before
    assert not [name for name in store.files() if name.endswith(".cleaned")]


def test_records_without_a_key_from_before_compaction_was_on_are_dropped(make_store: Callable[..., Any]) -> None:
    store = compacted(make_store)
    raw = encode_batch([RecordData(0, store.clock.now_ms(), None, b"no key"), RecordData(1, 5, b"k", b"v")])
    store.log.append_as_follower(raw)
    store.log.update_high_watermark(2)
    store.log.roll()
    clean(store)
    assert content(store) == [(1, b"k", b"v")]


@settings(max_examples=20)
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_keys_of_any_length_are_told_apart(make_store: Callable[..., Any], first: bytes, second: bytes) -> None:
    store = compacted(make_store, segment_bytes=1000)
    put(store, (first, b"1"))
    put(store, (second, b"2"))
    store.log.roll()
    clean(store)
    assert len(content(store)) == len({first, second})
