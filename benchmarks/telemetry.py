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

The SDK's batch processor feeds an exporter that drops what it gets, so what is measured is the service. The peer is
`opentelemetry-instrumentation-confluent-kafka` around `poll` and `produce`, with everything recorded.
"""

from __future__ import annotations

import argparse
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
PEER_WORKLOADS = ("poll", "produce")
VALUE = b"x" * 100
KEPT: list[Any] = []


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


def handle(servers: str, topic: str, records: int, *, batch: bool, hooks: Any) -> float:
    """Records per second, from the first that is handled to the last."""
    from ottla import App

    settings = {"auto.offset.reset": "earliest"}
    app = App(f"g-{time.time_ns()}", bootstrap_servers=servers, settings=settings, hooks=hooks)
    begun = ended = 0.0
    handled = 0

    def count(more: int) -> None:
        nonlocal begun, ended, handled
        if not handled:
            begun = time.perf_counter()
        handled += more
        if handled >= records:
            ended = time.perf_counter()
            app.stop()

    if batch:

        @app.handler(topic, batch=True)
        def on_batch(values: list[bytes]) -> None:
            count(len(values))
    else:

        @app.handler(topic)
        def on_record(value: bytes) -> None:
            count(1)

    app.run(handle_signals=False)
    return handled / (ended - begun)


def send(servers: str, records: int, way: str, tracer: Any, *, hooks: Any) -> float:
    from ottla import Producer

    settings = {"queue.buffering.max.messages": 1_000_000, "linger.ms": 5}
    with Producer(servers, settings=settings, hooks=hooks) as producer:
        producer.send("sent", VALUE).result(30)
        begun = time.perf_counter()
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
        return records / (time.perf_counter() - begun)


def peer(servers: str, topic: str, records: int, way: str, mode: str) -> float:
    """The instrumentor's clients, or the plain ones."""
    if mode == "everything":
        from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor

        ConfluentKafkaInstrumentor().instrument()
    import confluent_kafka

    if way == "produce":
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000})
        producer.produce("sent", value=VALUE, key=None, headers=[])
        producer.flush()
        begun = time.perf_counter()
        for number in range(records):
            producer.produce("sent", value=VALUE, key=None, headers=[])
            if not number & 255:
                producer.poll(0)
        producer.flush()
        return records / (time.perf_counter() - begun)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": f"g-{time.time_ns()}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    while consumer.poll(1.0) is None:
        pass
    begun, polled = time.perf_counter(), 1
    while polled < records:
        polled += consumer.poll(1.0) is not None
    ended = time.perf_counter()
    consumer.close()
    return records / (ended - begun)


def child(arguments: argparse.Namespace) -> None:
    mode, workload, records = arguments.child, arguments.workload, arguments.records
    tracer = set_up(mode)
    topic = "every" if mode == "everything" else "one-percent"
    if workload in PEER_WORKLOADS:
        rate = peer(arguments.servers, topic, records, workload, mode)
    elif workload.endswith("handler"):
        rate = handle(arguments.servers, topic, records, batch=workload.startswith("batch"), hooks=hooks_of(mode))
    else:
        rate = send(arguments.servers, records, workload, tracer, hooks=hooks_of(mode))
    print(f"rate={rate:.1f}", flush=True)


def measured(mode: str, workload: str, servers: str, records: int) -> float:
    command = [sys.executable, __file__, "--child", mode, "--workload", workload]
    command += ["--servers", servers, "--records", str(records)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("rate="):
            return float(line[5:])
    raise SystemExit(f"{mode} {workload} failed:\n{done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What telemetry costs.")
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--workload", help=argparse.SUPPRESS)
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return
    rates: dict[tuple[str, str], list[float]] = {}
    with started("ottla", list(OTTLA)) as server:
        fill(server.bootstrap, "one-percent", arguments.records, every=100)
        fill(server.bootstrap, "every", arguments.records, every=1)
        runs = [(mode, workload) for workload in WORKLOADS for mode in MODES]
        runs += [(mode, workload) for workload in PEER_WORKLOADS for mode in ("absent", "everything")]
        for _ in range(arguments.rounds):
            for mode, workload in runs:
                rates.setdefault((mode, workload), []).append(
                    measured(mode, workload, server.bootstrap, arguments.records)
                )
    median = {run: statistics.median(each) for run, each in rates.items()}
    print(
        f"records per second and ratio to absent, medians of {arguments.rounds} rounds, {arguments.records} records\n"
    )
    print("| | " + " | ".join(MODES) + " |\n|---" * 1 + "|---" * len(MODES) + "|")
    for workload in WORKLOADS:
        base = median["absent", workload]
        cells = [f"{median[mode, workload]:,.0f} ({median[mode, workload] / base:.2f})" for mode in MODES]
        print(f"| {workload} | " + " | ".join(cells) + " |")
    print("\nmicroseconds that recording every span adds per record\n")
    for ours, theirs in (("handler", "poll"), ("send", "produce"), ("send in a span", "produce")):
        added = [1e6 / median["everything", each] - 1e6 / median["absent", each] for each in (ours, theirs)]
        print(f"| {ours}: {added[0]:.1f} | confluent-kafka's instrumentor, {theirs}: {added[1]:.1f} |")
    print("\ngoals: " + ", ".join(f"{mode} {goal:.2f} of absent" for mode, goal in GOALS.items()))


if __name__ == "__main__":
    main()
