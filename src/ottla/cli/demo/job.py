"""Runs the demo: starts the processes, watches how far each has come, stops them in order, prints the account.

Progress is read from the cluster (end offsets and committed offsets), as a lag tool would read it, not from counters
inside the services. Whatever happens, Ctrl-C included, every process that was started is ended before this returns.
"""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType

from rich.console import Console

from ottla.admin import Admin, TopicSpec
from ottla.cli.demo.account import Expected, Line, ReadBack, settle
from ottla.cli.demo.children import Child
from ottla.cli.demo.data import read_flights
from ottla.cli.demo.display import DemoDisplay, DemoStage
from ottla.cli.demo.failure import LeaderFailure
from ottla.cli.demo.gates import GateSensors
from ottla.cli.demo.joining import FourthBroker
from ottla.cli.demo.model import (
    DEAD_LETTER_TOPIC,
    DELAYS_TOPIC,
    FLIGHTS_PARTITIONS,
    FLIGHTS_TOPIC,
    GATES_TOPIC,
    HANDLED_TOPIC,
    PIPELINE_DEAD_LETTER_TOPIC,
    WEATHER_TOPIC,
    Departure,
    Flight,
)
from ottla.cli.demo.read_back import first_rows, handler_lag, read_everything, sample_dead_letters, topic_size
from ottla.cli.demo.replay import ProducerService
from ottla.cli.demo.report import print_report
from ottla.cli.demo.traces import SERVICE_ENVIRONMENT, FollowedFlights, Traces, trace_trees
from ottla.errors import ConfigError, OttlaError
from ottla.serdes.avro_schema import derive_schema
from ottla.spark.jvm.java import find_java

_READY_S = 15.0
_TABLE_READY_S = 120.0
_JOINED_S = 180.0
_POLL_S = 0.2
_REPLICAS = 3
"""With so many brokers every record is on each of them, two must have it, and one of them is killed half way."""

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, an orchestrator, a terminal that is closed: the children are in sessions of their own and receive none."""

_TOPICS = {
    FLIGHTS_TOPIC: FLIGHTS_PARTITIONS,
    WEATHER_TOPIC: 1,
    GATES_TOPIC: FLIGHTS_PARTITIONS,
    HANDLED_TOPIC: FLIGHTS_PARTITIONS,
    DEAD_LETTER_TOPIC: 1,
    PIPELINE_DEAD_LETTER_TOPIC: 1,
    DELAYS_TOPIC: 1,
}


class Interrupted(Exception):
    """Ctrl-C, SIGTERM or SIGHUP: stop everything and say so."""


def run_demo(*, flights: int, brokers: int, out: Path, has_console: bool = False) -> int:
    """Return the whole demo, and its exit code: 0 the account balances, 1 it does not, 2 an error, 130 stopped by a
    signal.

    `has_console`: the console is open beside it, and stays open after the account until Ctrl-C, which is then its end.
    """
    console = Console(highlight=False)
    errors = Console(stderr=True, highlight=False)
    endings = Endings()
    before = {number: signal.signal(number, endings) for number in _ENDINGS}
    try:
        return _Job(console, endings, brokers=brokers, out=out, has_console=has_console).run(flights)
    except Interrupted:
        errors.print("stopped: every process of the demo has ended")
        return 130
    except OttlaError as error:
        errors.print(f"ottla demo: {error}", markup=False, soft_wrap=True)
        return 2
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Endings:
    """The handler of the signals that end the demo: raises `Interrupted`, wherever the main thread is."""

    def __init__(self) -> None:
        self._is_held = False
        self._has_come = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # Once: a second Ctrl-C must not break the stopping that the first one began.
        for each in _ENDINGS:
            signal.signal(each, signal.SIG_IGN)
        self._has_come = True
        if not self._is_held:
            raise Interrupted

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raise at the end of the block what comes within it: a process that was started and is not on the stack yet
        would be left behind."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._has_come:
            raise Interrupted


class _Job:
    """One run. `_pipeline_news` is written by the thread that reads the pipeline's stdout."""

    def __init__(self, console: Console, endings: Endings, *, brokers: int, out: Path, has_console: bool) -> None:
        self._console = console
        self._endings = endings
        self._brokers = brokers
        self._out = out
        self._has_console = has_console
        self._page: Child | None = None
        """`ottla console`."""
        self._address = ""
        self._bootstrap = ""
        self._control = ""
        self._cluster = DemoStage(name="cluster", unit="")
        self._producer = DemoStage(name="producer", unit="flights")
        self._gates = DemoStage(name="gate sensors", unit="departures")
        self._handler = DemoStage(name="handler service", unit="flights")
        self._failure = DemoStage(name="broker failure", unit="")
        self._joining = DemoStage(name="fourth broker", unit="")
        self._dead = DemoStage(name="dead letters", unit="records")
        self._spark = DemoStage(name="spark pipeline", unit="flights")
        self._account = DemoStage(name="account", unit="")
        failure = [self._failure, self._joining] if brokers >= _REPLICAS else []
        services = [self._producer, self._gates, self._handler, self._dead, self._spark]
        self._stages = [self._cluster, *services, *failure, self._account]
        self._pipeline_news = ""
        self._traces = Traces()
        self._more_lines: list[Line] = []

    def run(self, flights: int) -> int:
        started_s = time.monotonic()
        self._console.print(f"Spark runs on {find_java()}")  # first of all: without Java the pipeline cannot run
        self._prepare()
        replayed = read_flights(flights)
        expected = Expected.of(replayed)
        self._producer.total = self._handler.total = self._spark.total = len(replayed)
        self._dead.total = len(expected.truncated) + len(expected.cancelled)
        with ExitStack() as stack:
            with DemoDisplay(self._console, self._stages) as display:
                found = self._replay(stack, display, replayed)
            account = settle(expected, found)
            account = replace(account, lines=(*account.lines, *self._more_lines))
            rows = first_rows(self._out / "mean_delay.parquet", 5)
            trees = trace_trees(self._traces.spans)
            samples = sample_dead_letters(self._bootstrap)
            print_report(self._console, account=account, stages=self._stages, samples=samples, rows=rows, trees=trees)
            self._console.print(
                f"Whole run {time.monotonic() - started_s:.1f} s. "
                f"The table is in {self._out / 'mean_delay.parquet'}, logs are in {self._out / 'logs'}."
            )
            if self._page is not None:
                self._stay_open(self._page)
        return 0 if account.balances else 1

    def _replay(self, stack: ExitStack, display: DemoDisplay, replayed: list[Flight]) -> ReadBack:
        """Start everything, wait for the end, and return what all topics and the table hold then."""
        self._start_cluster(stack, display)
        if self._has_console:
            self._page = self._start_console(stack)
        pipeline = self._start_pipeline(stack)
        handler = self._start_handler(stack)
        following = FollowedFlights(replayed, self._traces)
        producer = ProducerService(self._bootstrap, replayed, stage=self._producer, around=following.around)
        stack.callback(producer.stop)
        producer.start()
        gates = GateSensors(self._bootstrap, replayed, stage=self._gates)
        stack.callback(gates.stop)
        gates.start()
        self._watch(display, producer, handler, pipeline, self._planned_failure(), self._planned_joining())
        gates.finish()
        self._account.start()
        display.refresh()
        self._more_lines.append(gates.line())
        found = read_everything(self._bootstrap, self._out / "mean_delay.parquet")
        self._account.finish()
        self._finish_processes(handler, pipeline)
        return found

    def _prepare(self) -> None:
        """Create an empty output folder. Only what an earlier run made is removed, never another folder."""
        marker = self._out / ".ottla-demo"
        try:
            if self._out.exists() and any(self._out.iterdir()):
                if not marker.exists():
                    raise ConfigError(
                        f"--out {self._out}: the folder is not empty and no earlier demo made it; name another one"
                    )
                shutil.rmtree(self._out)
            (self._out / "logs").mkdir(parents=True)
            marker.touch()
        except OSError as error:
            raise ConfigError(f"--out {self._out}: cannot be written: {error.strerror}") from error

    # Starting

    def _start_cluster(self, stack: ExitStack, display: DemoDisplay) -> None:
        self._cluster.start()
        display.refresh()
        ready = threading.Event()

        def on_line(line: str) -> None:
            word, _, address = line.partition(" bootstrap=")
            if word == "ready":
                self._bootstrap = address
            elif line.startswith("control="):
                self._control = line.removeprefix("control=")
                ready.set()

        arguments = ["-m", "broker_embedded", "--brokers", str(self._brokers), "--control-port", "0"]
        if self._is_replicated:
            for setting in (f"default.replication.factor={_REPLICAS}", "min.insync.replicas=2"):
                arguments += ["--set", setting]
        child = self._start(stack, "cluster", arguments, on_line)
        child.wait_ready(ready, _READY_S)
        with Admin(self._bootstrap) as admin:
            admin.create_topics({topic: TopicSpec(partitions=partitions) for topic, partitions in _TOPICS.items()})
        self._cluster.note = f"{self._brokers} broker{'' if self._brokers == 1 else 's'}"
        if self._is_replicated:
            self._cluster.note += f", each record on {_REPLICAS} of them"
        self._cluster.finish()
        display.refresh()

    @property
    def _is_replicated(self) -> bool:
        return self._brokers >= _REPLICAS

    def _planned_failure(self) -> LeaderFailure | None:
        """Kill a broker half way, if there are enough of them."""
        if not self._is_replicated:
            return None
        return LeaderFailure(self._control, topic=FLIGHTS_TOPIC, stage=self._failure)

    def _planned_joining(self) -> FourthBroker | None:
        """Return when the one that died is back, a further one joins."""
        if not self._is_replicated:
            return None
        return FourthBroker(self._bootstrap, self._control, folder=self._out, stage=self._joining)

    def _start_console(self, stack: ExitStack) -> Child:
        """Start a read-only console: its pages cannot change what the demo counts."""
        ready = threading.Event()

        def on_line(line: str) -> None:
            self._address = line
            ready.set()

        arguments = ["-m", "ottla", "console", "--port", "0", "-b", self._bootstrap, "--control", self._control]
        # The demo has no schema registry: its console reads flights by their schema in a file.
        for name, model, topics in (
            ("flight", Flight, (FLIGHTS_TOPIC, DEAD_LETTER_TOPIC, PIPELINE_DEAD_LETTER_TOPIC)),
            ("departure", Departure, (HANDLED_TOPIC,)),
        ):
            schema = self._out / f"{name}.avsc"
            schema.write_text(json.dumps(derive_schema(model), indent=2), encoding="utf-8")
            for topic in topics:
                arguments += ["--schema", f"{topic}={schema}"]
        child = self._start(stack, "console", arguments, on_line)
        child.wait_ready(ready, _READY_S)
        self._console.print(f"The console is at {self._address}", soft_wrap=True, markup=False)
        return child

    def _stay_open(self, page: Child) -> None:
        """Stay until Ctrl-C, which ends the demo with its account."""
        self._console.print(
            f"The cluster runs on for the console at {self._address}, until Ctrl-C.", soft_wrap=True, markup=False
        )
        with suppress(Interrupted):
            page.wait_finished(None)

    def _start_pipeline(self, stack: ExitStack) -> Child:
        def on_line(line: str) -> None:
            try:
                news = json.loads(line)
            except ValueError:
                return  # something else that a library printed
            if "span" in news:
                self._traces.add("pipeline", news["span"])
                return
            self._pipeline_news = news.get("stage", "")
            self._spark.done = news.get("rows", self._spark.done)
            self._spark.note = news.get("note", self._spark.note)

        self._spark.start()
        self._spark.note = "starts its JVM"
        return self._start(
            stack, "pipeline", ["-m", "ottla.cli.demo.pipeline", self._bootstrap, str(self._out)], on_line
        )

    def _start_handler(self, stack: ExitStack) -> Child:
        self._handler.start()
        self._dead.start()
        arguments = ["-m", "ottla", "run", "ottla.cli.demo.service:app"]
        return self._start(stack, "handler", arguments, self._traces.printed_by("handler"), SERVICE_ENVIRONMENT)

    def _start(
        self,
        stack: ExitStack,
        name: str,
        arguments: list[str],
        on_line: Callable[[str], None],
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        with self._endings.held():
            child = Child(
                name,
                arguments,
                log_path=self._out / "logs" / f"{name}.log",
                on_line=on_line,
                environment={"OTTLA_BOOTSTRAP_SERVERS": self._bootstrap, **(environment or {})},
            )
            stack.callback(child.stop)
        return child

    # Watching

    def _watch(
        self,
        display: DemoDisplay,
        producer: ProducerService,
        handler: Child,
        pipeline: Child,
        failure: LeaderFailure | None,
        joining: FourthBroker | None,
    ) -> None:
        """Wait until everything that was produced is handled and in the pipeline's result."""
        is_weather_announced = is_finish_announced = False
        while self._pipeline_news not in ("done", "ended"):
            for child in (handler, pipeline, *([] if self._page is None else [self._page])):
                child.check()
            producer.check()
            if producer.is_weather_sent and not is_weather_announced:
                pipeline.send_line("go")
                is_weather_announced = True
            if failure is not None and not failure.is_begun and producer.is_half_done:
                failure.start()
            if joining is not None and not joining.is_begun and self._failure.ended_s is not None:
                joining.start()
            if producer.is_done and not is_finish_announced:
                pipeline.send_line("finish")
                is_finish_announced = True
            self._measure_handler(producer)
            display.refresh()
            time.sleep(_POLL_S)
        self._spark.finish()
        if failure is not None:
            failure.finish()
        if joining is not None:
            joining.finish(_JOINED_S)
            self._more_lines += [] if joining.line is None else [joining.line]
        while self._handler.ended_s is None:
            handler.check()
            self._measure_handler(producer)
            display.refresh()
            time.sleep(_POLL_S)

    def _measure_handler(self, producer: ProducerService) -> None:
        """Compute the lag as a lag tool does: end offsets minus committed offsets."""
        if self._handler.ended_s is not None:
            return
        committed, end = handler_lag(self._bootstrap)
        self._handler.done = committed
        self._dead.done = topic_size(self._bootstrap, DEAD_LETTER_TOPIC)
        self._handler.note = f"lag {end - committed:,}"
        if producer.is_done and committed == end:
            self._handler.finish()
            self._dead.finish()

    def _finish_processes(self, handler: Child, pipeline: Child) -> None:
        """Wait for the pipeline, and stop the service, which must end cleanly. The stack closes the rest."""
        pipeline.wait_finished(_TABLE_READY_S)
        handler.terminate_and_check()
