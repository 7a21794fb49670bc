"""SIGTERM of a program that serves on an event loop: it stops the app where the program waits for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import Json
from ottla.admin import Admin

DECLARED = """
import asyncio, os, signal, sys, threading
from ottla import App, CommitPolicy, Json

app = App({group!r}, drain_s=20, commit=CommitPolicy(every_s=3_600))

@app.handler({topic!r}, value=Json())
async def on_order(value: int) -> None:
    print("handling", value, flush=True)
    if value == 2:
        await asyncio.to_thread(sys.stdin.readline)
    print("handled", value, flush=True)

"""
WAITED_FOR = {
    "serve itself": "asyncio.run(app.serve())",
    "awaited by the main coroutine": """
async def main() -> None:
    beside = asyncio.create_task(asyncio.sleep(3_600))
    await app.serve()
    print("after", flush=True)

asyncio.run(main())
""",
    "a loop of the program's own": """
loop = asyncio.new_event_loop()
loop.run_until_complete(app.serve())
loop.close()
""",
    "SIGINT ignored": "signal.signal(signal.SIGINT, signal.SIG_IGN)\nasyncio.run(app.serve())",
}
BESIDE_OTHERS = """
async def main() -> None:
    await asyncio.gather(app.serve(), asyncio.sleep(3_600))

asyncio.run(main())
"""
OWN_HANDLER = """
async def main() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: (print("own", flush=True), app.stop()))
    await app.serve()

asyncio.run(main())
"""
UVICORN = """
import uvicorn

async def asgi(scope, receive, send):
    assert scope["type"] == "lifespan"
    await receive()
    serving = asyncio.create_task(app.serve())
    await send({{"type": "lifespan.startup.complete"}})
    await receive()
    print("own", flush=True)
    app.stop()
    await serving
    await send({{"type": "lifespan.shutdown.complete"}})

uvicorn.run(asgi, port=0, log_level="critical")
"""
IN_A_THREAD = """
thread = threading.Thread(target=lambda: asyncio.run(app.serve()), daemon=True)
thread.start()
thread.join()
"""

Started = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def started(tmp_path: Path, kafka: Any, kafka_topic: str, kafka_group: str) -> Iterator[Started]:
    processes: list[subprocess.Popen[str]] = []

    def start(program: str) -> subprocess.Popen[str]:
        path = tmp_path / "service.py"
        path.write_text((DECLARED + program).format(group=kafka_group, topic=kafka_topic))
        kafka.produce(kafka_topic, [1, 2, 3], value=Json())
        process = subprocess.Popen(
            [sys.executable, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            },
        )
        processes.append(process)
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == ["handling 1\n", "handled 1\n", "handling 2\n"]
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def members(kafka: Any, group: str) -> int:
    with Admin(kafka.bootstrap_servers) as admin:
        (found,) = admin.describe_groups(group)
        return len(found.members or ())


@pytest.mark.representative("a loop of the program's own")
@pytest.mark.parametrize("program", WAITED_FOR.values(), ids=WAITED_FOR)
def test_sigterm_drains_commits_and_leaves_where_the_program_waits_for_serve(
    started: Started, kafka: Any, committed: Any, kafka_topic: str, kafka_group: str, program: str
) -> None:
    process = started(program)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert any("app_stopping" in line for line in process.stderr), "the handler is waited for"
    out, said = process.communicate("go on\n", timeout=60)

    assert process.returncode == 0, said
    assert "handled 2\n" in out
    assert "app_stopped" in said
    assert ("after\n" in out) == ("after" in program)
    assert committed(kafka_group, kafka_topic) >= 2
    assert members(kafka, kafka_group) == 0


@pytest.mark.complete
def test_ctrl_c_stops_it_as_it_stops_run(started: Started, committed: Any, kafka_topic: str, kafka_group: str) -> None:
    process = started(WAITED_FOR["serve itself"])
    process.send_signal(signal.SIGINT)
    _, said = process.communicate("go on\n", timeout=60)

    assert process.returncode == 0, said
    assert committed(kafka_group, kafka_topic) >= 2


@pytest.mark.representative("of uvicorn")
@pytest.mark.parametrize("program", [OWN_HANDLER, UVICORN], ids=["of the program", "of uvicorn"])
def test_handlers_that_are_there_keep_the_signal(
    started: Started, committed: Any, kafka_topic: str, kafka_group: str, program: str
) -> None:
    process = started(program)
    process.send_signal(signal.SIGTERM)
    out, said = process.communicate("go on\n", timeout=60)

    assert "own\n" in out, said
    assert "app_stopped" in said
    assert '"level": "info", "event": "signals_not_handled"' in said
    assert "the program has handlers of its own for SIGTERM or SIGINT" in said
    assert committed(kafka_group, kafka_topic) >= 2
    assert process.returncode in (0, -signal.SIGTERM)  # uvicorn ends as the signal would have ended it


@pytest.mark.representative("tasks")
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        pytest.param(
            BESIDE_OTHERS, "it is one of several tasks, and not the one that the program waits for", id="tasks"
        ),
        pytest.param(IN_A_THREAD, "its event loop does not run in the main thread", id="a thread"),
    ],
)
def test_a_warning_says_where_no_signal_stops_it(started: Started, program: str, reason: str) -> None:
    process = started(program)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)

    assert process.returncode == -signal.SIGTERM
    assert '"level": "warning", "event": "signals_not_handled"' in said
    assert reason in said


def test_false_leaves_signals_alone_without_a_word(started: Started) -> None:
    process = started("asyncio.run(app.serve(handle_signals=False))")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)

    assert process.returncode == -signal.SIGTERM
    assert "signals_not_handled" not in said


def test_a_handler_that_never_returns_is_left_behind(
    tmp_path: Path, kafka: Any, committed: Any, kafka_topic: str, kafka_group: str
) -> None:
    program = DECLARED.replace("drain_s=20", "drain_s=0.5").replace("async def on_order", "def on_order")
    program = program.replace("await asyncio.to_thread(sys.stdin.readline)", "sys.stdin.readline()")
    path = tmp_path / "service.py"
    path.write_text((program + "asyncio.run(app.serve())").format(group=kafka_group, topic=kafka_topic))
    kafka.produce(kafka_topic, [1, 2, 3], value=Json())
    with subprocess.Popen(
        [sys.executable, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers},
    ) as process:
        try:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(3)] == ["handling 1\n", "handled 1\n", "handling 2\n"]
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
        finally:
            process.kill()

    assert code == 0
    assert committed(kafka_group, kafka_topic) == 1
