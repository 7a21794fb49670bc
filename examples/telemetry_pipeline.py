"""Logs, metrics and traces of many services, from three topics into partitioned Parquet.

    python telemetry_pipeline.py localhost:9092 /tmp/telemetry

What each service sends is one JSON object per record, in the shape of OpenTelemetry. Lines that do not fit are counted
(`dead_letters=` names a topic that keeps them, as in `flights_pipeline.py`). Spans meet the error logs of the same
trace in a stream-stream join.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, field

import pyarrow as pa

import ottla.columnar
import ottla.spark
from ottla import Json
from ottla.admin import Admin, TopicSpec

SERVICES = [f"{name}-{number}" for name in ("cart", "billing", "search", "mail") for number in range(3)]
START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@dataclass
class Log:
    service: str
    at_ms: int
    level: str
    message: str
    trace_id: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass
class Metric:
    service: str
    at_ms: int
    name: str
    value: float


@dataclass
class Span:
    service: str
    at_ms: int
    trace_id: str
    name: str
    duration_ms: float


def declare(servers: str, folder: str) -> ottla.spark.Pipeline:
    pipeline = ottla.spark.Pipeline(
        "telemetry",
        bootstrap_servers=servers,
        checkpoint=f"{folder}/checkpoints",
        options={"maxOffsetsPerTrigger": 50_000},  # a burst of one service does not make a batch too large for memory
    )
    at = "timestamp_millis(value.at_ms)"
    columns = ["value.*", f"{at} AS at", f"date_format({at}, 'yyyy-MM-dd') AS day"]
    for name, kind in {"logs": Log, "metrics": Metric, "spans": Span}.items():
        pipeline.read_topic(name, f"telemetry.{name}", value=Json(kind), select=columns, watermark=("at", "1 minute"))

    pipeline.sql(
        "by_minute",
        """
        SELECT window(at, '1 minute').start AS minute, service, name, avg(value) AS mean, max(value) AS highest
        FROM metrics GROUP BY window(at, '1 minute'), service, name
        """,
    )
    pipeline.sql(
        "traces",
        """
        SELECT spans.day, spans.service, spans.trace_id, spans.name, spans.duration_ms, logs.message AS error
        FROM spans LEFT JOIN logs ON spans.trace_id = logs.trace_id AND logs.level = 'ERROR'
             AND logs.at BETWEEN spans.at - INTERVAL 1 MINUTE AND spans.at + INTERVAL 1 MINUTE
        """,
    )
    pipeline.write_parquet("logs", f"{folder}/logs", partition_by=["day", "service"])
    pipeline.write_parquet("by_minute", f"{folder}/metrics", partition_by=["service"], files_per_batch=1)
    pipeline.write_parquet("traces", f"{folder}/traces", partition_by=["day", "service"], files_per_batch=1)
    return pipeline


def fill(servers: str, records: int) -> None:
    """What the services would send: `records` of each kind over ten minutes, one span in ten with an error log."""
    with Admin(servers) as admin:  # writing creates no topic
        admin.create_topics(dict.fromkeys([f"telemetry.{name}" for name in ("logs", "metrics", "spans")], TopicSpec()))
    chance = random.Random(7)
    step = 600_000 / records
    logs: list[object] = []
    metrics: list[object] = []
    spans: list[object] = []
    for number in range(records):
        service, at = SERVICES[number % len(SERVICES)], START_MS + int(number * step)
        trace, failed = f"{number:032x}", number % 10 == 0
        spans.append(Span(service, at, trace, "GET /", round(chance.expovariate(0.02), 1)).__dict__)
        metrics.append(Metric(service, at, "memory_mb", chance.uniform(200, 400)).__dict__)
        level, message = ("ERROR", "the database is away") if failed else ("INFO", "done")
        logs.append(Log(service, at, level, message, trace).__dict__)
    logs[5] = "a line that somebody printed"
    for name, values in {"logs": logs, "metrics": metrics, "spans": spans}.items():
        table = pa.table({"value": [json.dumps(value) for value in values]})
        ottla.columnar.write(f"telemetry.{name}", table, bootstrap_servers=servers)


def main(servers: str, folder: str, records: str = "3000") -> None:
    fill(servers, int(records))
    pipeline = declare(servers, folder)
    with pipeline.start(available_now=True) as running:
        running.await_end()
        for name, metrics in running.metrics().items():
            print(f"{name}: {metrics.rows} records read, {metrics.malformed} malformed, {metrics.late_rows} late")
    spark = ottla.spark.session("telemetry")
    errors = spark.read.parquet(f"{folder}/logs").where("level = 'ERROR'").groupBy("service").count()
    print("errors by service:", {row.service: row["count"] for row in errors.orderBy("service").collect()})
    # A span without an error log is there when none can come any more: those of the last minutes wait.
    spans = spark.read.parquet(f"{folder}/traces").groupBy("error").count().collect()
    print("spans by error:", {row.error: row["count"] for row in spans})
    print("minutes of metrics:", spark.read.parquet(f"{folder}/metrics").select("minute").distinct().count())


if __name__ == "__main__":
    main(*sys.argv[1:])
