"""`ottla.columnar.read`: a topic as an Arrow `RecordBatchReader`, which pandas, Polars and DuckDB take as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from ottla.columnar.arrays.schema import ALL_COLUMNS, arrow_schema
from ottla.columnar.reading.fetch import read_ranges
from ottla.config.token_argument import TokenFunction, with_token
from ottla.records import TopicPartition
from ottla.wire_client.client_settings import wire_settings
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.fetching.position_lookup import Position, resolve
from ottla.wire_client.ranges import LossRule, OffsetRange, OnDataLoss


def read(
    topic: str | Sequence[str],
    *,
    bootstrap_servers: str | None = None,
    since: Position = "earliest",
    until: Position = "latest",
    columns: Sequence[str] = ALL_COLUMNS,
    on_data_loss: LossRule = OnDataLoss.FAIL,
    settings: Mapping[str, object] | None = None,
    token: TokenFunction | None = None,
) -> pa.RecordBatchReader:
    """Return all records between two positions of one or more topics; the end is the one at the time of the call.

    Nothing is committed and no group is joined. Records of a partition come in order; partitions are mixed. The
    connection lives as long as the reader is being read. `token` is a function, sync or async, that returns an
    `ottla.tokens.Token` for SASL OAUTHBEARER.
    """
    wire = wire_settings(with_token("read", settings, token), bootstrap_servers=bootstrap_servers)
    schema = arrow_schema(columns)
    topics = [topic] if isinstance(topic, str) else list(topic)
    with Cluster(wire) as cluster:
        partitions = [TopicPartition(name, number) for name in topics for number in sorted(cluster.topic(name).leaders)]
        starts = resolve(cluster, partitions, since, default=EARLIEST)
        ends = resolve(cluster, partitions, until, default=LATEST)
        ids = {name: cluster.topic(name).topic_id for name in topics}
    ranges = [
        OffsetRange(topic=p.topic, partition=p.partition, start=starts[p], end=ends[p], topic_id=ids[p.topic])
        for p in partitions
        if starts[p] < ends[p]
    ]

    def batches() -> Iterator[pa.RecordBatch]:
        with Cluster(wire) as reading:
            yield from read_ranges(reading, ranges, columns=columns, on_data_loss=on_data_loss)

    return pa.RecordBatchReader.from_batches(schema, batches())
