"""The sink, exactly once: tasks write in transactions and leave them open, the driver ends them.

The end of a task's input proves nothing: when Spark kills a task, its input *ends normally, truncated*. So a task only
prepares. What happens, in order:

1. Each attempt of a task begins a transaction: the first under the task's name, `<prefix>-<query>-<task>`, later ones
   with their number behind it. So a copy of a task fences no attempt that has won (`spark.speculation`), and a restart
   fences the first attempts of the run before it. Then it reads the task's *marker*: the last batch that was committed,
   as an offset of a group that is named as the transaction.
2. If the marker is of this batch, a driver died while it committed: the task's rows are there. It reads its input to
   the end and writes nothing. Else it writes, waits for the acknowledgements, and hands the open transaction to the
   driver.
3. The driver gets a message from the one attempt of every task that Spark let win, so every input was whole. It decides
   (`commit_decision.py`), puts a marker into each transaction, commits task 0's, then those of the others side by side.
   A crash in between is what step 2 finds, in task 0 at the latest. Then it aborts what lost attempts left open.

A stage that Spark repeats after a lost shuffle counts its attempts from 0 again. One of them may fence an attempt that
had won: `FencedError`, and the batch comes again.

A marker has the number of tasks, the rows and bytes of its task, and the rows of the batch. When the batch comes again,
the driver compares before it commits anything:

- With the same number of tasks, each must have got the same rows again.
- With another number, the markers of all former tasks are read. If they hold all rows of the batch, it was committed
  whole, and what the tasks wrote now is aborted. If not, `ReplayDiffers` names the number of tasks. The source divides
  a repeated batch as before (`checkpoints/offsets.py`), unless an older version began it. So this is a repartition or a
  coalesce with another number, or a shuffle without one, which adaptive execution merges by the cores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage

from ottla.spark.connections import cluster_for
from ottla.spark.options import SinkOptions
from ottla.spark.writing.commit_decision import (
    Decider,
    abort_lost_attempts,
    attempt_id,
    delete_former_groups,
)
from ottla.spark.writing.prepare import Marker, Prepared, ReplayDiffers, marker_place, older_checkpoint
from ottla.spark.writing.sink_identity import check_decisions
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


def commit_batch(
    options: SinkOptions,
    cluster: Cluster,
    messages: Sequence[WriterCommitMessage | None],
    batch: int | None,
) -> None:
    """Commit the transactions that the tasks of a batch have prepared. Raises ReplayDiffers, before anything is
    committed, if the batch was committed in part with other records."""
    tasks = [message for message in messages if isinstance(message, Prepared)]
    if not tasks:
        return
    query = _stem(tasks)
    decider = None
    if batch is not None:
        decider = Decider.take_over(
            cluster, query=query, place=marker_place(options), timeout_ms=options.transaction_timeout_ms
        )
        _look_again(options, cluster, decider, tasks, batch)
    committed = next((task.committed for task in tasks if task.committed is not None), None)
    if committed is not None:
        assert batch is not None
        assert decider is not None
        if committed.tasks == len(messages):
            for task in tasks:
                _check_rows(task, batch)
        elif _was_committed_whole(options, cluster, tasks, batch, committed, decider):
            abort_batch(cluster, messages)
            return
        else:
            raise ReplayDiffers(
                f"batch {batch} was partly committed by {committed.tasks} tasks and is now written by {len(messages)}."
                f" Restart with {committed.tasks} tasks: repartition({committed.tasks}, ...) or"
                f" coalesce({committed.tasks}), as it was; for a shuffle without a number, which adaptive execution"
                f" merges, the cores that the query had; for a checkpoint without @tasks, the option"
                f" tasks={committed.tasks}"
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
            place=marker_place(options),
            number=batch + 1,
            metadata=marker.metadata(),
        )

    def commit(cluster: Cluster, task: Prepared, transaction: OpenTransaction) -> None:
        end_transaction(cluster, transaction, Outcome.COMMIT)

    attempts: dict[int, int] = {}
    if batch is not None and decider is not None:
        check_decisions(options, cluster, decider, batch)
        named = [task for task, _ in still_open] + [task for task in tasks if task.committed is not None]
        attempts = {_number(task): task.attempt for task in named}
        decider.decide(cluster, batch, attempts, tasks=len(messages))
        _side_by_side(cluster, mark, still_open)
    for task, transaction in still_open[:1]:
        commit(cluster, task, transaction)
    _side_by_side(cluster, commit, still_open[1:])
    abort_lost_attempts(cluster, query, timeout_ms=options.transaction_timeout_ms)
    if decider is not None and decider.number == batch:
        delete_former_groups(cluster, decider, attempts, tasks=len(messages))


def abort_batch(cluster: Cluster, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort what is still open. Transactions that are committed already stay so: their markers say it."""
    for message in messages:
        if isinstance(message, Prepared) and message.transaction is not None:
            abort_quietly(cluster, message.transaction)


def _look_again(
    options: SinkOptions, cluster: Cluster, decider: Decider, tasks: Sequence[Prepared], batch: int
) -> None:
    """Stop other attempts, of another driver that may still run, and find out what of the batch was committed."""
    if decider.number > batch + 1:
        raise older_checkpoint(decider.query, decider.number - 1, batch)
    decided = decider.decided(batch)
    mine = {task.transaction.transactional_id for task in tasks if task.transaction is not None}
    names = {attempt_id(f"{decider.query}-{number}", attempt) for number, attempt in decided.items()}
    names |= {task.name for task in tasks if task.attempt > 0}  # no attempt of now is sure to have fenced the first
    for name in sorted(names - mine):
        begin_transaction(cluster, name, timeout_ms=options.transaction_timeout_ms)
    for task in tasks:
        for attempt in {0, decided.get(_number(task), 0)}:
            name = attempt_id(task.name, attempt)
            marker = read_marker(cluster, group=name, place=marker_place(options)) if name in names else None
            if task.transaction is not None and marker is not None and marker[0] == batch + 1:
                abort_quietly(cluster, task.transaction)
                task.transaction, task.attempt, task.committed = None, attempt, Marker.parse(marker[1])


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


def _check_rows(task: Prepared, batch: int) -> None:
    marker = task.committed
    if marker is not None and (task.rows, task.content_bytes) != (marker.rows, marker.content_bytes):
        raise ReplayDiffers(
            f"{task.name}: batch {batch} was committed with {marker.rows} rows of {marker.content_bytes} bytes, and"
            f" comes again with {task.rows} rows of {task.content_bytes} bytes. Rows must go to the same tasks again:"
            " no random or time-dependent columns"
        )


def _was_committed_whole(
    options: SinkOptions,
    cluster: Cluster,
    tasks: Sequence[Prepared],
    batch: int,
    committed: Marker,
    decider: Decider,
) -> bool:
    """Return whether all rows of the batch were committed by another number of tasks, and are the rows of now."""
    if committed.batch_rows is None or committed.batch_rows != sum(task.rows for task in tasks):
        return False
    rows = content_bytes = 0
    begun = {task.name for task in tasks if task.attempt == 0}
    decided = decider.decided(batch)
    for number in range(committed.tasks):
        name = attempt_id(f"{decider.query}-{number}", decided.get(number, 0))
        if name not in begun:  # no task of now has aborted what was left open under this id
            begin_transaction(cluster, name, timeout_ms=options.transaction_timeout_ms)
        marker = read_marker(cluster, group=name, place=marker_place(options))
        if marker is not None and marker[0] == batch + 1:
            found = Marker.parse(marker[1])
            rows += found.rows
            content_bytes += found.content_bytes
    return rows == committed.batch_rows and content_bytes == sum(task.content_bytes for task in tasks)


def _stem(tasks: Sequence[Prepared]) -> str:
    """Return `<prefix>-<query>`, with which the names of all tasks begin."""
    return tasks[0].name.rpartition("-")[0]


def _number(task: Prepared) -> int:
    return int(task.name.rpartition("-")[2])
