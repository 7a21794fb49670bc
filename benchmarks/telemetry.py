"""What telemetry costs: handlers and sends without it, with hooks, with metrics, with some and with all traces.

    python benchmarks/telemetry.py [--records 60000] [--rounds 3]

Every figure is from a process of its own, against one broker in another; modes take turns, so that the machine's moods
hit all of them, and a ratio is that of the medians. Records carry a `traceparent`, as those of traced services do:
one in a hundred is of a trace that is recorded; with everything all are.

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
cores the rate says how client and broker share them, too; the goals are judged by processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.abc
import statistics
import subprocess
import sys
import time
from typing import Any

from servers import OTTLA, started

GOALS = {"api": 0.97, "sampled": 0.90}
MODES = ("absent", "hooks", "api", "metrics", "sampled", "everything")
WORKLOADS = ("handler", "batch handler", "send", "send in a span", "send_many")
ASYNCIO_WORKLOADS = ("asyncio handler", "asyncio send")
PEER_WORKLOADS = ("poll", "produce")
AIOKAFKA_WORKLOADS = ("getone", "aiokafka send")
AGAINST = (
    ("handler", "poll"),
    ("send", "produce"),
    ("send in a span", "produce"),
    ("asyncio handler", "getone"),
    ("asyncio send", "aiokafka send"),
)
"""Ours, and what a peer does instead."""
VALUE = b"x" * 100
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
    """From the first record that is handled to the last."""
    from ottla import App

    settings = {"auto.offset.reset": "earliest"}
    app = App(f"g-{time.time_ns()}", bootstrap_servers=servers, settings=settings, hooks=hooks)
    watch: Stopwatch | None = None
    measured: tuple[float, float] | None = None
    handled = 0

    def count(more: int) -> None:
        nonlocal watch, measured, handled
        if watch is None:
            watch = Stopwatch()
        handled += more
        if handled >= records and measured is None:
            measured = watch.of(handled)
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
        watch = Stopwatch()
        for number in range(records):
            producer.send("sent", VALUE)
            if not number & 255:
                await asyncio.sleep(0)
        await producer.flush()
        return watch.of(records)


def send(servers: str, records: int, way: str, tracer: Any, *, hooks: Any) -> tuple[float, float]:
    from ottla import Producer

    settings = {"queue.buffering.max.messages": 1_000_000, "linger.ms": 5}
    with Producer(servers, settings=settings, hooks=hooks) as producer:
        producer.send("sent", VALUE).result(30)
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
            await producer.send_and_wait("sent", VALUE)
            watch = Stopwatch()
            for _ in range(records):
                await producer.send("sent", VALUE)
            await producer.flush()
            return watch.of(records)
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, group_id=f"g-{time.time_ns()}", auto_offset_reset="earliest"
    ) as consumer:
        await consumer.getone()
        watch = Stopwatch()
        for _ in range(records - 1):
            await consumer.getone()
        return watch.of(records - 1)


def peer(servers: str, topic: str, records: int, way: str, mode: str) -> tuple[float, float]:
    """confluent-kafka's clients, with its instrumentor or plain."""
    if mode == "everything":
        from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor

        ConfluentKafkaInstrumentor().instrument()
    import confluent_kafka

    if way == "produce":
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
        producer.produce("sent", value=VALUE, key=None, headers=[])
        producer.flush()
        watch = Stopwatch()
        for number in range(records):
            producer.produce("sent", value=VALUE, key=None, headers=[])
            if not number & 255:
                producer.poll(0)
        producer.flush()
        return watch.of(records)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": f"g-{time.time_ns()}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    while consumer.poll(1.0) is None:
        pass
    watch, polled = Stopwatch(), 1
    while polled < records:
        polled += consumer.poll(1.0) is not None
    measured = watch.of(records)
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("rate="):
            rate, cpu_us = (float(part.partition("=")[2]) for part in line.split())
            return rate, cpu_us
    raise SystemExit(f"{mode} {workload} failed:\n{done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What telemetry costs.")
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=[*WORKLOADS, *ASYNCIO_WORKLOADS], help="these workloads")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--workload", help=argparse.SUPPRESS)
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    chosen = arguments.only or [*WORKLOADS, *ASYNCIO_WORKLOADS]
    modes = dict.fromkeys(chosen, MODES)
    modes |= {theirs: ("absent", "everything") for ours, theirs in AGAINST if ours in chosen}
    figures: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with started("ottla", list(OTTLA)) as server:
        fill(server.bootstrap, "one-percent", arguments.records, every=100)
        fill(server.bootstrap, "every", arguments.records, every=1)
        for _ in range(arguments.rounds):
            for workload, its_modes in modes.items():
                for mode in its_modes:
                    found = measured(mode, workload, server.bootstrap, arguments.records)
                    figures.setdefault((mode, workload), []).append(found)
    rate, cpu_us = (
        {run: statistics.median(each[which] for each in rounds) for run, rounds in figures.items()} for which in (0, 1)
    )
    print(f"medians of {arguments.rounds} rounds, {arguments.records} records\n")
    print("records per second; microseconds of processor time per record, and ratio of absent to it\n")
    print("| | " + " | ".join(MODES) + " |\n|---" * 1 + "|---" * len(MODES) + "|")
    for workload in chosen:
        base = cpu_us["absent", workload]
        cells = [
            f"{rate[mode, workload]:,.0f}; {cpu_us[mode, workload]:.2f} µs ({base / cpu_us[mode, workload]:.2f})"
            for mode in MODES
        ]
        print(f"| {workload} | " + " | ".join(cells) + " |")
    print("\nmicroseconds of processor time that recording every span adds per record\n")
    for ours, theirs in AGAINST:
        if ours in chosen:
            added = [cpu_us["everything", each] - cpu_us["absent", each] for each in (ours, theirs)]
            print(f"| {ours}: {added[0]:.1f} | its peer's instrumentor, {theirs}: {added[1]:.1f} |")
    print("\ngoals: " + ", ".join(f"{mode} {goal:.2f} of absent" for mode, goal in GOALS.items()))


if __name__ == "__main__":
    main()
