"""At most once through the real clients, in both shells: nothing twice, also when the process is killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from killed_services import KilledService

from ottla import App, AtMostOnce, Json

SHELLS = ["threads", "asyncio", "columns"]

SERVICE = """
import asyncio, os, sys, time
from ottla import App, AtMostOnce, Json

shell, servers, group, topic, journal = sys.argv[1:]
out = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
app = App(
    group, bootstrap_servers=servers, commit=AtMostOnce(),
    settings={"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
)

@app.handler(topic, value=Json(), max_records_per_turn=16)
def handle(value: int) -> None:
    os.write(out, f"{value}\\n".encode())
    time.sleep(0.002)

if shell == "threads":
    app.run()
else:
    asyncio.run(app.serve(handle_signals=True))
"""


def test_what_is_being_handled_is_committed_already(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    kafka.produce(kafka_topic, range(10), value=Json())
    seen: list[int] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=AtMostOnce())

    @app.handler(kafka_topic, value=Json())
    def handle(value: int) -> None:
        seen.append(committed(kafka_group, kafka_topic))
        if value == 3:
            raise RuntimeError("dropped")

    shell.start(app)
    wait(lambda: len(seen) == 10, timeout_s=30)

    assert all(offset > number for number, offset in enumerate(seen))
    assert app.health().is_ready


def test_a_graceful_stop_loses_nothing(shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any) -> None:
    kafka.produce(kafka_topic, range(2_000), value=Json())
    handled: list[int] = []

    def make() -> App:
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=AtMostOnce())
        app.handler(kafka_topic, value=Json(), max_records_per_turn=16)(lambda value: handled.append(value))
        return app

    first = shell.start(make())
    wait(lambda: len(handled) >= 100, timeout_s=30)
    shell.stop(first)
    shell.start(make())
    wait(lambda: len(handled) >= 2_000, timeout_s=60)

    assert handled == list(range(2_000))


@pytest.mark.representative("asyncio")
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_kill_repeats_nothing_and_loses_no_more_than_one_run(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, tmp_path: Path, wait: Any
) -> None:
    kafka.produce(kafka_topic, range(600), value=Json())
    place = {"bootstrap_servers": kafka.bootstrap_servers, "group": kafka_group, "folder": tmp_path}
    arguments = (shell.name, kafka.bootstrap_servers, kafka_group, kafka_topic)
    with KilledService(SERVICE, *arguments, **place) as service:

        def handled() -> list[int]:
            return [int(line) for line in service.lines()]

        for enough in (50, 200):
            wait(lambda least=enough: len(handled()) >= least, timeout_s=60)
            service.kill()
            service.start()
        kafka.produce(kafka_topic, [600], value=Json())  # nobody is killed any more: this one is not lost
        wait(lambda: 600 in handled(), timeout_s=90)

    assert [number for number, times in Counter(handled()).items() if times > 1] == []
    assert len(set(range(600)) - set(handled())) <= 2 * 16
