"""The sink, exactly once: tasks write in transactions and leave them open, the driver ends them.

The end of a task's input proves nothing: when Spark kills a task, its input *ends normally, truncated*. So a task only
prepares. What happens, in order:

1. Each task begins a transaction under an id of its own, `<prefix>-<query>-<task>`. That aborts what an attempt before
   it left open, and fences that attempt. Then it reads its *marker*: the last batch that was committed under this id.
2. If the marker is of this batch, a driver died while it committed: the task's rows are there. It reads its input to
   the end, checks that it is the same input, and writes nothing. Else it writes, waits for the acknowledgements, and
   hands the open transaction to the driver.
3. The driver gets a message from every task, so every input was whole. It puts the marker into each transaction, then
   commits them one by one, task 0 first. A crash in between is what step 2 finds, in task 0 at the latest.

Step 2 needs tasks to get the same rows again. Offsets are in the checkpoint; the number of tasks is in the marker, with
the rows and bytes of the task, and a difference is an error before anything is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from ottla.columnar import TopicWriter
from ottla.errors import InputError
from ottla.records import TopicPartition
from ottla.spark.options import SinkOptions
from ottla.wire_client import (
    Cluster,
    OpenTransaction,
    Outcome,
    add_marker,
    begin_transaction,
    end_transaction,
    read_marker,
)
from ottla.wire_client.producing.open_transactions import abort_quietly


class ReplayDiffers(InputError, has_page=False):
    """Restart as the query ran before: a batch that is partly in the topic came again with other rows or tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Which part of which batch a task writes. `batch` is None for a batch write, which is never replayed."""

    query: str
    batch: int | None
    task: int

    def transactional_id(self, prefix: str) -> str:
        return f"{prefix}-{self.query}-{self.task}"


@dataclass
class Prepared(WriterCommitMessage):
    """A task has written and left its transaction open, or found it committed already."""

    rows: int
    bytes_sent: int
    content_bytes: int
    transaction: OpenTransaction | None
    committed_with_tasks: int | None = None


def prepare_task(options: SinkOptions, cluster: Cluster, work: Work, batches: Iterator[pa.RecordBatch]) -> Prepared:
    """Write one task's rows into a transaction and leave it open."""
    name = work.transactional_id(options.transactional_id_prefix)
    transaction = begin_transaction(cluster, name, timeout_ms=options.transaction_timeout_ms)
    if work.batch is not None:
        marker = read_marker(cluster, group=name, place=_place(options))
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
        rows=rows,
        bytes_sent=written.bytes_sent,
        content_bytes=content_bytes,
        transaction=transaction,
    )


def commit_batch(
    options: SinkOptions, cluster: Cluster, messages: Sequence[WriterCommitMessage | None], batch: int | None
) -> None:
    """Commit what every task of a batch has prepared."""
    tasks = [message for message in messages if isinstance(message, Prepared)]
    for task in tasks:
        if task.committed_with_tasks is not None and task.committed_with_tasks != len(messages):
            raise ReplayDiffers(
                f"batch {batch} was partly committed by {task.committed_with_tasks} tasks and is now written by"
                f" {len(messages)}; restart with as many (option tasks, or spark.sql.shuffle.partitions)"
            )
    if not any(task.rows for task in tasks):
        return
    # Task 0 gets its marker even without rows, so that a replay by fewer tasks is sure to meet one.
    still_open = [
        (task, task.transaction)
        for number, task in enumerate(tasks)
        if task.transaction is not None and (task.rows or (number == 0 and batch is not None))
    ]
    if batch is not None:
        for task, transaction in still_open:
            add_marker(
                cluster,
                transaction,
                group=transaction.transactional_id,
                place=_place(options),
                number=batch + 1,
                metadata=f"{len(messages)} {task.rows} {task.content_bytes}",
            )
    for _, transaction in still_open:
        end_transaction(cluster, transaction, Outcome.COMMIT)


def abort_batch(cluster: Cluster, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort what is still open. Transactions that are committed already stay so: their markers say it."""
    for message in messages:
        if isinstance(message, Prepared) and message.transaction is not None:
            abort_quietly(cluster, message.transaction)


def _already_committed(name: str, work: Work, marker: tuple[int, str], batches: Iterator[pa.RecordBatch]) -> Prepared:
    number, metadata = marker
    assert work.batch is not None
    if number != work.batch + 1:
        raise ReplayDiffers(
            f"{name}: the topic has batch {number - 1}, and the checkpoint is at batch {work.batch}: an older"
            " checkpoint was restored. Use a new one, or another transactionalIdPrefix to write the batches again"
        )
    tasks, *wanted = (int(part) for part in metadata.split())
    rows = content_bytes = 0
    for batch in batches:  # to the end: rows that are not taken are missing from Spark's counts
        rows += batch.num_rows
        content_bytes += _content_bytes(batch)
    if [rows, content_bytes] != wanted:
        raise ReplayDiffers(
            f"{name}: batch {work.batch} was committed with {wanted[0]} rows of {wanted[1]} bytes, and comes again with"
            f" {rows} rows of {content_bytes} bytes. Rows must go to the same tasks again: no random or time-dependent"
            " columns, and the same number of tasks"
        )
    return Prepared(rows=rows, bytes_sent=0, content_bytes=content_bytes, transaction=None, committed_with_tasks=tasks)


def _place(options: SinkOptions) -> TopicPartition:
    """Return the partition for markers, which are offsets of one that is sure to exist."""
    assert options.topic is not None
    return TopicPartition(options.topic, 0)


def _content_bytes(batch: pa.RecordBatch) -> int:
    total = 0
    for name in ("key", "value"):
        if name in batch.schema.names:
            total += pc.sum(pc.binary_length(batch.column(name))).as_py() or 0
    return total
