"""The metrics of queues, as OpenTelemetry collects them, in both shells."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from apps_in_threads import serving
from metric_values import Collected, collected_metrics
from queue_services import Jobs, eventually

from broker_embedded.cluster import EmbeddedCluster
from ottla import App, Dead, Json
from ottla.telemetry.metrics.metrics_table import METRICS


@pytest.fixture
def metrics() -> Iterator[Collected]:
    with collected_metrics() as collected:
        yield collected


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_leases_are_counted_by_delivery_and_by_outcome(
    cluster: EmbeddedCluster, metrics: Collected, is_async: bool
) -> None:
    jobs = Jobs(cluster.bootstrap_servers, jobs=10, partitions=1)
    app = App(jobs.group, bootstrap_servers=cluster.bootstrap_servers, dead_letter_topic=jobs.dead_letter_topic)
    may_go = threading.Event()

    def handle(value: dict[str, int]) -> Any:
        return Dead("no") if value["n"] == 3 else None

    if is_async:

        @app.queue(jobs.topic, value=Json(dict), concurrency=4, name="job")
        async def on_job_async(value: dict[str, int]) -> Any:
            if value["n"] == 5:
                await asyncio.to_thread(may_go.wait, 60)
            return handle(value)
    else:

        @app.queue(jobs.topic, value=Json(dict), concurrency=4, name="job")
        def on_job(value: dict[str, int]) -> Any:
            assert value["n"] != 5 or may_go.wait(60)
            return handle(value)

    group = {"messaging__consumer__group__name": jobs.group}

    def value(name: str, **labels: Any) -> float:
        return metrics.value(f"ottla.{name}", **group, **labels) or 0

    try:
        with serving(app, is_async=is_async) as ended:
            eventually(lambda: ended or value("queue.jobs", ottla__outcome="accepted") == 8, what="eight jobs")
            eventually(lambda: ended or value("queue.oldest_lease.age") > 0.5, what="a job that lasts")
            eventually(lambda: ended or value("queue.in_flight") == 1, what="the dead letter")
            assert value("handler.batches.in_flight", ottla__handler="job") == 1
            may_go.set()
            eventually(lambda: ended or value("queue.jobs", ottla__outcome="accepted") == 9, what="nine jobs")
            eventually(lambda: ended or metrics.value("ottla.queue.in_flight", **group) == 0, what="no lease")
            assert value("queue.jobs", ottla__outcome="rejected") == 1
            assert value("queue.jobs", ottla__outcome="lost") == 0
            assert value("queue.deliveries", ottla__attempt="1") == 10
            names = {name: labels for name, labels in metrics.names().items() if name.startswith("ottla.queue.")}
            assert len(names) == 4
            assert all(labels <= set(METRICS[name].attributes) for name, labels in names.items())
    finally:
        may_go.set()
    assert metrics.value("ottla.queue.in_flight", **group) is None, "nothing is shown of a member that has ended"
