"""Rows as columns behave as the list of their records does, whatever is cut and joined."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import App
from ottla.app.app import declarations_of
from ottla.columnar.arrays.binary import binary_of_few
from ottla.columnar.reading.small_batches import FEW
from ottla.columnar.serving import decode_fetch as decode_fetch_module
from ottla.columnar.serving import rows as rows_module
from ottla.columnar.serving.decode_fetch import decode_fetch
from ottla.columnar.serving.handlers import ColumnInvoker
from ottla.columnar.serving.rows import RAW_COLUMNS, ArrowRows, rows_of
from ottla.consumer.model.memory import record_bytes
from ottla.consumer.model.run import Run, RunResult
from ottla.consumer.partitions.lanes import PartitionLanes
from ottla.consumer.partitions.offsets import OffsetTracker, each_offset, from_offset, offsets_of
from ottla.records import Record, TimestampType, TopicPartition
from ottla.wire_client.decode_limits import DecodeLimits
from ottla.wire_client.fetching.fetched_batches import FetchedBatches, Segment
from ottla.wire_client.ranges import Isolation
from ottla_wire.records import RecordData, encode_batch

PLACE = TopicPartition("orders", 3)


def record(offset: int, headers: list[tuple[str, bytes | None]] | None = None) -> Record[Any]:
    key = None if offset % 3 == 0 else b"k%d" % offset
    value = None if offset % 4 == 0 else b"v%d" % offset
    kind = TimestampType.LOG_APPEND_TIME if offset % 2 else TimestampType.CREATE_TIME
    return Record(*PLACE, offset, offset * 10 - 1, key, value, headers or [], key, value, kind)


def facts(found: Record[Any]) -> tuple[Any, ...]:
    return (
        found.topic_partition,
        found.offset,
        found.timestamp_ms,
        found.raw_key,
        found.raw_value,
        found.headers,
        found.timestamp_type,
    )


offsets_with_gaps = st.lists(st.integers(0, 60), min_size=1, max_size=30, unique=True).map(sorted)


def test_rows_are_joined_without_what_the_oldest_pyarrow_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pa, "concat_batches", raising=False)  # since 19
    some, others = ([record(offset) for offset in range(start, start + 2 * FEW)] for start in (0, 100))
    rows = rows_of(some, PLACE).joined([rows_of(others, PLACE)])
    assert rows.batch.column("offset").to_pylist() == [each.offset for each in [*some, *others]]


@given(offsets_with_gaps, st.data())
def test_a_row_is_the_record_that_it_was(offsets: list[int], data: st.DataObject) -> None:
    given_records = [record(offset, [("h", b"1"), ("h", None)] if offset % 5 == 0 else None) for offset in offsets]
    cut = data.draw(st.integers(0, len(offsets)))
    rows = rows_of(given_records[:cut], PLACE)
    rows = rows.joined([rows_of(given_records[cut:], PLACE)])

    assert list(map(facts, rows)) == list(map(facts, given_records))
    assert list(rows.offsets) == offsets == list(each_offset(rows)) == list(offsets_of(rows))
    assert facts(rows[-1]) == facts(given_records[-1])
    middle = len(rows) // 2
    assert facts(rows[middle]) == facts(given_records[middle])
    assert rows[0] is rows[0], "each step of the session looks at the first row"
    start, stop = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 40))
    assert list(rows[start:stop].offsets) == offsets[start:stop]
    at = data.draw(st.integers(0, 70))
    assert list(offsets_of(from_offset(rows, at))) == [offset for offset in offsets if offset >= at]
    with_header = [found.offset for found in rows[start:stop].with_header("h")]
    assert with_header == [offset for offset in offsets[start:stop] if offset % 5 == 0]


@given(st.lists(st.integers(0, 60), max_size=FEW + 4, unique=True).map(sorted), st.data())
def test_a_few_rows_are_as_records_what_they_are_as_columns(offsets: list[int], data: st.DataObject) -> None:
    records = [record(offset, [("h", b"1")] if offset % 5 == 0 else None) for offset in offsets]
    few = ArrowRows.of_few(records, PLACE)
    many = ArrowRows(PLACE, [ArrowRows.of_few(records, PLACE).batch])
    start, stop = data.draw(st.integers(0, 30)), data.draw(st.integers(0, 30))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(offsets), max_size=len(offsets))), dtype=np.bool_)
    for one, other in (
        (few, many),
        (few[start:stop], many[start:stop]),
        (few.where(mask), many.where(mask)),
        (few[:start].joined([few[start:]]), many[:start].joined([many[start:]])),
        (few[:start].joined([many[start:]]), many),
    ):
        assert list(one.offsets) == list(other.offsets)
        assert list(map(facts, one)) == list(map(facts, other))
        assert list(map(facts, one.with_header("h"))) == list(map(facts, other.with_header("h")))
        assert [one.column(name) for name in RAW_COLUMNS] == [other.column(name) for name in RAW_COLUMNS]
        assert one.batch == other.batch


def test_a_single_row_reaches_the_core_without_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode_batch([RecordData(7, 1_000, b"k", b"v", [("h", b"1")])], base_offset=7)
    found = FetchedBatches()
    segment = Segment(topic=PLACE.topic, partition=PLACE.partition, data=memoryview(bytearray(data)), start=7)
    found.collect(segment, Isolation.READ_COMMITTED, True)
    monkeypatch.setattr(rows_module, "_column_of", None)
    monkeypatch.setattr(rows_module, "_batch_of", None)
    monkeypatch.setattr(decode_fetch_module, "plain_groups", None)
    (rows,) = decode_fetch(PLACE, found, DecodeLimits())
    assert (list(rows.offsets), len(rows), rows.size_bytes) == ([7], 1, record_bytes(rows))
    assert (rows[0].raw_key, rows[0].raw_value, rows[0].headers) == (b"k", b"v", [("h", b"1")])
    assert rows.from_offset(7)[0] is rows[0]


def test_of_a_single_row_a_handler_gets_the_columns_that_it_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    column_of = rows_module._column_of
    monkeypatch.setattr(rows_module, "_column_of", lambda rows, name: (made.append(name), column_of(rows, name))[1])
    app = App("columns", bootstrap_servers="localhost:9")
    seen: list[dict[str, Any]] = []

    @app.handler("values", columns=True)
    def of_values(batch: pa.RecordBatch) -> None:
        seen.append(batch.to_pydict())

    @app.handler("keys", columns=["key"])
    def of_keys(batch: pa.RecordBatch) -> None:
        seen.append(batch.to_pydict())

    for route, columns in zip(declarations_of(app).routes, (["value"], ["value", "key"]), strict=True):
        made.clear()
        rows = rows_of([record(7)], PLACE)
        run = Run(topic_partition=PLACE, epoch=1, route=route.name, records=rows, attempt=1, started_ms=0)
        result = ColumnInvoker(route, (), {}).deliver(run)
        assert isinstance(result, RunResult)
        assert (result.done, result.failures, made) == (None, (), columns), "all are done"
    assert seen == [{"value": [b"v7"]}, {"value": [b"v7"], "key": [b"k7"]}]


def test_no_rows_are_a_stretch_too() -> None:
    rows = rows_of([record(1)], PLACE)[1:]
    assert (len(rows), list(rows.offsets), list(rows), list(from_offset(rows, 5))) == (0, [], [], [])
    with pytest.raises(IndexError):
        rows[0]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(1, 15), st.lists(st.integers(0, 4)))
def test_lanes_hand_out_every_row_once_in_order(sizes: list[int], limit: int, fates: list[int]) -> None:
    lanes, tracker, offset = PartitionLanes(), OffsetTracker(), 0
    for size in sizes:
        rows: Any = rows_of([record(offset + number) for number in range(size)], PLACE)
        tracker.register(offsets_of(rows), size_bytes=1, now_ms=0)
        lanes.put(rows if size % 4 else list(rows))
        offset += size
    handled: list[int] = []
    while lanes.is_ready:
        run = lanes.take(limit)
        assert 0 < len(run) <= limit
        assert lanes.take(limit) == [], "one run at a time"
        fate = fates.pop() if fates else 2
        if fate == 0:
            lanes.end_run(run, run)  # cancelled
        elif fate == 1:
            lanes.hold(run)
            lanes.end_run(run, ())
            assert not lanes.is_ready
            lanes.retry(run)
        else:
            handled += each_offset(run)
            assert tracker.finish_first(run[0].offset, run[-1].offset, len(run))
            lanes.end_run(run, ())
        assert lanes.waiting == offset - len(handled)
    assert handled == list(range(offset))
    assert tracker.position == offset


def test_a_run_of_rows_names_its_parts() -> None:
    rows: ArrowRows = rows_of([record(number) for number in range(5)], PLACE)
    run = Run(topic_partition=PLACE, epoch=1, route="r", records=rows, attempt=1, started_ms=0)
    result = RunResult(done=run.records[: run.done], untouched=run.records[run.done :])
    assert (list(each_offset(result.done or ())), list(each_offset(result.untouched))) == ([], [0, 1, 2, 3, 4])


@given(st.lists(st.none() | st.binary(max_size=20), max_size=FEW))
def test_a_column_of_a_few_values_is_the_one_that_arrow_makes_of_them(values: list[bytes | None]) -> None:
    found = binary_of_few(values)
    found.validate(full=True)
    assert found.equals(pa.array(values, pa.binary()))
