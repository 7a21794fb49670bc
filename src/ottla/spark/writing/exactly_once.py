"""The sink, exactly once: tasks write in transactions and leave them open, the driver ends them.

The end of a task's input proves nothing: when Spark kills a task, its input *ends normally, truncated*. So a task only
prepares. What happens, in order:

1. Each task begins a transaction under an id of its own, `<prefix>-<query>-<task>`. That aborts what an attempt before
   it left open, and fences that attempt. Then it reads its *marker*: the last batch that was committed under this id.
2. If the marker is of this batch, a driver died while it committed: the task's rows are there. It reads its input to
   the end and writes nothing. Else it writes, waits for the acknowledgements, and hands the open transaction to the
   driver.
3. The driver gets a message from every task, so every input was whole. It puts a marker into each transaction, commits
   task 0's, then those of the others side by side. A crash in between is what step 2 finds, in task 0 at the latest.

A marker has the number of tasks, the rows and bytes of its task, and the rows of the batch. When the batch comes again,
the driver compares before it commits anything:

- With the same number of tasks, each must have got the same rows again.
- With another number, the markers of all former tasks are read. If they hold all rows of the batch, it was committed
  whole, and what the tasks wrote now is aborted. If not, `ReplayDiffers` names the number of tasks to restart with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from ottla.columnar import TopicWriter
from ottla.errors import InputError
from ottla.records import TopicPartition
from ottla.spark.connections import cluster_for
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

_AT_ONCE: Final = 8
"""The transactions that a driver commits side by side, each with a connection of its own."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """What was committed under one transactional id. `batch_rows` is None in markers of earlier versions."""

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
    rows: int
    bytes_sent: int
    content_bytes: int
    transaction: OpenTransaction | None
    committed: Marker | None = None


def prepare_task(options: SinkOptions, cluster: Cluster, work: Work, batches: Iterator[pa.RecordBatch]) -> Prepared:
    """Write one task's rows into a transaction and leave it open."""
    name = work.transactional_id(options.transactional_id_prefix)
    transaction = begin_transaction(cluster, name, timeout_ms=options.transaction_timeout_ms)
    if work.batch is not None:
        marker = read_marker(cluster, group=name, place=_place(options))
        if marker is not None and marker[0] > work.batch:
            return _already_committed(name, work.batch, marker, batches)
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
        name=name, rows=rows, bytes_sent=written.bytes_sent, content_bytes=content_bytes, transaction=transaction
    )


def commit_batch(
    options: SinkOptions,
    cluster: Cluster,
    messages: Sequence[WriterCommitMessage | None],
    batch: int | None,
) -> None:
    """Commit what every task of a batch has prepared. Raises ReplayDiffers, before anything is committed, for a batch
    that was committed in part and comes again otherwise."""
    tasks = [message for message in messages if isinstance(message, Prepared)]
    committed = next((task.committed for task in tasks if task.committed is not None), None)
    if committed is not None:
        assert batch is not None
        if committed.tasks == len(messages):
            for task in tasks:
                _check_rows(task, batch)
        elif _was_committed_whole(options, cluster, tasks, batch, committed):
            abort_batch(cluster, messages)
            return
        else:
            raise ReplayDiffers(
                f"batch {batch} was partly committed by {committed.tasks} tasks and is now written by {len(messages)};"
                f" restart with as many: option tasks={committed.tasks}, or spark.sql.shuffle.partitions"
            )
    batch_rows = sum(task.rows for task in tasks)
    if not batch_rows:
        return
    # Task 0 gets its marker even without rows, so that a replay by fewer tasks is sure to meet one.
    still_open = [
        (task, task.transaction)
        for number, task in enumerate(tasks)
        if task.transaction is not None and (task.rows or (number == 0 and batch is not None))
    ]

    def mark(cluster: Cluster, task: Prepared, transaction: OpenTransaction) -> None:
        assert batch is not None
        marker = Marker(tasks=len(messages), rows=task.rows, content_bytes=task.content_bytes, batch_rows=batch_rows)
        add_marker(
            cluster,
            transaction,
            group=transaction.transactional_id,
            place=_place(options),
            number=batch + 1,
            metadata=marker.metadata(),
        )

    def commit(cluster: Cluster, task: Prepared, transaction: OpenTransaction) -> None:
        end_transaction(cluster, transaction, Outcome.COMMIT)

    if batch is not None:
        _side_by_side(cluster, mark, still_open)
    for task, transaction in still_open[:1]:
        commit(cluster, task, transaction)
    _side_by_side(cluster, commit, still_open[1:])


def abort_batch(cluster: Cluster, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort what is still open. Transactions that are committed already stay so: their markers say it."""
    for message in messages:
        if isinstance(message, Prepared) and message.transaction is not None:
            abort_quietly(cluster, message.transaction)


def _side_by_side(
    cluster: Cluster,
    call: Callable[[Cluster, Prepared, OpenTransaction], None],
    transactions: Sequence[tuple[Prepared, OpenTransaction]],
) -> None:
    """Make the call for each transaction. When one fails, the others are awaited, and the first error is raised."""
    lanes = min(_AT_ONCE, len(transactions))
    if lanes <= 1:
        for task, transaction in transactions:
            call(cluster, task, transaction)
        return

    def work(lane: int) -> None:
        mine = clusters[lane]
        for task, transaction in transactions[lane::lanes]:
            call(mine, task, transaction)

    clusters = [cluster_for(cluster.settings, lane=lane) for lane in range(1, lanes + 1)]
    with ThreadPoolExecutor(lanes, thread_name_prefix="ottla-commit") as pool:
        done = [pool.submit(work, lane) for lane in range(lanes)]
    for each in done:
        each.result()


def _already_committed(name: str, batch: int, marker: tuple[int, str], batches: Iterator[pa.RecordBatch]) -> Prepared:
    number, metadata = marker
    if number != batch + 1:
        raise ReplayDiffers(
            f"{name}: the topic has batch {number - 1}, and the checkpoint is at batch {batch}: an older"
            " checkpoint was restored. Use a new one, or another transactionalIdPrefix to write the batches again"
        )
    rows = content_bytes = 0
    for each in batches:  # to the end: rows that are not taken are missing from Spark's counts
        rows += each.num_rows
        content_bytes += _content_bytes(each)
    committed = Marker.parse(metadata)
    return Prepared(
        name=name, rows=rows, bytes_sent=0, content_bytes=content_bytes, transaction=None, committed=committed
    )


def _check_rows(task: Prepared, batch: int) -> None:
    marker = task.committed
    if marker is not None and (task.rows, task.content_bytes) != (marker.rows, marker.content_bytes):
        raise ReplayDiffers(
            f"{task.name}: batch {batch} was committed with {marker.rows} rows of {marker.content_bytes} bytes, and"
            f" comes again with {task.rows} rows of {task.content_bytes} bytes. Rows must go to the same tasks again:"
            " no random or time-dependent columns"
        )


def _was_committed_whole(
    options: SinkOptions, cluster: Cluster, tasks: Sequence[Prepared], batch: int, committed: Marker
) -> bool:
    """Return whether all rows of the batch were committed by another number of tasks, and are the rows of now."""
    if committed.batch_rows is None or committed.batch_rows != sum(task.rows for task in tasks):
        return False
    rows = content_bytes = 0
    begun = {task.name for task in tasks}
    stem = tasks[0].name.rpartition("-")[0]
    for number in range(committed.tasks):
        name = f"{stem}-{number}"
        if name not in begun:  # no task of now has aborted what was left open under this id
            begin_transaction(cluster, name, timeout_ms=options.transaction_timeout_ms)
        marker = read_marker(cluster, group=name, place=_place(options))
        if marker is not None and marker[0] == batch + 1:
            found = Marker.parse(marker[1])
            rows += found.rows
            content_bytes += found.content_bytes
    return rows == committed.batch_rows and content_bytes == sum(task.content_bytes for task in tasks)


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
