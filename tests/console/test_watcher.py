"""Facts in the background: how often they are read, and that nobody who looks means nothing read."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise

import pytest

from ottla.admin import ClusterFacts
from ottla.admin.facts.cluster_facts import BrokerInfo, LogDirInfo, PartitionInfo, TopicInfo
from ottla.cli.operations.cluster.show import disk_items
from ottla.console.rhythm import MOST_SHARE, RefreshPart, Rhythm, pause_after
from ottla.console.watcher import Watcher
from ottla.errors import BrokerUnavailable
from ottla.testing import wait_until


def facts(at_ms: int) -> ClusterFacts:
    return ClusterFacts(at_ms=at_ms, cluster_id="c", controller_id=1, parts=(), brokers=(), topics=())


@pytest.mark.parametrize(("took_s", "wanted_s"), [(0.0, 3.0), (0.09, 3.0), (1.5, 48.5), (9.0, 291.0)])
def test_reading_takes_at_most_three_hundredths_of_the_time(took_s: float, wanted_s: float) -> None:
    pause_s = pause_after(took_s, every_s=3.0)
    assert pause_s == pytest.approx(wanted_s)
    assert took_s <= MOST_SHARE * (took_s + pause_s) + 1e-9


def rounds(
    rhythm: Rhythm, *, until_s: float, everything_s: float, outline_s: float, is_incident: bool
) -> list[tuple[RefreshPart, float, float]]:
    """What is read, from when to when."""
    now, found = 0.0, []
    while now < until_s:
        read, due = rhythm.next()
        begins = max(now, due)
        took = everything_s if read is RefreshPart.EVERYTHING else outline_s
        now = begins + took
        rhythm.done(read, took_s=took, now_s=now, is_incident=is_incident)
        found.append((read, begins, now))
    return found


@pytest.mark.parametrize("is_incident", [False, True])
@pytest.mark.parametrize(("everything_s", "outline_s"), [(0.1, 0.01), (2.0, 0.2), (6.0, 0.5), (12.0, 1.0)])
def test_facts_are_at_most_fifteen_seconds_old_however_long_a_read_takes(
    everything_s: float, outline_s: float, is_incident: bool
) -> None:
    rhythm = Rhythm(every_s=3.0)
    found = rounds(rhythm, until_s=600, everything_s=everything_s, outline_s=outline_s, is_incident=is_incident)
    for (_, begins, _), (_, _, ended) in pairwise(found):
        is_during_a_long_read = everything_s > 5
        assert ended - begins <= 15 + (everything_s if is_during_a_long_read else 0)
    everything = [(begins, ended) for read, begins, ended in found if read is RefreshPart.EVERYTHING]
    assert all(b - a <= 80 for (a, _), (b, _) in pairwise(everything))


def test_an_incident_makes_reads_cheaper_and_not_dearer() -> None:
    def cost_s(everything_s: float, is_incident: bool) -> float:
        found = rounds(
            Rhythm(every_s=3.0), until_s=600, everything_s=everything_s, outline_s=0.1, is_incident=is_incident
        )
        return sum(ended - begins for _, begins, ended in found) / everything_s  # in reads of everything

    calm, troubled = cost_s(1.5, is_incident=False), cost_s(4.5, is_incident=True)
    assert troubled <= calm
    small = rounds(Rhythm(every_s=3.0), until_s=60, everything_s=0.05, outline_s=0.01, is_incident=True)
    assert {read for read, _, _ in small} == {RefreshPart.EVERYTHING}


def test_what_is_older_than_fifteen_seconds_is_a_problem_at_once() -> None:
    now_ms = [1_000]
    watcher = Watcher(
        lambda: facts(at_ms=1_000), pytest.fail, every_s=3_600, now_ms=lambda: now_ms[0], monotonic=lambda: 0.0
    )
    try:
        assert watcher.seen().problem is None
        now_ms[0] += 15_000
        assert (watcher.seen().problem, watcher.seen().age_ms) == (None, 15_000)
        now_ms[0] += 1
        assert watcher.seen().problem == "the cluster has not been read again since"
    finally:
        watcher.close()


def test_an_outline_shows_an_incident_with_the_figures_of_before() -> None:
    """Reading everything hangs, as it does when a broker dies; how the cluster stands is read all the same."""
    now_s = [0.0]
    partition = PartitionInfo(partition=0, leader=1, leader_epoch=1, replicas=(1, 2), in_sync=(1, 2))
    figures = replace(partition, log_start=5, high_watermark=9, last_stable_offset=9)
    disk = LogDirInfo(path="/data", total_bytes=10, usable_bytes=5)
    brokers = (BrokerInfo(id=1, host="one", port=9092), BrokerInfo(id=2, host="two", port=9092))

    def topic(name: str, of: PartitionInfo, topic_id: str = "a") -> TopicInfo:
        return TopicInfo(name=name, topic_id=topic_id, is_internal=False, partitions=(of,))

    def read() -> ClusterFacts:
        now_s[0] += 4.0
        both = tuple(replace(each, log_dirs=(disk,)) for each in brokers)
        return replace(facts(1_000), brokers=both, topics=(topic("again", figures), topic("orders", figures)))

    def read_outline() -> ClusterFacts:
        now_s[0] += 0.1
        shrunk = replace(partition, leader=None, in_sync=(), offline=(2,))
        topics = (topic("again", shrunk, topic_id="b"), topic("new", partition), topic("orders", shrunk))
        return replace(facts(9_000), brokers=(brokers[0],), topics=topics)

    watcher = Watcher(read, read_outline, every_s=0.01, now_ms=lambda: 10_000, monotonic=lambda: now_s[0], first_s=60)
    try:
        watcher.seen()
        seen = wait_until(lambda: (each := watcher.seen()).age_ms == 1_000 and each, 60)
        assert seen.figures_age_ms == 9_000
        (orders,) = seen.facts.by_topic["orders"].partitions
        assert (orders.leader, orders.in_sync, orders.records) == (None, (), 4)
        assert seen.facts.brokers == (replace(brokers[0], log_dirs=(disk,)),)
        assert seen.facts.by_topic["new"].partitions[0].records is None
        assert seen.facts.by_topic["again"].partitions[0].records is None, "it is another topic of that name"
    finally:
        watcher.close()


def test_a_stream_takes_its_share_of_a_cpu_at_most_and_is_never_silent_for_long() -> None:
    pauses = [pause_after(cpu_s, every_s=0.5, most_s=5.0) for cpu_s in (0.0, 0.01, 0.1, 60.0)]
    assert pauses == [0.5, 0.5, pytest.approx(0.1 / 0.03 - 0.1), 5.0]


def test_nothing_is_read_while_nobody_looks_and_a_failure_leaves_the_last_facts() -> None:
    now = [0.0]
    reads: list[int] = []
    fails = threading.Event()

    def read() -> ClusterFacts:
        reads.append(len(reads))
        if fails.is_set():
            raise BrokerUnavailable("nobody answers")
        return facts(at_ms=len(reads))

    watcher = Watcher(read, read, every_s=0.001, now_ms=lambda: 5_000, monotonic=lambda: now[0], first_s=60)
    try:
        assert not reads
        assert watcher.seen().facts.at_ms >= 1
        wait_until(lambda: len(reads) > 5, 60)
        fails.set()
        seen = wait_until(lambda: (each := watcher.seen()).problem is not None and each, 60)
        assert (seen.problem, seen.age_ms) == ("nobody answers", 5_000 - seen.facts.at_ms)
        now[0] += 1_000  # nobody has looked for long: a read that is under way is the last
        wait_until(lambda: quiet(reads), 60)
    finally:
        watcher.close()


@pytest.mark.parametrize("every_ms", [1_000, 3_000, 20_000])
def test_a_disk_is_forecast_over_ten_seconds_or_more_however_often_facts_are_read(every_ms: int) -> None:
    """A disk loses a megabyte a second."""
    read = [0]

    def read_next() -> ClusterFacts:
        read[0] += 1
        at_ms = read[0] * every_ms
        disk = LogDirInfo(path="/data", total_bytes=10**9, usable_bytes=10**9 - at_ms * 1_000)
        return replace(facts(at_ms), brokers=(BrokerInfo(id=1, host="one", port=9092, log_dirs=(disk,)),))

    watcher = Watcher(read_next, read_next, every_s=3_600, now_ms=lambda: 0, monotonic=lambda: 0.0, first_s=60)
    try:
        seen = watcher.seen()
        assert seen.long_before is None
        while seen.facts.at_ms < 60_000:
            seen = watcher.seen(fresh=True)
        assert seen.long_before is not None
        assert 10_000 <= seen.facts.at_ms - seen.long_before.at_ms <= 20_000 + every_ms
        (disk,) = disk_items(seen.facts, seen.long_before)
        assert disk["full_in_ms"] == 1_000_000 - seen.facts.at_ms
    finally:
        watcher.close()


def quiet(reads: list[int]) -> bool:
    """Whether nothing is read for fifty times as long as between two reads."""
    before = len(reads)
    threading.Event().wait(0.05)
    return len(reads) == before
