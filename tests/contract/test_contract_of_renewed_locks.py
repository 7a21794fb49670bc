"""Jobs that last longer than their lock, while other workers of the member lease records."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from apache_kafka import ApacheKafka, wanted
from apps_in_threads import serving
from queue_services import Jobs, eventually

from broker_embedded.cluster import EmbeddedCluster
from ottla import App, Json

LOCK_S = 3
SHORT_LOCKS = {
    "group.share.record.lock.duration.ms": str(LOCK_S * 1_000),
    "group.share.min.record.lock.duration.ms": str(LOCK_S * 1_000),
}


@pytest.fixture(scope="module")
def bootstrap_servers() -> Iterator[str]:
    """One broker whose locks last a second."""
    version = wanted()
    if version is None:
        with EmbeddedCluster(config=SHORT_LOCKS) as embedded:
            yield embedded.bootstrap_servers
        return
    if version < "4.2":
        pytest.skip(f"Apache Kafka {version} has no share groups that are ready for use")
    with ApacheKafka(config=SHORT_LOCKS) as real:
        yield real.bootstrap_servers


@pytest.mark.complete
@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
@pytest.mark.representative("threads")
def test_a_long_job_keeps_its_lease_while_workers_are_idle(bootstrap_servers: str, is_async: bool) -> None:
    """Idle workers have a fetch wait at the broker; the renewal must not go with the next one."""
    jobs = Jobs(bootstrap_servers, jobs=1, partitions=1)
    app = App(jobs.group, bootstrap_servers=jobs.servers, dead_letter_topic=jobs.dead_letter_topic)
    begun: Counter[int] = Counter()
    goes_on = threading.Event()

    if is_async:

        @app.queue(jobs.topic, value=Json(dict), concurrency=3)
        async def on_job_async(value: dict[str, int]) -> None:
            begun[value["n"]] += 1
            if value["n"] == 0:
                await asyncio.to_thread(goes_on.wait, 60)
    else:

        @app.queue(jobs.topic, value=Json(dict), concurrency=3)
        def on_job(value: dict[str, int]) -> None:
            begun[value["n"]] += 1
            if value["n"] == 0:
                goes_on.wait(60)

    with serving(app, is_async=is_async) as ended:
        eventually(lambda: ended or begun[0], what="the long job has begun")
        began_s = time.monotonic()
        while time.monotonic() < began_s + 2.5 * LOCK_S:  # short ones come and go meanwhile
            jobs.send(1)
            eventually(lambda: ended or begun[jobs.sent - 1], what="a short job is done")
        goes_on.set()
        assert not ended
    assert max(begun.values()) == 1, f"delivered again: {begun}"
