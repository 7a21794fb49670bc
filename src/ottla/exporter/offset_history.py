"""Log end offsets of past moments, which say how old a record is by its offset alone. Pure.

A consumer that is 5,000 records behind may be a second behind, or a week. The age of the first record that it has not
committed is read from where the log ended when: reading that record would need the right to read every topic, and a
request for each partition of each group.

- One sample is one array with a number for each partition. Old samples are thinned, so that the distance of two is a
  share of their age, and the whole has a bounded size: 64 samples of 10,000 partitions are 5 MB.
- A record that is older than all samples, as after a start of the exporter, is looked for by time: ListOffsets answers
  which offset came first after a moment. Each answer halves the span in which the record was written.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from ottla.admin.facts.cluster_facts import ClusterFacts
from ottla.topics import TopicPartition
from ottla_wire.facts import fact

MOST_SAMPLES: Final = 64
MOST_AGE_MS: Final = 8 * 86_400_000
"""Samples that are older are dropped: longer than the retention of most topics."""
MOST_ANSWERS: Final = 24
"""Answers about past moments that are kept of a partition."""
_UNKNOWN: Final = -1
_LEAST_STEP_MS: Final = 60_000
_STEP: Final = 8
"""The next moment to ask for is so many times as long ago, until the record is younger than it."""
_PRECISE: Final = 1.1
"""The span of a record's age is narrow enough, as a ratio of its ends."""
_PRECISE_MS: Final = 1_000
"""So is one of a second."""


@fact
class LogChanges:
    """Changes of the logs between two samples: offsets by topic. Topics without a change are left out."""

    written: Mapping[str, int] = field(default_factory=dict)
    truncated: Mapping[str, int] = field(default_factory=dict)
    """How far ends of logs went back. Kafka never moves a high watermark back without losing what was behind it."""


@fact
class WrittenAt:
    """When a record was written, in milliseconds since the epoch. Not `is_precise`: it is that old or older."""

    at_ms: int
    is_precise: bool


class OffsetHistory:
    """The samples, of all partitions. A topic that was deleted and created again is another one."""

    def __init__(self, *, most_samples: int = MOST_SAMPLES) -> None:
        self._most_samples = most_samples
        self._slots: dict[TopicPartition, int] = {}
        self._topic_ids: dict[str, str | None] = {}
        self._taken = 0
        """How many slots were given out since the last compaction."""
        self._samples: list[tuple[int, array[int]]] = []
        """By time."""
        self._answers: dict[int, list[tuple[int, int]]] = {}
        """Slot → (moment, first offset that was written after it), by time."""

    def take(self, facts: ClusterFacts) -> LogChanges:
        """Add a sample. A partition whose end was not read keeps the end that it had."""
        if self._samples and facts.at_ms <= self._samples[-1][0]:  # the clock was set back: the past means nothing
            self._samples.clear()
            self._answers.clear()
        before = self._samples[-1][1] if self._samples else array("q")
        written: dict[str, int] = {}
        truncated: dict[str, int] = {}
        ends: dict[int, int] = {}
        slots: dict[TopicPartition, int] = {}
        for topic in facts.topics:
            is_same = self._topic_ids.get(topic.name, "") == topic.topic_id
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition)
                slot = self._slots.get(place) if is_same else None
                known = _UNKNOWN if slot is None else _end(before, slot)
                end = known if each.high_watermark is None else each.high_watermark
                if slot is None or end < known:
                    if slot is not None:
                        truncated[topic.name] = truncated.get(topic.name, 0) + known - end
                    slot, self._taken = self._taken, self._taken + 1
                elif end > known != _UNKNOWN:
                    written[topic.name] = written.get(topic.name, 0) + end - known
                slots[place] = slot
                ends[slot] = end
        self._slots = slots
        self._topic_ids = {topic.name: topic.topic_id for topic in facts.topics}
        sample = array("q", [_UNKNOWN]) * self._taken
        for slot, end in ends.items():
            sample[slot] = end
        self._samples.append((facts.at_ms, sample))
        self._thin(facts.at_ms)
        if self._taken > 2 * len(slots) + 1_000:
            self._compact()
        return LogChanges(written=written, truncated=truncated)

    def written_at(self, place: TopicPartition, offset: int) -> WrittenAt | None:
        """Return when the record of an offset was written; None for one that is not written yet, or not known."""
        slot = self._slots.get(place)
        if slot is None or not self._samples:
            return None
        later: tuple[int, int] | None = None
        for at_ms, sample in reversed(self._samples):
            end = _end(sample, slot)
            if end == _UNKNOWN:
                break
            if end <= offset:
                return (
                    None if later is None else WrittenAt(at_ms=_between((at_ms, end), later, offset), is_precise=True)
                )
            later = at_ms, end
        if later is None:
            return None
        earlier, later = self._span(slot, offset, later)
        if earlier is None:
            return WrittenAt(at_ms=later[0], is_precise=False)
        is_narrow = later[0] - earlier[0] <= _PRECISE_MS
        is_precise = is_narrow or self._age(earlier[0]) <= _PRECISE * self._age(later[0])
        return WrittenAt(at_ms=_between(earlier, later, offset), is_precise=is_precise or self._is_full(slot))

    def moment_to_ask(self, place: TopicPartition, offset: int) -> int | None:
        """Return the moment for which ListOffsets should be asked to know more of a record's age. None: enough is
        known, or no answer would help."""
        found = self.written_at(place, offset)
        slot = self._slots.get(place)
        if slot is None or found is None or found.is_precise or self._is_full(slot):
            return None
        earlier, later = self._span(slot, offset, self._oldest(slot))
        newest_age_ms = self._age(later[0])
        if earlier is None:
            return max(0, self._samples[-1][0] - max(newest_age_ms, _LEAST_STEP_MS) * _STEP)
        return self._samples[-1][0] - round(math.sqrt(newest_age_ms * self._age(earlier[0])))

    def take_answer(self, place: TopicPartition, at_ms: int, offset: int) -> None:
        """Add the answer to a question: the first offset written at `at_ms` or later, negative if there is none."""
        slot = self._slots.get(place)
        if slot is None:
            return
        end = self._samples[-1][1][slot]
        answers = self._answers.setdefault(slot, [])
        answers.append((at_ms, end if offset < 0 else offset))
        answers.sort()

    def forget_answers(self, needed: Mapping[TopicPartition, int]) -> None:
        """Drop all answers except those about records of these partitions, from these offsets on."""
        kept: dict[int, list[tuple[int, int]]] = {}
        for place, offset in needed.items():
            slot = self._slots.get(place, _UNKNOWN)
            answers = self._answers.get(slot)
            if answers is not None and self._oldest(slot)[1] > offset:
                before = [at for at, answer in enumerate(answers) if answer[1] <= offset]
                kept[slot] = answers[before[-1] :] if before else answers
        self._answers = kept

    def _oldest(self, slot: int) -> tuple[int, int]:
        """Return the oldest sample that has the partition."""
        return next((at_ms, sample[slot]) for at_ms, sample in self._samples if _end(sample, slot) != _UNKNOWN)

    def _is_full(self, slot: int) -> bool:
        return len(self._answers.get(slot, ())) >= MOST_ANSWERS

    def _age(self, at_ms: int) -> int:
        return max(1, self._samples[-1][0] - at_ms)

    def _span(self, slot: int, offset: int, later: tuple[int, int]) -> tuple[tuple[int, int] | None, tuple[int, int]]:
        """Return the answers next to a record that is older than the sample `later`: before it, and after it."""
        earlier = None
        for answer in self._answers.get(slot, ()):
            if answer[1] <= offset:
                earlier = answer
            elif answer[0] < later[0]:
                later = answer
                break
        return earlier, later

    def _thin(self, now_ms: int) -> None:
        """Drop samples that are too old, and the one whose neighbours are the closest for their age."""
        while len(self._samples) > 2 and now_ms - self._samples[0][0] > MOST_AGE_MS:
            del self._samples[0]
        if len(self._samples) > self._most_samples:
            times = [at_ms for at_ms, _ in self._samples]
            gaps = ((times[at + 1] - times[at - 1]) / (now_ms - times[at - 1]) for at in range(1, len(times) - 1))
            del self._samples[1 + min(enumerate(gaps), key=lambda each: each[1])[0]]

    def _compact(self) -> None:
        """Give the partitions new slots without gaps: others were deleted."""
        order = list(self._slots.values())
        self._samples = [(at_ms, array("q", [_end(sample, slot) for slot in order])) for at_ms, sample in self._samples]
        moved = {slot: at for at, slot in enumerate(order)}
        self._answers = {moved[slot]: found for slot, found in self._answers.items() if slot in moved}
        self._slots = {place: moved[slot] for place, slot in self._slots.items()}
        self._taken = len(order)


def _end(sample: array[int], slot: int) -> int:
    return sample[slot] if slot < len(sample) else _UNKNOWN


def _between(earlier: tuple[int, int], later: tuple[int, int], offset: int) -> int:
    """Return when an offset was reached, if the log grew evenly between two (moment, offset)."""
    (earlier_ms, low), (later_ms, high) = earlier, later
    if high <= low:
        return later_ms
    return earlier_ms + round((later_ms - earlier_ms) * (offset - low) / (high - low))
