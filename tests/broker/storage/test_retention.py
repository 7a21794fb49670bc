from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

HOUR_MS = 3_600_000


def fill(store: Any, count: int = 10, *, step_ms: int = 0) -> None:
    """One record per segment of 200 bytes, `step_ms` apart, the last one now."""
    now_ms = store.clock.now_ms()
    for i in range(count):
        store.append(b"%04d" % i * 30, timestamp_ms=now_ms - (count - 1 - i) * step_ms)


def segments(store: Any) -> list[int]:
    return [segment.base_offset for segment in store.log.segments]


def test_segments_older_than_retention_ms_are_deleted(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=250, retention_ms=3 * HOUR_MS)
    fill(store, step_ms=HOUR_MS)
    assert store.log.apply_retention(now_ms=store.clock.now_ms()) == 6
    assert (segments(store), store.log.log_start_offset) == ([6, 7, 8, 9], 6)
    assert store.log.producers.snapshot_offsets[0] == 6
    store.restart()
    assert store.log.log_start_offset == 6


def test_an_old_active_segment_is_rolled_and_deleted(make_store: Callable[..., Any]) -> None:
    store = make_store(retention_ms=HOUR_MS)
    fill(store, 3)
    store.clock.advance(HOUR_MS + 1)
    store.log.apply_retention(now_ms=store.clock.now_ms())
    assert (segments(store), store.log.log_start_offset, store.log.log_end_offset) == ([3], 3, 3)
    assert store.append(b"next").base_offset == 3


def test_a_young_record_keeps_the_older_ones_behind_it(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=250, retention_ms=HOUR_MS)
    store.append(b"young" * 20)
    store.append(b"old" * 40, timestamp_ms=store.clock.now_ms() - 9 * HOUR_MS)
    store.append(b"x")
    assert store.log.apply_retention(now_ms=store.clock.now_ms()) == 0


def test_retention_bytes_counts_one_partition_and_never_goes_below_the_limit(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=250, retention_bytes=600)
    fill(store)
    store.log.apply_retention(now_ms=store.clock.now_ms())
    assert 600 <= store.log.size_bytes() < 600 + 250


@pytest.mark.parametrize("settings", [{"retention_ms": -1}, {"retention_ms": -1, "retention_bytes": -1}])
def test_no_limit_keeps_everything(make_store: Callable[..., Any], settings: dict[str, int]) -> None:
    store = make_store(segment_bytes=250, **settings)
    fill(store)
    store.clock.advance(10_000 * HOUR_MS)
    assert store.log.apply_retention(now_ms=store.clock.now_ms()) == 0


def test_nothing_above_the_high_watermark_is_deleted(
    make_store: Callable[..., Any], make_batch: Callable[..., bytes]
) -> None:
    store = make_store(segment_bytes=250, retention_bytes=0)
    fill(store, 3)
    for _ in range(3):
        store.log.append_as_leader(bytearray(make_batch(b"x" * 120)), leader_epoch=0)
    store.log.apply_retention(now_ms=store.clock.now_ms())
    assert (segments(store)[0], store.log.log_start_offset) == (3, 3)


def test_segments_below_the_log_start_offset_go_whatever_the_policy(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=250, retention_ms=-1)
    fill(store)
    store.log.delete_records(5)
    assert segments(store)[0] == 0
    assert store.log.apply_retention(now_ms=store.clock.now_ms()) == 5
    assert segments(store)[0] == 5


def test_a_compacted_topic_keeps_old_segments(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=250, retention_ms=1, retention_bytes=0, cleanup_policy=("compact",))
    fill(store)
    store.clock.advance(HOUR_MS)
    assert store.log.apply_retention(now_ms=store.clock.now_ms()) == 0


def test_compact_and_delete_does_both(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=250, retention_ms=HOUR_MS, cleanup_policy=("compact", "delete"))
    fill(store, step_ms=HOUR_MS)
    assert store.log.apply_retention(now_ms=store.clock.now_ms()) == 8


def test_the_files_are_renamed_first_and_removed_later(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=250, retention_bytes=0)
    fill(store, 3)
    store.log.apply_retention(now_ms=store.clock.now_ms())
    assert f"{0:020d}.log.deleted" in store.files()
    store.clock.advance(60_000)
    store.manager.tick(now_ms=store.clock.now_ms())
    assert not any(name.endswith(".deleted") for name in store.files())


def test_files_that_a_dead_broker_left_renamed_are_removed_at_start(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=250, retention_bytes=0)
    fill(store, 3)
    store.log.apply_retention(now_ms=store.clock.now_ms())
    store.kill()
    assert not any(name.endswith(".deleted") for name in store.files())
    assert store.log.log_start_offset == 3
