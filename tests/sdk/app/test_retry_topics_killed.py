"""SIGKILL to a service whose records wait in retry topics, in all shells, several times."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from killed_services import KilledService

from ottla import Json

pytestmark = pytest.mark.complete

SHELLS = ["threads", "asyncio", "columns"]

SERVICE = """
import asyncio, os, sys
from ottla import App, CommitPolicy, Context, Json, Record, RetryTopics

shell, servers, group, topic, journal = sys.argv[1:]
out = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
app = App(
    group, bootstrap_servers=servers, commit=CommitPolicy(every_s=0.1),
    settings={"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
)

@app.handler(
    topic, value=Json(), key=str, ordering="key", concurrency=3, retry_topics=RetryTopics(delays_s=(0.1, 0.2))
)
def handle(record: Record[int], key: str, context: Context) -> None:
    if context.attempt <= record.value % 3:
        raise RuntimeError("flaky")
    os.write(out, f"{key} {record.value}\\n".encode())

if shell == "threads":
    app.run()
elif shell == "columns":
    from ottla.columnar.serving.group_member import ColumnGroupMember
    from ottla.sync.serve.runner import AppRunner

    class Runner(AppRunner):
        def _member_of(self, routes):
            return ColumnGroupMember

    Runner(app).run(handle_signals=True)
else:
    asyncio.run(app.serve(handle_signals=True))
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_kill_loses_nothing_that_waits_in_a_retry_topic_and_keeps_every_keys_order(
    shell: Any, kafka: Any, kafka_group: str, make_topic: Any, tmp_path: Path, wait: Any
) -> None:
    topic = make_topic("orders", partitions=2)
    sent: dict[str, list[int]] = defaultdict(list)
    for partition in (0, 1):
        keys = [f"{partition}-{number % 4}" for number in range(80)]
        kafka.produce(topic, range(80), value=Json(), keys=keys, key=str, partition=partition)
        for number, key in enumerate(keys):
            sent[key].append(number)
    place = {"bootstrap_servers": kafka.bootstrap_servers, "group": kafka_group, "folder": tmp_path}
    with KilledService(SERVICE, shell.name, kafka.bootstrap_servers, kafka_group, topic, **place) as service:

        def handled() -> list[tuple[str, int]]:
            lines = [line.split() for line in service.lines()]
            return [(key, int(number)) for key, number in lines]

        for enough in (20, 60):
            wait(lambda least=enough: len(handled()) >= least, timeout_s=60)
            service.kill()
            service.start()
        wait(lambda: len(set(handled())) == 160, timeout_s=90)

    firsts: dict[str, list[int]] = defaultdict(list)
    for key, number in dict.fromkeys(handled()):
        firsts[key].append(number)
    assert firsts == sent, "each key's records were handled for the first time in their order"
