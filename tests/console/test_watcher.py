"""Facts in the background: how often they are read, and that nobody who looks means nothing read."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from ottla.admin import ClusterFacts
from ottla.admin.facts import BrokerFact, LogDirFact
from ottla.cli.operations.cluster.look import disk_items
from ottla.console.watcher import MOST_SHARE, Watcher, pause_after
from ottla.errors import BrokerUnavailable
from ottla.testing import wait_until


def facts(at_ms: int) -> ClusterFacts:
    return ClusterFacts(at_ms=at_ms, cluster_id="c", controller_id=1, parts=(), brokers=(), topics=())


@pytest.mark.parametrize(("took_s", "wanted_s"), [(0.0, 3.0), (0.09, 3.0), (1.5, 48.5), (9.0, 291.0)])
def test_reading_takes_at_most_three_hundredths_of_the_time(took_s: float, wanted_s: float) -> None:
    pause_s = pause_after(took_s, every_s=3.0)
    assert pause_s == pytest.approx(wanted_s)
    assert took_s <= MOST_SHARE * (took_s + pause_s) + 1e-9


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

    watcher = Watcher(read, every_s=0.001, now_ms=lambda: 5_000, monotonic=lambda: now[0], first_s=60)
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
        disk = LogDirFact(path="/data", total_bytes=10**9, usable_bytes=10**9 - at_ms * 1_000)
        return replace(facts(at_ms), brokers=(BrokerFact(id=1, host="one", port=9092, log_dirs=(disk,)),))

    watcher = Watcher(read_next, every_s=3_600, now_ms=lambda: 0, monotonic=lambda: 0.0, first_s=60)
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
