"""How much of each partition a trigger reads, and which task reads what. Pure: offsets in, ranges out.

Two decisions that Spark's own connector takes differently:

- **Budgets are max-min fair.** `maxOffsetsPerTrigger` is split so that a partition gets all it has unless it has more
  than an equal share. One partition ten million records behind does not starve nine others with a thousand new ones.
- **Tasks follow the work, not the partitions.** A Python task costs 12 to 50 ms before its first record, so small
  ranges are merged into few tasks and big ones are split, whatever the number of partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ottla.records import TopicPartition
from ottla.wire_client import OffsetRange

ROWS_PER_TASK = 50_000
"""A task smaller than this costs more to start than to run."""


class Fairness(Enum):
    """How a trigger's budget is split over partitions."""

    MAXMIN = "maxmin"
    PROPORTIONAL = "proportional"


def share_budget(
    available: Mapping[TopicPartition, int], *, budget: int, fairness: Fairness = Fairness.MAXMIN, turn: int = 0
) -> dict[TopicPartition, int]:
    """Return how many of the available offsets each partition may read; together at most `budget`.

    `turn` counts the triggers: with a budget of fewer records than there are partitions not all of them get one, and
    it is others each time.
    """
    total = sum(available.values())
    if total <= budget:
        return dict(available)
    if fairness is Fairness.PROPORTIONAL:
        shares = {p: count * budget // total for p, count in available.items()}
        return _hand_out_rest(available, shares, budget)
    shares = {}
    left = budget
    by_need = sorted(available, key=lambda p: available[p])
    for position, partition in enumerate(by_need):
        equal_share = left // (len(by_need) - position)
        if available[partition] > equal_share:  # and so has everybody behind it: the rest is theirs, in equal shares
            hungry = sorted(by_need[position:])
            first = turn * left % len(hungry)
            more = {hungry[(first + k) % len(hungry)] for k in range(left % len(hungry))}
            shares |= {p: min(available[p], equal_share + (p in more)) for p in hungry}
            break
        shares[partition] = available[partition]
        left -= available[partition]
    return {partition: shares[partition] for partition in available}


def share_bytes(
    available: Mapping[TopicPartition, int],
    *,
    budget_bytes: int,
    bytes_per_offset: Mapping[TopicPartition, float],
    fairness: Fairness = Fairness.MAXMIN,
    turn: int = 0,
) -> dict[TopicPartition, int]:
    """Return how many of the available offsets each partition may read, so that they have about `budget_bytes`.

    One partition whose share is less than a record gets one all the same, another one in each turn: records larger than
    a share would never be read.
    """
    sizes = {p: max(1, round(count * bytes_per_offset[p])) if count else 0 for p, count in available.items()}
    granted = share_budget(sizes, budget=budget_bytes, fairness=fairness, turn=turn)
    if granted == sizes:
        return dict(available)
    shares = {p: min(available[p], int(granted[p] / bytes_per_offset[p])) for p in available}
    hungry = sorted(p for p in available if available[p] and not shares[p])
    if hungry:
        shares[hungry[turn % len(hungry)]] = 1
    return shares


def _hand_out_rest(
    available: Mapping[TopicPartition, int], shares: dict[TopicPartition, int], budget: int
) -> dict[TopicPartition, int]:
    """Hand out the rest one by one, smallest partition first: rounding down must not leave one with nothing for
    ever."""
    left = budget - sum(shares.values())
    for partition in sorted(available, key=lambda p: shares[p]):
        if left <= 0:
            break
        if shares[partition] < available[partition]:
            shares[partition] += 1
            left -= 1
    return shares


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSizing:
    """How many tasks read so many rows: up to `parallelism`; `min_tasks` (`minPartitions`) and `max_rows_per_task`
    (`maxRecordsPerPartition`) can call for more."""

    parallelism: int = 1
    rows_per_task: int = ROWS_PER_TASK
    min_tasks: int = 1
    max_rows_per_task: int | None = None

    def count(self, rows: int) -> int:
        """Return the number of tasks that read so many rows."""
        count = max(min(self.parallelism, -(-rows // self.rows_per_task)), self.min_tasks, 1)
        if self.max_rows_per_task is not None:
            count = max(count, -(-rows // self.max_rows_per_task))
        return min(count, rows)


def divide(ranges: Iterable[OffsetRange], count: int) -> list[list[OffsetRange]]:
    """Return the ranges of `count` tasks, or of as many as there are rows: always the same for the same arguments.

    All offsets are covered exactly once, and a task holds a partition at most once.
    """
    wanted = [r for r in ranges if r.size]
    total = sum(r.size for r in wanted)
    return _cut_evenly(wanted, total, min(count, total))


def _cut_evenly(ranges: Sequence[OffsetRange], total: int, count: int) -> list[list[OffsetRange]]:
    """Lay all ranges end to end and cut the line into `count` equal pieces."""
    tasks: list[list[OffsetRange]] = []
    current: list[OffsetRange] = []
    done = 0
    for wanted in ranges:
        start = wanted.start
        while start < wanted.end:
            border = total * (len(tasks) + 1) // count
            take = min(wanted.end - start, border - done)
            if take:
                current.append(replace(wanted, start=start, end=start + take))
                start += take
                done += take
            if done == border:
                tasks.append(current)
                current = []
    return tasks
