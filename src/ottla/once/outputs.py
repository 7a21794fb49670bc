"""Records that a handler with ``exactly_once=`` sends: kept until its run was handled, then written in one transaction.

Nothing reaches a broker before that. So a handler may be slow without holding a transaction open, and what a record
sent before it failed is dropped without an abort.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ottla.errors import InputError, LifecycleError
from ottla.failures.expiry import Moment, with_expiry
from ottla.producer.bulk import Outgoing
from ottla.producer.encoded import as_bytes, header_list, placed
from ottla.producer.event_options import with_event
from ottla.producer.message_ids import with_message_id
from ottla.producer.serializing import Serializer
from ottla.quantities import Span
from ottla.records import Headers, topic_problem
from ottla.telemetry.traces.active_tracing import active_spans


class OutputRecord(NamedTuple):
    """One record to write. `offset` is the offset of the record whose handler sent it; None for a batch handler."""

    topic: str
    record: Outgoing
    offset: int | None

    def records(self) -> list[Outgoing]:
        """Return its records."""
        return [self.record]


class SentOutputs(Sequence[OutputRecord]):
    """Records sent during one run, as a sequence of `OutputRecord`.

    Three lists instead: the tuple that the client takes is the only object that is made for a record. Named tuples were
    a third of what a run costs, for the collector of garbage follows each of them as long as it is there.
    """

    __slots__ = ("offsets", "records", "topics")

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.records: list[tuple[Any, Any, Headers, int | None, int | None]] = []
        """Fields in the order of `Outgoing`."""
        self.offsets: list[int | None] = []

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        return OutputRecord(self.topics[at], Outgoing(*self.records[at]), self.offsets[at])

    def for_record(self, offset: int) -> None:
        """Attribute the outputs of a batch to this record, the only one in the batch."""
        self.offsets[:] = [offset if one is None else one for one in self.offsets]


class Outputs:
    """Collects the outputs of a handler for the records of one run, in the order of its calls."""

    __slots__ = (
        "_has_serdes",
        "_is_over",
        "_may_wait",
        "_now_ms",
        "_serializer",
        "_spans",
        "is_plain",
        "known_topics",
        "sent",
        "unprepared",
    )

    def __init__(self, serializer: Serializer, *, now_ms: int, may_wait: bool) -> None:
        self.sent = SentOutputs()
        self.known_topics: set[str] = set()
        """Topics whose names were checked."""
        self.unprepared: set[str] = set()
        """Topics whose schemas must be registered before their values can be encoded."""
        self._serializer = serializer
        self._has_serdes = serializer.has_serdes
        self._now_ms = now_ms
        self._may_wait = may_wait
        self._spans = active_spans()
        self._is_over = False
        self.is_plain = not self._has_serdes and self._spans is None
        """Bytes are taken unchanged: no serdes, no spans."""

    def of(self, offset: int | None) -> Out:
        """Return the `out` of the handler for the record at `offset`."""
        return Out(self, offset)

    def end(self) -> SentOutputs:
        """Refuse further sends and return the outputs."""
        self._is_over = True
        self.is_plain = False
        return self.sent

    def add(
        self,
        offset: int | None,
        topic: str,
        value: Any,
        key: Any,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> None:
        if self._is_over:
            raise LifecycleError(f"{topic}: out.send was called after the handler had returned; the record is not sent")
        if not self._has_serdes:
            if value.__class__ is not bytes and value is not None:
                value = as_bytes(topic, "value", value)
            if key is not None and key.__class__ is not bytes:
                key = as_bytes(topic, "key", key)
        else:
            key = self._serializer.key_of(key, headers)
            if topic not in self.unprepared:
                if self._may_wait or not self._serializer.unprepared(topic):
                    key, value = self._encoded(topic, key, value)
                else:
                    self.unprepared.add(topic)
        if self._spans is not None:  # it is written later, in another thread: there is no trace of the handler then
            headers = self._spans.carried(header_list(topic, headers)[0])
        sent = self.sent
        sent.records.append((value, key, headers, partition, timestamp_ms))
        sent.topics.append(topic)
        sent.offsets.append(offset)

    def expiring(self, topic: str, headers: Headers, expires_after: Span | None, expires_at: Moment | None) -> Headers:
        return with_expiry(topic, headers, expires_after=expires_after, expires_at=expires_at, now_ms=self._now_ms)

    @property
    def value_serde(self) -> Any:
        """Return the serde of the values; None for bytes."""
        return self._serializer.value

    def prepare(self) -> None:
        """Register schemas. May block on a registry."""
        for topic in self.unprepared:
            for serde, context in self._serializer.unprepared(topic):
                serde.prepare(context)

    def encode(self, number: int) -> None:
        """Encode an output that was sent before its topic was prepared."""
        topic = self.sent.topics[number]
        if topic in self.unprepared:
            value, key, headers, partition, timestamp_ms = self.sent.records[number]
            key, value = self._encoded(topic, key, value)
            self.sent.records[number] = (value, key, headers, partition, timestamp_ms)

    def _encoded(self, topic: str, key: Any, value: Any) -> tuple[bytes | None, bytes | None]:
        key, value = self._serializer.serialize(topic, key, value)
        if value is not None and value.__class__ is not bytes:
            value = as_bytes(topic, "value", value)
        if key is not None and key.__class__ is not bytes:
            key = as_bytes(topic, "key", key)
        return key, value


class Out:
    """The parameter `out` of a handler with ``exactly_once=ExactlyOnce(...)``.

    `send` returns nothing to wait for: what is sent is written, with the record's offset, after the handler returned.
    """

    __slots__ = ("_offset", "_outputs")

    def __init__(self, outputs: Outputs, offset: int | None) -> None:
        self._outputs = outputs
        self._offset = offset

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        message_id: str | None = None,
        expires_after: Span | None = None,
        expires_at: Moment | None = None,
        event_type: str | None = None,
        subject: str | None = None,
        event_id: str | None = None,
    ) -> None:
        """Send a record with the transaction. The arguments are those of `Producer.send`.

        Raises `SerializationError` for a value that cannot be encoded. What a broker refuses later (a record that is
        too large, a topic that does not exist) fails the record whose handler sent it.

        Raises `InputError` for a topic name, a partition or a timestamp that Kafka does not take.
        """
        outputs = self._outputs
        if topic not in outputs.known_topics:
            problem = topic_problem(topic) if isinstance(topic, str) else f"a topic is text, got {topic!r}"
            if problem is not None:
                raise InputError(problem)
            outputs.known_topics.add(topic)
        if partition is not None or timestamp_ms is not None:
            partition, timestamp_ms = placed(topic, partition, timestamp_ms)
        if expires_after is not None or expires_at is not None:
            headers = outputs.expiring(topic, headers, expires_after, expires_at)
        if message_id is not None:
            headers = with_message_id(topic, headers, message_id, None)
        if event_type is not None or subject is not None or event_id is not None:
            headers = with_event(topic, headers, outputs.value_serde, event_type, subject, event_id)
        if headers:
            headers = header_list(topic, headers)[0]
        if outputs.is_plain and value.__class__ is bytes and (key is None or key.__class__ is bytes):
            sent = outputs.sent  # what `add` does with these: the call costs more
            sent.records.append((value, key, headers, partition, timestamp_ms))
            sent.topics.append(topic)
            sent.offsets.append(self._offset)
            return
        outputs.add(self._offset, topic, value, key, headers, partition, timestamp_ms)


def of_records(outputs: Sequence[OutputRecord], offsets: set[int]) -> list[OutputRecord]:
    """Return the outputs that were sent for these records."""
    return [output for output in outputs if output.offset is None or output.offset in offsets]


def by_topic(groups: Iterable[Sequence[OutputRecord]]) -> dict[str, list[Any]]:
    """Return the records of several runs by topic, in their order."""
    found: dict[str, list[Any]] = {}
    for group in groups:
        if not isinstance(group, SentOutputs):
            for topic, record, _ in group:
                found.setdefault(topic, []).append(record)
        elif group and group.topics.count(group.topics[0]) == len(group):
            found.setdefault(group.topics[0], []).extend(group.records)
        else:
            for topic, each in zip(group.topics, group.records, strict=True):
                found.setdefault(topic, []).append(each)
    return found
