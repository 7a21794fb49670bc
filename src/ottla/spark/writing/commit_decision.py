"""Which attempts' transactions a driver commits: decided once for each batch, by one driver.

Attempts of one task have transactional ids of their own, so a late copy (`spark.speculation`) fences none that has won.
Neither does an attempt of a restarted query fence every attempt of the query before it. So a driver decides before it
commits: in a transaction of its own, `<prefix>-<query>`, it writes the batch and the attempts that it commits.

- Beginning that transaction fences a driver that is about to decide.
- A driver that finds a decision on its own batch fences the attempts that it names, and then looks which of them were
  committed. Its own decision names those again.
- A driver that finds a decision on a later batch commits nothing.

Attempts that lost may have left transactions open, which hold readers of committed records back. The driver aborts them
after the batch: it lists the open transactions of the query, because Spark does not say which attempts there were.
"""

from __future__ import annotations

import binascii
import logging
import zlib
from base64 import b85decode, b85encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.errors import InputError, OttlaError
from ottla.records import TopicPartition
from ottla.wire_client import (
    Cluster,
    OpenTransaction,
    Outcome,
    add_marker,
    begin_transaction,
    end_transaction,
    read_marker,
)
from ottla.wire_client.group.group_offsets import delete_group
from ottla.wire_client.producing.open_transactions import list_open_transactions

log = logging.getLogger(__name__)

_NONE: Final = "-"
"""Stands for a task of which nothing is committed."""
_MOST_TEXT: Final = 1 << 20
"""The longest list of attempts that is read: of more than 100,000 tasks."""


def attempt_id(task: str, attempt: int) -> str:
    """Return the transactional id of one attempt of a task. The first has the task's name."""
    return task if attempt == 0 else f"{task}-{attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """A driver's right to decide, and the last decision as it found it."""

    query: str
    place: TopicPartition
    transaction: OpenTransaction
    number: int
    """The decided batch plus one; 0 before the first."""
    attempts: Mapping[int, int]
    """The attempts that were to be committed, by their tasks."""
    tasks: int
    """The number of tasks, those without rows included."""

    @classmethod
    def take_over(cls, cluster: Cluster, *, query: str, place: TopicPartition, timeout_ms: int) -> Decider:
        """Fence every other driver of the query that has not decided yet, and read the last decision."""
        transaction = begin_transaction(cluster, query, timeout_ms=timeout_ms)
        number, metadata = read_marker(cluster, group=query, place=place) or (0, "")
        words = _parse(metadata, query)
        attempts = {task: int(attempt) for task, attempt in enumerate(words) if attempt != _NONE}
        return cls(
            query=query, place=place, transaction=transaction, number=number, attempts=attempts, tasks=len(words)
        )

    def decided(self, batch: int) -> Mapping[int, int]:
        """Return the attempts, by their tasks, that were to be committed of this batch."""
        return self.attempts if self.number == batch + 1 else {}

    def decide(self, cluster: Cluster, batch: int, attempts: Mapping[int, int], *, tasks: int) -> None:
        """Write the decision. Raises FencedError when another driver has taken over."""
        add_marker(
            cluster,
            self.transaction,
            group=self.query,
            place=self.place,
            number=batch + 1,
            metadata=_metadata(attempts, tasks),
        )
        end_transaction(cluster, self.transaction, Outcome.COMMIT)


def abort_lost_attempts(cluster: Cluster, query: str, *, timeout_ms: int) -> None:
    """Abort the open transactions of the query's tasks, once a batch is committed. An attempt that begins later finds
    its marker. Never fails: what stays open times out."""
    try:
        for name in list_open_transactions(cluster, begins_with=f"{query}-"):
            begin_transaction(cluster, name, timeout_ms=timeout_ms)
    except OttlaError as error:
        log.debug("open transactions of lost attempts of %s were not aborted: %s", query, error)


def delete_former_groups(cluster: Cluster, before: Decider, attempts: Mapping[int, int], *, tasks: int) -> None:
    """Delete the groups of markers that the batch before had, and this one, which is committed, has not: those of
    later attempts, and of tasks where there are fewer now. Never fails: a group that stays expires
    (`offsets.retention.minutes`)."""
    kept = {attempt_id(f"{before.query}-{task}", attempt) for task, attempt in attempts.items()}
    kept |= {f"{before.query}-{task}" for task in range(tasks)}
    former = {attempt_id(f"{before.query}-{task}", attempt) for task, attempt in before.attempts.items()}
    former |= {f"{before.query}-{task}" for task in range(before.tasks)}
    try:
        for name in sorted(former - kept):
            delete_group(cluster, name)
    except OttlaError as error:
        log.debug("former groups of %s were not deleted: %s", before.query, error)


def _metadata(attempts: Mapping[int, int], tasks: int) -> str:
    """Return the attempts as text, compressed: a broker takes 4 KB (offset.metadata.max.bytes)."""
    text = " ".join(str(attempts.get(task, _NONE)) for task in range(tasks))
    return b85encode(zlib.compress(text.encode(), 9)).decode()


def _parse(metadata: str, query: str) -> list[str]:
    if not metadata:
        return []
    try:
        unpacking = zlib.decompressobj()
        words = unpacking.decompress(b85decode(metadata), _MOST_TEXT).decode().split()
        if unpacking.unconsumed_tail:
            raise ValueError(f"more than {_MOST_TEXT} bytes")
        if not all(word.isdecimal() or word == _NONE for word in words):
            raise ValueError("a word that is no number")
        return words
    except (ValueError, binascii.Error, zlib.error) as error:
        raise InputError(
            f"group {query}: found an offset whose metadata is no list of attempts ({error}): it was committed by"
            " another program. Delete the group while the query is stopped"
        ) from None
