"""`ottla run` with exporters: OTLP into a receiver, exporters that are away or hang, and a scrape of `/metrics`."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ottla import Json
from ottla.errors import ConfigError
from ottla.telemetry.metrics.metrics_table import METRICS
from ottla.telemetry.sdk_setup import Telemetry, is_asked_for

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
pytest.importorskip("opentelemetry.exporter.prometheus")

SERVICE = """
from ottla import App, CommitPolicy, Json

app = App({group!r}, commit=CommitPolicy(every_s=0.1))

@app.handler({topic!r}, value=Json(), name="on_order")
def on_order(value: int) -> None:
    print("handled", value, flush=True)
"""

OF_COLUMNS = """
import pyarrow as pa
from ottla import App, CommitPolicy, Json

app = App({group!r}, commit=CommitPolicy(every_s=0.1))

@app.handler({topic!r}, value=Json(int), name="on_order", columns=True)
def on_order(batch: pa.RecordBatch) -> None:
    for value in batch.column("value").to_pylist():
        print("handled", value, flush=True)
"""


class Receiver:
    """Takes OTLP over HTTP, in protobuf, as a collector does. With `answers=False` it never answers."""

    def __init__(self, *, answers: bool = True) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self.may_answer = threading.Event()
        outer = self
        if answers:
            self.may_answer.set()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    import gzip

                    body = gzip.decompress(body)
                outer.bodies.append((self.path, body))
                outer.may_answer.wait(60)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def spans(self) -> list[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        found = [ExportTraceServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/traces"]
        return [
            span
            for each in found
            for resource in each.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def metrics(self) -> set[str]:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        found = [ExportMetricsServiceRequest.FromString(body) for path, body in self.bodies if path == "/v1/metrics"]
        return {
            metric.name
            for each in found
            for resource in each.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def run_service(tmp_path: Path, kafka: Any, kafka_topic: str, kafka_group: str) -> Iterator[Any]:
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, service: str = SERVICE, **environ: str) -> subprocess.Popen[str]:
        (tmp_path / "billing_service.py").write_text(service.format(group=kafka_group, topic=kafka_topic))
        clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        process = subprocess.Popen(
            [sys.executable, "-c", "from ottla.cli import main; main()", "run", "billing_service:app", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**clean, "OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "PYTHONPATH": "", **environ},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def handled(process: subprocess.Popen[str], count: int) -> None:
    assert process.stdout is not None
    for _ in range(count):
        assert process.stdout.readline().startswith("handled"), process.stderr.read() if process.stderr else ""


def batch_size(span: Any) -> int:
    """How many records the span of a call is for."""
    sizes = [each.value.int_value for each in span.attributes if each.key == "messaging.batch.message_count"]
    return sizes[0] if sizes else 1


@pytest.mark.representative("threads")
@pytest.mark.parametrize(
    ("shell", "service"),
    [((), SERVICE), (("--asyncio",), SERVICE), ((), OF_COLUMNS)],
    ids=["threads", "asyncio", "columns"],
)
def test_what_a_service_does_arrives_at_a_receiver(
    run_service: Any, kafka: Any, kafka_topic: str, wait: Any, shell: tuple[str, ...], service: str
) -> None:
    receiver = Receiver()
    try:
        process = run_service(
            *shell,
            service=service,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
            OTEL_BSP_SCHEDULE_DELAY="100",
            OTEL_METRIC_EXPORT_INTERVAL="100",
        )
        kafka.produce(kafka_topic, range(20), value=Json())
        handled(process, 20)
        wait(lambda: "ottla.consumer.lag.records" in receiver.metrics(), timeout_s=30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        receiver.close()

    assert {span.name for span in receiver.spans()} == {f"process {kafka_topic}"}
    assert sum(map(batch_size, receiver.spans())) == 20
    assert {"ottla.handler.records", "messaging.process.duration"} <= receiver.metrics()


@pytest.mark.representative("hangs")
@pytest.mark.parametrize("answers", [None, False], ids=["away", "hangs"])
def test_an_exporter_that_is_away_or_hangs_does_not_hold_up_a_service(
    run_service: Any, kafka: Any, kafka_topic: str, kafka_group: str, answers: bool | None
) -> None:
    receiver = None
    if answers is None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
    else:
        receiver = Receiver(answers=False)
        url = receiver.url
    try:
        process = run_service(
            "--otel",
            OTEL_EXPORTER_OTLP_ENDPOINT=url,
            OTEL_BSP_SCHEDULE_DELAY="50",
            OTEL_BSP_MAX_QUEUE_SIZE="64",
            OTEL_BSP_MAX_EXPORT_BATCH_SIZE="16",
            OTEL_METRIC_EXPORT_INTERVAL="100",
        )
        kafka.produce(kafka_topic, range(500), value=Json())
        handled(process, 500)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        if receiver is not None:
            receiver.close()

    kafka.produce(kafka_topic, [500], value=Json())
    again = run_service()
    assert again.stdout.readline() == "handled 500\n", "everything before it was committed"


def test_metrics_are_served_beside_health(run_service: Any, kafka: Any, kafka_topic: str, wait: Any) -> None:
    process = run_service("--health-port", "0")
    found = None
    while found is None:
        found = re.search(r"health at (http://[^/]+)/health", process.stderr.readline())
    kafka.produce(kafka_topic, range(10), value=Json())
    handled(process, 10)

    def scrape() -> str:
        with urllib.request.urlopen(f"{found[1]}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain")
            text: str = answer.read().decode()
            return text

    def counted() -> bool:
        line = re.search(r"^ottla_handler_records_total\{.*\} (\S+)$", scrape(), re.MULTILINE)
        return line is not None and float(line[1]) == 10

    wait(counted, timeout_s=30)
    wait(lambda: "ottla_consumer_lag_records{" in scrape(), timeout_s=30)
    names = set(re.findall(r"^# TYPE (ottla_\w+|messaging_\w+) ", scrape(), re.MULTILINE))
    before = [replace(row, name=row.before) for row in METRICS.values() if row.before]
    assert names <= {row.prometheus_name for row in [*METRICS.values(), *before]}
    with urllib.request.urlopen(f"{found[1]}/health/ready", timeout=10) as answer:
        assert answer.status == 200


def test_an_unknown_exporter_is_refused_with_its_variable() -> None:
    with pytest.raises(ConfigError, match=r"OTEL_TRACES_EXPORTER: found 'zipkin', wanted of otlp"):
        Telemetry().set_up(service="s", exports=True, scraped=False, environ={"OTEL_TRACES_EXPORTER": "zipkin"})


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "billing"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, True),
    ],
)
def test_variables_that_name_an_exporter_ask_for_one(environ: dict[str, str], asked: bool) -> None:
    assert is_asked_for(environ) is asked
