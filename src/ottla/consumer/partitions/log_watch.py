"""Watches the log of each assigned partition for lost records, replaced topics, truncation and standstills.

A client continues without an error when retention has passed its position, when the topic was deleted and created
again, or when the log was truncated. And it may fetch a batch for ever that it cannot read. So the logs are looked up
every few seconds, beside the client, and at once when offsets are missing between two records:

- offsets that are missing and lie before the start of the log were deleted unread (`records_lost_before_read`).
  Those that are missing in the middle of a log are markers of transactions, or were compacted away;
- another topic id is another topic. All of it is newer than this assignment, so it is read from its start:
  `topic_recreated`. The client would go on at the old offset, or give offsets that look as if they had been seen;
- a log that ends before our place, at two looks, was truncated: `log_truncated`, and what comes there now is read. So
  was one of which records before the committed offset come first: auto.offset.reset has decided;
- a partition that has nothing to do, although its log goes on, may be behind its last record, at the marker of a
  transaction: its position goes on to the next record, so that its lag becomes 0;
- a partition whose position does not move, although the log continues and it is not paused, makes the member not ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import sub

from ottla.consumer.model.effects import Effect, LookAtLogs, Notice
from ottla.consumer.model.events import LogSeen, LogsSeen
from ottla.consumer.partitions.flow import FlowControl
from ottla.consumer.partitions.partition import PartitionState
from ottla.records import TopicPartition

LOOK_EVERY_MS = 5_000
_SOON_MS = 500
"""A gap is looked at at once, but a log that is full of gaps (transactions, compaction) not with each batch."""
_LOST_AFTER_MS = 15_000
"""Time after which an unanswered poll of the log ends is repeated."""
_MOST_GAPS = 16
_MOST_TAILS = 200
"""In one look: each is a request."""


class LogWatch:
    """The watch over one session's partitions."""

    __slots__ = (
        "_asked_ms",
        "_every_ms",
        "_flow",
        "_ids",
        "_is_asking",
        "_left",
        "_next_ms",
        "_partitions",
        "_soon_ms",
    )

    def __init__(
        self, partitions: Mapping[TopicPartition, PartitionState], *, flow: FlowControl, unready_after_ms: int
    ) -> None:
        self._partitions = partitions
        self._flow = flow
        self._every_ms = max(_SOON_MS, min(LOOK_EVERY_MS, unready_after_ms // 4))
        self._next_ms: int | None = None
        self._soon_ms = 0
        self._asked_ms = 0
        self._is_asking = False
        self._ids: dict[str, bytes] = {}
        """The topics that were looked at. What is assigned without a commit may be of another one of that name."""
        self._left: dict[TopicPartition, tuple[int, bytes, frozenset[bytes]]] = {}
        """Position, topic id and old ids of revoked partitions: one that is assigned again may be of a new topic."""

    @property
    def next_ms(self) -> int | None:
        """When the next look is due; None while nothing is assigned."""
        if self._is_asking:
            return self._asked_ms + _LOST_AFTER_MS
        return self._next_ms

    def assigned(self, state: PartitionState, committed: int | None, start: int | None) -> None:
        """Add an assigned partition. It is read from the committed offset, otherwise from `start` if known."""
        log = state.log
        log.expected = log.first = start if committed is None else committed
        log.committed = committed
        left = self._left.pop(state.topic_partition, None)
        if left is not None and left[0] == committed:
            # It is our own commit, and the coordinator may have stored it for a topic that took the name meanwhile.
            _, log.topic_id, log.old_ids = left
        elif committed is None:
            # Brokers forget what was committed of a topic that is deleted.
            log.topic_id = self._ids.get(state.topic_partition.topic)
            log.is_id_of_before = True

    def gone(self, state: PartitionState) -> None:
        """Remove a revoked partition."""
        position = state.tracker.position if state.tracker.position is not None else state.log.expected
        if position is not None and state.log.topic_id is not None:
            self._left[state.topic_partition] = position, state.log.topic_id, state.log.old_ids

    def look_now(self, now_ms: int) -> None:
        """Poll the log ends at once, because partitions were assigned or restarted and their topics may be new."""
        self._next_ms = now_ms

    def fetched(self, state: PartitionState, offsets: Sequence[int], now_ms: int, effects: list[Effect]) -> None:
        """Note the offsets of fetched records, in order."""
        log = state.log
        first, last = offsets[0], offsets[-1]
        if log.first is None:
            log.first = first
        expected, log.expected = log.expected, last + 1
        log.error = None
        if log.committed is not None:
            if first < log.committed:
                why = "the committed offset is beyond the log's end, so the client began where auto.offset.reset says"
                effects.append(_moved("log_truncated", state, log.committed, first, why))
            log.committed = None
        if expected is not None and first > expected:
            self._gap(state, expected, first, now_ms)
        if last - first != len(offsets) - 1:
            # Also between two records of one batch: the client had the first before the log was cut.
            steps = list(map(sub, offsets[1:], offsets))
            widest = max(steps)
            before = offsets[steps.index(widest)]
            self._gap(state, before + 1, before + widest, now_ms)

    def look_if_due(self, now_ms: int, effects: list[Effect]) -> None:
        next_ms = self.next_ms
        if next_ms is None or now_ms < next_ms:
            return
        self._next_ms = now_ms + self._every_ms
        epochs = {name: state.epoch for name, state in self._partitions.items() if not state.is_draining}
        if not epochs:
            self._next_ms = None
            self._is_asking = False
            return
        for state in self._partitions.values():
            state.log.asked_gaps += state.log.gaps
            state.log.gaps = []
        self._asked_ms, self._soon_ms = now_ms, now_ms + _SOON_MS
        self._is_asking = True
        effects.append(LookAtLogs(epochs, self._tails()))

    def _tails(self) -> dict[TopicPartition, int]:
        """Return where to look for the next record: partitions without work whose log continues, and that had the same
        position at the last look."""
        tails: dict[TopicPartition, int] = {}
        for name, state in self._partitions.items():
            log = state.log
            place = log.start if log.expected is None else log.expected
            is_behind = log.was_looked_at and place < log.end and log.place[0] == log.expected
            has_work = state.is_draining or state.tracker.unfinished_count or self._flow.is_paused(name)
            if is_behind and not has_work:
                tails[name] = place
                if len(tails) == _MOST_TAILS:
                    break
        return tails

    def seen(self, event: LogsSeen, now_ms: int, effects: list[Effect]) -> list[tuple[PartitionState, int]]:
        """Apply polled log bounds. Returns the partitions that must continue from another offset."""
        self._is_asking = False
        moves: list[tuple[PartitionState, int]] = []
        for name, seen in event.logs.items():
            state = self._partitions.get(name)
            if state is None or state.epoch != event.epochs.get(name) or state.is_draining:
                continue
            to = self._judge(state, seen, now_ms, effects)
            if to is not None:
                moves.append((state, to))
        if event.logs:
            for name in event.epochs.keys() - event.logs.keys():
                state = self._partitions.get(name)
                if state is not None and state.epoch == event.epochs[name]:
                    state.log.was_looked_at = False  # no leader says how far its log goes now
        return moves

    def _judge(self, state: PartitionState, seen: LogSeen, now_ms: int, effects: list[Effect]) -> int | None:
        log = state.log
        known_id, expected = log.topic_id, log.expected
        if seen.topic_id in log.old_ids:
            return None  # a broker whose metadata is older
        log.topic_id = seen.topic_id or known_id
        is_id_of_before, log.is_id_of_before = log.is_id_of_before, False
        if log.topic_id is not None:
            self._ids[state.topic_partition.topic] = log.topic_id
        if known_id is not None and known_id != log.topic_id:
            log.old_ids |= {known_id}
            why = "the topic was deleted and made again under its name: this is another log, read from its start"
            is_at_start = is_id_of_before and log.first is not None and log.first <= seen.start
            effects.append(_moved("topic_recreated", state, None if is_at_start else expected, seen.start, why))
            return None if is_at_start else seen.start
        gaps, log.asked_gaps = log.asked_gaps, []
        for start, end in gaps:
            self._skipped(state, start, min(seen.start, end), effects)
        is_short = expected is not None and seen.end < expected
        is_empty_beyond = expected is not None and seen.start > expected and seen.start == seen.end
        has_moved = (expected, seen.position) != log.place
        if expected is not None and not has_moved:
            if is_short and log.was_short:
                ours = "what was read of it" if log.committed is None else "the committed offset"
                why = f"the log ends before {ours}: it was truncated, and what comes there now is new"
                effects.append(_moved("log_truncated", state, expected, seen.end, why))
                return seen.end
            if is_empty_beyond and log.was_short:
                self._skipped(state, expected, seen.start, effects)
                log.expected = seen.start
        log.was_short = is_short or is_empty_beyond
        if seen.tail is not None and self._pass(state, *seen.tail):
            expected = log.expected
        place = max(expected or 0, seen.position or 0, seen.start)
        has_unfinished = state.tracker.unfinished_count > 0
        has_work = has_unfinished or self._flow.is_paused(state.topic_partition)
        if has_moved or has_work or place >= seen.end:
            log.still_since_ms = now_ms
        log.place = (expected, seen.position)
        log.start = seen.start
        log.at, log.end, log.seen_ms, log.was_looked_at = place, seen.end, now_ms, True
        if max(place if not has_unfinished else 0, state.tracker.position or 0) >= seen.end:
            log.behind_since_ms = None
        elif log.behind_since_ms is None or has_moved:
            log.behind_since_ms = now_ms
        return None

    def _pass(self, state: PartitionState, start: int, end: int) -> bool:
        """Continue at `end`, because no record follows from `start` on, unless records were fetched meanwhile."""
        log = state.log
        if log.expected not in (None, start) or end <= start or not state.tracker.pass_to(end):
            return False
        log.expected = end
        if state.plan.is_at_most_once:
            state.claimed = end
        return True

    def _gap(self, state: PartitionState, start: int, end: int, now_ms: int) -> None:
        gaps = state.log.gaps
        gaps.append((start, end))
        if len(gaps) > _MOST_GAPS:
            gaps.remove(min(gaps, key=lambda gap: gap[1] - gap[0]))
        if self._next_ms is not None:
            self._next_ms = min(self._next_ms, max(now_ms, self._soon_ms))

    def _skipped(self, state: PartitionState, start: int, end: int, effects: list[Effect]) -> None:
        if end > start:
            why = "deleted before they were read: retention, or DeleteRecords, passed the position of the group"
            effects.append(_moved("records_lost_before_read", state, start, end, why))


def standstill(state: PartitionState, unready_after_ms: int) -> str | None:
    """Return why the partition makes no progress, if it has made none for longer than that."""
    log = state.log
    still_ms = log.seen_ms - log.still_since_ms
    if still_ms <= unready_after_ms:
        return None
    error = "" if log.error is None else f"; the client says: {log.error}"
    return (
        f"{state.topic_partition}: nothing comes from offset {log.at} on, although the log goes on to {log.end}, "
        f"for {still_ms / 1_000:.0f} s{error}"
    )


def _moved(event: str, state: PartitionState, start: int | None, end: int, why: str) -> Notice:
    fields = {"partition": str(state.topic_partition), "from": start, "to": end, "why": why}
    if event == "records_lost_before_read" and start is not None:
        fields["records_at_most"] = end - start
    return Notice(event, "error" if event == "records_lost_before_read" else "warning", fields)
