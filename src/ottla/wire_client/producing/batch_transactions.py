"""Transactions of whole batches, one after the other, by one writer (KIP-98, the protocol before KIP-890).

    writer = BatchTransactions(cluster, "my-id", timeout_ms=60_000)       # fences whoever had the id
    appended_ms = writer.commit({"orders": [batch, ...]})                 # all of it, or nothing

What a transaction costs is a handful of requests, whatever is in it: partitions are enlisted once, every partition gets
its batches in as few requests as fit, and the commit is one more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.errors import DeliveryError, FencedError, OttlaError
from ottla.topics import TopicPartition
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.errors import PartitionsRefused
from ottla.wire_client.producing.batch_producer import ProduceClient
from ottla.wire_client.producing.open_transactions import Outcome, abort_quietly, begin_transaction, end_transaction
from ottla.wire_client.producing.outgoing_batch import OutgoingBatch
from ottla_wire.protocol import ErrorCode

_OF_THE_RECORDS: Final = frozenset(
    code.name
    for code in (
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )
)
"""Answers that the same records would get again."""


class BatchesRefused(OttlaError, has_page=False):
    """Leave out the named batches: they could not be written, so nothing of the transaction was."""

    def __init__(self, reason: str, batches: Sequence[tuple[Any, Sequence[int]]], *, is_away: bool = False) -> None:
        self.reason = reason
        self.is_away = is_away
        """Whether nothing is wrong with the batches: their partition could not be written to in time."""
        self.batches = batches
        """The tag of each, and the numbers of the records in it that the broker named, which may be none."""
        super().__init__(reason)


class BatchTransactions:
    """The transactions of one `transactional.id`. Not thread-safe."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._refusals: list[tuple[Any, Sequence[int]]] = []
        self._transaction = begin_transaction(cluster, transactional_id, timeout_ms=timeout_ms)
        self._client = self._new_client()
        self._is_broken = False

    def commit(self, topics: Mapping[str, Sequence[OutgoingBatch]]) -> dict[TopicPartition, int]:
        """Write the batches in one transaction. Returns when the newest batch of each partition was appended, in epoch
        milliseconds, of the topics with `LogAppendTime`.

        Raises `BatchesRefused` where batches are to blame, `FencedError` where another writer has the id now, and
        `RetriableError` where the coordinator is; whether that transaction was committed is then not known.
        """
        if self._is_broken:
            self._reset()
        self._is_broken = True
        try:
            for topic, batches in topics.items():
                self._client.send(topic, batches)
            written = self._client.flush()
        except FencedError:
            raise
        except PartitionsRefused as error:
            tags = [
                (batch.tag, ())
                for topic, batches in topics.items()
                for batch in batches
                if TopicPartition(topic, batch.partition) in error.partitions
            ]
            abort_quietly(self._cluster, self._transaction)
            raise BatchesRefused(str(error), tags) from error
        except DeliveryError as error:
            abort_quietly(self._cluster, self._transaction)
            failed = error.undelivered[0]
            if failed.error.partition(" ")[0] in _OF_THE_RECORDS:
                raise BatchesRefused(failed.error, list(self._refusals)) from error
            at = [(batch.tag, ()) for batch in topics[failed.topic] if batch.partition == failed.partition]
            raise BatchesRefused(failed.error, at, is_away=True) from error
        except BaseException:
            self._client.abandon()
            raise
        end_transaction(self._cluster, self._transaction, Outcome.COMMIT)
        self._is_broken = False
        self._client.next_transaction()
        return written.appended_ms

    def close(self) -> None:
        """Release it. What is open is aborted when its id is used again, or times out."""
        self._client.abandon()

    def _reset(self) -> None:
        """Start again after a transaction that was not committed, in the next epoch: sequence numbers begin at 0."""
        self._transaction = begin_transaction(
            self._cluster, self._id, timeout_ms=self._timeout_ms, after=self._transaction
        )
        self._client = self._new_client()

    def _new_client(self) -> ProduceClient:
        self._refusals = []
        return ProduceClient(self._cluster, self._transaction, refused=self._refused)

    def _refused(self, _: TopicPartition, tag: Any, records: Sequence[int]) -> None:
        self._refusals.append((tag, records))
