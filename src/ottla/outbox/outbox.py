"""The outbox: records are written as rows in the user's own transaction, and relayed to Kafka later.

    outbox = Outbox(Postgres("postgresql://localhost/shop"), value=Json(OrderPlaced), key=Str())

    with connection.transaction():
        connection.execute("insert into orders values (%s, %s)", (order.id, order.total))
        outbox.add(connection, "orders.placed", OrderPlaced(order.id), key=str(order.id))

If the transaction commits, the record is written to Kafka: at least once, and after the records with the same topic and
key that were committed before it. If it is rolled back there is no record. What relays is `App.relay(outbox)`, or the
command `ottla outbox relay`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from random import SystemRandom
from typing import Any, Final, Unpack

from ottla.clock import Clock, SystemClock
from ottla.config import producer_settings
from ottla.errors import ConfigError, InputError
from ottla.failures.expiry import Moment, with_expiry
from ottla.foreign_json import read_json
from ottla.producer.encoded import check_topic, placed, topic_name
from ottla.producer.event_options import with_event
from ottla.producer.limits import Limit
from ottla.producer.message_ids import ID_HEADER, MessageIds, with_message_id
from ottla.producer.serializing import Serializer
from ottla.producer.signature import RecordOptions
from ottla.producer.size_policy import SizePolicy
from ottla.quantities import Span
from ottla.records import Header, Headers, topic_problem
from ottla.showing import shown
from ottla.stores.outbox_sessions import OutboxRow, OutboxSession, OutboxStore
from ottla.stores.outbox_sql import OUTBOX_DIALECTS, lock_of
from ottla.stores.sql_sessions import Parameters, create_tables
from ottla.telemetry.traces.active_tracing import active_spans

CheckSize = Callable[[str, bytes | None, bytes | None, Headers], None]
"""Raises `RecordTooLarge` for a record above its topic's limit."""


class Outbox:
    """The records of a database that wait to be relayed to Kafka.

    `store` is `Postgres`, `Sqlite`, or `Sql` with SQLAlchemy's sessions. `value` and `key` are serdes as a producer has
    them; without them both are bytes. `settings` are Kafka's names for a producer: `max.request.size` bounds what `add`
    takes. `topic_limits` says what topics take of a record, in bytes (their `max.message.bytes`), for processes without
    a relay, which cannot ask the cluster. Raises `ConfigError` for a store that can have no outbox.
    """

    def __init__(
        self,
        store: OutboxStore,
        *,
        value: Any = None,
        key: Any = None,
        settings: Mapping[str, Any] | None = None,
        topic_limits: Mapping[str, int] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(store, OutboxStore):
            raise ConfigError(f"Outbox: store: found {shown(store)}, wanted Postgres(...), Sqlite(...) or Sql(...)")
        self.store = store
        self._sql = OUTBOX_DIALECTS[store.dialect.name]
        self.schema = self._sql.schema
        """The statements that create the tables."""
        self._serializer = Serializer(key=key, value=value)
        self._ids = MessageIds(f"{SystemRandom().getrandbits(64):016x}")
        self._clock = clock or SystemClock()
        own = SizePolicy(producer_settings(settings=settings))
        for topic, limit in (topic_limits or {}).items():
            problem = topic_problem(topic)
            if problem is not None:
                raise ConfigError(f"Outbox: topic_limits: {problem}")
            if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
                raise ConfigError(f"Outbox: topic_limits: {topic}: found {limit!r}, wanted bytes, 1 or more")
            said = Limit(limit_bytes=limit, setting=f"topic_limits of the outbox for {topic}")
            own.limits.on_limit(topic, said, now_ms=0)
        self.check_size: CheckSize = own.check
        """As in `send`. While a relay of this outbox runs in this process, the cluster's limits replace `topic_limits`.
        """

    def create_tables(self) -> None:
        """Create missing tables."""
        create_tables(self.store.connection(), self.schema)

    def add(
        self,
        transaction: Any,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        **options: Unpack[RecordOptions],
    ) -> str:
        """Write one record to the outbox, in the open transaction. Returns its message id.

        `transaction` is a connection of psycopg or sqlite3, a session or connection of SQLAlchemy, or what a handler
        gets as `transaction`. It is used as it is: nothing is committed here. Everything else is as `Producer.send` has
        it: the record is serialized now, the header `ottla-id` gets `message_id` or a unique id, the timestamp is now
        if none is given, and the trace that is current goes with it.

        Raises what `send` raises: `SerializationError`, `RecordTooLarge`, `InputError`. Raises `InputError` also if no
        transaction is open, and what the driver raises. On PostgreSQL it waits until other transactions that added a
        record of the same key have ended.
        """
        parameters = self._row(topic, value, key, **options)
        self.store.execute_in(transaction, self._sql.add, parameters)
        return str(parameters["message_id"])

    async def add_async(
        self,
        transaction: Any,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        **options: Unpack[RecordOptions],
    ) -> str:
        """`add` with an asynchronous connection or session."""
        parameters = self._row(topic, value, key, **options)
        done = self.store.execute_in(transaction, self._sql.add, parameters)
        if hasattr(done, "__await__"):
            await done
        return str(parameters["message_id"])

    def session(self) -> OutboxSession:
        """Return a connection for a relay. Raises `ConfigError` if tables are missing."""
        return OutboxSession(self.store)

    def _row(
        self,
        topic: str,
        value: Any,
        key: Any,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        expires_after: Span | None = None,
        expires_at: Moment | None = None,
        message_id: str | None = None,
        event_type: str | None = None,
        subject: str | None = None,
        event_id: str | None = None,
    ) -> Parameters:
        check_topic(topic)
        topic = topic_name(topic)
        now_ms = self._clock.now_ms()
        if expires_after is not None or expires_at is not None:
            headers = with_expiry(topic, headers, expires_after=expires_after, expires_at=expires_at, now_ms=now_ms)
        if event_type is not None or subject is not None or event_id is not None:
            headers = with_event(topic, headers, self._serializer.value, event_type, subject, event_id)
        partition, timestamp_ms = placed(topic, partition, timestamp_ms)
        raw_key, raw_value, listed, _ = self._serializer.encode(topic, key, value, headers)
        spans = active_spans()
        if spans is not None:
            listed = list(spans.carried(listed))
        with_id = list(with_message_id(topic, listed, message_id, self._ids))
        self.check_size(topic, raw_key, raw_value, with_id)
        own = next(content for name, content in with_id if name == ID_HEADER)
        text_id = (own or b"").decode("utf-8", "backslashreplace")
        if not text_id or "\0" in text_id:
            raise InputError(f"{topic}: message_id: found {own!r}, wanted text without null characters")
        return {
            "topic": topic,
            "partition": partition,
            "key": raw_key,
            "value": raw_value,
            "headers": headers_to_text([header for header in with_id if header[0] != ID_HEADER]),
            "timestamp_ms": now_ms if timestamp_ms is None else timestamp_ms,
            "message_id": text_id,
            "lock": lock_of(topic, raw_key),
        }


def headers_of(row: OutboxRow) -> list[Header]:
    """Return the headers to relay a row with. Raises `InputError` for an invalid row."""
    return [*headers_of_text(row.headers), (ID_HEADER, row.message_id.encode("utf-8", "backslashreplace"))]


_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode


def headers_to_text(headers: Headers) -> str:
    """Return headers as JSON: `[["traceparent", "00-..."], ["flag", null], ["raw", {"base64": "/w=="}]]`."""
    return _ENCODE([[name, _shown(value)] for name, value in headers]) if headers else "[]"


def headers_of_text(text: str) -> list[Header]:
    """Parse the headers of a row. Raises `InputError` for any other text."""
    if text == "[]":  # mostly
        return []
    try:
        return [(_name(name), _raw(value)) for name, value in read_json(text, most_depth=3)]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f'headers: found {text:.200}, wanted a JSON list of [name, value], the value text, null or {{"base64": '
            '"..."}'
        ) from error


def _shown(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _raw(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["base64"], validate=True)


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(name)
    if "\0" in name:
        raise ValueError("a null character in a header's name, which librdkafka would cut there")
    return name
