"""Ctrl-C while a handler is slow: what is waited for is said, and a second one ends the process at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ottla import Json
from ottla.app.runtime.stop_signals import unfinished
from ottla.consumer.readiness.health import Health, PartitionHealth
from ottla.records import TopicPartition

SERVICE = """
import asyncio, time
from ottla import App, Json

app = App({group!r}, drain_s={drain_s})

@app.handler({topic!r}, value=Json())
{handler}
"""
SYNC = """def on_order(value: int) -> None:
    print("handling", value, flush=True)
    if value == 2:
        while True:
            time.sleep(0.1)
"""
ASYNC = """async def on_order(value: int) -> None:
    print("handling", value, flush=True)
    if value == 2:
        await asyncio.sleep(3_600)
"""
BLOCKING = ASYNC.replace("await asyncio.sleep(3_600)", "time.sleep(3_600)")


@pytest.fixture
def run_service(tmp_path: Path, kafka: Any, kafka_topic: str, kafka_group: str) -> Iterator[Any]:
    started: list[subprocess.Popen[str]] = []

    def run(handler: str, *flags: str, drain_s: float) -> subprocess.Popen[str]:
        text = SERVICE.format(group=kafka_group, topic=kafka_topic, drain_s=drain_s, handler=handler)
        (tmp_path / "slow_service.py").write_text(text)
        kafka.produce(kafka_topic, [1, 2, 3], value=Json())
        process = subprocess.Popen(
            [sys.executable, "-c", "from ottla.cli import main; main()", "run", "slow_service:app", *flags],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "PYTHONPATH": ""},
        )
        started.append(process)
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["handling 1\n", "handling 2\n"]
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], wanted: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if wanted in line:
            return line
    raise AssertionError(f"it ended without saying {wanted!r}")


SHELLS = pytest.mark.parametrize(
    ("handler", "flags"),
    [
        pytest.param(SYNC, (), id="threads"),
        pytest.param(ASYNC, (), id="async handler in threads"),
        pytest.param(SYNC, ("--asyncio",), id="sync handler on asyncio"),
        pytest.param(ASYNC, ("--asyncio",), id="asyncio"),
    ],
)


@pytest.mark.representative("asyncio")
@SHELLS
def test_the_first_signal_says_what_is_waited_for_and_the_second_ends_it(
    run_service: Any, kafka_topic: str, handler: str, flags: tuple[str, ...]
) -> None:
    process = run_service(handler, *flags, drain_s=3_600)
    process.send_signal(signal.SIGINT)
    line = read_until(process, "app_stopping")
    assert f"{kafka_topic}-0 from offset" in line
    assert '"at_most_s": 3600' in line
    assert "a second signal (Ctrl-C) ends it at once" in line

    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGINT
    assert f"ended at once by a second signal; delivered again: {kafka_topic}-0 from offset" in said


def test_a_second_signal_ends_a_service_whose_event_loop_is_blocked(run_service: Any) -> None:
    process = run_service(BLOCKING, "--asyncio", drain_s=3_600)
    process.send_signal(signal.SIGTERM)
    while process.poll() is None:  # one that arrives just before the handler's system call does not interrupt it
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
    _, said = process.communicate(timeout=20)
    assert process.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert "ended at once by a second signal" in said


@pytest.mark.representative("asyncio")
@SHELLS
def test_one_signal_is_enough_where_a_handler_never_returns(
    run_service: Any, committed: Any, kafka_topic: str, kafka_group: str, handler: str, flags: tuple[str, ...]
) -> None:
    process = run_service(handler, *flags, drain_s=0.5)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert '"at_most_s": 0.5' in said
    assert committed(kafka_group, kafka_topic) == 1, "what was done is committed, and the rest comes again"


def test_unfinished_names_each_place_and_how_long() -> None:
    def part(number: int, offset: int | None, age_ms: int) -> PartitionHealth:
        return PartitionHealth(
            topic_partition=TopicPartition("orders", number),
            oldest_unfinished_age_ms=age_ms,
            oldest_unfinished_offset=offset,
            buffered_records=0,
            stopped=None,
        )

    health = Health(is_alive=True, is_ready=True, partitions=(part(0, 42, 12_300), part(1, None, 0), part(2, 7, 10)))
    assert unfinished(health) == ["orders-0 from offset 42, for 12 s", "orders-2 from offset 7"]
