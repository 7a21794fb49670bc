"""The offset tracker against a model that is too simple to be wrong: a list of offsets and a set of finished ones."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.consumer.commit.offset_metadata import LIMIT_BYTES, decode_finished, encode_finished, terminated
from ottla.consumer.partitions.offsets import OffsetTracker, offsets_of
from ottla.records import Record


class TrackerAgainstModel(RuleBasedStateMachine):
    """Fetches with gaps, finishes in any order, in batches, and twice."""

    def __init__(self) -> None:
        super().__init__()
        self.tracker = OffsetTracker()
        self.registered: list[int] = []
        self.finished: set[int] = set()
        self.fetches: list[tuple[int, int, int]] = []
        self.now_ms = 0
        self.highest_position = -1

    @rule(gaps=st.lists(st.integers(1, 4), max_size=12), size_bytes=st.integers(0, 1_000))
    def fetch(self, gaps: list[int], size_bytes: int) -> None:
        self.fetched(gaps, size_bytes)

    @rule(count=st.integers(1, 12), gap=st.integers(1, 2))
    def fetch_without_gaps_inside(self, count: int, gap: int) -> None:
        self.fetched([gap] + [1] * (count - 1), 10 * count)

    def fetched(self, gaps: list[int], size_bytes: int) -> None:
        self.now_ms += 1
        offsets = []
        at = self.registered[-1] if self.registered else 99
        for gap in gaps:
            at += gap
            offsets.append(at)
        records = [Record("orders", 0, offset, 0, None, None, [], None, None) for offset in offsets]
        found = offsets_of(records)
        assert list(found) == offsets
        self.tracker.register(found, size_bytes=size_bytes, now_ms=self.now_ms)
        self.registered += offsets
        if offsets:
            self.fetches.append((offsets[-1], size_bytes, self.now_ms))

    @precondition(lambda self: self.registered)
    @rule(data=st.data())
    def finish_some(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.registered), max_size=8))
        self.tracker.finish_many(sorted(chosen))
        self.finished.update(chosen)

    @precondition(lambda self: self.registered)
    @rule(data=st.data(), is_next=st.booleans())
    def finish_a_run(self, data: st.DataObject, is_next: bool) -> None:
        unfinished = [index for index, offset in enumerate(self.registered) if offset not in self.finished]
        start = data.draw(st.integers(0, len(self.registered) - 1))
        if is_next and unfinished:
            start = unfinished[0]
        run = self.registered[start : start + data.draw(st.integers(1, 6))]
        if not self.tracker.finish_first(run[0], run[-1], len(run)):
            self.tracker.finish_many(run)
        self.finished.update(run)

    @precondition(lambda self: self.registered)
    @rule()
    def finish_the_first(self) -> None:
        first = next((offset for offset in self.registered if offset not in self.finished), None)
        if first is not None:
            self.tracker.finish(first)
            self.finished.add(first)

    @rule()
    def finish_everything(self) -> None:
        self.tracker.finish_many(self.registered)
        self.finished.update(self.registered)

    def model_position(self) -> int | None:
        for offset in self.registered:
            if offset not in self.finished:
                return offset
        return self.registered[-1] + 1 if self.registered else None

    @invariant()
    def the_position_is_the_first_unfinished_offset(self) -> None:
        assert self.tracker.position == self.model_position()

    @invariant()
    def the_position_never_moves_back(self) -> None:
        position = self.tracker.position
        if position is not None:
            assert position >= self.highest_position
            self.highest_position = position

    @invariant()
    def nothing_before_the_position_is_unfinished(self) -> None:
        position = self.tracker.position
        assert position is None or all(offset in self.finished for offset in self.registered if offset < position)

    @invariant()
    def the_counts_agree(self) -> None:
        unfinished = [offset for offset in self.registered if offset not in self.finished]
        position = self.model_position()
        window = [offset for offset in self.registered if position is not None and offset >= position]
        beyond = [offset for offset in window if offset in self.finished]
        assert self.tracker.unfinished_count == len(unfinished)
        assert list(self.tracker.unfinished()) == unfinished
        assert self.tracker.window_records == len(window)
        assert self.tracker.finished_beyond() == beyond
        assert self.tracker.finished_beyond_count == len(beyond)
        assert self.tracker.finished_count == len(self.finished)
        assert all(self.tracker.is_finished(offset) == (offset in self.finished) for offset in self.registered)

    @invariant()
    def the_window_in_bytes_counts_the_batches_that_are_not_behind_the_position(self) -> None:
        position = self.model_position()
        left = [size for last, size, _ in self.fetches if position is None or last >= position]
        assert self.tracker.window_bytes == sum(left)

    @invariant()
    def the_age_is_that_of_the_oldest_unfinished_batch(self) -> None:
        position = self.model_position()
        unfinished = [at for last, _, at in self.fetches if position is not None and last >= position]
        expected = unfinished[0] if self.tracker.unfinished_count else None
        assert self.tracker.oldest_unfinished_ms == expected

    @invariant()
    def the_metadata_names_what_is_finished_beyond_the_position(self) -> None:
        position = self.tracker.position
        if position is not None:
            metadata = encode_finished(self.tracker.finished_beyond(), position)
            assert sorted(decode_finished(metadata, position)) == self.tracker.finished_beyond()


TestTrackerAgainstModel = TrackerAgainstModel.TestCase


def test_an_offset_cannot_be_registered_twice() -> None:
    tracker = OffsetTracker()
    tracker.register([5, 6], size_bytes=0, now_ms=0)

    with pytest.raises(ValueError, match="offset 6 was registered before"):
        tracker.register([6, 7], size_bytes=0, now_ms=0)


def test_before_the_first_fetch_there_is_nothing_to_commit() -> None:
    assert OffsetTracker().position is None


@given(
    position=st.integers(0, 2**62),
    finished=st.sets(st.integers(1, 30_000), max_size=300),
)
def test_metadata_of_any_shape_reads_back(position: int, finished: set[int]) -> None:
    offsets = sorted(position + each for each in finished)

    metadata = encode_finished(offsets, position)

    assert len(metadata.encode()) <= LIMIT_BYTES
    assert sorted(decode_finished(metadata, position)) == offsets


@given(step=st.integers(2, 9), count=st.integers(1, 60_000))
def test_metadata_that_would_not_fit_names_the_first_ones_and_invents_none(step: int, count: int) -> None:
    offsets = [1_000 + step * number for number in range(1, count + 1)]

    metadata = encode_finished(offsets, 1_000)
    read = sorted(decode_finished(metadata, 1_000))

    assert len(metadata.encode()) <= LIMIT_BYTES
    assert read == offsets[: len(read)]
    assert len(read) >= min(count, 1_000)


@given(metadata=st.text(max_size=60) | st.binary(max_size=60).map(lambda data: "ottla1:" + data.hex()))
def test_other_peoples_metadata_reads_as_nothing_or_something_but_never_fails(metadata: str) -> None:
    assert all(offset >= 7 for offset in decode_finished(metadata, 7))


@pytest.mark.parametrize("metadata", [None, "", "checkpoint-17", "ottla1:", "ottla1:!!!", "ottla1:AQ=="])
def test_damaged_or_foreign_metadata_names_nothing(metadata: str | None) -> None:
    assert decode_finished(metadata, 7) == frozenset()


def test_metadata_with_a_number_that_does_not_end_names_nothing() -> None:
    for data in (b"\1" + b"\xff" * 1_000_000, b"\1\0" + b"\x80" * 9 + b"\1"):
        assert decode_finished("ottla1:" + base64.b64encode(data).decode(), 7) == frozenset()


def test_metadata_is_read_whichever_client_wrote_it() -> None:
    """confluent-kafka commits the byte that ends a string in C, and reads beyond what has none."""
    metadata = encode_finished([9, 11], 7)
    assert decode_finished(metadata, 7) == decode_finished(terminated(metadata), 7) == {9, 11}
    assert terminated("") == ""
    longest = encode_finished(range(9, 60_000, 2), 7)
    assert LIMIT_BYTES - 4 <= len(terminated(longest)) <= LIMIT_BYTES


def test_metadata_of_a_few_bytes_cannot_name_offsets_without_bound() -> None:
    million = b"\x00\xc0\x84\x3d"  # a gap of none, and a run of 1,000,000
    metadata = "ottla1:" + base64.b64encode(b"\x01" + million * 700).decode()

    assert decode_finished(metadata, 7) == frozenset()


def test_ten_thousand_scattered_offsets_fit_as_a_bitmap() -> None:
    offsets = list(range(2, 20_000, 2))

    assert sorted(decode_finished(encode_finished(offsets, 0), 0)) == offsets
