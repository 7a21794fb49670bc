"""Who hears of what happens, where several threads begin to listen at once, and after the end of a member."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest
from metric_values import Collected, collected_metrics

from ottla import TopicPartition
from ottla.telemetry.metrics.instruments import Metrics
from ottla.telemetry.metrics.listeners import Listeners, active_metrics
from ottla.telemetry.metrics.measurements import BrokerMeasure, MemberMeasure, PartitionMeasure
from ottla.telemetry.metrics.member_metrics import MEASURE_EVERY_MS, MemberMetrics

THREADS = 4
BROKER = BrokerMeasure(
    broker="1",
    is_up=True,
    rtt_s=0.001,
    requests_waiting=0,
    requests_in_flight=1,
    connects=1,
    timeouts=0,
    throttle_s=0.0,
)
ROUNDS = 10


@pytest.fixture
def metrics() -> Iterator[Collected]:
    with collected_metrics() as made:
        yield made


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def measured() -> MemberMeasure:
    one = PartitionMeasure(
        topic_partition=TopicPartition("orders", 0),
        handler="handle",
        lag_records=3,
        lag_s=1.0,
        oldest_unfinished_s=0.0,
        buffered_records=0,
        buffered_bytes=0,
    )
    return MemberMeasure(partitions=(one,), runs_in_flight={"handle": 0})


@pytest.mark.usefixtures("frequent_switches")
def test_threads_that_find_a_new_provider_at_once_count_into_one_set_of_instruments() -> None:
    for _ in range(ROUNDS):
        with collected_metrics() as metrics:
            everybody = threading.Barrier(THREADS)

            def count(everybody: threading.Barrier = everybody) -> None:
                everybody.wait(60)
                Listeners(None).event(group="begins-at-once", event="happened")

            threads = [threading.Thread(target=count) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            counted = metrics.value("ottla.consumer.events", messaging__consumer__group__name="begins-at-once")
            assert counted == THREADS


def test_a_member_that_ended_is_not_measured_by_a_loop_that_still_runs(metrics: Collected) -> None:
    watch = MemberMetrics(None, group="ended", client="ended", now_ms=0)

    def tick(now_ms: int) -> float | None:
        if watch.is_due(now_ms):
            watch.measured(measured())
        return metrics.value("ottla.consumer.lag.records", messaging__consumer__group__name="ended")

    assert tick(0) == 3
    watch.hooks.brokers_measured(client="ended", brokers=[BROKER])
    assert metrics.value("ottla.client.broker.up", messaging__client__id="ended") == 1
    watch.ended()
    assert metrics.value("ottla.client.broker.up", messaging__client__id="ended") is None
    assert tick(MEASURE_EVERY_MS) is None
    assert metrics.value("ottla.handler.batches.in_flight", messaging__consumer__group__name="ended") is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_while_another_thread_counts_does_not_stop_the_child(metrics: Collected) -> None:
    found = active_metrics()
    assert isinstance(found, Metrics)
    found.measured(group="forks", member="1", measure=measured())
    with found._lock:  # as a thread that is not there in the child
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # ends one that waits for ever
            found.event(group="forks", event="happened")
            os._exit(bool(found._members))
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert metrics.value("ottla.consumer.lag.records", messaging__consumer__group__name="forks") == 3
