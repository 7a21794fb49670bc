"""Writing record batches to the leaders of their partitions, in order, exactly once into the log.

Each partition has a queue. Batches leave it in order, up to `max.in.flight.requests.per.connection` requests per broker
at a time, with the sequence numbers of an idempotent producer (KIP-98): after a lost answer or a moved leader all
unanswered batches of the partition go again with their old numbers, and the broker drops what it already has.

The second batch of a partition waits until the first is acknowledged. A broker without state for a producer accepts any
sequence number (KAFKA-15591). It would accept the second batch if the first was refused because the broker did not know
yet that it leads.

Which error does what: a moved leader, a lost connection, too few replicas → again, until `delivery.timeout.ms`.
A batch behind one that failed is refused as out of order: it goes again with it. Anything else fails the write, and
`DeliveryError` says how many records were not acknowledged; its cause is an `InputError` where a retry would not help.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ottla.config import Principal, principal_of
from ottla.errors import BrokerUnavailable, DeliveryError, FencedError, UndeliveredRecord
from ottla.topics import TopicPartition
from ottla.wire_client.cluster.cluster_client import LEADER_MOVED, Cluster
from ottla.wire_client.errors import BatchRefused, BrokerRefused, PartitionUnavailable, WriteForbidden
from ottla.wire_client.net.broker_connection import Connection
from ottla.wire_client.producing.open_transactions import OpenTransaction, enlist_partitions
from ottla.wire_client.producing.outgoing_batch import OutgoingBatch, finish_batch
from ottla_wire.protocol import ApiKey, ErrorCode

_AGAIN = LEADER_MOVED | {
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CORRUPT_MESSAGE,
}
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_INVALID = _TOO_LARGE | {
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}
_FORBIDDEN = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_MAX_SEQUENCE = 0x7FFFFFFF


@dataclass(slots=True)
class _Outgoing:
    """One finished batch that is being sent."""

    number: int  # in the order of sending, over all partitions
    key: TopicPartition
    data: bytes
    row_count: int
    deadline: float
    tag: Any


@dataclass(slots=True)
class _Queue:
    """The batches of one partition: those in flight first, then those not sent yet."""

    waiting: deque[_Outgoing] = field(default_factory=deque)
    in_flight: deque[_Outgoing] = field(default_factory=deque)
    next_sequence: int = 0
    is_begun: bool = False  # a batch was acknowledged, so the broker knows the number that comes next
    failed: str | None = None  # set while batches must go again and no new one may leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Result of a write. `ranges` has the first and last offset written per partition."""

    rows: int
    """How many records were written."""
    bytes_sent: int
    """The bytes of their batches, compressed."""
    ranges: dict[TopicPartition, tuple[int, int]]
    appended_ms: dict[TopicPartition, int]
    """When the newest batch was appended, by the broker's clock, where the topic has `LogAppendTime`."""


class ProduceClient:
    """An idempotent producer of whole batches. Not thread-safe. `flush` ends with everything answered."""

    def __init__(
        self,
        cluster: Cluster,
        transaction: OpenTransaction | None = None,
        *,
        acknowledged: Callable[[TopicPartition, Any, int], None] = lambda _key, _tag, _base_offset: None,
        refused: Callable[[TopicPartition, Any, Sequence[int]], None] = lambda _key, _tag, _rows: None,
    ) -> None:
        """`transaction`: everything is written inside it, and stays invisible to committed readers until it ends.

        `acknowledged` is called with a batch's tag and base offset (-1 if the broker does not say), `refused` before an
        error with the tag of the batch it is about, and the records in it that the broker named (KIP-467).
        """
        self._acknowledged = acknowledged
        self._refused = refused
        self._cluster = cluster
        self._settings = cluster.settings
        self._transaction = transaction
        self._enlisted: set[TopicPartition] = set()
        self._producer: tuple[int, int] | None = None
        if transaction is not None:
            self._producer = (transaction.producer_id, transaction.producer_epoch)
        self._queues: dict[TopicPartition, _Queue] = {}
        self._requests: dict[Connection, deque[list[_Outgoing]]] = {}
        self._rows = 0
        self._bytes = 0
        self._ranges: dict[TopicPartition, tuple[int, int]] = {}
        self._appended_ms: dict[TopicPartition, int] = {}
        self._numbers = count()

    def _producer_id(self, topic: str) -> tuple[int, int]:
        """Return (producer id, epoch), asked for on first use, which is a write to `topic`; (-1, -1) without
        idempotence."""
        if self._producer is None:
            self._producer = self._init_producer_id(topic) if self._settings.enable_idempotence else (-1, -1)
        return self._producer

    def send(self, topic: str, batches: Iterable[OutgoingBatch]) -> None:
        """Send these batches; waits while too much is unanswered (back-pressure). Answers may come until `flush`."""
        producer_id, epoch = self._producer_id(topic)
        waiting_bytes = 0
        batches = list(batches)
        self._enlist({TopicPartition(topic, batch.partition) for batch in batches})
        for batch in batches:
            key = TopicPartition(topic, batch.partition)
            queue = self._queues.setdefault(key, _Queue())
            data = finish_batch(
                batch,
                compression=self._settings.compression,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=queue.next_sequence if producer_id >= 0 else -1,
                is_transactional=self._transaction is not None,
            )
            queue.next_sequence = (queue.next_sequence + batch.row_count) & _MAX_SEQUENCE
            deadline = self._cluster.now() + self._settings.delivery_timeout_ms / 1000
            queue.waiting.append(_Outgoing(next(self._numbers), key, data, batch.row_count, deadline, batch.tag))
            waiting_bytes += len(data)
            if waiting_bytes >= self._settings.max_request_size // 2:
                waiting_bytes = 0
                self._move()
        while any(queue.waiting for queue in self._queues.values()):
            self._move()
            if any(queue.waiting and queue.in_flight for queue in self._queues.values()):
                self._receive_one()

    def flush(self) -> Written:
        """Wait until every batch is acknowledged; the account of everything since the last flush."""
        while any(queue.waiting or queue.in_flight for queue in self._queues.values()):
            self._move()
            if any(self._requests.values()):
                self._receive_one()
        written = Written(rows=self._rows, bytes_sent=self._bytes, ranges=self._ranges, appended_ms=self._appended_ms)
        self._rows, self._bytes, self._ranges, self._appended_ms = 0, 0, {}, {}
        return written

    def next_transaction(self) -> None:
        """Begin the next transaction of the same producer and epoch, after a commit."""
        self._enlisted.clear()

    def abandon(self) -> None:
        """Drop queued and in-flight batches, and close the connections with pending responses."""
        for connection, requests in self._requests.items():
            if requests:
                connection.close()
        self._requests.clear()
        self._queues.clear()
        if self._transaction is None:
            self._producer = None

    # Sending

    def _enlist(self, partitions: set[TopicPartition]) -> None:
        """Add partitions to the transaction at the coordinator, before the first record goes there."""
        if self._transaction is not None and (new := partitions - self._enlisted):
            enlist_partitions(self._cluster, self._transaction, new)
            self._enlisted |= new

    def _move(self) -> None:
        """Send waiting batches to their leaders; take answers where the pipeline is full."""
        try:
            self._retry_failed()
            while True:
                request = self._next_requests()
                if not request:
                    return
                for node_id, batches in request.items():
                    self._send_request(node_id, batches)
        except BrokerUnavailable as error:
            self._broken(error)

    def _next_requests(self) -> dict[int, list[_Outgoing]]:
        """Return at most one batch per partition and `max.request.size` bytes per leader."""
        requests: dict[int, list[_Outgoing]] = {}
        sizes: dict[int, int] = {}
        for key, queue in self._queues.items():
            is_held = bool(queue.in_flight) and not queue.is_begun
            if not queue.waiting or queue.failed is not None or is_held:
                continue
            self._cluster.topic(key.topic)
            leader = self._cluster.leader(key)
            if leader < 0:
                queue.failed = "no leader"
                continue
            size = len(queue.waiting[0].data)
            if leader in requests and sizes[leader] + size > self._settings.max_request_size:
                continue
            requests.setdefault(leader, []).append(queue.waiting[0])
            sizes[leader] = sizes.get(leader, 0) + size
        return requests

    def _send_request(self, node_id: int, batches: list[_Outgoing]) -> None:
        connection = self._cluster.broker(node_id, borrower=self)
        requests = self._requests.setdefault(connection, deque())
        limit = self._settings.max_in_flight if self._settings.enable_idempotence else 1
        while len(requests) >= limit:
            self._receive(connection)
        batches = [b for b in batches if self._queues[b.key].failed is None]  # an answer may just have failed some
        if not batches:
            return
        topics: dict[str, list[dict[str, Any]]] = {}
        for batch in batches:
            topics.setdefault(batch.key.topic, []).append({"index": batch.key.partition, "records": batch.data})
        wants_answer = self._settings.acks != 0
        connection.send(
            ApiKey.PRODUCE,
            {
                "transactional_id": None if self._transaction is None else self._transaction.transactional_id,
                "acks": self._settings.acks,
                "timeout_ms": self._settings.request_timeout_ms,
                "topic_data": [{"name": name, "partition_data": entries} for name, entries in topics.items()],
            },
            expects_response=wants_answer,
        )
        for batch in batches:
            queue = self._queues[batch.key]
            queue.waiting.popleft()
            if wants_answer:
                queue.in_flight.append(batch)
            else:
                self._count(batch)
        if wants_answer:
            requests.append(batches)

    # Answers

    def _receive_one(self) -> None:
        for connection, requests in self._requests.items():
            if requests:
                try:
                    self._receive(connection)
                except BrokerUnavailable as error:
                    self._broken(error)
                return

    def _receive(self, connection: Connection) -> None:
        response = connection.receive()
        self._requests[connection].popleft()
        for topic in response.responses:
            for entry in topic.partition_responses:
                self._answer(TopicPartition(topic.name, entry.index), entry)

    def _answer(self, key: TopicPartition, entry: Any) -> None:
        queue = self._queues[key]
        batch = queue.in_flight.popleft() if queue.in_flight else None
        if batch is None:
            return
        code = ErrorCode.of(entry.error_code)
        if code is ErrorCode.NONE or code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            queue.is_begun = True
            self._count(batch)
            self._acknowledged(key, batch.tag, entry.base_offset)
            if entry.log_append_time_ms >= 0:
                self._appended_ms[key] = entry.log_append_time_ms
            if entry.base_offset >= 0:
                first, last = self._ranges.get(key, (entry.base_offset, -1))
                end = entry.base_offset + batch.row_count - 1
                self._ranges[key] = (min(first, entry.base_offset), max(last, end))
        elif code in _AGAIN:
            if code in LEADER_MOVED:
                self._cluster.forget_leaders(key.topic)
            self._put_back(queue, batch, code.name)
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.failed is not None:
            self._put_back(queue, batch, queue.failed)  # a batch before it failed: both go again
        elif code in _FENCED:
            raise FencedError(f"{key}: the broker returned {code.name}: a newer producer took over")
        else:
            message = getattr(entry, "error_message", None)
            named = [each.batch_index for each in getattr(entry, "record_errors", None) or ()]
            self._refused(key, batch.tag, [index for index in named if 0 <= index < batch.row_count])
            self._fail(f"{code.name}{f' ({message})' if message else ''}", key, batch, self._cause(key, code, message))

    def _put_back(self, queue: _Queue, batch: _Outgoing, reason: str) -> None:
        """Put a batch back in its old place, before what was never sent."""
        queue.failed = queue.failed or reason
        queue.waiting = deque(sorted([*queue.waiting, batch], key=lambda waiting: waiting.number))
        if self._cluster.now() >= batch.deadline:
            self._fail(f"not acknowledged within delivery.timeout.ms: {reason}", batch.key, batch)

    def _retry_failed(self) -> None:
        """Let failed partitions go again, once none of their batches is in flight any more."""
        again = [queue for queue in self._queues.values() if queue.failed is not None]
        if not again:
            return
        while any(queue.in_flight for queue in again):
            self._receive_one()
        self._cluster.pause()
        for queue in again:
            if queue.waiting and self._cluster.now() >= queue.waiting[0].deadline:
                batch = queue.waiting[0]
                self._fail(f"not acknowledged within delivery.timeout.ms: {queue.failed}", batch.key, batch)
            queue.failed = None
            if queue.waiting:
                self._cluster.forget_leaders(queue.waiting[0].key.topic)

    def _broken(self, error: BrokerUnavailable) -> None:
        """Send what a lost connection owed again, in order, over a new one."""
        for connection in [c for c in self._requests if not c.is_open]:
            for batches in self._requests.pop(connection):
                for batch in batches:
                    queue = self._queues[batch.key]
                    if batch in queue.in_flight:
                        queue.in_flight.remove(batch)
                        self._put_back(queue, batch, str(error))
        now = self._cluster.now()
        for queue in self._queues.values():
            if queue.waiting:
                if now >= queue.waiting[0].deadline:
                    self._fail(
                        f"not acknowledged within delivery.timeout.ms: {error}", queue.waiting[0].key, queue.waiting[0]
                    )
                self._cluster.forget_leaders(queue.waiting[0].key.topic)
        self._cluster.pause()

    def _count(self, batch: _Outgoing) -> None:
        self._rows += batch.row_count
        self._bytes += len(batch.data)

    def _fail(self, reason: str, key: TopicPartition, batch: _Outgoing, cause: BrokerRefused | None = None) -> None:
        """Give up the whole write: later batches of the partition would be out of order."""
        lost = batch.row_count + sum(
            b.row_count for queue in self._queues.values() for b in (*queue.waiting, *queue.in_flight) if b is not batch
        )
        self.abandon()
        raise DeliveryError(
            [UndeliveredRecord(topic=key.topic, partition=key.partition, key=None, error=reason)], total=lost
        ) from cause

    def _init_producer_id(self, topic: str) -> tuple[int, int]:
        deadline = self._cluster.now() + self._settings.api_timeout_ms / 1000
        while True:
            connection = self._cluster.any_broker()
            answer = connection.call(
                ApiKey.INIT_PRODUCER_ID,
                {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1},
            )
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                return answer.producer_id, answer.producer_epoch
            if code in _FORBIDDEN:  # refused here, before the first record, if it may write to no topic at all
                raise self._forbidden(topic, code, "enable.idempotence=true needs a producer id")
            if code not in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *LEADER_MOVED):
                raise BrokerRefused(f"enable.idempotence=true needs a producer id, and the broker returned {code.name}")
            if self._cluster.now() >= deadline:
                raise PartitionUnavailable(f"no producer id: {code.name}")
            self._cluster.pause()

    def _cause(self, key: TopicPartition, code: ErrorCode, message: str | None) -> BrokerRefused | None:
        """Return why a retry would not help; None where it may."""
        if code in _FORBIDDEN:
            return self._forbidden(key.topic, code, message or f"partition {key.partition}")
        text = f"{key}: the broker returned {code.name}{f' ({message})' if message else ''}"
        return BatchRefused(text, is_too_large=code in _TOO_LARGE) if code in _INVALID else None

    def _forbidden(self, topic: str, code: ErrorCode, text: str) -> WriteForbidden:
        principal = principal_of({"sasl.username": self._settings.sasl_username})
        transactional_id = "" if self._transaction is None else self._transaction.transactional_id
        asking = Principal(principal=principal, topics=(topic,), transactional_id=transactional_id, writes=True)
        servers = ",".join(f"{host}:{port}" for host, port in self._settings.bootstrap_servers)
        return WriteForbidden(f"{topic}: {asking.refused(code.name, text, servers=servers)}")
