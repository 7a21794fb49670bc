"""Many records to one topic with one delivery: beside librdkafka's own work, a record costs one counter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from ottla.errors import DeliveryPending, OttlaError
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.producer.bulk import BulkState, FailedPart, Outgoing, as_events, outgoing
from ottla.producer.encoded import bad_arguments, encoded, header_list, placed, topic_name
from ottla.producer.later import DelayedSend
from ottla.producer.message_ids import with_message_id
from ottla.producer.record_sends import handled
from ottla.producer.serializing import Encode
from ottla.producer.signature import BulkOptions
from ottla.producer.tracing import bulk_ended, with_added
from ottla.producer.transactions import ProducerTransactionState
from ottla.quantities import Span, timeout
from ottla.records import Header
from ottla.sync.produce.delivery import Delivery
from ottla.sync.produce.reports import SERVE_EVERY, ReportService

if TYPE_CHECKING:
    from ottla.sync.produce.producer import Producer

_IN_PASSING: Final = 2 * SERVE_EVERY - 1


class Bulk(BulkState):
    """The delivery of many records. Failures that `result` does not raise are raised by the producer's next flush."""

    _message: bool | None = None  # as a Delivery's: None until it is settled

    def __init__(self, topic: str, owner: ReportService) -> None:
        super().__init__(topic, owner.tracker)
        self._owner = owner
        # One byte per settled record. Reports may run in two threads at once: an append is atomic, `+= 1` is not.
        self._settled = settled = bytearray()
        settle, is_over = settled.append, self._is_over

        def reported(error: Any, message: Any) -> None:
            if error is None:
                settle(0)
                if self._all_sent:
                    is_over()
            else:
                self._not_delivered(error, message)

        self.reported: Callable[[Any, Any], None] = reported
        """The client's delivery report for one of the records."""
        self._done = threading.Event()
        self._callbacks: list[Callable[[Any], None]] = []

    @property
    def pending(self) -> int:
        """Records that are not settled yet."""
        return self.sent - len(self._settled)

    def done(self) -> bool:
        """Return whether every record is settled."""
        return self._done.is_set()

    def result(self, timeout_s: Span | None = None) -> int:
        """Wait until every record is settled; the number acknowledged. Raises `DeliveryError` with those that failed,
        or `DeliveryPending` after `timeout_s`."""
        self._await_all(self._limit_s(timeout_s))
        error = self._error()
        if error is not None:
            if not self._owner.is_calling_back:
                self.mark_handled()
            raise error
        return self.sent

    def exception(self, timeout_s: Span | None = None) -> OttlaError | None:
        """Wait, then give the error, or None when every record was acknowledged. `flush` still raises the failures.
        Raises `DeliveryPending` after `timeout_s`."""
        self._await_all(self._limit_s(timeout_s))
        return self._error()

    def _limit_s(self, timeout_s: Span | None) -> float:
        return self._owner.longest_wait_s if timeout_s is None else timeout(self.topic, timeout_s)

    def _await_all(self, limit_s: float) -> None:
        self._owner.someone_waits()
        if not self._done.wait(limit_s):
            raise DeliveryPending(
                f"{self.topic}: {self.pending:,} of {self.sent:,} records are not acknowledged after {limit_s:g} s; "
                "they are still being tried"
            )

    def add_done_callback(self, callback: Callable[[Bulk], None]) -> None:
        """Call `callback(bulk)` in the producer's own thread once every record is settled."""
        self._callbacks.append(callback)
        if self._done.is_set():
            self._owner.run_callbacks(self, self._callbacks)

    def _not_delivered(self, error: Any, message: Any) -> None:
        key, partition = message.key(), message.partition()
        self._owner.explain_then(error, message, lambda explained: self._gave_up(key, partition, explained))

    def _gave_up(self, key: bytes | None, partition: int | None, error: OttlaError) -> None:
        self.failed(key, partition, error)
        self.settled_one()

    def failed(self, key: bytes | None, partition: int | None, error: OttlaError) -> None:
        """Record that one of the records was not delivered."""
        part = FailedPart(self.topic, key)
        failure = self._owner.failure(part, error, partition)
        self._failed.append((part, failure))
        self._owner.tracker.failed(part, failure)

    def settled_one(self) -> None:
        """Record that one of the records is acknowledged, or failed."""
        self._settled.append(0)
        if self._all_sent:
            self._is_over()

    def settled_as(self, delivery: Delivery) -> None:
        """Record that one of the records is settled which was sent with a delivery of its own."""
        error = delivery._error
        if error is not None:
            # The tracker may not have it: a flush told somebody else, or there were too many to keep.
            kept = self._owner.tracker.failure_of(delivery)
            self._failed.append((delivery, kept or self._owner.failure(delivery, error, None)))
        self.settled_one()

    def _is_over(self) -> None:
        if len(self._settled) < self.sent:
            return
        self._message = True
        self._done.set()
        if self._callbacks:
            self._owner.run_callbacks(self, self._callbacks)


def send_bulk(producer: Producer[Any, Any], topic: str, records: Iterable[Sequence[Any]], options: BulkOptions) -> Bulk:
    """Send records one after the other, in order. See `Producer.send_many`."""
    producer._check_bulk_options(options)
    later: DelayedSend | None = None
    shared: list[Header] = []
    if producer._can_produce_bulk_directly:
        topic, later, shared = producer._apply_bulk_options(topic, options)
    elif "priority" not in options:
        topic = topic_name(topic)
    target = topic if later is None else later.topic
    bulk = _new_bulk(producer, target, detached=options.get("detached", False))
    try:
        if producer._can_produce_bulk_directly:
            added: list[Header] = []
            if producer._spans is not None:
                added, span = producer._spans.begin_bulk(topic)
                if span is not None:
                    bulk.add_done_callback(partial(bulk_ended, span))
            records = as_events(topic, records, producer._serializer.value, options)
            _send_plainly(producer, bulk, topic, records, added, producer._serialize, later, shared)
        else:
            _send_one_by_one(producer, bulk, topic, records, options)
    except BaseException as error:
        error.add_note(f"send_many: {bulk.sent:,} records before this one are on their way to {target}")
        raise
    return bulk


def send_encoded(producer: Producer[Any, Any], topic: str, records: Iterable[tuple[Any, Any, Any, int]]) -> Bulk:
    """Send (value, key, headers, partition) that are bytes already, past the producer's serdes and partitioner."""
    bulk = _new_bulk(producer, topic)
    with_time = ((*record, None) for record in records)
    _send_plainly(producer, bulk, topic, with_time, [], encoded)
    return bulk


def _new_bulk(producer: Producer[Any, Any], topic: str, *, detached: bool = False) -> Bulk:
    bulk = Bulk(topic, producer._reports)
    producer._reports.tracker.outstanding.append(bulk)
    sends = handled.get()
    if sends is not None and not detached:
        sends.add(bulk)
    return bulk


def _send_plainly(
    producer: Producer[Any, Any],
    bulk: Bulk,
    topic: str,
    records: Iterable[Sequence[Any]],
    added: list[Header],
    encode: Encode,
    later: DelayedSend | None = None,
    shared: Sequence[Header] = (),
) -> None:
    """Send through librdkafka. Headers in `added` are for records that have none of the name; those in `shared` replace
    the record's own."""
    # As terse as `Producer.send`, for the same reason; a Delivery and a call per record are what it saves.
    sent = 0
    target = topic if later is None else later.topic
    produce, report, limit_of = producer._client.produce, bulk.reported, producer._limit_of
    ids = producer._message_ids
    serve = producer._reports.serve_in_passing
    states = None if producer._transactions is None else producer._transactions.states
    try:
        for record in records:
            if states is not None and states.state is not ProducerTransactionState.OPEN:
                states.check_can_send()
            if record.__class__ is not tuple and record.__class__ is not Outgoing:
                record = outgoing(topic, sent, record)
            size = len(record)
            explicit = None
            timestamp_ms = 0
            if size == 3:
                value, key, headers = record
            elif size == 2:
                value, key = record
                headers = None
            elif size == 1:
                (value,) = record
                key = headers = None
            else:
                value, key, headers, explicit, timestamp = record if size == 5 else outgoing(topic, sent, record)
                if explicit is not None or timestamp is not None:
                    explicit, timestamp = placed(topic, explicit, timestamp)
                    timestamp_ms = timestamp or 0
            if added:
                headers = with_added(header_list(topic, headers or ())[0], added)
            if ids is not None:
                headers = with_message_id(topic, headers or (), None, ids)
            if shared:
                headers = [*(header for header in headers or () if header[0] != EXPIRES_HEADER), *shared]
            key, value, headers, most = encode(topic, key, value, headers)
            if later is not None:
                explicit, key, headers, most = producer._into_slot(later, topic, explicit, key, value, headers, most)
            if most > limit_of.get(target, -1):
                producer._check_size(target, key, value, headers)
            partition = -1 if explicit is None else explicit
            try:
                produce(target, value, key, partition, report, None, timestamp_ms, headers or None)
            except (BufferError, KafkaException) as error:
                _handle_rejected(producer, bulk, error, target, value, key, partition, timestamp_ms, headers)
            except (TypeError, AttributeError, ValueError, OverflowError) as error:
                raise bad_arguments(target, headers, error, partition=partition, timestamp_ms=timestamp_ms) from error
            sent += 1
            if not sent & _IN_PASSING:
                serve()
    finally:
        bulk.all_sent(sent)


def _handle_rejected(
    producer: Producer[Any, Any],
    bulk: Bulk,
    error: BufferError | KafkaException,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    partition: int,
    timestamp_ms: int,
    headers: list[Header],
) -> None:
    def attempt() -> None:
        try:
            producer._client.produce(topic, value, key, partition, bulk.reported, None, timestamp_ms, headers or None)
        except KafkaException as refusal:
            refused(refusal)

    def refused(refusal: KafkaException) -> None:
        explained = producer._explained(refusal, topic, partition, key, value, headers)
        bulk.failed(key, partition, explained)
        bulk.settled_one()

    if isinstance(error, KafkaException):
        refused(error)
    else:
        producer._with_room(topic, attempt)


def _send_one_by_one(
    producer: Producer[Any, Any], bulk: Bulk, topic: str, records: Iterable[Sequence[Any]], options: BulkOptions
) -> None:
    """Send one by one, where a record needs more than librdkafka does: Ottla's own partitioners, warnings. Each has a
    span of its own."""
    sent = 0
    alone: BulkOptions = {**options, "detached": True}  # the bulk is what belongs to a record
    try:
        for record in records:
            one = outgoing(topic, sent, record)
            producer.send(
                topic,
                one.value,
                key=one.key,
                headers=one.headers,
                partition=one.partition,
                timestamp_ms=one.timestamp_ms,
                on_delivery=bulk.settled_as,
                **alone,
            )
            sent += 1
    finally:
        bulk.all_sent(sent)
