"""Every file in `examples/` does what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Kafka, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_pytest(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=100, check=False)


def test_the_service_has_fifteen_lines() -> None:
    text = (EXAMPLES / "service.py").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= 15


@pytest.mark.complete
@pytest.mark.slow
def test_the_services_own_tests_pass() -> None:
    ran = run_pytest("test_service.py", "--rootdir=.", "-o", "addopts=", cwd=EXAMPLES)
    assert "3 passed" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.representative("external")
@pytest.mark.slow
@pytest.mark.parametrize("where", ["embedded", "external"])
def test_the_tested_service_passes_on_the_embedded_broker_and_on_one_that_runs_elsewhere(
    kafka: Kafka, where: str
) -> None:
    choice = "embedded" if where == "embedded" else kafka.bootstrap_servers
    ran = run_pytest(f"--kafka={choice}", cwd=EXAMPLES / "tested_service")
    assert re.search(r"\b10 passed", ran.stdout), ran.stdout + ran.stderr
    assert "failed" not in ran.stdout


@pytest.fixture
def service(clean_kafka: Kafka) -> Iterator[subprocess.Popen[str]]:
    for topic in ("orders", "orders.dead-letters"):
        clean_kafka.create_topic(topic)
    command = [sys.executable, "-m", "ottla", "run", "service:app"]
    environment = {**os.environ, "OTTLA_BOOTSTRAP_SERVERS": clean_kafka.bootstrap_servers}
    started = subprocess.Popen(command, cwd=EXAMPLES, env=environment, stdout=subprocess.PIPE, text=True)
    yield started
    if started.poll() is None:
        started.kill()
    started.communicate()


@pytest.mark.slow
def test_the_service_runs_from_the_command_line_and_ends_cleanly_on_sigterm(
    clean_kafka: Kafka, service: subprocess.Popen[str]
) -> None:
    clean_kafka.produce("orders", [{"id": 1, "total": 9.5}, {"id": "two"}])
    (dead,) = wait_until(lambda: _dead_letters(clean_kafka), 30, what="the dead letter")
    service.send_signal(signal.SIGTERM)
    output, _ = service.communicate(timeout=30)
    assert service.returncode == 0
    assert [line for line in output.splitlines() if line.startswith("order ")] == ["order 1: 9.50"]
    assert (dead.value, dead.header_text("ottla-dlq-kind")) == ('{"id":"two"}', "invalid")


def _dead_letters(kafka: Kafka) -> list:
    return kafka.consume_all("orders.dead-letters", value=str)


def test_the_registry_example_shows_the_wire_and_both_versions() -> None:
    ran = subprocess.run(
        [sys.executable, "registry.py"], cwd=EXAMPLES, capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.splitlines()[0].startswith("on the wire: 00 00 00 00 01 ")
    assert "OrderWithCurrency(id=1, total=9.5, currency='EUR')" in ran.stdout
    assert "has no schema 99" in ran.stdout
