"""What a log remembers about aborted transactions against asking every segment, whatever happens to the segments."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from broker_embedded.storage.cleaner import Cleaning, log_to_clean
from broker_embedded.storage.transaction_index import AbortedTransactionEntry


def entries_of_every_segment(log: Any, start: int, end: int) -> list[AbortedTransactionEntry]:
    """The definition: those of all indexes with a record in [start, end)."""
    found = [entry for segment in log.segments for entry in segment.txn_index.entries]
    return [entry for entry in found if entry.last_offset >= start and entry.first_offset < end]


def machine(make_store: Any) -> type[RuleBasedStateMachine]:
    class AbortedTransactions(RuleBasedStateMachine):
        """Each transaction has a producer id of its own, so that none depends on what a crash has left."""

        @initialize(
            segment_bytes=st.sampled_from([200, 600, 100_000]),
            policy=st.sampled_from([("delete",), ("compact",), ("compact", "delete")]),
        )
        def start(self, segment_bytes: int, policy: tuple[str, ...]) -> None:
            self.store = make_store(
                segment_bytes=segment_bytes, cleanup_policy=policy, index_interval_bytes=0, delete_retention_ms=1_000
            )
            self.producers: list[int] = []
            self.next_producer = 1

        @rule(count=st.integers(1, 3))
        def write(self, count: int) -> None:
            self.store.append(*[b"v"] * count)

        @rule()
        def write_in_a_transaction(self) -> None:
            self.producers.append(self.next_producer)
            self.next_producer += 1
            options = {"producer_id": self.producers[-1], "producer_epoch": 0, "base_sequence": 0}
            self.store.append(b"v", is_transactional=True, **options)

        @rule(which=st.integers(0, 9), commit=st.booleans())
        def end_a_transaction(self, which: int, commit: bool) -> None:
            if self.producers:
                self.store.end_transaction(self.producers.pop(which % len(self.producers)), 0, commit=commit)

        @rule()
        def write_and_abort(self) -> None:
            self.write_in_a_transaction()
            self.store.end_transaction(self.producers.pop(), 0, commit=False)

        @rule()
        def roll(self) -> None:
            self.store.log.roll()

        @rule()
        def flush(self) -> None:
            self.store.log.flush()

        @rule(share=st.floats(0, 1))
        def truncate(self, share: float) -> None:
            log = self.store.log
            starts = [header.base_offset for segment in log.segments for _, header in segment.headers()]
            starts = [offset for offset in starts if offset >= log.log_start_offset] or [log.log_end_offset]
            log.truncate_to(starts[int(share * (len(starts) - 1))])

        @rule(ahead=st.integers(0, 5))
        def start_anew(self, ahead: int) -> None:
            self.store.log.truncate_fully_and_start_at(self.store.log.log_end_offset + ahead)

        @rule(share=st.floats(0, 1))
        def delete_old_segments(self, share: float) -> None:
            log = self.store.log
            log.increase_log_start_offset(
                log.log_start_offset + int(share * (log.high_watermark - log.log_start_offset))
            )
            log.apply_retention(now_ms=self.store.clock.now_ms())

        @rule()
        def compact(self) -> None:
            self.store.clock.advance(2_000)
            now_ms = self.store.clock.now_ms()
            Cleaning(log_to_clean(self.store.log, now_ms=now_ms), now_ms=now_ms, max_keys=1_000).run()

        @rule(how=st.sampled_from(["restart", "kill", "crash"]), seed=st.integers(0, 1_000))
        def start_again(self, how: str, seed: int) -> None:
            if how == "crash":
                self.store.crash(Random(seed))
            else:
                getattr(self.store, how)()
            self.store.log.update_high_watermark(self.store.log.log_end_offset)

        @invariant()
        def the_log_knows_the_segments_that_have_some(self) -> None:
            if not hasattr(self, "store"):
                return
            log = self.store.log
            known = [each.base_offset for each in log.segments.with_aborted(0)]
            assert known == [each.base_offset for each in log.segments if each.txn_index.entries]
            end = log.log_end_offset
            for start in {log.log_start_offset, (log.log_start_offset + end) // 2, max(end - 1, 0), end}:
                for wanted in (start + 1, end):
                    assert log.aborted_entries(start, wanted) == entries_of_every_segment(log, start, wanted)

    return AbortedTransactions


@pytest.mark.slow
def test_a_fetch_is_told_of_every_aborted_transaction_whatever_became_of_the_segments(make_store: Any) -> None:
    examples = settings.default.max_examples if settings.default else 40
    run_state_machine_as_test(machine(make_store), settings=settings(max_examples=examples, stateful_step_count=40))


def test_a_fetch_from_a_log_without_aborted_transactions_does_not_ask_its_segments(make_store: Any) -> None:
    store = make_store(segment_bytes=100)
    for _ in range(50):
        store.append(b"v" * 20)
    log = store.log
    assert len(log.segments) == 50
    assert log.aborted_transactions_in(log.read(0, 1_000), 0) == []
    for segment in log.segments:
        segment.txn_index = None  # whoever asks one from now on fails
    assert log.aborted_transactions_in(log.read(0, 1_000), 0) == []
    assert log.aborted_transactions(0, 50) == []


def test_a_segment_that_left_the_log_is_not_asked(make_store: Any) -> None:
    store = make_store(segment_bytes=100_000)
    for producer in (1, 2):
        store.append(b"v", producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True)
        store.end_transaction(producer, 0, commit=False)
        store.log.roll()
    assert [each.base_offset for each in store.log.segments.with_aborted(0)] == [0, 2]
    store.log.increase_log_start_offset(2)
    store.log.apply_retention(now_ms=store.clock.now_ms())
    assert [each.base_offset for each in store.log.segments.with_aborted(0)] == [2]
    store.log.truncate_to(2)
    assert list(store.log.segments.with_aborted(0)) == []
