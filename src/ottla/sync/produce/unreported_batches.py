"""Batches of a transaction's records that are sent without delivery reports.

The commit says what became of all of them: librdkafka refuses it when a record of the transaction was not delivered. A
caller that then needs to know which one it was sends them again, each with a delivery of its own.

A report costs as much as the record: an object, a call, and a turn at the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException

from ottla.errors import LifecycleError
from ottla.producer.encoded import bad_arguments, encoded, placed
from ottla.producer.size import FIXED_BYTES
from ottla.records import Headers
from ottla.sync.produce.bulk import Bulk

if TYPE_CHECKING:
    from ottla.sync.produce.producer import Producer

EncodedRecord = tuple[bytes | None, bytes | None, Headers, int | None, int | None]
"""Value, key, headers, partition, timestamp: as `Outgoing` has them, encoded."""

_TOGETHER: Final = 1_000
"""Records of one call of the client, which keeps the interpreter's lock."""


class UnreportedBatch(Bulk):
    """Settled as a whole, once the client has nothing left to deliver."""

    @property
    def is_sent(self) -> bool:
        """Return whether the client has all of it."""
        return self._all_sent

    def client_is_empty(self) -> None:
        """Settle them, as the client is empty: their transaction can be committed, or it cannot."""
        self._settled.extend(bytes(self.pending))
        self._is_over()


def can_send_unreported(producer: Producer[Any, Any]) -> bool:
    """Return whether a batch without reports is written as the same records would be one by one."""
    return producer._can_produce_bulk_directly and producer._spans is None and producer._message_ids is None


def send_unreported(producer: Producer[Any, Any], topic: str, records: Iterable[EncodedRecord]) -> UnreportedBatch:
    """Send records to one topic, in their order, within the open transaction. Raises as `send_many` does."""
    if producer._transactions is None:
        raise LifecycleError(
            f"{topic}: found a producer without transactional.id, wanted one for a batch without reports"
        )
    producer._transactions.states.check_can_send()
    producer._transactions.failures.no_reports_from(topic)
    batch = UnreportedBatch(topic, producer._reports)
    producer._reports.add_unreported(batch)
    limit_of = producer._sizes.limits.effective
    has_batches = hasattr(producer._client, "produce_batch")  # since confluent-kafka 2.12
    together: list[dict[str, Any]] = []
    sent = 0
    try:
        for value, key, headers, partition, timestamp_ms in records:
            most = FIXED_BYTES
            if value is not None:
                most += len(value)
            if key is not None:
                most += len(key)
            if headers:
                key, value, headers, most = encoded(topic, key, value, headers)
            if most > limit_of.get(topic, -1):
                producer._check_size(topic, key, value, headers)
            if has_batches and not headers and partition is None and timestamp_ms is None:  # all that a batch can have
                together.append({"value": value, "key": key})
                sent += 1
                if len(together) == _TOGETHER:
                    _send_together(producer, topic, together)
                    together = []
                continue
            if together:
                _send_together(producer, topic, together)
                together = []
            _send_one(producer, topic, value, key, headers, partition, timestamp_ms)
            sent += 1
        if together:
            _send_together(producer, topic, together)
    finally:
        batch.all_sent(sent)
    return batch


def _send_together(producer: Producer[Any, Any], topic: str, records: list[dict[str, Any]]) -> None:
    taken = producer._client.produce_batch(topic, records)
    if taken == len(records):
        return
    for record in records:
        error = record.get("_error")
        if error is None:
            continue
        if error.code() != KafkaError._QUEUE_FULL:
            raise producer._explained(KafkaException(error), topic, None, record["key"], record["value"], ())
        _send_one(producer, topic, record["value"], record["key"], (), None, None)  # none behind the first was taken


def _send_one(
    producer: Producer[Any, Any],
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: Headers,
    partition: int | None,
    timestamp_ms: int | None,
) -> None:
    if partition is not None or timestamp_ms is not None:
        partition, timestamp_ms = placed(topic, partition, timestamp_ms)

    def attempt() -> None:
        producer._client.produce(
            topic, value, key, -1 if partition is None else partition, None, None, timestamp_ms or 0, headers or None
        )

    try:
        try:
            attempt()
        except BufferError:
            producer._with_room(topic, attempt)
    except KafkaException as error:
        raise producer._explained(error, topic, partition, key, value, headers) from error
    except (TypeError, AttributeError, ValueError, OverflowError) as error:
        raise bad_arguments(topic, headers, error, partition=partition, timestamp_ms=timestamp_ms) from error
