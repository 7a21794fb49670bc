"""Reads back all records of the demo with clients of its own: the source of the final account."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla import columnar
from ottla.cli.demo.account import ReadBack
from ottla.cli.demo.model import (
    DEAD_LETTER_TOPIC,
    DELAYS_TOPIC,
    EVENT_ID_HEADER,
    FLIGHTS_TOPIC,
    HANDLED_TOPIC,
    HANDLER_GROUP,
    PIPELINE_DEAD_LETTER_TOPIC,
)
from ottla.failures.foreign import DeadLetterView, describe_dead_letter
from ottla.records import Header, TopicPartition, last_header

Means = Mapping[tuple[str, int], tuple[float, int]]


def read_everything(bootstrap_servers: str, parquet: Path) -> ReadBack:
    """Return all topics of the demo, from their first record to their last, and the Parquet result."""
    handled: list[int] = []
    after_retries: set[int] = set()
    for headers in _headers(bootstrap_servers, HANDLED_TOPIC):
        event_id = _event_id(headers)
        handled.append(event_id)
        if last_header(headers, "attempt") == b"3":
            after_retries.add(event_id)
    dead = [
        (_event_id(headers), _view(headers).kind or "unknown")
        for headers in _headers(bootstrap_servers, DEAD_LETTER_TOPIC)
    ]
    parquet_means = read_parquet(parquet)
    return ReadBack(
        in_topic=[_event_id(headers) for headers in _headers(bootstrap_servers, FLIGHTS_TOPIC)],
        handled=handled,
        handled_after_retries=frozenset(after_retries),
        dead=dead,
        pipeline_delays=sum(flights for _, flights in parquet_means.values()),
        pipeline_malformed=sum(1 for _ in _headers(bootstrap_servers, PIPELINE_DEAD_LETTER_TOPIC)),
        parquet_means=parquet_means,
        topic_means=_topic_means(bootstrap_servers),
    )


def handler_lag(bootstrap_servers: str) -> tuple[int, int]:
    """Return (committed, end) of the handler group over all partitions of the flights topic, as any lag tool computes
    them."""
    with columnar.Cluster(columnar.wire_settings(bootstrap_servers=bootstrap_servers)) as cluster:
        partitions = [TopicPartition(FLIGHTS_TOPIC, number) for number in cluster.topic(FLIGHTS_TOPIC).leaders]
        ends = cluster.list_offsets(dict.fromkeys(partitions, columnar.LATEST))
        committed = columnar.group_offsets(cluster, HANDLER_GROUP, partitions)
        return sum(max(0, offset) for offset in committed.values()), sum(offset for offset, _ in ends.values())


def topic_size(bootstrap_servers: str, topic: str) -> int:
    """Return records in a topic that nothing was deleted from."""
    with columnar.Cluster(columnar.wire_settings(bootstrap_servers=bootstrap_servers)) as cluster:
        partitions = [TopicPartition(topic, number) for number in cluster.topic(topic).leaders]
        ends = cluster.list_offsets(dict.fromkeys(partitions, columnar.LATEST))
        return sum(offset for offset, _ in ends.values())


def sample_dead_letters(bootstrap_servers: str) -> list[tuple[DeadLetterView, bytes | None, Sequence[Header]]]:
    """Return one dead letter of each kind: its readable view, its original bytes, and all its headers."""
    found: dict[str, tuple[DeadLetterView, bytes | None, Sequence[Header]]] = {}
    for batch in columnar.read(DEAD_LETTER_TOPIC, bootstrap_servers=bootstrap_servers, columns=("value", "headers")):
        for value, headers in zip(batch.column("value").to_pylist(), _header_lists(batch), strict=True):
            view = _view(headers)
            found.setdefault(view.kind or "unknown", (view, value, headers))
    return [found[kind] for kind in sorted(found)]


def read_parquet(folder: Path) -> Means:
    """Return (carrier, hour) to (mean delay, flights)."""
    import pyarrow.parquet as pq

    table = pq.read_table(folder, columns=["carrier", "hour_ms", "mean_delay", "flights"])
    return {(row["carrier"], row["hour_ms"]): (row["mean_delay"], row["flights"]) for row in table.to_pylist()}


def first_rows(folder: Path, count: int) -> list[dict[str, Any]]:
    """Return the first rows of the result, as Spark wrote them."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(folder).slice(0, count).to_pylist()
    return rows


def _topic_means(bootstrap_servers: str) -> Means:
    """Return the newest record of each key, in the order of the partition: what compaction would leave."""
    newest: dict[bytes, bytes] = {}
    for batch in columnar.read(DELAYS_TOPIC, bootstrap_servers=bootstrap_servers, columns=("key", "value")):
        newest.update(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))
    rows = [json.loads(value) for value in newest.values()]
    return {(row["carrier"], row["hour_ms"]): (row["mean_delay"], row["flights"]) for row in rows}


def _headers(bootstrap_servers: str, topic: str) -> Iterator[Sequence[Header]]:
    for batch in columnar.read(topic, bootstrap_servers=bootstrap_servers, columns=("headers",)):
        yield from _header_lists(batch)


def _header_lists(batch: Any) -> Iterator[Sequence[Header]]:
    for headers in batch.column("headers").to_pylist():
        yield [(header["key"], header["value"]) for header in headers or ()]


def _event_id(headers: Sequence[Header]) -> int:
    return int(last_header(headers, EVENT_ID_HEADER) or -1)


def _view(headers: Sequence[Header]) -> DeadLetterView:
    view = describe_dead_letter(headers)
    if view is None:
        raise ValueError(f"a record of the dead letter topic has no dead letter headers: {headers!r}")
    return view
