"""Health is asked for by threads that are not the app's: a probe's, a metrics exporter's. In both shells."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from typing import Any

import pytest

from ottla import App, Json, RetryPolicy
from ottla.aio.consume.group_member import GroupMember
from ottla.sync.serve.health_http import HealthServer

SHELLS = ["threads", "asyncio", "columns"]


def _answer(server: HealthServer, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_a_partition_that_stopped_is_not_ready_over_http(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any
) -> None:
    kafka.produce(kafka_topic, [1, 2], value=Json())
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)

    @app.handler(kafka_topic, value=Json(), retry=RetryPolicy(max_attempts=1))
    def handle(value: int) -> None:
        raise ValueError("no")

    server = HealthServer(app.health)
    try:
        assert _answer(server, "/health/live")[0] == 503, "it does not run yet"
        shell.start(app)
        wait(lambda: _answer(server, "/health/ready")[1].get("partitions"), timeout_s=60)
        wait(lambda: _answer(server, "/health/ready")[0] == 503, timeout_s=60)
        status, body = _answer(server, "/health")
        assert (status, body["ready"], body["alive"]) == (503, False, True)
        assert any("stopped at offset 0" in problem for problem in body["problems"])
        assert _answer(server, "/health/live")[0] == 200
        shell.stop(app)
        assert _answer(server, "/health/live")[0] == 503
    finally:
        server.close()


@pytest.mark.parametrize("shell", ["asyncio"], indirect=True)
def test_it_is_looked_up_on_the_loop_which_changes_what_it_is_made_of(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[str] = set()
    original = GroupMember.health

    def health(self: GroupMember) -> Any:
        threads.add(threading.current_thread().name)
        return original(self)

    monkeypatch.setattr(GroupMember, "health", health)
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)
    app.handler(kafka_topic, value=Json())(lambda value: None)
    shell.start(app)
    wait(lambda: getattr(app._runner, "_loop", None) is not None, timeout_s=60)
    wait(lambda: app.health().partitions, timeout_s=60)

    assert threads == {f"app-{app.group}"}


@pytest.mark.parametrize("shell", ["asyncio"], indirect=True)
def test_a_loop_that_something_blocks_is_not_ready(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.aio.serve import runner

    is_blocked, may_go_on = threading.Event(), threading.Event()
    kafka.produce(kafka_topic, [1], value=Json())
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)

    @app.handler(kafka_topic, value=Json())
    async def handle(value: int) -> None:
        is_blocked.set()
        may_go_on.wait(60)  # what an async handler must not do

    shell.start(app)
    assert is_blocked.wait(60)
    with monkeypatch.context() as patched:
        patched.setattr(runner, "BLOCKED_AFTER_S", 0.05)
        health = app.health()
    may_go_on.set()

    assert not health.is_ready
    assert "the event loop has not answered for" in health.problems[0]
    assert health.blocked_ms >= 50
    wait(lambda: app.health().is_ready, timeout_s=60)
