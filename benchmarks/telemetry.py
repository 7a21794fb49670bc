"""What telemetry costs: handlers and sends without it, with hooks, with metrics, with some and with all traces.

    python benchmarks/telemetry.py [--records 200000] [--rounds 5] [--only "send in a span"] [--modes absent hooks]

Every figure is from a process of its own, against one broker in another; modes take turns, so that the machine's moods
hit all of them, and a ratio is taken within each round. Records carry a `traceparent`, as those of traced services do:
one in a hundred is of a trace that is recorded; with everything all are. Without telemetry the same
records are read, and their headers are made all the same: a ratio says what telemetry costs a service for the same
input. Handlers count and do nothing else, which makes each ratio of theirs the worst that there is.

| mode | what is there |
|---|---|
| absent | `opentelemetry` cannot be imported |
| hooks | the same, and `Counters` as the application's own hooks |
| api | the API is imported, no SDK is set up |
| metrics | SDK: all metrics, no spans |
| sampled | SDK: spans (1 % of roots; parents decide), all metrics |
| everything | SDK: every span, all metrics |

The SDK's batch processor feeds an exporter that drops what it gets, so what is measured is the service. The peers are
`opentelemetry-instrumentation-confluent-kafka` around `poll` and `produce` and `opentelemetry-instrumentation-aiokafka`
around `getone` and `send`, with everything recorded.

Beside each rate stands the processor time that the process took per record, of all its threads. On a machine with few
cores the rate says how client and broker share them, too; so there is a goal for either.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.abc
import importlib.util
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from goals_of_telemetry import INSTRUMENTORS, NO_TELEMETRY
from results import Results, Shown
from servers import OTTLA, started

Figures = dict[tuple[str, str], list[tuple[float, float]]]
"""Of a mode and a workload: rate and microseconds per record, round after round."""

MODES = ("absent", "hooks", "api", "metrics", "sampled", "everything")
USUAL_MODES = ("absent", "api", "sampled", "everything")
ASYNCIO_MODES = ("absent", "everything")
TITLES = {
    "hooks": "hooks",
    "api": "API only",
    "metrics": "all metrics",
    "sampled": "1 % of traces, all metrics",
    "everything": "every span, all metrics",
}
DEEP_ROUNDS = 3
WORKLOADS = ("handler", "batch handler", "send", "send in a span", "send_many")
ASYNCIO_WORKLOADS = ("asyncio handler", "asyncio send")
PEER_WORKLOADS = ("poll", "produce")
AIOKAFKA_WORKLOADS = ("getone", "aiokafka send")
ALL_WORKLOADS = (*WORKLOADS, *ASYNCIO_WORKLOADS)
USUAL_WORKLOADS = ("handler", "batch handler", "send", *ASYNCIO_WORKLOADS)
AGAINST = (
    ("handler", "poll", "confluent_kafka"),
    ("send", "produce", "confluent_kafka"),
    ("send in a span", "produce", "confluent_kafka"),
    ("asyncio handler", "getone", "aiokafka"),
    ("asyncio send", "aiokafka send", "aiokafka"),
)
"""Ours, what a peer does instead, and the peer."""
VALUE = b"x" * 100
WARM_UP = 10
"""One part in so many is not measured: imports, first connections, and the SDK's first instruments and spans."""
KEPT: list[Any] = []


class Stopwatch:
    """Time of the wall and of the processor since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def of(self, records: int) -> tuple[float, float]:
        """Records per second, and microseconds of processor time per record."""
        wall_s, cpu_s = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return records / wall_s, cpu_s * 1e6 / records


class Absent(importlib.abc.MetaPathFinder):
    """Lets nothing of OpenTelemetry be imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name.partition(".")[0] == "opentelemetry":
            raise ImportError(name)


def set_up(mode: str) -> Any:
    """The mode's telemetry. Returns a tracer, where there is an SDK."""
    if mode in ("absent", "hooks"):
        sys.meta_path.insert(0, Absent())
        return None
    from opentelemetry import metrics, trace

    if mode == "api":
        return None
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        MetricExporter,
        MetricExportResult,
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, TraceIdRatioBased

    class Spans(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    class Points(MetricExporter):
        def export(self, metrics_data: Any, timeout_millis: float = 0, **kwargs: Any) -> MetricExportResult:
            return MetricExportResult.SUCCESS

        def force_flush(self, timeout_millis: float = 0) -> bool:
            return True

        def shutdown(self, timeout_millis: float = 0, **kwargs: Any) -> None:
            return

    metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(Points(), export_interval_millis=1_000)]))
    if mode == "metrics":
        return None
    provider = TracerProvider(sampler=ALWAYS_ON if mode == "everything" else ParentBased(TraceIdRatioBased(0.01)))
    provider.add_span_processor(BatchSpanProcessor(Spans()))
    trace.set_tracer_provider(provider)
    return provider.get_tracer("benchmark")


def traceparent(number: int, *, every: int) -> list[tuple[str, bytes | None]]:
    flags = "01" if number % every == 0 else "00"
    return [("traceparent", f"00-{number + 1:032x}-{number + 1:016x}-{flags}".encode())]


def fill(servers: str, topic: str, records: int, *, every: int) -> None:
    from ottla import Producer

    with Producer(servers) as producer:
        producer.send_many(topic, ((VALUE, None, traceparent(number, every=every)) for number in range(records)))


def hooks_of(mode: str) -> Any:
    from ottla.telemetry import Counters

    return Counters() if mode == "hooks" else None


def handle(servers: str, topic: str, records: int, way: str, *, hooks: Any) -> tuple[float, float]:
    """From the end of the warm-up to the last record that is handled."""
    from ottla import App

    settings = {"auto.offset.reset": "earliest"}
    app = App(f"g-{time.time_ns()}", bootstrap_servers=servers, settings=settings, hooks=hooks)
    watch: Stopwatch | None = None
    measured: tuple[float, float] | None = None
    handled = warmed_up = 0

    def count(more: int) -> None:
        nonlocal watch, measured, handled, warmed_up
        handled += more
        if watch is None:
            if handled >= records // WARM_UP:
                watch, warmed_up = Stopwatch(), handled
        elif handled >= records and measured is None:
            measured = watch.of(handled - warmed_up)
            app.stop()

    if way == "batch handler":

        @app.handler(topic, batch=True)
        def on_batch(values: list[bytes]) -> None:
            count(len(values))
    elif way == "asyncio handler":

        @app.handler(topic)
        async def on_record_async(value: bytes) -> None:
            count(1)
    else:

        @app.handler(topic)
        def on_record(value: bytes) -> None:
            count(1)

    if way == "asyncio handler":
        asyncio.run(app.serve())
    else:
        app.run(handle_signals=False)
    assert measured is not None
    return measured


async def send_async(servers: str, records: int) -> tuple[float, float]:
    from ottla import AsyncProducer

    async with AsyncProducer(servers, settings={"linger.ms": 5}) as producer:
        await producer.send("sent", VALUE)
        for part in (records // WARM_UP, records):
            watch = Stopwatch()
            for number in range(part):
                producer.send("sent", VALUE)
                if not number & 255:
                    await asyncio.sleep(0)
            await producer.flush()
        return watch.of(records)


def send(servers: str, records: int, way: str, tracer: Any, *, hooks: Any) -> tuple[float, float]:
    from ottla import Producer

    settings = {"queue.buffering.max.messages": 1_000_000, "linger.ms": 5}
    with Producer(servers, settings=settings, hooks=hooks) as producer:
        for _ in range(records // WARM_UP):
            producer.send("sent", VALUE)
        producer.flush()
        watch = Stopwatch()
        if way == "send_many":
            producer.send_many("sent", ((VALUE,) for _ in range(records)))
        elif way == "send in a span" and tracer is not None:
            with tracer.start_as_current_span("request"):
                for _ in range(records):
                    producer.send("sent", VALUE)
        else:
            for _ in range(records):
                producer.send("sent", VALUE)
        producer.flush()
        return watch.of(records)


async def aiokafka_peer(servers: str, topic: str, records: int, way: str, mode: str) -> tuple[float, float]:
    """aiokafka's clients, with its instrumentor or plain."""
    if mode == "everything":
        from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor

        AIOKafkaInstrumentor().instrument()
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    if way == "aiokafka send":
        async with AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5, enable_idempotence=True) as producer:
            for part in (records // WARM_UP, records):
                watch = Stopwatch()
                for _ in range(part):
                    await producer.send("sent", VALUE)
                await producer.flush()
            return watch.of(records)
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=f"g-{time.time_ns()}", auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(records // WARM_UP):
            await consumer.getone()
        left = records - records // WARM_UP
        watch = Stopwatch()
        for _ in range(left):
            await consumer.getone()
        return watch.of(left)


def peer(servers: str, topic: str, records: int, way: str, mode: str) -> tuple[float, float]:
    """confluent-kafka's clients, with its instrumentor or plain."""
    if mode == "everything":
        from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor

        ConfluentKafkaInstrumentor().instrument()
    import confluent_kafka

    if way == "produce":
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
        for part in (records // WARM_UP, records):
            watch = Stopwatch()
            for number in range(part):
                producer.produce("sent", value=VALUE, key=None, headers=[])
                if not number & 255:
                    producer.poll(0)
            producer.flush()
        return watch.of(records)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": f"g-{time.time_ns()}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    polled, warmed_up = 0, records // WARM_UP
    while polled < warmed_up:
        polled += consumer.poll(1.0) is not None
    watch = Stopwatch()
    while polled < records:
        polled += consumer.poll(1.0) is not None
    measured = watch.of(records - warmed_up)
    consumer.close()
    return measured


def child(arguments: argparse.Namespace) -> None:
    mode, workload, records = arguments.child, arguments.workload, arguments.records
    tracer = set_up(mode)
    topic = "every" if mode == "everything" else "one-percent"
    if workload in PEER_WORKLOADS:
        rate, cpu_us = peer(arguments.servers, topic, records, workload, mode)
    elif workload in AIOKAFKA_WORKLOADS:
        rate, cpu_us = asyncio.run(aiokafka_peer(arguments.servers, topic, records, workload, mode))
    elif workload.endswith("handler"):
        rate, cpu_us = handle(arguments.servers, topic, records, workload, hooks=hooks_of(mode))
    elif workload == "asyncio send":
        rate, cpu_us = asyncio.run(send_async(arguments.servers, records))
    else:
        rate, cpu_us = send(arguments.servers, records, workload, tracer, hooks=hooks_of(mode))
    print(f"rate={rate:.1f} cpu_us={cpu_us:.3f}", flush=True)


def measured(mode: str, workload: str, servers: str, records: int) -> tuple[float, float]:
    command = [sys.executable, __file__, "--child", mode, "--workload", workload]
    command += ["--servers", servers, "--records", str(records)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("rate="):
            rate, cpu_us = (float(part.partition("=")[2]) for part in line.split())
            return rate, cpu_us
    raise SystemExit(f"{mode} {workload} failed:\n{done.stderr}")


def modes_of(workloads: Sequence[str], modes: Sequence[str]) -> dict[str, Sequence[str]]:
    """What is measured: each workload in its modes, and what a peer does instead, where its instrumentor is."""
    found: dict[str, Sequence[str]] = {
        each: [mode for mode in modes if each not in ASYNCIO_WORKLOADS or mode in ASYNCIO_MODES] for each in workloads
    }
    if "everything" in modes:
        theirs = {peer: package for ours, peer, package in AGAINST if ours in workloads}
        found |= {peer: ASYNCIO_MODES for peer, package in theirs.items() if is_installed(package)}
    return found


def is_installed(package: str) -> bool:
    return is_there(f"opentelemetry.instrumentation.{package}") and is_there(package)


def is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def measure(arguments: argparse.Namespace, bootstrap: str) -> Figures:
    """In turns. What records every span takes long, and its effect is large: it needs fewer rounds and records."""
    figures: Figures = {}
    plan = modes_of(arguments.only, arguments.modes)
    for number in range(arguments.rounds):
        for workload, its_modes in plan.items():
            for mode in its_modes:
                is_deep = mode == "everything" or workload not in WORKLOADS
                if is_deep and number >= DEEP_ROUNDS:
                    continue
                records = min(arguments.records, arguments.spans) if mode == "everything" else arguments.records
                figures.setdefault((mode, workload), []).append(measured(mode, workload, bootstrap, records))
    return figures


def write(results: Results, figures: Figures) -> None:
    """Each mode beside no telemetry, then what recording adds beside the peers' instrumentors."""
    for mode, workload in figures:
        if mode == "absent" or workload in PEER_WORKLOADS + AIOKAFKA_WORKLOADS:
            continue
        mine = figures[mode, workload]
        without = figures.get(("absent", workload), [])[: len(mine)]
        for which, suffix, unit in ((0, "", "records/s"), (1, ", CPU", "µs per record")):
            what = f"{workload}, {TITLES[mode]}{suffix}"
            results.add(what, "ottla", [each[which] for each in mine], unit)
            results.add(what, NO_TELEMETRY, [each[which] for each in without], unit)
    for ours, theirs, package in AGAINST:
        what = f"{ours}, CPU that recording every span adds"
        if not added(figures, ours):
            continue
        results.add(what, "ottla", added(figures, ours), "µs per record")
        if not added(figures, theirs):
            results.problem(what, INSTRUMENTORS[package], "it is not installed")
        results.add(what, INSTRUMENTORS[package], added(figures, theirs), "µs per record")


def added(figures: Figures, workload: str) -> list[float]:
    pairs = zip(figures.get(("everything", workload), []), figures.get(("absent", workload), []), strict=False)
    return [everything[1] - absent[1] for everything, absent in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description="What telemetry costs.")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--spans", type=int, default=15_000, help="so many records where every span is recorded")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", choices=ALL_WORKLOADS, default=USUAL_WORKLOADS, help="these workloads")
    parser.add_argument("--modes", nargs="*", choices=MODES, default=USUAL_MODES)
    parser.add_argument("--quick", action="store_true", help="one short round: rough figures")
    parser.add_argument("--results", type=Path, help="the folder for telemetry.jsonl")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--workload", help=argparse.SUPPRESS)
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    if arguments.quick:
        arguments.records, arguments.spans, arguments.rounds = 20_000, 4_000, 1
    from tables import beside_table  # it imports Ottla, which the children must not before they are set up

    from ottla.testing.topics import create_topic

    results = Shown("telemetry", arguments.results, is_quick=arguments.quick)
    if not is_there("opentelemetry.sdk"):
        arguments.modes = [mode for mode in arguments.modes if mode in ("absent", "hooks", "api")]
        results.problem("metrics and spans", "OpenTelemetry's SDK", "it is not installed")
    with started("ottla", list(OTTLA)) as server:
        for topic in ("one-percent", "every", "sent"):
            create_topic(server.bootstrap, topic)
        fill(server.bootstrap, "one-percent", arguments.records, every=100)
        fill(server.bootstrap, "every", min(arguments.records, arguments.spans), every=1)
        figures = measure(arguments, server.bootstrap)
    write(results, figures)
    results.close()
    print("\n".join(("", *beside_table(results.part()))))


if __name__ == "__main__":
    main()
