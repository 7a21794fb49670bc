"""What may run side by side: order per partition and per key, under any interleaving of takes, failures and retries."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.consumer.model.run import AnyRecord
from ottla.consumer.partitions.lanes import KeyLanes, Lanes, Ordering, PartitionLanes, lanes_for
from ottla.records import Record

KEYS = [b"a", b"b", b"c", None]


def record(offset: int, key: bytes | None = b"a", value: bytes = b"v") -> AnyRecord:
    return Record("orders", 0, offset, 0, key, value, [], key, value)


class LanesUnderAnyInterleaving(RuleBasedStateMachine):
    """Workers take, finish, fail and give back at random; the model knows what was put in and what was handled."""

    ordering: Ordering

    @initialize()
    def start(self) -> None:
        self.lanes = lanes_for(self.ordering)
        self.next_offset = 0
        self.running: list[list[AnyRecord]] = []
        self.held: list[list[AnyRecord]] = []
        self.handled: list[AnyRecord] = []
        self.given_up: list[AnyRecord] = []
        self.all: list[AnyRecord] = []

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8))
    def put(self, keys: list[bytes | None]) -> None:
        records = [record(self.next_offset + index, key) for index, key in enumerate(keys)]
        self.next_offset += len(records)
        self.all += records
        self.lanes.put(records)

    @rule(limit=st.integers(1, 5), limit_bytes=st.none() | st.integers(1, 8))
    def take(self, limit: int, limit_bytes: int | None) -> None:
        run = self.lanes.take(limit, limit_bytes)
        assert len(run) <= limit or len(run) == 1
        if run:
            self.running.append(run)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def finish_a_run(self, data: st.DataObject) -> None:
        """A prefix is done; then maybe one record fails and is held; what follows it is untouched as ordering says."""
        run = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        done_count = data.draw(st.integers(0, len(run)))
        fails = done_count < len(run) and data.draw(st.booleans())
        done, rest = run[:done_count], run[done_count:]
        if fails:
            failed, rest = rest[0], rest[1:]
            self.held.append([failed])
            self.lanes.hold([failed])
            if self.ordering is not Ordering.PARTITION:
                # Only the failed key is held back; the others of the run go on.
                free = [each for each in rest if each.raw_key is None or each.raw_key != failed.raw_key]
                done, rest = done + free, [each for each in rest if each not in free]
                if self.ordering is Ordering.UNORDERED:
                    done, rest = done + rest, []
        self.handled += done
        self.lanes.end_run(run, rest)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def all_of_a_run_fails(self, data: st.DataObject) -> None:
        """Each record has a wait of its own, also those of one key: nothing could be decoded, or nothing was
        acknowledged that their handler sent on."""
        run = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        for each in run:
            self.held.append([each])
            self.lanes.hold([each])
        self.lanes.end_run(run, ())

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def deliver_a_run_again_one_by_one(self, data: st.DataObject) -> None:
        """A batch failed for good: each of its records is delivered once more, alone."""
        run = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        for each in run:
            self.lanes.hold([each])
        self.lanes.end_run(run, ())
        for each in run:
            self.lanes.retry([each])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        self.lanes.retry(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def settle_otherwise(self, data: st.DataObject) -> None:
        group = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.given_up += group
        self.lanes.release(group)

    @invariant()
    def no_record_is_in_two_runs(self) -> None:
        if hasattr(self, "running"):
            offsets = [each.offset for run in self.running for each in run]
            assert len(offsets) == len(set(offsets))

    @invariant()
    def order_is_kept_as_declared(self) -> None:
        if not hasattr(self, "handled"):
            return
        if self.ordering is Ordering.PARTITION:
            offsets = [each.offset for each in self.handled]
            assert offsets == sorted(offsets)
            assert len(self.running) <= 1
        elif self.ordering is Ordering.KEY:
            for key in KEYS[:-1]:
                offsets = [each.offset for each in self.handled if each.raw_key == key]
                assert offsets == sorted(offsets), f"key {key!r} out of order: {offsets}"
                assert sum(any(each.raw_key == key for each in run) for run in self.running) <= 1

    def teardown(self) -> None:
        """Whatever happened, everything comes out in the end, once."""
        if not hasattr(self, "lanes"):
            return
        for run in self.running:
            self.handled += run
            self.lanes.end_run(run, ())
        for _ in range(len(self.all) * 3 + 3):
            for group in self.held:
                self.lanes.retry(group)
            self.held.clear()
            run = self.lanes.take(3)
            if run:
                self.handled += run
                self.lanes.end_run(run, ())
        self.running.clear()
        assert sorted(each.offset for each in self.handled + self.given_up) == [each.offset for each in self.all]
        self.order_is_kept_as_declared()


class PartitionLanesMachine(LanesUnderAnyInterleaving):
    ordering = Ordering.PARTITION


class KeyLanesMachine(LanesUnderAnyInterleaving):
    ordering = Ordering.KEY


class UnorderedLanesMachine(LanesUnderAnyInterleaving):
    ordering = Ordering.UNORDERED


TestPartitionLanes = PartitionLanesMachine.TestCase
TestKeyLanes = KeyLanesMachine.TestCase
TestUnorderedLanes = UnorderedLanesMachine.TestCase


def test_a_partition_waits_for_its_failed_record() -> None:
    lanes = PartitionLanes()
    lanes.put([record(0), record(1), record(2)])
    run = lanes.take(10)
    lanes.hold([run[0]])
    lanes.end_run(run, run[1:])

    assert lanes.take(10) == []
    lanes.retry([run[0]])
    assert [each.offset for each in lanes.take(10)] == [0]
    lanes.end_run([run[0]], ())
    assert [each.offset for each in lanes.take(10)] == [1, 2]


def test_a_failed_key_holds_only_itself() -> None:
    lanes = KeyLanes()
    lanes.put([record(0, b"a"), record(1, b"b"), record(2, b"a"), record(3, b"c")])
    run = lanes.take(1)
    lanes.hold(run)
    lanes.end_run(run, ())

    assert [each.offset for each in lanes.take(10)] == [1, 3]
    assert lanes.parked == 1


@pytest.mark.parametrize("ordering", [Ordering.PARTITION, Ordering.KEY])
def test_a_record_that_fails_alone_is_retried_before_what_follows_it(ordering: Ordering) -> None:
    lanes = lanes_for(ordering)
    batch = [record(offset) for offset in range(3)]
    lanes.put([*batch, record(3)])
    assert lanes.take(3) == batch
    for each in batch:
        lanes.hold([each])
    lanes.end_run(batch, ())
    for each in batch:
        lanes.retry([each])

    assert lanes.take(3) == batch[:1]
    assert lanes.take(3) == []
    assert not lanes.is_ready
    lanes.hold(batch[:1])
    lanes.end_run(batch[:1], ())
    assert lanes.take(3) == []
    lanes.retry(batch[:1])
    for offset in range(4):
        run = lanes.take(3)
        assert [each.offset for each in run] == [offset]
        lanes.end_run(run, ())


@pytest.mark.parametrize("lanes", [PartitionLanes(), KeyLanes()], ids=["by partition", "by key"])
def test_a_record_that_waited_elsewhere_comes_before_later_ones_that_are_delivered_again(lanes: Lanes) -> None:
    lanes.put([record(offset) for offset in range(4)])
    run = lanes.take(4)
    halves = [run[:2], run[2:]]
    for half in halves:
        lanes.hold(half)
    lanes.end_run(run, ())
    for half in halves:
        lanes.retry(half)
    first = lanes.take(4)
    assert [each.offset for each in first] == [0, 1]
    lanes.end_run(first, ())  # 0 went to a retry topic, and 1 waited until it was through
    lanes.put_first(first[1:])
    order: list[list[int]] = []
    while taken := lanes.take(4):
        order.append([each.offset for each in taken])
        lanes.end_run(taken, ())
    assert order == [[1], [2, 3]]


def test_null_keys_are_free() -> None:
    lanes = KeyLanes()
    lanes.put([record(0, None), record(1, None)])

    assert [each.offset for each in lanes.take(1)] == [0]
    assert [each.offset for each in lanes.take(1)] == [1]


def test_keys_that_are_anagrams_do_not_share_a_lane() -> None:
    lanes = KeyLanes()
    lanes.put([record(0, b"ab"), record(1, b"ba")])
    assert [each.offset for each in lanes.take(1)] == [0]

    assert [each.offset for each in lanes.take(1)] == [1]


@pytest.mark.parametrize("ordering", Ordering)
def test_a_turn_in_bytes_ends_with_the_record_that_reaches_it(ordering: Ordering) -> None:
    lanes = lanes_for(ordering)
    lanes.put([record(offset, None, b"x" * 99) for offset in range(5)])

    assert [each.offset for each in lanes.take(10, 150)] == [0, 1]


def test_a_key_that_failed_twice_in_a_run_is_held_until_both_were_delivered_again() -> None:
    lanes = KeyLanes()
    lanes.put([record(offset) for offset in range(4)])
    run = lanes.take(2)
    assert lanes.take(2) == []
    for each in run:
        lanes.hold([each])
    lanes.end_run(run, ())

    lanes.retry(run[:1])
    assert lanes.take(2) == [], "the second may be due first: it comes after the first all the same"
    lanes.retry(run[1:])
    for offset in range(2):
        assert [each.offset for each in lanes.take(2)] == [offset]
        assert lanes.take(2) == [], "no key is in two runs"
        lanes.end_run([run[offset]], ())
    assert [each.offset for each in lanes.take(2)] == [2, 3]
