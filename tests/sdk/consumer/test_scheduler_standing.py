"""When a scheduler is ready: not while a slot is late, or fails, or nobody looks."""

from __future__ import annotations

from ottla.consumer.readiness.schedules import FAILING_MS, LATE_MS, SILENT_MS, SchedulerStanding
from ottla.records import TopicPartition

NOW_MS = 1_700_000_000_000


def standing(
    *,
    due_ms: dict[int, int] | None = None,
    failing: dict[int, tuple[int, str]] | None = None,
    undispatched: dict[str, str] | None = None,
) -> SchedulerStanding:
    return SchedulerStanding(
        topic="ottla.schedule.s",
        due_ms={TopicPartition("ottla.schedule.s", slot): at_ms for slot, at_ms in (due_ms or {}).items()},
        failing={TopicPartition("ottla.schedule.s", slot): why for slot, why in (failing or {}).items()},
        undispatched=undispatched or {},
        at_ms=1_000,
    )


def test_one_that_keeps_up_is_ready() -> None:
    health = standing(due_ms={1: NOW_MS - LATE_MS + 1, 2: NOW_MS + 5}, failing={3: (1_000, "no leader")}).health(
        now_ms=NOW_MS, monotonic_ms=1_000 + FAILING_MS - 1
    )
    assert (health.is_alive, health.is_ready, health.problems) == (True, True, ())


def test_one_that_is_late_or_fails_says_which_slot_and_why() -> None:
    found = standing(due_ms={1: NOW_MS - 12_000, 2: NOW_MS}, failing={3: (1_000, "PartitionUnavailable: no leader")})
    health = found.health(now_ms=NOW_MS, monotonic_ms=1_000 + FAILING_MS)
    assert (health.is_alive, health.is_ready) == (True, False)
    assert health.problems == (
        "ottla.schedule.s-3 cannot be read or written since 10 s: PartitionUnavailable: no leader",
        "ottla.schedule.s-1 is late: a message was due 12 s ago",
    )
    assert found.oldest_due_s(NOW_MS) == 12


def test_one_whose_thread_does_not_come_back_says_so() -> None:
    assert standing().health(now_ms=NOW_MS, monotonic_ms=1_000 + SILENT_MS - 1).is_ready
    health = standing().health(now_ms=NOW_MS, monotonic_ms=1_000 + SILENT_MS)
    assert health.problems == ("ottla.schedule.s: the scheduler has not looked for 60 s",)
    assert standing().oldest_due_s(NOW_MS) == 0


def test_a_recurring_task_that_is_not_dispatched_is_named_with_the_reason() -> None:
    health = standing(undispatched={"billing/report": "UnknownTopic: billing.report"}).health(
        now_ms=NOW_MS, monotonic_ms=1_000
    )
    assert not health.is_ready
    assert health.problems == ("task billing/report is not dispatched: UnknownTopic: billing.report",)
