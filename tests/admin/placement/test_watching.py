"""When a plan is due: disks that fill, brokers that are skewed, hours of the day. No cluster, and no clock."""

from __future__ import annotations

import pytest

from ottla.admin.facts.cluster_facts import BrokerInfo, ClusterFacts, LogDirInfo, PartitionInfo, ReplicaInfo, TopicInfo
from ottla.admin.placement.modelling import model_of
from ottla.admin.placement.plan_watch import Hours, Outlook, PlanWatch, WatchLimits, metrics_text, parse_hours
from ottla.errors import InputError

GIB = 1 << 30
HOUR_MS = 3_600_000
EACH = 4


def cluster(at_ms: int, *used: int, total: int = 100 * GIB) -> ClusterFacts:
    """Each broker has one disk of which so many bytes are used, by partitions that no other broker has."""
    brokers, partitions = [], []
    for broker, size in enumerate(used, start=1):
        numbers = range((broker - 1) * EACH, broker * EACH)
        held = tuple(ReplicaInfo(topic="t", partition=at, bytes=size // EACH, offset_lag=0) for at in numbers)
        log_dir = LogDirInfo(path=f"/d{broker}", total_bytes=total, usable_bytes=total - size, replicas=held)
        brokers.append(BrokerInfo(id=broker, host="h", port=1, log_dirs=(log_dir,)))
        partitions += [
            PartitionInfo(partition=at, leader=broker, leader_epoch=0, replicas=(broker,), in_sync=(broker,))
            for at in numbers
        ]
    topic = TopicInfo(name="t", topic_id="i", is_internal=False, partitions=tuple(partitions))
    return ClusterFacts(at_ms=at_ms, cluster_id="c", controller_id=1, parts=(), brokers=tuple(brokers), topics=(topic,))


def looked(watch: PlanWatch, at_ms: int, *used: int) -> Outlook:
    facts = cluster(at_ms, *used)
    return watch.look(facts, model_of(facts))


def test_a_disk_that_will_be_full_in_time_makes_a_plan_due() -> None:
    watch = PlanWatch(WatchLimits(before_s=48 * 3600))
    first = looked(watch, 0, 40 * GIB, 40 * GIB)
    assert first.reasons == ()
    assert [disk.bytes_per_s for disk in first.disks] == [None, None], "one sample tells no rate"
    slow = looked(watch, HOUR_MS // 2, 40 * GIB + GIB // 4, 40 * GIB)
    assert slow.reasons == (), "half a GiB per hour: 45 GiB are left up to 85 %, for more than 48 hours"
    assert slow.disks[0].full_in_s == pytest.approx(44.75 * 2 * 3600)
    assert slow.disks[1].full_in_s is None, "it does not fill"
    fast = looked(watch, HOUR_MS, 42 * GIB, 40 * GIB)
    assert fast.reasons == ("disk /d1 of broker 1 is 85% full in 21.5 h",)


def test_a_disk_that_is_full_already_makes_a_plan_due_at_once() -> None:
    outlook = looked(PlanWatch(WatchLimits(skew=9)), 0, 86 * GIB, 10 * GIB)
    assert outlook.reasons == ("disk /d1 of broker 1 is more than 85% full",)


def test_a_skew_counts_when_it_has_lasted() -> None:
    watch = PlanWatch(WatchLimits(skew=1.3, skewed_for_s=3600))
    assert looked(watch, 0, 30 * GIB, 10 * GIB).reasons == ()
    assert looked(watch, HOUR_MS - 1, 30 * GIB, 10 * GIB).reasons == ()
    (reason,) = looked(watch, HOUR_MS, 30 * GIB, 10 * GIB).reasons
    assert reason == "the fullest broker has 1.50 × the best reachable level"
    assert looked(watch, HOUR_MS + 1, 20 * GIB, 20 * GIB).skewed_for_s == 0
    assert looked(watch, HOUR_MS + 2, 30 * GIB, 10 * GIB).reasons == (), "it begins again"


def test_rates_are_those_of_the_last_hour_and_begin_again_after_moves() -> None:
    watch = PlanWatch(WatchLimits(skew=9))
    looked(watch, 0, 10 * GIB, 10 * GIB)
    for minute in range(1, 500):
        outlook = looked(watch, minute * 60_000, 10 * GIB + minute, 10 * GIB)
    assert outlook.disks[0].bytes_per_s == pytest.approx(1 / 60)
    assert len(watch._samples) <= 240
    watch.forget()
    after = looked(watch, 500 * 60_000, 20 * GIB, 10 * GIB)
    assert after.disks[0].bytes_per_s is None, "what a move copied is not what is written"


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("22-6", [22, 23, 0, 5], [6, 12, 21]), ("9-17", [9, 16], [8, 17]), ("0-24", [0, 23], [])],
)
def test_hours_may_span_midnight(text: str, inside: list[int], outside: list[int]) -> None:
    hours = parse_hours(text)
    assert all(hours.has(hour) for hour in inside)
    assert not any(hours.has(hour) for hour in outside)


@pytest.mark.parametrize("text", ["", "22", "25-3", "3-3", "22-6-1", "1-25", "a-b", "-1-5"])
def test_hours_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="wanted two hours of the day in UTC as 22-6"):
        parse_hours(text)


def test_metrics_have_each_disk_and_quoted_paths() -> None:
    watch = PlanWatch(WatchLimits(skew=9))
    looked(watch, 0, 10 * GIB, 10 * GIB)
    text = metrics_text(looked(watch, 1000, 10 * GIB + 1024, 10 * GIB), is_due=True, is_running=False)
    assert f'ottla_placement_disk_used_bytes{{broker="2",path="/d2"}} {10 * GIB}\n' in text
    assert 'ottla_placement_disk_full_seconds{broker="1",path="/d1"} ' in text
    assert 'ottla_placement_disk_full_seconds{broker="2"' not in text
    assert "\nottla_placement_plan_due 1\n" in text
    assert "\nottla_placement_plan_running 0\n" in text
    assert Hours(begin=1, end=2).has(1)
