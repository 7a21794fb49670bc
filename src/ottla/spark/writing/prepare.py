"""One task of an exactly-once sink: it writes its rows into a transaction, and leaves it to the driver to end it.

`exactly_once.py` describes the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from ottla.columnar import TopicWriter
from ottla.errors import InputError
from ottla.records import TopicPartition
from ottla.spark.options import SinkOptions
from ottla.spark.writing.commit_decision import attempt_id
from ottla.wire_client import Cluster, OpenTransaction, begin_transaction, read_marker
from ottla.wire_client.producing.open_transactions import abort_quietly, peek_marker


class ReplayDiffers(InputError, has_page=False):
    """Restart as the query ran before: a batch that is partly in the topic came again with other rows or tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Which part of which batch a task writes. `batch` is None for a batch write, which is never replayed."""

    query: str
    batch: int | None
    task: int
    attempt: int = 0

    def name(self, prefix: str) -> str:
        """Return the name of the task, which is the transactional id of its first attempt."""
        return f"{prefix}-{self.query}-{self.task}"

    def transactional_id(self, prefix: str) -> str:
        return attempt_id(self.name(prefix), self.attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What was committed under one transactional id, as an offset of the group of that name. `batch_rows` is None in
    markers of earlier versions."""

    tasks: int
    rows: int
    content_bytes: int
    batch_rows: int | None

    @classmethod
    def parse(cls, metadata: str) -> Marker:
        tasks, rows, content_bytes, *more = (int(part) for part in metadata.split())
        return cls(tasks=tasks, rows=rows, content_bytes=content_bytes, batch_rows=more[0] if more else None)

    def metadata(self) -> str:
        return f"{self.tasks} {self.rows} {self.content_bytes} {self.batch_rows}"


@dataclass
class Prepared(WriterCommitMessage):
    """A task has written and left its transaction open, or found it committed already."""

    name: str
    attempt: int
    """The attempt that wrote, or that was committed."""
    rows: int
    bytes_sent: int
    content_bytes: int
    transaction: OpenTransaction | None
    committed: Marker | None = None


def prepare_task(options: SinkOptions, cluster: Cluster, work: Work, batches: Iterator[pa.RecordBatch]) -> Prepared:
    """Write one task's rows into a transaction and leave it open."""
    name = work.name(options.transactional_id_prefix)
    transaction = begin_transaction(
        cluster, work.transactional_id(options.transactional_id_prefix), timeout_ms=options.transaction_timeout_ms
    )
    if work.batch is not None:
        # A first attempt has aborted what would let it wait. Later ones do not wait: the driver looks again.
        read = read_marker if work.attempt == 0 else peek_marker
        marker = read(cluster, group=name, place=marker_place(options))
        if marker is not None and marker[0] > work.batch:
            return _already_committed(name, work, marker, batches)
    rows = content_bytes = 0
    try:
        with TopicWriter(cluster, topic=options.topic, first_partition=work.task, transaction=transaction) as writer:
            for batch in batches:
                if batch.num_rows:
                    writer.write(batch)
                    rows += batch.num_rows
                    content_bytes += _content_bytes(batch)
            written = writer.flush()
    except BaseException:
        abort_quietly(cluster, transaction)
        raise
    return Prepared(
        name=name,
        attempt=work.attempt,
        rows=rows,
        bytes_sent=written.bytes_sent,
        content_bytes=content_bytes,
        transaction=transaction,
    )


def _already_committed(name: str, work: Work, marker: tuple[int, str], batches: Iterator[pa.RecordBatch]) -> Prepared:
    number, metadata = marker
    assert work.batch is not None
    if number != work.batch + 1:
        raise older_checkpoint(name, number - 1, work.batch)
    rows = content_bytes = 0
    for each in batches:  # to the end: rows that are not taken are missing from Spark's counts
        rows += each.num_rows
        content_bytes += _content_bytes(each)
    return Prepared(
        name=name,
        attempt=0,
        rows=rows,
        bytes_sent=0,
        content_bytes=content_bytes,
        transaction=None,
        committed=Marker.parse(metadata),
    )


def older_checkpoint(name: str, found: int, batch: int) -> ReplayDiffers:
    return ReplayDiffers(
        f"{name}: the topic has batch {found}, and the checkpoint is at batch {batch}: an older"
        " checkpoint was restored. Use a new one, which writes the batches again"
    )


def marker_place(options: SinkOptions) -> TopicPartition:
    """Return the partition whose committed offsets serve as markers: partition 0 of the sink's topic, which always
    exists."""
    assert options.topic is not None
    return TopicPartition(options.topic, 0)


def _content_bytes(batch: pa.RecordBatch) -> int:
    total = 0
    for name in ("key", "value"):
        if name in batch.schema.names:
            total += pc.sum(pc.binary_length(batch.column(name))).as_py() or 0
    return total
