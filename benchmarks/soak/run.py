"""One soak: starts everything, disturbs it by the plan, samples it, stops it in order, reads it back, and judges."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from broker_links import Link, Proxies
from torture_kit.plan import Kind

from ottla import columnar
from ottla.cli.demo.children import Child, ChildFailed
from ottla.cli.demo.data import read_flights
from ottla.cli.demo.display import DemoStage
from ottla.cli.demo.failure import LeaderFailure
from ottla.cli.demo.model import (
    DEAD_LETTER_TOPIC,
    EVENT_ID_HEADER,
    FLIGHTS_PARTITIONS,
    FLIGHTS_TOPIC,
    HANDLED_TOPIC,
)
from ottla.cli.demo.read_back import handler_lag, topic_size
from ottla.errors import OttlaError
from ottla.failures.foreign import describe_dead_letter
from ottla.records import Header, last_header
from ottla.testing.topics import create_topic
from soak.flatness import Growth, descriptor_growth, memory_growth
from soak.oracle import Account, Found, settle
from soak.plan import BROKER, FEEDER, ROLLING, STEADY, Fault, draw

TICK_S = 0.1
READY_S = 60.0
STUCK_S = 120.0
"""Nothing was committed for so long: longer than a session, a start and an election together on a loaded machine."""

LEAST_AGE_S = 10.0
"""A member that has only just started is not killed: a service that is killed at every start does no work."""

TOPICS = {FLIGHTS_TOPIC: FLIGHTS_PARTITIONS, HANDLED_TOPIC: FLIGHTS_PARTITIONS, DEAD_LETTER_TOPIC: 1}

BROKER_SETTINGS = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
}
MEMBER_SETTINGS = {
    # Shorter than the longest stall, so that a member is thrown out now and then.
    "OTTLA_CONSUMER_SESSION_TIMEOUT_MS": "3000",
    "OTTLA_CONSUMER_HEARTBEAT_INTERVAL_MS": "500",
}


@dataclass(slots=True, kw_only=True)
class Options:
    """What somebody asked for."""

    seconds: float
    seed: int
    rate: float
    flights: int
    every_s: float
    fault_every_s: float
    directory: Path


@dataclass(slots=True, kw_only=True)
class Verdict:
    """Result of the soak run."""

    growths: list[Growth] = field(default_factory=list)
    account: Account | None = None
    problems: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    samples: int = 0

    @property
    def is_kept(self) -> bool:
        is_settled = self.account is not None and not self.account.violations
        return is_settled and not self.problems and all(growth.is_flat for growth in self.growths)


class Broken(Exception):
    """The soak cannot go on; the message says why."""


def run(options: Options) -> Verdict:
    """Run it, and end every process that it started whatever happens."""
    verdict = Verdict()
    with ExitStack() as stack:
        soak = _Soak(options, verdict, stack)
        try:
            soak.run()
        except (Broken, OttlaError) as problem:
            verdict.problems.append(f"{type(problem).__name__}: {problem}")
        verdict.growths = soak.growths()
        verdict.samples = len(soak.times)
    return verdict


class _Soak:
    """The running services, and what disturbs them."""

    def __init__(self, options: Options, verdict: Verdict, stack: ExitStack) -> None:
        self._options = options
        self._verdict = verdict
        self._stack = stack
        self._flights = read_flights(options.flights)
        self._count = 0
        self._sent = 0
        self._is_load_begun = threading.Event()
        self._handled = self._dead = self._committed = self._end = 0
        self._ending: list[tuple[float, str, Link]] = []
        self._accident: LeaderFailure | None = None
        self._leavers: list[_Leaving] = []
        self.times: list[float] = []
        self._memory: dict[str, list[tuple[float, float]]] = {}
        self._descriptors: dict[str, list[tuple[float, float]]] = {}
        self._start_cluster()
        self._proxies = Proxies(self._bootstrap)
        stack.callback(self._proxies.close)
        self._links = {name: self._proxies.link(name) for name in (FEEDER, STEADY, ROLLING)}
        self._members = {name: self._start_member(name) for name in (STEADY, ROLLING)}
        self._born_s = dict.fromkeys(self._members, time.monotonic())
        load = [str(options.flights), str(options.seconds), str(options.rate)]
        arguments = ["-m", "soak.feeder", self._links[FEEDER].bootstrap_servers, *load]
        self._feeder = self._start(FEEDER, arguments, self._hear_feeder)
        self._wait_for_load()
        self._started_s = time.monotonic()

    # Starting

    def _start_cluster(self) -> None:
        self._bootstrap = self._control = ""
        ready = threading.Event()

        def on_line(line: str) -> None:
            if line.startswith("ready bootstrap="):
                self._bootstrap = line.removeprefix("ready bootstrap=")
            elif line.startswith("control="):
                self._control = line.removeprefix("control=")
                ready.set()

        arguments = ["-m", "broker_embedded", "--brokers", "3", "--control-port", "0", "--log-level", "warning"]
        arguments += ["--data-dir", str(self._options.directory / "data")]
        for name, value in BROKER_SETTINGS.items():
            arguments += ["--set", f"{name}={value}"]
        self._cluster = self._start("cluster", arguments, on_line)
        deadline_s = time.monotonic() + READY_S
        while not ready.wait(0.05):
            self._cluster.check()
            if time.monotonic() > deadline_s:
                raise ChildFailed(f"cluster: not ready after {READY_S:.0f} s; see {self._cluster.log_path}")
        for topic, partitions in TOPICS.items():
            create_topic(self._bootstrap, topic, partitions=partitions, replication_factor=-1)

    def _wait_for_load(self) -> None:
        """Reading the flights takes a while; the clock begins with the first of them."""
        deadline_s = time.monotonic() + READY_S
        while not self._is_load_begun.wait(0.05):
            self._feeder.check()
            if time.monotonic() > deadline_s:
                raise ChildFailed(f"feeder: nothing sent after {READY_S:.0f} s; see {self._feeder.log_path}")

    def _start_member(self, name: str) -> Child:
        environment = {"OTTLA_BOOTSTRAP_SERVERS": self._links[name].bootstrap_servers, **MEMBER_SETTINGS}
        arguments = ["-m", "ottla", "run", "ottla.cli.demo.service:app"]
        return self._start(name, arguments, lambda _line: None, environment)

    def _start(self, name, arguments, on_line, environment=None) -> Child:  # type: ignore[no-untyped-def]
        self._count += 1
        log_path = self._options.directory / f"{self._count:03}-{name}.log"
        child = Child(name, arguments, log_path=log_path, on_line=on_line, environment=environment)
        self._stack.callback(child.stop)
        return child

    def _hear_feeder(self, line: str) -> None:
        self._sent = json.loads(line)["sent"]
        self._is_load_begun.set()

    # The run

    def run(self) -> None:
        options = self._options
        faults = draw(seed=options.seed, seconds=options.seconds, every_s=options.fault_every_s)
        next_sample_s = 0.0
        while (now_s := self._elapsed_s()) < options.seconds:
            if faults and now_s >= faults[0].at_s and self._may_come(faults[0]):
                self._disturb(faults.pop(0))
            self._tend()
            if now_s >= next_sample_s:
                next_sample_s += options.every_s
                self._sample()
            time.sleep(TICK_S)
        self._calm_down()
        self._feeder.wait_finished(STUCK_S)
        print(f"{self._elapsed_s():7.0f} s  the load has ended: {self._sent:,} sent; waiting for the rest", flush=True)
        self._wait_until_committed()
        for name, member in self._members.items():
            member.terminate_and_check(60)
            print(f"{self._elapsed_s():7.0f} s  {name} has left", flush=True)
        self._verdict.account = settle(self._flights, self._sent, self._read_back())
        self._verdict.problems += [f"{name}: {words}" for name, words in self._left_behind().items() if words]

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def _tend(self) -> None:
        now_s = self._elapsed_s()
        for ending in [each for each in self._ending if each[0] <= now_s]:
            self._ending.remove(ending)
            _, kind, link = ending
            link.resume() if kind == Kind.STALL.value else link.cut()
        for child in (self._cluster, self._feeder, *self._members.values()):
            child.check()
        for leaver in self._leavers:
            leaver.check()

    def _calm_down(self) -> None:
        """Every fault that is under way ends."""
        while self._ending:
            self._tend()
            time.sleep(TICK_S)
        for leaver in self._leavers:
            leaver.finish()
        if self._accident is not None:
            self._accident.finish()

    def _wait_until_committed(self) -> None:
        moved_s, before = self._elapsed_s(), -1
        next_sample_s = 0.0
        while True:
            if self._elapsed_s() >= next_sample_s:
                next_sample_s = self._elapsed_s() + self._options.every_s
                self._sample()
                if self._committed == self._end == self._sent:
                    return
                if self._committed != before:
                    moved_s, before = self._elapsed_s(), self._committed
            if self._elapsed_s() - moved_s > STUCK_S:
                raise Broken(
                    f"stuck: {self._committed:,} of {self._end:,} committed, {self._sent:,} sent, nothing moved for "
                    f"{STUCK_S:.0f} s"
                )
            self._tend()
            time.sleep(TICK_S)

    # Faults

    def _may_come(self, fault: Fault) -> bool:
        if fault.kind in (Kind.KILL.value, Kind.REPLACE.value):
            return time.monotonic() - self._born_s[fault.target] > LEAST_AGE_S
        return True

    def _disturb(self, fault: Fault) -> None:
        self._verdict.faults[fault.kind] += 1
        until = f" for {fault.duration_s:.1f} s" if fault.duration_s else ""
        print(f"{self._elapsed_s():7.0f} s  fault: {fault.kind} {fault.target}{until}", flush=True)
        if fault.target == BROKER:
            if self._accident is not None:
                self._accident.finish()
            self._accident = LeaderFailure(
                self._control, topic=FLIGHTS_TOPIC, stage=DemoStage(name="broker failure", unit="")
            )
            self._accident.start()
            return
        link = self._links[fault.target]
        if fault.kind == Kind.CUT.value:
            link.cut()
        elif fault.kind == Kind.DEAF.value:
            link.go_deaf()
            self._ending.append((self._elapsed_s() + fault.duration_s, fault.kind, link))
        elif fault.kind == Kind.STALL.value:
            link.stall()
            self._ending.append((self._elapsed_s() + fault.duration_s, fault.kind, link))
        else:
            old = self._members[fault.target]
            if fault.kind == Kind.KILL.value:
                os.kill(old.pid, signal.SIGKILL)
                old.stop()
            else:
                self._leavers.append(_Leaving(old))
            self._members[fault.target] = self._start_member(fault.target)
            self._born_s[fault.target] = time.monotonic()

    # Samples

    def _sample(self) -> None:
        try:
            self._committed, self._end = handler_lag(self._bootstrap)
            self._handled = topic_size(self._bootstrap, HANDLED_TOPIC)
            self._dead = topic_size(self._bootstrap, DEAD_LETTER_TOPIC)
        except OttlaError:
            pass  # A broker is just down, or an election is under way: what was known before is shown again.
        now_s = self._elapsed_s()
        self.times.append(now_s)
        told = []
        for name, child in {"cluster": self._cluster, FEEDER: self._feeder, **self._members}.items():
            try:
                memory_mb, descriptors = resident_mb(child.pid), open_descriptors(child.pid)
            except (OSError, StopIteration):
                continue  # The feeder has finished, or a member was replaced just now.
            told.append(f"{name} {memory_mb:.1f} MB/{descriptors}")
            if name != ROLLING:
                self._memory.setdefault(name, []).append((now_s, memory_mb))
                self._descriptors.setdefault(name, []).append((now_s, descriptors))
        print(
            f"{now_s:7.0f} s  {', '.join(told)}; handled {self._handled:,}, dead {self._dead:,}, "
            f"lag {self._end - self._committed:,}, faults {self._verdict.faults.total()}",
            flush=True,
        )

    def growths(self) -> list[Growth]:
        """What is known of each process that lived all the time."""
        found: list[Growth] = []
        for name in self._memory:
            during = [each for each in self._memory[name] if each[0] <= self._options.seconds]
            opened = [each for each in self._descriptors[name] if each[0] <= self._options.seconds]
            for growth in (memory_growth(f"{name} RSS", during), descriptor_growth(f"{name} descriptors", opened)):
                if growth is None:
                    self._verdict.problems.append(f"{name}: {len(during)} samples are too few to judge")
                else:
                    found.append(growth)
        return found

    # Afterwards

    def _read_back(self) -> Found:
        handled, dead = [], []
        for headers in _headers(self._bootstrap, HANDLED_TOPIC):
            handled.append((_event_id(headers), int(last_header(headers, "attempt") or 0)))
        for headers in _headers(self._bootstrap, DEAD_LETTER_TOPIC):
            view = describe_dead_letter(headers)
            dead.append((_event_id(headers), (view.kind if view else None) or "unknown"))
        in_topic = [_event_id(headers) for headers in _headers(self._bootstrap, FLIGHTS_TOPIC)]
        return Found(in_topic=in_topic, handled=handled, dead=dead)

    def _left_behind(self) -> dict[str, str]:
        """What processes said that they should never say."""
        marks = ("Traceback (most recent call last)", "was never awaited", "Task exception was never retrieved")
        text = self._cluster.log_path.read_text("utf-8", "replace")
        return {"cluster": next((f"its log has {mark!r}" for mark in marks if mark in text), "")}


class _Leaving:
    """A member that was asked to leave; a thread waits for its clean end."""

    def __init__(self, child: Child) -> None:
        self._error: BaseException | None = None
        self._child = child
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        try:
            self._child.terminate_and_check(60)
            self._child.stop()
        except OttlaError as error:
            self._error = error

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        self._thread.join(90)
        self.check()


def resident_mb(pid: int) -> float:
    """Resident memory of a process, from /proc."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def open_descriptors(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _headers(bootstrap: str, topic: str):  # type: ignore[no-untyped-def]
    for batch in columnar.read(topic, bootstrap_servers=bootstrap, columns=("headers",)):
        for headers in batch.column("headers").to_pylist():
            yield [(header["key"], header["value"]) for header in headers or ()]


def _event_id(headers: list[Header]) -> int:
    return int(last_header(headers, EVENT_ID_HEADER) or -1)
