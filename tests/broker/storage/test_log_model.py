"""A log against a list: random appends, rolls, flushes, crashes, truncations and deletions, on a disk that can crash.

Nothing acknowledged and flushed is lost; nothing torn, truncated or deleted is served; offsets never change.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker_embedded.common.errors import BrokerError
from ottla_wire.protocol import ErrorCode


def log_machine(make_store: Any) -> type[RuleBasedStateMachine]:
    class LogMachine(RuleBasedStateMachine):
        """`model` is the list of (offset, value) that the log must have."""

        @initialize(
            segment_bytes=st.sampled_from([700, 1500, 100_000]),
            interval=st.sampled_from([0, 150, 4096]),
        )
        def start(self, segment_bytes: int, interval: int) -> None:
            self.store = make_store(segment_bytes=segment_bytes, index_interval_bytes=interval)
            self.model: list[tuple[int, bytes]] = []
            self.end = 0
            self.start_offset = 0
            self.flushed_end = 0
            self.sequence = 0
            self.last_batch: tuple[int, int, int] | None = None
            self.counter = 0

        @rule(count=st.integers(1, 4), size=st.integers(0, 120))
        def append(self, count: int, size: int) -> None:
            values = [b"%d-" % (self.counter + i) + b"x" * size for i in range(count)]
            self.counter += count
            info = self.store.append(*values)
            assert (info.base_offset, info.last_offset) == (self.end, self.end + count - 1)
            self._remember(values)

        @rule(count=st.integers(1, 3))
        def append_idempotent(self, count: int) -> None:
            values = [b"%d" % (self.counter + i) for i in range(count)]
            self.counter += count
            base = self.end
            self.store.append(*values, producer_id=7, producer_epoch=0, base_sequence=self.sequence)
            self._remember(values)
            self.last_batch = (self.sequence, count, base)
            self.sequence += count

        @precondition(lambda self: self.last_batch is not None)
        @rule()
        def append_the_last_idempotent_batch_again(self) -> None:
            sequence, count, base = self.last_batch
            info = self.store.append(*[b"again"] * count, producer_id=7, producer_epoch=0, base_sequence=sequence)
            assert (info.is_duplicate, info.base_offset) == (True, base)

        @rule()
        def roll(self) -> None:
            self.store.log.roll()

        @rule()
        def flush(self) -> None:
            self.store.log.flush()
            self.flushed_end = self.end

        @rule()
        def flush_closed_segments(self) -> None:
            self.store.log.flush_rolled()
            self.flushed_end = max(self.flushed_end, self.store.log.segments.active.base_offset)

        @rule()
        def checkpoint(self) -> None:
            self.store.manager.checkpoint()

        @rule(share=st.floats(0, 1))
        def truncate(self, share: float) -> None:
            boundaries = self._batch_starts()
            offset = boundaries[int(share * (len(boundaries) - 1))]
            self.store.log.truncate_to(offset)
            self._forget_from(offset)

        @rule(share=st.floats(0, 1))
        def delete_records(self, share: float) -> None:
            before = int(self.start_offset + share * (self.end - self.start_offset))
            assert self.store.log.delete_records(before) == before
            self.start_offset = before
            self.flushed_end = max(self.flushed_end, before)
            self.model = [entry for entry in self.model if entry[0] >= before]

        @rule()
        def delete_old_segments(self) -> None:
            self.store.log.apply_retention(now_ms=self.store.clock.now_ms())

        @rule()
        def restart(self) -> None:
            self.store.restart()
            self.flushed_end = self.end
            self._replicated()

        @rule()
        def kill(self) -> None:
            self.store.kill()
            self._replicated()

        @rule(seed=st.none() | st.integers(0, 1000))
        def crash(self, seed: int | None) -> None:
            self.store.crash(None if seed is None else Random(seed))
            end = self.store.log.log_end_offset
            assert self.flushed_end <= end <= self.end
            if self.last_batch is not None and sum(self.last_batch[1:]) > self.flushed_end:
                self._forget_producer()  # the batch may be gone even if deleted records make the log end where it did
            self._forget_from(end)
            self._replicated()

        @rule(share=st.floats(0, 1), max_bytes=st.integers(1, 2000))
        def read_from_anywhere(self, share: float, max_bytes: int) -> None:
            log = self.store.log
            offset = int(self.start_offset + share * (self.end - self.start_offset))
            data = b"".join(log.read(offset, max_bytes).buffers())
            assert bool(data) == (offset < self.end)

        @rule()
        def read_outside(self) -> None:
            for offset in (self.start_offset - 1, self.end + 1):
                with pytest.raises(BrokerError) as raised:
                    self.store.log.read(offset, 100)
                assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

        @invariant()
        def the_log_is_the_model(self) -> None:
            if not hasattr(self, "store"):
                return
            log = self.store.log
            assert [(record.offset, record.value) for record in self.store.records()] == self.model
            assert (log.log_start_offset, log.log_end_offset) == (self.start_offset, self.end)
            assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset

        def _remember(self, values: list[bytes]) -> None:
            for value in values:
                self.model.append((self.end, value))
                self.end += 1

        def _forget_from(self, offset: int) -> None:
            if offset < self.end:
                self._forget_producer()
            self.model = [entry for entry in self.model if entry[0] < offset]
            self.end = offset
            self.start_offset = min(self.start_offset, offset)
            self.flushed_end = min(self.flushed_end, offset)

        def _forget_producer(self) -> None:
            """What the producer sent last is gone: it goes on from what the log knows."""
            self.last_batch = None
            producers = self.store.log.active_producers()
            self.sequence = producers[0].last_sequence + 1 if producers else self.sequence

        def _replicated(self) -> None:
            self.store.log.update_high_watermark(self.store.log.log_end_offset)

        def _batch_starts(self) -> list[int]:
            starts = [self.end]
            for segment in self.store.log.segments:
                starts += [h.base_offset for _, h in segment.headers() if h.base_offset >= self.start_offset]
            return sorted(starts)

    return LogMachine


@pytest.mark.slow
def test_a_log_is_a_list_that_survives(make_store: Any) -> None:
    examples = max(150, settings.default.max_examples) if settings.default else 150
    run_state_machine_as_test(log_machine(make_store), settings=settings(max_examples=examples, stateful_step_count=40))
