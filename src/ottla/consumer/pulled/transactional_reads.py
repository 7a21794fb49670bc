"""The records of a pulled consumer that are in a transaction, and the offsets that it commits.

A record joins a transaction before later ones of its partition, or it would be lost: the offset of a later one says
that all before it are done. After an abort all records that were taken are returned again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.consumer.commit.commits import CommitPolicy, InTransactions
from ottla.consumer.model.events import RunFinished
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.pulled.pull import OpenRun, PullBook
from ottla.errors import ConfigError, LifecycleError, RetriableError
from ottla.records import Record, TopicPartition


class TransactionalReads:
    """The transactions of one consumer: one at a time."""

    def __init__(self, book: PullBook) -> None:
        self._book = book
        self._owner: object | None = None
        self._joined: dict[TopicPartition, tuple[OpenRun, list[AnyRecord]]] = {}

    def begin(self, owner: object) -> None:
        """Begin to add records to a transaction of `owner`. Raises `LifecycleError` if another producer's is open."""
        if self._owner is not None and self._owner is not owner:
            raise LifecycleError(
                "records of this consumer are in a transaction of another producer, whose outcome is unknown: close "
                "this consumer and create a new one, which starts at the committed offsets"
            )
        self._owner = owner

    def join(self, records: Iterable[AnyRecord]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Add records. Returns the offsets to commit, and the assignment epoch of each partition.

        Raises `RetriableError` for a record that is no longer this consumer's, and `LifecycleError` if an earlier
        record is missing.
        """
        offsets: dict[TopicPartition, int] = {}
        epochs: dict[TopicPartition, int] = {}
        for name, listed in self._by_partition(records).items():
            opened, numbers = listed
            last = max(numbers)
            if last > max((record.offset for record in opened.run.records[: opened.handed_out]), default=-1):
                raise _not_ours(name, last)  # taken before an abort, and not taken again yet
            taken = opened.run.records[opened.joined : opened.handed_out]
            through = [record for record in taken if record.offset <= last]
            taken_by_caller = [record for record in through if not opened.is_settled(record)]  # others had expired
            missing = next((record.offset for record in taken_by_caller if record.offset not in numbers), None)
            if missing is not None:
                raise LifecycleError(
                    f"send_offsets: found {name} up to offset {last}, wanted offset {missing} as well: the consumer "
                    "returned it before, and it would be lost. All uncommitted records are returned again"
                )
            opened.joined += len(through)
            _, joined = self._joined.setdefault(name, (opened, []))
            joined += through
            offsets[name] = opened.run.records[opened.joined - 1].offset + 1
            epochs[name] = opened.run.epoch
        return offsets, epochs

    def belong_to(self, owner: object) -> bool:
        """Return whether the open transaction is this producer's."""
        return self._owner is owner

    def committed(self) -> list[RunFinished]:
        """Settle the records of the committed transaction. Returns the runs that end by it."""
        settled = [self._book.settle(record, None) for _, joined in self._take() for record in joined]
        return [finished for finished in settled if finished is not None]

    def aborted(self) -> list[RunFinished]:
        """Give back all records that were taken and are not done, after an abort. They are returned again in order."""
        self._take()
        return self._book.close_all()

    def _take(self) -> list[tuple[OpenRun, list[AnyRecord]]]:
        self._owner = None
        taken = list(self._joined.values())
        self._joined.clear()
        return taken

    def _by_partition(self, records: Iterable[AnyRecord]) -> dict[TopicPartition, tuple[OpenRun, set[int]]]:
        listed: dict[TopicPartition, tuple[OpenRun, set[int]]] = {}
        for record in records:
            if not isinstance(record, Record):
                raise ConfigError(f"send_offsets: found {record!r}, wanted the records that the consumer returned")
            opened = self._book.run_of(record)
            if opened is None or opened.run.is_cancelled:
                raise _not_ours(record.topic_partition, record.offset)
            listed.setdefault(record.topic_partition, (opened, set()))[1].add(record.offset)
        return listed


def _not_ours(name: TopicPartition, offset: int) -> RetriableError:
    return RetriableError(
        f"send_offsets: {name}@{offset} no longer belongs to this consumer: its partition was revoked, or the record "
        "is returned again"
    )


def refuse_to_settle(reads: TransactionalReads | None) -> None:
    """Raise `LifecycleError` if records are settled by transactions, and not one by one."""
    if reads is not None:
        raise LifecycleError(
            "this consumer's records are committed by transactions (commit=InTransactions()): call "
            "transaction.send_offsets(records, consumer)"
        )


def transactional_reads(
    book: PullBook, commit: CommitPolicy | InTransactions | None, *, settings: Any, dead_letter_topic: str | None
) -> TransactionalReads | None:
    """Return the transactions of a consumer with ``commit=InTransactions()``; None for others. Raises `ConfigError` for
    settings that contradict it."""
    if not isinstance(commit, InTransactions):
        return None
    if dead_letter_topic is not None:
        raise ConfigError(
            "dead_letter_topic: found one with commit=InTransactions(), wanted none: a dead letter would not be part "
            "of the transaction. Records that cannot be decoded are returned with a Malformed value; send them on in "
            "the transaction"
        )
    if settings["isolation.level"] != "read_committed":
        raise ConfigError(
            f"isolation.level: found {settings['isolation.level']} with commit=InTransactions(), wanted "
            "read_committed: the offsets of an open transaction must not be read, nor its records"
        )
    return TransactionalReads(book)
