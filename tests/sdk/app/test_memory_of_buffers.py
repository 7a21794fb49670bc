"""`FlowLimits` bounds memory: keys, headers and the objects around a record count with its value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from ottla import App, FlowLimits, Producer

SHELLS = ["threads", "asyncio", "columns"]

HEADER_SIZE = 10_000
CLIENT_KIB = 1_024
"""What the client may have fetched in addition, in each shell."""
LIBRDKAFKA = {
    "queued.max.messages.kbytes": CLIENT_KIB,
    "queued.min.messages": 50,  # it counts no headers: this bounds them
    "max.partition.fetch.bytes": CLIENT_KIB * 1_024 // 4,
}
SETTINGS = {"asyncio": {"fetch.max.bytes": CLIENT_KIB * 1_024}, "columns": {}}
"""Of each shell but those over librdkafka. Handlers of columns ask for no more than there is room for."""


def write(kafka: Any, topic: str, records: int, *, key: bytes, header: bytes) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        producer.send_many(topic, ((b"v", b"%d" % number + key, [("trace", header)]) for number in range(records)))


@pytest.mark.representative("asyncio-10000-1")
@pytest.mark.parametrize(("key_size", "header_size"), [(1, HEADER_SIZE), (HEADER_SIZE, 1)])
def test_large_keys_and_headers_fill_the_room(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, wait: Any, key_size: int, header_size: int
) -> None:
    topic = make_topic("orders", partitions=2)
    count = 3_000  # 30 MB
    write(kafka, topic, count, key=b"k" * key_size, header=b"h" * header_size)
    limit = 4 * 2**20
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        settings=SETTINGS.get(shell.name, LIBRDKAFKA),
        flow=FlowLimits(total_bytes=limit),
    )
    began, may_go_on = threading.Event(), threading.Event()
    handled = 0

    @app.handler(topic)
    def handle(value: bytes) -> None:
        nonlocal handled
        began.set()
        may_go_on.wait(60)
        handled += 1

    shell.start(app)
    wait(began.is_set)
    flow = app.runner.members[kafka_group]._session._flow
    wait(lambda: flow.buffered[1] >= limit / 3)  # handlers of columns ask for less than there is room for
    records, size_bytes = flow.buffered
    assert size_bytes >= records * HEADER_SIZE
    may_go_on.set()
    wait(lambda: handled == count)
    wait(lambda: flow.buffered == (0, 0))
    shell.stop(app)


@pytest.mark.complete
@pytest.mark.parametrize("kind", ["threads", "asyncio", "columns", "priorities", "pulled"])
def test_a_slow_service_whose_records_have_large_headers_stays_within_its_limit(
    kafka: Any, make_topic: Any, kind: str
) -> None:
    topics = make_topic("orders", partitions=4), make_topic("warm", partitions=4)
    limit = 48 * 2**20
    for topic, count in zip(topics, (12_000, 1), strict=True):  # 120 MB, and one record
        kafka.create_topic(f"{topic}.urgent", partitions=4)
        write(kafka, topic, count, key=b"", header=os.urandom(HEADER_SIZE))
    service = subprocess.run(
        [sys.executable, "-m", "tests.kit.memory_of_service", kind, kafka.bootstrap_servers, *topics, str(limit)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "SETTINGS": json.dumps(SETTINGS.get(kind, LIBRDKAFKA))},
    )
    before, largest = map(int, service.stdout.split())
    assert largest - before <= 1.3 * (limit + CLIENT_KIB * 1_024)
    assert largest - before >= 0.5 * limit, "it was not full: nothing was measured"
