"""The brokers that are measured: ours and its peers, as child processes that end with their `with` block."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

MOCK = """
import sys
from confluent_kafka import Producer
producer = Producer({"test.mock.num.brokers": 1})
(broker,) = producer.list_topics(timeout=10).brokers.values()
print(f"ready bootstrap={broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""

HERE = Path(__file__).resolve().parent
PEERS = ("mock", "kfake", "kafka")
OTTLA = (sys.executable, "-m", "broker_embedded", "--log-level", "error")


@dataclass
class Server:
    """A broker in a child process."""

    name: str
    bootstrap: str
    pid: int | None
    """None: it runs in this process, where its CPU time and memory cannot be told from the client's."""
    begun_at: float = 0.0
    """When its process was started, as `time.perf_counter` says it."""
    figures: dict[str, list[float]] = field(default_factory=dict)

    def cpu_s(self) -> float:
        """CPU time of all threads; schedstat counts nanoseconds, stat only hundredths of a second."""
        if self.pid is None:
            return 0.0
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024

    def note(self, name: str, value: float) -> None:
        if self.pid is None:
            if "CPU" in name:
                return
            name = f"in process: {name}"
        self.figures.setdefault(name, []).append(value)

    def median(self, name: str) -> float:
        return statistics.median(self.figures[name])


@contextlib.contextmanager
def scheduled_first(*pids: int) -> Iterator[bool]:
    """Run the threads of these processes and of this one before all others (SCHED_RR), for a few seconds.

    Yields False where that is not allowed: what is measured then waits for whatever else the machine does.
    """

    def schedule(policy: int, priority: int) -> None:
        for pid in (os.getpid(), *pids):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setscheduler(int(task.name), policy, os.sched_param(priority))

    try:
        schedule(os.SCHED_RR, 1)
    except (OSError, AttributeError):
        yield False
        return
    try:
        yield True
    finally:
        schedule(os.SCHED_OTHER, 0)


@contextlib.contextmanager
def started(name: str, command: list[str], *, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    begun = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=None if environment is None else dict(environment),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        ready_ms = (time.perf_counter() - begun) * 1000
        if not line.startswith("ready bootstrap="):
            raise SystemExit(f"{name} did not start: {line!r}")
        server = Server(name, line.strip().removeprefix("ready bootstrap="), process.pid, begun_at=begun)
        server.note("process start to ready, ms", ready_ms)
        server.note("RSS empty, MB", server.rss_mb())
        yield server
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def mock() -> Iterator[Server]:
    with started("mock", [sys.executable, "-c", MOCK]) as server:
        yield server


@contextlib.contextmanager
def kfake() -> Iterator[Server]:
    """franz-go's fake, built here from its Go module."""
    with tempfile.TemporaryDirectory(prefix="ottla-kfake-") as folder:
        program = f"{folder}/kfake"
        build = ["go", "build", "-o", program, "."]
        done = subprocess.run(build, cwd=HERE / "peers" / "kfake", capture_output=True, text=True)
        if done.returncode != 0:
            raise Missing(f"kfake could not be built: {done.stderr.strip()[-300:]}")
        with started("kfake", [program]) as server:
            yield server


@contextlib.contextmanager
def kafka() -> Iterator[Server]:
    """Apache Kafka, one node, as its packages on the Maven registry are."""
    sys.path.insert(0, str(HERE.parent / "tools"))
    from apache_kafka import ApacheKafka, Unavailable

    begun = time.perf_counter()
    try:
        running = ApacheKafka(config={"log.retention.hours": 168})
    except Unavailable as reason:
        raise Missing(str(reason)) from None
    with running:
        server = Server("kafka", running.bootstrap_servers, running.pids()[0])
        server.note("process start to ready, ms", (time.perf_counter() - begun) * 1000)
        server.note("RSS empty, MB", server.rss_mb())
        yield server


class Missing(Exception):
    """A peer cannot be had on this machine."""


def peers(wanted: list[str], stack: contextlib.ExitStack) -> list[Server]:
    """Those of `wanted` that can be had; the others are named with the reason."""
    found = []
    for name in wanted:
        if name == "kfake" and shutil.which("go") is None:
            print("kfake is left out: Go is not installed")
            continue
        try:
            found.append(stack.enter_context({"mock": mock, "kfake": kfake, "kafka": kafka}[name]()))
        except Missing as reason:
            print(f"{name} is left out: {reason}")
    return found
