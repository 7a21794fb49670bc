"""Sends with a delivery that the caller has made, for callers that keep something of their own for each record.

A delivery that also holds the caller's data saves an object, a list and a call for each record, and the report goes to
it directly instead of through the thread that runs callbacks: 4 µs of the 20 that a record of a bridge cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.raising import again
from ottla.sync.produce.delivery import RecordDelivery
from ottla.sync.produce.reports import SERVE_EVERY
from ottla.sync.produce.send_buffer import REFUSALS

if TYPE_CHECKING:
    from ottla.records import Header
    from ottla.sync.produce.producer import Producer

_IN_PASSING: Final = SERVE_EVERY - 1


class OwnDelivery(RecordDelivery):
    """A delivery that takes the client's report itself. A subclass says what follows from it, and sets the fields."""

    __slots__ = ("__weakref__", "_callbacks", "_error", "_message", "_owner", "_waiter", "failed_in", "key", "topic")

    def settled_with(self, delivery: RecordDelivery) -> None:
        """Take the outcome, in the producer's thread: `delivery` is this one, or that with which it was sent."""
        raise NotImplementedError


def takes_deliveries(producer: Producer[Any, Any]) -> bool:
    """Return whether `send_delivery` may be used for the next record: it needs no span, no time, and no partitioner of
    Ottla's own."""
    return producer._can_produce_directly and not producer._is_listened_to and producer._message_ids is None


def send_delivery(
    producer: Producer[Any, Any], delivery: OwnDelivery, value: bytes, headers: list[Header], most_bytes: int
) -> None:
    """Send a record of bytes, with headers as `checked_headers` returns them; `most_bytes` is at least its size.

    The delivery is called with the client's report, or is settled with the failure of a record that was not taken.
    Raises as `Producer.send` does.
    """
    if producer._refusal is not None:
        raise again(producer._refusal)
    topic, key = delivery.topic, delivery.key
    if most_bytes > producer._limit_of.get(topic, -1):
        producer._check_size(topic, key, value, headers)
    try:
        producer._client.produce(topic, value, key, -1, delivery, None, 0, headers)
    except REFUSALS as error:
        delivery.add_done_callback(delivery.settled_with)  # what is refused at once has no report
        producer._buffer.handle_rejected(error, delivery, value, None, None, headers)
    outstanding = producer._outstanding
    outstanding.append(delivery)
    if not len(outstanding) & _IN_PASSING:
        producer._reports.serve_in_passing()
