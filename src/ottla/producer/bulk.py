"""The records of a bulk send, as they go in and as they are listed when they fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.errors import DeliveryError, InputError
from ottla.producer.deliveries import HANDLED, DeliveryFailure, DeliveryTracker, delivery_error
from ottla.producer.event_options import with_event
from ottla.producer.signature import BulkOptions
from ottla.records import Headers


class Outgoing(NamedTuple):
    """One record of `send_many`, as `send` takes it. A plain tuple in the same order does as well."""

    value: Any
    key: Any = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    """Milliseconds since the epoch; now if not given."""


def outgoing(topic: str, number: int, record: Any) -> Outgoing:
    """Return the record with this number of a bulk. Raises InputError for what is none.

    A str is a sequence too: "ab" would otherwise become the value "a" with the key "b".
    """
    if isinstance(record, tuple | list) and 1 <= len(record) <= len(Outgoing._fields):
        return Outgoing(*record)
    found = f"{type(record).__name__} of {len(record)}" if isinstance(record, tuple | list) else type(record).__name__
    raise InputError(
        f"{topic}: record {number} of send_many: expected a tuple of 1 to {len(Outgoing._fields)} "
        f"({', '.join(Outgoing._fields)}), found {found}"
    )


def as_events(
    topic: str, records: Iterable[Sequence[Any]], serde: Any, options: BulkOptions
) -> Iterable[Sequence[Any]]:
    """Return the records as the CloudEvents that the options of a `send_many` make of them, or unchanged.

    Each has an id of its own: two records with one id are one event. Iterating raises as `with_event` does.
    """
    event_type, subject = options.get("event_type"), options.get("subject")
    if event_type is None and subject is None:
        return records

    def events() -> Iterator[Outgoing]:
        for number, record in enumerate(records):
            one = outgoing(topic, number, record)
            yield one._replace(headers=with_event(topic, one.headers, serde, event_type, subject, None))

    return events()


@dataclass(slots=True, eq=False)
class FailedPart:
    """One record of a bulk that failed, as the tracker lists it."""

    topic: str
    key: bytes | None
    failed_in: int = -1

    def done(self) -> bool:
        return True


class BulkState:
    """The records of one bulk: their number, and the failed ones. Base of the shells' bulks."""

    key = None  # what the tracker lists of records that are not settled
    failed_in = -1  # a bulk fails by its parts, each of which is counted by itself

    def __init__(self, topic: str, tracker: DeliveryTracker[Any]) -> None:
        self.topic = topic
        self.sent = 0
        """Records handed to the buffer, once `send_many` has returned."""
        self._tracker = tracker
        self._all_sent = False
        self._failed: list[tuple[Any, DeliveryFailure]] = []

    def mark_handled(self) -> None:
        """Mark the failures as handled: `flush` and `close` need not raise them."""
        if self._failed:
            self.failed_in = HANDLED
        for part, _ in self._failed:
            self._tracker.was_raised(part)

    @property
    def is_handled(self) -> bool:
        """Return whether its failures were raised to a caller, or marked as handled."""
        return self.failed_in == HANDLED

    def is_kept_in(self, tracker: DeliveryTracker[Any]) -> bool:
        """Return whether the next flush of this tracker's producer raises one of its failures."""
        return self._tracker is tracker and any(tracker.failure_of(part) is not None for part, _ in self._failed)

    def all_sent(self, sent: int) -> None:
        """Record that no more records come."""
        self.sent = sent
        self._all_sent = True
        self._is_over()

    def _is_over(self) -> None:
        """Wake the waiters if this was the last record to be settled."""
        raise NotImplementedError

    def _error(self) -> DeliveryError | None:
        return delivery_error([failure for _, failure in self._failed], len(self._failed), [])
