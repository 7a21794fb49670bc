"""Where a streaming query is: its first offsets, how far the next micro-batch goes, and what is behind.

Lives in the one process that Spark keeps for a query's source. The only state is what Spark does not hand in: the end
frozen for Trigger.AvailableNow, when the last batch was made (for `minOffsetsPerTrigger`), and how many were (for a
budget of fewer records than partitions).
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable
from typing import Any

from ottla.errors import OttlaError, UnknownTopic
from ottla.records import TopicPartition
from ottla.spark.checkpoints.files import local_path
from ottla.spark.checkpoints.offsets import TASKS, Offsets, from_json_dict, to_json_dict
from ottla.spark.checkpoints.start_offsets import persisted_start
from ottla.spark.options import SourceOptions
from ottla.spark.reading.subscription import offsets_at, resolve_start, subscribed_partitions
from ottla.spark.reading.trigger_budget import grant
from ottla.wire_client import (
    EARLIEST,
    LATEST,
    Cluster,
    OffsetOutOfRange,
    OffsetRange,
    OnDataLoss,
    TopicRecreated,
    commit_group_offsets,
)

log = logging.getLogger(__name__)


class StreamPosition:
    """Turns the cluster's offsets into the query's, and back into ranges to read."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._frozen_end: Offsets | None = None
        self._end_of_batch: Offsets | None = None
        self._last_batch_at: float | None = None
        self._published: Offsets = {}
        self._turn = 0
        self._said_deleted: set[str] = set()

    def initial(self) -> dict[str, Any]:
        """Return the offsets a new query starts at. Spark asks more than once before the first batch is committed."""

        def resolve() -> Offsets:
            return resolve_start(self._cluster, self._options, self._partitions())

        offsets = persisted_start(self._options.starting_offsets_file, resolve)
        return to_json_dict(offsets, self._topic_ids(offsets))

    def freeze_end(self) -> None:
        """Trigger.AvailableNow: what is there now is all that this run will read."""
        self._frozen_end = self._end_now()

    def advance(self, start: dict[str, Any], *, budget: int | None) -> dict[str, Any]:
        """Return the end of the next micro-batch, at most `budget` records behind `start`.

        Spark asks for the next end only when the batch that ended at `start` is complete, so that is when the group's
        offsets are published, the last batch of AvailableNow included.
        """
        starts, known_ids = from_json_dict(start)
        self._publish(starts)
        if self._is_paused():
            return start
        ends = self._end_now() if self._frozen_end is None else dict(self._frozen_end)
        self._end_of_batch = dict(ends) if self._frozen_end is None else None
        ids = self._topic_ids(ends)
        recreated = {name for name, topic_id in known_ids.items() if ids.get(name, topic_id) != topic_id}
        self._report_recreated(recreated, starts, ends)
        begins = self._begins(starts, ends, recreated)
        available = {p: max(0, end - begins[p]) for p, end in ends.items()}
        if self._waits_for_more(sum(available.values())):
            return start
        if budget is not None or self._options.max_bytes_per_trigger is not None:
            granted = grant(self._cluster, self._options, begins, available, budget=budget, turn=self._turn)
            self._turn += 1
            ends = {p: begins[p] + granted[p] for p in ends}
        gone = {p: offset for p, offset in starts.items() if p not in ends and p.topic not in recreated}
        self._report_deleted(gone)
        ends |= gone  # what is gone keeps its place, by which it is known when it comes again
        self._last_batch_at = self._cluster.now()
        end = to_json_dict(ends, known_ids | ids)
        if end == {name: value for name, value in start.items() if name != TASKS}:
            return start  # Spark compares texts: another number of tasks would be news
        rows = sum(max(0, ends[p] - begins.get(p, ends[p])) for p in ends)
        return to_json_dict(ends, known_ids | ids, tasks=self._options.tasks.count(rows) or None)

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
        """Return the ranges between two offsets of the query."""
        starts, start_ids = from_json_dict(start)
        ends, end_ids = from_json_dict(end)
        recreated = {name for name, topic_id in start_ids.items() if end_ids.get(name, topic_id) != topic_id}
        begins = self._begins(starts, ends, recreated)
        return [
            OffsetRange(
                topic=p.topic,
                partition=p.partition,
                start=begins[p],
                end=ends[p],
                topic_id=_id_of(end_ids.get(p.topic)),
            )
            for p in sorted(ends)
            if begins[p] < ends[p]
        ]

    def log_end(self) -> dict[str, Any]:
        """Return the end of every partition now: beside the batch's end offsets in the progress it makes the lag
        visible. Spark asks right after `advance`, which has just got the answer."""
        ends, self._end_of_batch = self._end_of_batch, None
        return to_json_dict(self._end_now() if ends is None else ends)

    def done(self, end: dict[str, Any]) -> None:
        """Record that everything before `end` is in the sink."""
        self._publish(from_json_dict(end)[0])

    def close(self) -> None:
        """End the query."""
        self._cluster.close()

    def _partitions(self) -> list[TopicPartition]:
        return subscribed_partitions(self._cluster, self._options)

    def _end_now(self) -> Offsets:
        try:
            return offsets_at(self._cluster, self._partitions(), LATEST)
        except UnknownTopic:
            if self._options.pattern is None:
                raise
            # Deleted between the two questions: the pattern does not find it any more.
            return offsets_at(self._cluster, self._partitions(), LATEST)

    def _begins(self, starts: Offsets, ends: Offsets, recreated: set[str]) -> Offsets:
        """Return where reading begins in each partition of `ends`: a new partition begins at its earliest record."""
        new = [p for p in ends if p not in starts or p.topic in recreated]
        first = offsets_at(self._cluster, new, EARLIEST) if new else {}
        return {p: first[p] if p in first else self._not_behind(p, starts[p], ends[p]) for p in ends}

    def _not_behind(self, partition: TopicPartition, start: int, end: int) -> int:
        """Return `start`, or the end of the partition if that is shorter: offsets were lost, or it is another topic."""
        if start <= end:
            return start
        policy = self._options.on_data_loss.of(partition)
        if policy is OnDataLoss.FAIL:
            raise OffsetOutOfRange(
                topic=partition.topic, partition=partition.partition, wanted=start, earliest=0, latest=end
            )
        log.warning("%s: the query is at offset %d, but the partition ends at %d", partition, start, end)
        if policy in (OnDataLoss.LATEST, OnDataLoss.SKIP):
            return end
        return offsets_at(self._cluster, [partition], EARLIEST)[partition]

    def _waits_for_more(self, available: int) -> bool:
        """Return whether to wait for more records (`minOffsetsPerTrigger`), but no longer than `maxTriggerDelay`."""
        minimum = self._options.min_per_trigger
        if minimum is None or available >= minimum or self._frozen_end is not None:
            return False
        now = self._cluster.now()
        if self._last_batch_at is None:
            self._last_batch_at = now
        return now - self._last_batch_at < self._options.max_trigger_delay_ms / 1000

    def _is_paused(self) -> bool:
        """Return whether `pauseFile` exists: then no micro-batch is begun; the one that runs ends as always."""
        return self._options.pause_file is not None and local_path(self._options.pause_file).exists()

    def _report_recreated(self, recreated: Iterable[str], starts: Offsets, ends: Offsets) -> None:
        for name in sorted(recreated):
            read = {p.partition: o for p, o in starts.items() if p.topic == name}
            text = f"{name} was deleted and created anew: the query had read {read} of the old topic"
            if any(self._options.on_data_loss.of(p) is OnDataLoss.FAIL for p in starts if p.topic == name):
                raise TopicRecreated(
                    f"{text}. Set onDataLoss to earliest to read the new topic from its beginning,"
                    " or use a new checkpoint"
                )
            log.warning("%s; the new one is read from its beginning", text)

    def _report_deleted(self, gone: Offsets) -> None:
        """Report a topic of the pattern that was deleted. One that was subscribed to by name is reported earlier."""
        for name in sorted({p.topic for p in gone} - self._said_deleted):
            try:
                self._cluster.topic(name)  # it may be there, and only have been without a leader
            except UnknownTopic:
                read = {p.partition: offset for p, offset in gone.items() if p.topic == name}
                text = f"{name} was deleted: the query had read {read} of it"
                if any(self._options.on_data_loss.of(p) is OnDataLoss.FAIL for p in gone if p.topic == name):
                    raise UnknownTopic(f"{text}. Set onDataLoss to skip to go on without it") from None
                log.warning("%s; it goes on without it", text)
                self._said_deleted.add(name)

    def _topic_ids(self, offsets: Offsets) -> dict[str, str]:
        ids: dict[str, str] = {}
        for name in sorted({p.topic for p in offsets}):
            topic_id = self._cluster.topic(name).topic_id
            if topic_id is not None:
                ids[name] = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
        return ids

    def _publish(self, offsets: Offsets) -> None:
        group = self._options.publish_group
        if group is None or offsets == self._published:
            return
        try:
            commit_group_offsets(self._cluster, group, offsets)
            self._published = dict(offsets)
        except OttlaError as error:
            # Only lag tools read these; the checkpoint has the truth. A query must not stop for a display.
            log.warning("offsets of group %s were not published: %s", group, error)


def _id_of(text: str | None) -> bytes | None:
    """Return a topic id from the text in the checkpoint."""
    return None if text is None else base64.urlsafe_b64decode(text + "==")
