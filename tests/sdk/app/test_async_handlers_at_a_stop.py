"""What is still under way on the loop of async handlers when a service ends is cancelled, cleans up, and comes again.

In both shells: threads have a loop for async handlers of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla import App, CommitPolicy


@pytest.mark.representative("threads-True")
@pytest.mark.parametrize("returns_what_it_sent", [False, True])
def test_a_handler_that_outlives_the_drain_cleans_up_and_its_record_comes_again(
    returns_what_it_sent: bool,
    shell: Any,
    kafka: Any,
    kafka_topic: str,
    kafka_group: str,
    committed: Any,
    wait: Any,
    capfd: Any,
) -> None:
    begun: list[int] = []
    ended: list[int] = []

    def service(is_stuck: bool) -> App:
        app = App(
            kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=CommitPolicy(every_s=0.05), drain_s=0.1
        )

        async def work(offset: int) -> None:
            begun.append(offset)
            try:
                if is_stuck and offset == 1:
                    await asyncio.Event().wait()
            finally:
                ended.append(offset)

        @app.handler(kafka_topic)
        async def handle(record: Any) -> Any:
            if returns_what_it_sent:
                return work(record.offset)
            return await work(record.offset)

        return app

    kafka.produce(kafka_topic, [b"a", b"b"])
    first = shell.start(service(is_stuck=True))
    wait(lambda: begun == [0, 1] and ended == [0])
    shell.stop(first)

    assert ended == [0, 1]
    assert committed(kafka_group, kafka_topic) <= 1
    second = shell.start(service(is_stuck=False))
    wait(lambda: committed(kafka_group, kafka_topic) == 2, timeout_s=60)
    shell.stop(second)
    assert begun[-1] == 1
    assert "was destroyed" not in capfd.readouterr().err


STUBBORN = """
import asyncio
from ottla import App

app = App({group!r}, drain_s=0.1)

@app.handler({topic!r})
async def stubborn(record):
    print("handling", record.offset, flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except {suppressed}:
            {then}

{serve}
"""
SERVE = {"threads": "app.run()", "asyncio": "asyncio.run(app.serve())"}


@pytest.mark.complete
@pytest.mark.parametrize("name", SERVE)
def test_a_handler_that_suppresses_every_cancellation_is_left_running(
    name: str, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, tmp_path: Path
) -> None:
    code, said = _sigterm(
        STUBBORN.format(
            group=kafka_group, topic=kafka_topic, suppressed="BaseException", then="pass", serve=SERVE[name]
        ),
        kafka,
        kafka_topic,
        tmp_path,
    )

    assert code == 0
    lines = [json.loads(line) for line in said.splitlines() if "handler_left_running" in line]
    wanted = {"group": kafka_group, "handler": "stubborn", "partition": f"{kafka_topic}-0", "offset": 0}
    assert [{name: line[name] for name in wanted} for line in lines] == [wanted]
    assert "was destroyed" not in said
    assert committed(kafka_group, kafka_topic) < 1


def test_a_handler_that_returns_in_place_of_its_cancellation_ends_its_task(
    kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, tmp_path: Path
) -> None:
    handler = {"suppressed": "asyncio.CancelledError", "then": "return", "serve": SERVE["asyncio"]}
    code, said = _sigterm(
        STUBBORN.format(group=kafka_group, topic=kafka_topic, **handler), kafka, kafka_topic, tmp_path
    )

    assert code == 0
    assert "handler_left_running" not in said
    assert committed(kafka_group, kafka_topic) < 1


def _sigterm(program: str, kafka: Any, topic: str, folder: Path) -> tuple[int, str]:
    """Return the exit code and stderr of a service that gets SIGTERM while it handles the first record."""
    path = folder / "service.py"
    path.write_text(program)
    kafka.produce(topic, [b"a", b"b"])
    with subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "handling 0\n"
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=60)[1]
            return process.returncode, said
        finally:
            process.kill()


def test_a_task_that_a_hook_left_on_the_loop_is_cancelled_at_the_end(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any
) -> None:
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)
    seen: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def watch() -> None:
        try:
            seen.append("begun")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @app.on_start
    async def begin() -> None:
        tasks.append(asyncio.create_task(watch()))

    @app.handler(kafka_topic)
    async def handle(value: bytes) -> None: ...

    shell.start(app)
    wait(lambda: seen == ["begun"])
    shell.stop(app)
    assert seen == ["begun", "cancelled"]
