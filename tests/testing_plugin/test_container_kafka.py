"""`--kafka=container`: the real testcontainers with an engine that answers over HTTP, and a run where there is one.

The engine is replaced at the outermost call, its HTTP API: what is asked of it is what Docker would be asked.
"""

from __future__ import annotations

import importlib.util
import io
import json
import re
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla.errors import BrokerUnavailable
from ottla.testing import kafka as kafka_module
from ottla.testing.kafka import running_kafka

CONTAINER_ID = "c0ffee" * 10 + "cafe"


class Engine:
    """A container engine whose one container is a broker that listens already."""

    def __init__(self, port: int) -> None:
        self.port = port
        """Where the container's port is published."""
        self.asked: list[tuple[str, str]] = []
        self.created: dict[str, Any] = {}
        self.script = ""
        self.has_image = True
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Status and what is answered; bytes as they are, all else as JSON."""
        path = re.sub(r"^/v[0-9.]+", "", path).partition("?")[0]
        self.asked.append((method, path))
        match method, path:
            case "GET", "/version":
                return 200, {"ApiVersion": "1.45", "Version": "27.0"}
            case "POST", "/containers/create":
                if not self.has_image:
                    return 500, {"message": "no room on the disk for the image"}
                self.created = json.loads(body)
                return 201, {"Id": CONTAINER_ID, "Warnings": []}
            case "PUT", p if p.endswith("/archive"):
                with tarfile.open(fileobj=io.BytesIO(body)) as archive:
                    (name,) = archive.getnames()
                    content = archive.extractfile(name)
                    assert content is not None
                    self.script = content.read().decode()
                return 200, b""
            case "GET", "/containers/json":
                network = {"bridge": {"IPAddress": "127.0.0.1", "Gateway": "127.0.0.1"}}
                ports = [{"PrivatePort": 9093, "PublicPort": self.port, "Type": "tcp"}]
                summary = {"Id": CONTAINER_ID, "HostConfig": {"NetworkMode": "default"}, "Ports": ports}
                return 200, [{**summary, "NetworkSettings": {"Networks": network}}]
            case "GET", "/networks" | "/images/json":
                return 200, []
            case "GET", p if p.endswith("/logs"):
                line = b"[2026-01-01 00:00:00,000] INFO Kafka Server started (kafka.server.KafkaRaftServer)\n"
                return 200, b"\x01\x00\x00\x00" + len(line).to_bytes(4, "big") + line
            case "GET", p if p.endswith("/json"):
                published = {"9093/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(self.port)}]}
                state = {"Status": "running", "Running": True}
                config = {"Tty": False, "Image": kafka_module.CONTAINER_IMAGE}
                return 200, {
                    "Id": CONTAINER_ID,
                    "Name": "/kafka",
                    "State": state,
                    "Config": config,
                    "NetworkSettings": {"Ports": published, "Networks": {}},
                    "HostConfig": {"LogConfig": {"Type": "json-file"}},
                }
        return 204, b""


def _handler_of(engine: Engine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self._body()
            status, found = engine.answer(self.command, self.path, body)
            content = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(status)
            if status != 204:
                kind = "application/octet-stream" if isinstance(found, bytes) else "application/json"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(b"" if status == 204 else content)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") == "chunked":
                content = b""
                while size := int(self.rfile.readline(), 16):
                    content += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return content
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))

        def log_message(self, *_: object) -> None: ...

    return Handler


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    pytest.importorskip("testcontainers", reason="needs testcontainers (ottla[containers])")
    from testcontainers.core.config import testcontainers_config

    with EmbeddedCluster() as cluster:
        running = Engine(int(cluster.bootstrap_servers.rpartition(":")[2]))
        monkeypatch.setenv("DOCKER_HOST", running.address)
        monkeypatch.delenv("DOCKER_TLS_VERIFY", raising=False)
        # Its reaper is a container too, with a connection of its own: the library's code alone.
        monkeypatch.setattr(testcontainers_config, "ryuk_disabled", True)
        yield running
        running.close()


def test_a_container_is_asked_for_with_settings_that_suit_tests_and_takes_and_gives_records(engine: Engine) -> None:
    with running_kafka("container", config={"auto.create.topics.enable": False}) as kafka:
        assert (kafka.kind, kafka.cluster) == ("container", None)
        topic = kafka.create_topic(kafka.fresh_name("container"))
        kafka.produce(topic, ["a", "b"])
        assert [record.raw_value for record in kafka.consume_all(topic, at_least=2, timeout_s=30)] == [b"a", b"b"]
        assert ("POST", f"/containers/{CONTAINER_ID}/start") in engine.asked
        assert not any(method == "DELETE" for method, _ in engine.asked)
    assert engine.asked[-1] == ("DELETE", f"/containers/{CONTAINER_ID}")
    assert engine.created["Image"] == kafka_module.CONTAINER_IMAGE
    given = dict(pair.split("=", 1) for pair in engine.created["Env"])
    assert given["KAFKA_PROCESS_ROLES"] == "broker,controller"
    assert given["KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS"] == "0"
    assert given["KAFKA_AUTO_CREATE_TOPICS_ENABLE"].lower() == "false"
    assert f"PLAINTEXT://127.0.0.1:{engine.port}" in engine.script


def test_an_engine_that_refuses_is_named_and_what_needs_none(engine: Engine) -> None:
    engine.has_image = False
    with (
        pytest.raises(BrokerUnavailable, match=r"no room on the disk.*Does a container engine run here"),
        running_kafka("container"),
    ):
        raise AssertionError("it never starts")


def test_without_an_engine_the_error_says_so_and_what_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("testcontainers", reason="needs testcontainers (ottla[containers])")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with (
        pytest.raises(BrokerUnavailable, match=r"Does a container engine run here.*--kafka=embedded needs none"),
        running_kafka("container"),
    ):
        raise AssertionError("it never starts")


def has_container_engine() -> bool:
    if importlib.util.find_spec("testcontainers") is None or shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, timeout=20, check=False).returncode == 0


@pytest.mark.container
@pytest.mark.slow
def test_a_real_container_takes_and_gives_records() -> None:
    if not has_container_engine():
        pytest.skip("no container engine, or testcontainers is not installed")
    with running_kafka("container") as kafka:
        topic = kafka.create_topic(kafka.fresh_name("container"))
        kafka.produce(topic, ["a", "b"])
        assert [record.raw_value for record in kafka.consume_all(topic, at_least=2, timeout_s=30)] == [b"a", b"b"]
