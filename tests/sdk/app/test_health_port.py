"""The health port: probes are answered at once, and whoever else connects costs the service nothing."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import App, Json
from ottla.consumer.readiness.health import Health
from ottla.sync.serve.health_http import HealthServer
from ottla.sync.serve.small_http import MOST_CONNECTIONS
from ottla.testing.waiting import wait_until

FINE = Health(is_alive=True, is_ready=True)


@pytest.fixture
def server() -> Iterator[HealthServer]:
    made = HealthServer(lambda: FINE)
    yield made
    made.close()


def ask(server: HealthServer, path: str = "/health/live", timeout_s: float = 10) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=timeout_s) as response:
            return response.status, json.load(response)
    except urllib.request.HTTPError as error:  # type: ignore[attr-defined]
        with error:
            return error.code, json.load(error)


def connect(server: HealthServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def test_half_open_connections_need_no_threads_and_do_not_keep_probes_out(server: HealthServer) -> None:
    before = threading.active_count()
    held = [connect(server) for _ in range(MOST_CONNECTIONS + 40)]
    for each in held:
        each.sendall(b"GET /health/live HTTP/1.1\r\nHost: a")
    assert ask(server)[0] == 200
    assert threading.active_count() <= before + 1
    for each in held:
        each.close()


def test_a_connection_without_a_whole_request_is_closed_in_time(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.sync.serve import small_http

    monkeypatch.setattr(small_http, "LIMIT_S", 0.05)
    with connect(server) as held:
        held.sendall(b"GET /health/live HTTP/1.1\r\n")
        assert held.recv(10) == b""


def test_a_reset_is_no_traceback(server: HealthServer, capsys: pytest.CaptureFixture[str]) -> None:
    for request in (b"", b"GET /health/live", b"GET /health/live HTTP/1.1\r\n\r\n"):
        with connect(server) as gone:
            gone.sendall(request)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert ask(server)[0] == 200
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"POST /health HTTP/1.1\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /" + b"a" * 20_000, 431),
        (b"HEAD /health/ready HTTP/1.0\r\n\r\n", 200),
        (b"GET /health/ready?verbose HTTP/1.1\r\n\r\n", 200),
    ],
)
def test_other_requests_are_refused_with_their_status(server: HealthServer, request_bytes: bytes, status: int) -> None:
    with connect(server) as client:
        client.sendall(request_bytes)
        received = b""
        while came := client.recv(65_536):
            received += came
    assert received.startswith(f"HTTP/1.1 {status} ".encode())
    assert received.endswith(b"\r\n\r\n") == request_bytes.startswith(b"HEAD")


def test_the_root_names_the_paths(server: HealthServer) -> None:
    status, body = ask(server, "/")
    assert status == 404
    assert all(path in body["error"] for path in ("/health", "/health/live", "/health/ready", "/metrics"))


def test_a_measurement_that_takes_long_is_not_waited_for() -> None:
    may_answer = threading.Event()
    may_answer.set()

    def health() -> Health:
        may_answer.wait(30)
        return FINE

    server = HealthServer(health)
    try:
        assert ask(server)[0] == 200
        may_answer.clear()
        began_s = time.monotonic()
        assert [ask(server)[0] for _ in range(5)] == [200] * 5
        assert time.monotonic() - began_s < 1, "the kubelet waits a second for each"
        wait_until(lambda: ask(server, "/health/ready")[0] == 503)
        assert "has not said for" in ask(server, "/health/ready")[1]["problems"][-1]
        assert ask(server)[0] == 200, "a restart does not help"
        may_answer.set()
        wait_until(lambda: ask(server, "/health/ready")[0] == 200)
    finally:
        may_answer.set()
        server.close()


@pytest.mark.parametrize("shell", ["asyncio"], indirect=True)
def test_a_handler_that_blocks_the_loop_is_logged_with_its_record_and_its_place(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Callable[..., None], capsys: Any
) -> None:
    may_go_on = threading.Event()
    is_blocked = threading.Event()
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)

    @app.handler(kafka_topic, value=Json(), name="charge")
    async def handle(value: int) -> None:
        if value == 2:
            is_blocked.set()
            may_go_on.wait(60)  # what an async handler must not do

    kafka.produce(kafka_topic, [1, 2], value=Json(), partition=0)
    server = HealthServer(app.health)
    shell.start(app)
    wait(lambda: is_blocked.is_set(), timeout_s=30)
    said = []
    wait(lambda: said.append(capsys.readouterr().err) or "event_loop_blocked" in "".join(said), timeout_s=30)
    began_s = time.monotonic()
    ask(server)
    assert time.monotonic() - began_s < 1
    may_go_on.set()
    shell.stop(app)
    server.close()

    (line,) = [json.loads(line) for line in "".join(said).splitlines() if "event_loop_blocked" in line]
    assert (line["handler"], line["partition"], line["offset"]) == ("charge", f"{kafka_topic}-0", 1)
    assert "may_go_on.wait(60)" in line["stack"]
