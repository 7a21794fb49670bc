"""Headers of messages, also where confluent-kafka cannot show them: a key may be any bytes, it wants UTF-8.

`Message.headers()` then returns a list with a null pointer in it *and* sets an exception (confluent-kafka 2.16). Two
rules follow. It is called by `map` only, which looks for that and drops the list; CPython's own fast path for a method
call does not look, and the exception shows somewhere else. And it is called once: the second call returns the list.

The record is fetched again, over a connection of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Message

from ottla.errors import InputError
from ottla.records import Header, TopicPartition
from ottla.telemetry import log_event
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.errors import CorruptBatch
from ottla.wire_client.fetching.record_chunks import read_chunk
from ottla.wire_client.ranges import Isolation

_UNREADABLE: Final = (SystemError, UnicodeDecodeError)
"""Errors of confluent-kafka for a header key that is not UTF-8: the first in 2.16, where the second was intended."""

UNREAD_HEADER: Final = "ottla-headers-unread"
"""The only header of a record whose headers could not be read in any way; its value says why."""


ReadAgain = Callable[[Any], list[Header] | None]
"""The headers of a message that cannot show them, or None if they cannot be had now."""


def all_headers(messages: Sequence[Any], read_again: ReadAgain) -> list[Any]:
    """Return the headers of each message (None: it has none), up to the first that cannot be had now."""
    found: list[Any] = []
    shown = map(Message.headers, messages)
    while True:
        try:
            found.extend(shown)  # goes on behind the message at which it failed
            return found
        except _UNREADABLE:
            headers = read_again(messages[len(found)])
            if headers is None:
                return found
            found.append(headers)


class HeaderReader:
    """Reads headers again. On one thread; its connection is opened when first needed."""

    def __init__(self, settings: Mapping[str, Any], *, timeout_ms: int = 5_000) -> None:
        self._settings = settings
        self._timeout_ms = timeout_ms
        self._cluster: Cluster | None = None
        self._place: TopicPartition | None = None
        self._found: dict[int, list[Header]] = {}
        self._next_offset = 0

    def headers_of(self, message: Any) -> list[Header]:
        """Return a message's headers. Raises a RetriableError when they have to be read again and cannot be now."""
        (headers,) = all_headers([message], self.read_again)
        return headers or []

    def read_again(self, message: Any) -> list[Header]:
        """Return the headers of the record at the message's offset, with keys escaped where they are not UTF-8.

        Where this client may not or cannot read (a SASL mechanism that it does not speak), or the record is gone since,
        the record has `UNREAD_HEADER` alone. Raises a RetriableError when no broker answers.
        """
        place, offset = TopicPartition(message.topic(), message.partition()), message.offset()
        if place != self._place or not offset < self._next_offset:
            try:
                self._read(place, offset)
            except (InputError, CorruptBatch) as error:
                return self._unread(place, offset, str(error))
        headers = self._found.get(offset)
        return self._unread(place, offset, "the record is not there any more") if headers is None else headers

    def close(self) -> None:
        """Close the connection, if there is one. Safe to repeat."""
        if self._cluster is not None:
            self._cluster.close()

    def _read(self, place: TopicPartition, offset: int) -> None:
        if self._cluster is None:
            settings = connection_settings(
                self._settings,
                isolation=Isolation.READ_UNCOMMITTED,  # which records are shown is the client's decision, and was made
                api_timeout_ms=self._timeout_ms,
                request_timeout_ms=self._timeout_ms,
            )
            self._cluster = Cluster(settings)
        chunk = read_chunk(self._cluster, place, offset)
        self._place, self._next_offset = place, chunk.next_offset
        self._found = {record.offset: record.headers for record in chunk.records}

    @staticmethod
    def _unread(place: TopicPartition, offset: int, why: str) -> list[Header]:
        log_event("headers_unread", "error", {"position": f"{place}@{offset}", "error": why})
        return [(UNREAD_HEADER, why.encode())]
