"""What a start finds after a stop, a kill, a crash, or another program's work on the files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.common.filesystem import read_whole
from broker_embedded.storage.segment import LogSegment

FIRST_LOG = f"{0:020d}.log"


def fill(store: Any, count: int = 20) -> list[bytes]:
    values = [b"value %d" % i for i in range(count)]
    for i, value in enumerate(values):
        store.append(
            value,
            timestamp_ms=store.clock.now_ms() + i,
            producer_id=7,
            producer_epoch=0,
            base_sequence=i,
            leader_epoch=i // 8,
        )
    return values


def test_after_a_clean_stop_no_batch_is_read(make_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(segment_bytes=400)
    values = fill(store)
    store.manager.close()

    def forbidden(*args: object) -> None:
        raise AssertionError("batches were read after a clean stop")

    with monkeypatch.context() as patched:
        patched.setattr(LogSegment, "recover", forbidden)
        patched.setattr(LogSegment, "batches", forbidden)
        store.open()
    assert store.values() == values


def test_after_a_kill_everything_written_is_there(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=400)
    values = fill(store)
    before = (store.log.leader_epochs, [s.base_offset for s in store.log.segments], store.log.active_producers())
    store.kill()
    assert store.values() == values
    assert (
        store.log.leader_epochs,
        [s.base_offset for s in store.log.segments],
        store.log.active_producers(),
    ) == before


def test_only_segments_from_the_recovery_point_on_are_scanned(
    make_store: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(segment_bytes=400)
    fill(store)
    store.log.flush()
    store.manager.checkpoint()
    store.append(b"after")
    wanted = [store.log.segments[store.log.segments.floor_index(20)].base_offset]
    scanned: list[int] = []
    recover = LogSegment.recover

    def spy(segment: LogSegment, learn: Any, **options: Any) -> int:
        scanned.append(segment.base_offset)
        return recover(segment, learn, **options)

    monkeypatch.setattr(LogSegment, "recover", spy)
    store.kill()
    assert scanned == wanted
    assert store.log.log_end_offset == 21


@given(cut=st.integers(1, 400), junk=st.sampled_from([b"", b"\0" * 100, b"garbage" * 20]))
def test_a_torn_tail_is_cut_at_the_last_whole_batch(make_store: Callable[..., Any], cut: int, junk: bytes) -> None:
    store = make_store()
    values = fill(store, 10)
    path = f"{store.directory}/{FIRST_LOG}"
    data = read_whole(store.fs, path)
    size = len(data) // 10
    store.fs.kill()
    file = store.fs.open(path)
    file.truncate(len(data) - cut)
    file.write_at(junk, len(data) - cut)
    store.open()
    torn = data[: len(data) - cut] + junk
    whole = next((i for i in range(10) if torn[i * size : (i + 1) * size] != data[i * size : (i + 1) * size]), 10)
    assert store.values() == values[:whole]
    assert store.fs.size(path) == whole * size
    assert store.append(b"next").base_offset == whole


def test_the_cut_is_said_in_the_log(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    fill(store, 2)
    path = f"{store.directory}/{FIRST_LOG}"
    store.fs.open(path).write_at(b"torn", store.fs.size(path))
    with caplog.at_level(logging.WARNING):
        store.kill()
    assert f"{path}: cut 4 bytes at position" in caplog.text
    assert "after offset 1" in caplog.text


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_flipped_byte_is_never_served(make_store: Callable[..., Any], where: int, flip: int) -> None:
    store = make_store()
    values = fill(store, 10)
    path = f"{store.directory}/{FIRST_LOG}"
    data = read_whole(store.fs, path)
    where %= len(data)
    place = where % (len(data) // 10)
    is_outside_of_crc = place < 8 or 12 <= place < 16  # base offset and leader epoch: the leader writes them
    store.fs.open(path).write_at(bytes([data[where] ^ flip]), where)
    store.kill()
    found = store.values()
    damaged = where // (len(data) // 10)
    assert found == values[: len(found)]
    assert len(found) >= damaged if is_outside_of_crc else len(found) == damaged


def test_segments_behind_a_cut_are_dropped(make_store: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    store = make_store(segment_bytes=400)
    values = fill(store)
    first = store.log.segments.first
    end = store.log.segments[1].base_offset
    store.fs.open(first.log_file.path).truncate(first.size - 5)
    store.kill()
    assert store.values() == values[: end - 1]
    assert store.files().count(FIRST_LOG) == len([n for n in store.files() if n.endswith(".log")]) == 1
    assert "dropped, the segment before it ends at" in caplog.text


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "broken", "beyond"])
def test_a_missing_or_broken_index_is_rebuilt(make_store: Callable[..., Any], suffix: str, damage: str) -> None:
    store = make_store(segment_bytes=2000, index_interval_bytes=100)
    values = fill(store, 60)
    store.manager.close()
    path = f"{store.directory}/{0:020d}{suffix}"
    good = read_whole(store.fs, path)
    if damage == "missing":
        store.fs.remove(path)
    elif damage == "broken":
        store.fs.open(path).write_at(b"123", len(good))
    else:
        store.fs.open(path).write_at(b"\xff\xff\xff\xff\x7f\xff\xff\xff" + bytes(4), len(good) // 12 * 12)
    store.open()
    assert store.values() == values
    store.manager.close()
    assert read_whole(store.fs, path) == good
    assert len(good) > 24


def test_an_index_without_a_log_file_is_removed(store: Any) -> None:
    fill(store, 1)
    store.fs.open(f"{store.directory}/{77:020d}.index", create=True)
    store.kill()
    assert f"{77:020d}.index" not in store.files()


def test_the_recovered_indexes_are_those_that_appending_wrote(make_store: Callable[..., Any]) -> None:
    store = make_store(index_interval_bytes=100)
    fill(store, 50)
    store.restart()
    names = [f"{0:020d}{suffix}" for suffix in (".index", ".timeindex")]
    written = [read_whole(store.fs, f"{store.directory}/{name}") for name in names]
    for name in ("recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
        store.fs.remove(f"/data/{name}")
    store.kill()
    store.restart()
    assert [read_whole(store.fs, f"{store.directory}/{name}") for name in names] == written


def test_a_lost_checkpoint_costs_a_scan_and_no_record(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=400)
    values = fill(store)
    store.log.flush()
    store.manager.checkpoint()
    store.fs.open("/data/recovery-point-offset-checkpoint").write_at(b"nonsense", 0)
    store.crash()
    assert store.values() == values


def test_the_high_watermark_is_remembered_and_bounded(store: Any) -> None:
    fill(store, 10)
    store.restart()
    assert store.log.high_watermark == 10
    store.log.flush()
    store.append(b"not flushed")
    store.manager.checkpoint()
    store.crash()
    assert store.log.high_watermark == store.log.log_end_offset == 10


@given(seed=st.integers(0, 10_000), flushed=st.integers(0, 30), more=st.integers(0, 30))
def test_a_crash_takes_only_what_was_not_flushed(
    make_store: Callable[..., Any], seed: int, flushed: int, more: int
) -> None:
    store = make_store(segment_bytes=400, index_interval_bytes=100)
    values = [b"value %d" % i for i in range(flushed + more)]
    for value in values[:flushed]:
        store.append(value)
    store.log.flush()
    for value in values[flushed:]:
        store.append(value)
    store.crash(Random(seed))
    found = store.values()
    assert found == values[: len(found)]
    assert len(found) >= flushed


@pytest.mark.parametrize("seed", range(40))
def test_what_a_crash_tore_off_does_not_come_back_with_the_next_crash(
    make_store: Callable[..., Any], seed: int
) -> None:
    store = make_store()
    store.append(b"flushed")
    store.log.flush()
    store.manager.checkpoint()
    store.append(b"torn")
    store.append(b"torn, too")
    store.crash(Random(seed))
    survived = store.values()
    store.log.roll()  # the next start looks at this segment only: the one before is known to be durable
    store.crash()
    assert store.values() == survived


def test_segments_behind_a_lost_end_are_dropped_even_if_it_was_lost_at_a_batch(make_store: Callable[..., Any]) -> None:
    store = make_store(segment_bytes=400)
    values = fill(store)
    first = store.log.segments.first
    located = first.locate(2)
    store.fs.open(first.log_file.path).truncate(located.position)
    store.kill()
    assert store.values() == values[:2]


def test_a_gap_that_compaction_left_is_no_loss(
    make_store: Callable[..., Any], make_batch: Callable[..., bytes]
) -> None:
    store = make_store(segment_bytes=200, cleanup_policy=("compact",))
    for offset in (0, 10, 20):
        store.log.append_as_follower(make_batch(b"v" * 90, base_offset=offset))
    store.kill()
    assert [record.offset for record in store.records()] == [0, 10, 20]


def test_a_power_cut_brings_no_deleted_record_back_with_its_segment(make_store: Any) -> None:
    store = make_store()
    store.append(b"deleted")
    store.log.roll()
    store.append(b"not synced")
    assert store.log.delete_records(1) == 1
    store.log.apply_retention(now_ms=store.clock.now_ms())
    store.manager.checkpoint()

    store.crash()

    assert store.records() == []
    assert (store.log.log_start_offset, store.log.log_end_offset) == (1, 1)
