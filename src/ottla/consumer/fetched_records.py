"""Fetched records: registered in their partition's tracker, put into its lanes, and counted by flow control.

A record is registered once, however often the client returns it after a seek or a resume. While a drain lasts, fetched
records are kept unregistered: no drain waits for them, and no commit passes them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.consumer.model import events
from ottla.consumer.model.effects import Effect
from ottla.consumer.outcomes.retry_chains import RetryChains
from ottla.consumer.partitions.flow import FlowControl, PauseReason
from ottla.consumer.partitions.log_watch import LogWatch
from ottla.consumer.partitions.offsets import from_offset, offsets_of
from ottla.consumer.partitions.partition import PartitionState
from ottla.consumer.scheduling.dispatcher import Dispatcher
from ottla.consumer.stored_positions import StoredPositions
from ottla.records import TopicPartition


class FetchedRecords:
    """See the module. `partitions` is the session's own table of assigned partitions."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, PartitionState],
        *,
        flow: FlowControl,
        watch: LogWatch,
        stored: StoredPositions,
        chains: RetryChains,
        dispatcher: Dispatcher,
    ) -> None:
        self._partitions = partitions
        self._flow = flow
        self._watch = watch
        self._stored = stored
        self._chains = chains
        self._dispatcher = dispatcher

    def take(self, state: PartitionState, event: events.Fetched, now_ms: int, effects: list[Effect]) -> None:
        """Register the records of one fetched batch and put them into the partition's lanes."""
        if self._flow.is_paused_for(event.topic_partition, PauseReason.DRAIN):
            # The client had fetched them before the pause, and will not return them again.
            state.late.append(event)
            return
        state.behind = event.behind
        records = event.records
        if self._stored.refuses(state, records, effects):
            return
        end, offsets = state.tracker.end, offsets_of(records)
        if end is not None and offsets and offsets[0] < end:
            # After a seek or a resume the client may return records again.
            records = from_offset(records, end)
            offsets = offsets_of(records)
        if offsets:
            self._watch.fetched(state, offsets, now_ms, effects)
        kept = self._chains.restore(state, records, effects)
        if kept is not records:
            records, offsets = kept, offsets_of(kept)
        if offsets:
            state.pace.came(now_ms)
            state.fetched(records[0])
        state.tracker.register(offsets, size_bytes=event.size_bytes, now_ms=now_ms)
        if state.restored:
            already = [record.offset for record in records if record.offset in state.restored]
            state.tracker.finish_many(already)
            records = [record for record in records if record.offset not in state.restored]
            if records and records[-1].offset > max(state.restored):
                state.restored = frozenset()
        self._chains.put(state, records, now_ms)
        self._dispatcher.activate(state)
        self.count(state, now_ms)
        if state.linger is not None:
            self._dispatcher.look_again(state, state.linger.came(waiting=state.lanes.waiting, now_ms=now_ms))

    def count(self, state: PartitionState, now_ms: int) -> None:
        """Report to flow control how much of the partition is buffered."""
        tracker = state.tracker
        if state.level is not None and not state.level.is_restored:
            # A retry topic is read to its end first, and its own limit bounds what is kept of it.
            self._flow.count(state.topic_partition, records=tracker.window_records, size_bytes=tracker.window_bytes)
            return
        behind_records, behind_bytes = state.behind
        self._flow.observe(
            state.topic_partition,
            records=tracker.window_records + behind_records,
            size_bytes=tracker.window_bytes + behind_bytes,
            now_ms=now_ms,
            records_per_s=state.pace.records_per_s,
        )

    def count_held(self, now_ms: int) -> None:
        """Count every partition again that flow control holds without a pause: its buffer may have drained."""
        for topic_partition in list(self._flow.held):
            self.count(self._partitions[topic_partition], now_ms)
