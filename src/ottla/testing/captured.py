"""Sends without Kafka: records of an app's own producers are captured, any other producer is refused by name.

A `Producer` that a handler has of its own would wait for a broker that is not there, for minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Unpack

from ottla.app import App
from ottla.app.app import declarations_of
from ottla.app.background.app_producers import AppProducerArguments, AsyncAppProducer
from ottla.clock import ManualClock
from ottla.config.priorities import with_priority
from ottla.errors import LifecycleError
from ottla.failures.expiry import Moment, with_expiry
from ottla.producer.bulk import outgoing
from ottla.producer.deliveries import DeliveryReport
from ottla.producer.encoded import as_bytes, check_topic, header_list, placed, topic_name
from ottla.producer.event_options import with_event
from ottla.producer.later import checked_id, later_of
from ottla.producer.message_ids import MessageIds, with_message_id
from ottla.producer.record_sends import handled, is_sender
from ottla.producer.serializing import Serializer
from ottla.producer.signature import BULK_OPTIONS, BulkOptions, refuse_unknown
from ottla.quantities import Span
from ottla.records import Headers, Record
from ottla.schedule.headers import DEFAULT_NAME, DELIVERED_PREFIX, schedule_topic

_CLIENTS: Final = (("ottla.sync.produce.producer", "Producer"), ("ottla.aio.produce.producer", "AsyncProducer"))
_ASKS_KAFKA: Final = ("send", "send_many", "start", "transaction")


class CapturedDelivery(Awaitable[DeliveryReport]):
    """A delivery that is acknowledged from the start."""

    def __init__(self, report: DeliveryReport) -> None:
        self.report = report
        self.topic = report.topic

    def done(self) -> bool:
        return True

    def result(self, timeout_s: Span | None = None) -> DeliveryReport:
        return self.report

    def exception(self, timeout_s: Span | None = None) -> None:
        return None

    def mark_handled(self) -> None:
        """Do nothing: there is no failure."""

    @property
    def is_handled(self) -> bool:
        return True

    def is_kept_in(self, tracker: Any) -> bool:
        return False

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        callback(self)

    def __await__(self) -> Generator[Any, None, DeliveryReport]:
        yield from ()
        return self.report


class Captured:
    """Replaces one producer: serializes as it does, and keeps the records."""

    name = "Producer"
    """The class that an error of its arguments names."""

    def __init__(self, sent: list[Record[Any]], options: AppProducerArguments, clock: ManualClock) -> None:
        self._sent = sent
        self._serializer = Serializer(key=options.get("key"), value=options.get("value"))
        self._clock = clock
        self._message_ids = MessageIds("captured") if options.get("message_ids") else None
        is_sender(self)

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        expires_after: Span | None = None,
        expires_at: Moment | None = None,
        priority: str | None = None,
        message_id: str | None = None,
        deliver_after: Span | None = None,
        deliver_at: Moment | None = None,
        schedule_id: str | None = None,
        event_type: str | None = None,
        subject: str | None = None,
        event_id: str | None = None,
        detached: bool = False,
        on_delivery: Callable[[Any], None] | None = None,
    ) -> CapturedDelivery:
        if priority is not None:
            topic = with_priority(topic, priority)
        check_topic(topic)
        topic = topic_name(topic)
        if event_type is not None or subject is not None or event_id is not None:
            headers = with_event(topic, headers, self._serializer.value, event_type, subject, event_id)
        partition, timestamp_ms = placed(topic, partition, timestamp_ms)
        key = self._serializer.key_of(key, headers)
        raw_key, raw_value = self._serializer.serialize(topic, key, value)
        raw_key = None if raw_key is None else as_bytes(topic, "key", raw_key)
        raw_value = None if raw_value is None else as_bytes(topic, "value", raw_value)
        if deliver_after is not None or deliver_at is not None or schedule_id is not None:
            now_ms = self._clock.now_ms()
            later = later_of(
                topic,
                deliver_after=deliver_after,
                deliver_at=deliver_at,
                schedule_id=schedule_id,
                expires_after=None,
                schedule=DEFAULT_NAME,
            )
            due_ms = now_ms + (later.delay_ms or 0) if later.due_ms is None else later.due_ms
            headers = [*headers, (DELIVERED_PREFIX + "due", b"%d" % due_ms)]
        if expires_after is not None or expires_at is not None:
            now_ms = self._clock.now_ms()
            headers = with_expiry(topic, headers, expires_after=expires_after, expires_at=expires_at, now_ms=now_ms)
        headers = with_message_id(topic, headers, message_id, self._message_ids)
        listed, _ = header_list(topic, headers)
        at_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        place = partition or 0
        offset = sum(record.topic == topic and record.partition == place for record in self._sent)
        self._sent.append(Record(topic, place, offset, at_ms, key, value, list(listed), raw_key, raw_value))
        delivery = CapturedDelivery(DeliveryReport(topic, place, offset, at_ms))
        if on_delivery is not None:
            on_delivery(delivery)
        sends = handled.get()
        if sends is not None and not detached:
            sends.add(delivery)
        return delivery

    def send_many(self, topic: str, records: Iterable[Any], **options: Unpack[BulkOptions]) -> Any:
        refuse_unknown(f"{self.name}.send_many", options.keys() - BULK_OPTIONS)
        delivery = CapturedDelivery(DeliveryReport(topic, 0, None, None))
        for number, record in enumerate(records):
            one = outgoing(topic, number, record)
            delivery = self.send(
                topic,
                one.value,
                key=one.key,
                headers=one.headers,
                partition=one.partition,
                timestamp_ms=one.timestamp_ms,
                **options,
            )
        return delivery

    def cancel(self, schedule_id: str) -> CapturedDelivery:
        checked_id(schedule_id)
        return CapturedDelivery(DeliveryReport(schedule_topic(DEFAULT_NAME), 0, None, None))

    def flush(self, timeout_s: Span | None = None) -> Any:
        return None


class AsyncCaptured(Captured):
    """The same producer with awaited `send_many` and `flush`."""

    name = "AsyncProducer"

    async def send_many(self, topic: str, records: Iterable[Any], **options: Unpack[BulkOptions]) -> Any:
        return super().send_many(topic, records, **options)

    async def flush(self, timeout_s: Span | None = None) -> None:
        return None


class Boundary:
    """Between handlers and Kafka, while `consumer_for` calls them."""

    def __init__(self, app: App, sent: list[Record[Any]], clock: ManualClock, *, real_producers: bool) -> None:
        self._app = app
        self._sent = sent
        self._clock = clock
        self._lets_real_ones_through = real_producers
        self._refused: LifecycleError | None = None

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Capture sends of declared producers, and refuse those of others, while the block lasts."""
        producers = declarations_of(self._app).producers
        for producer in producers:
            kind = AsyncCaptured if isinstance(producer, AsyncAppProducer) else Captured
            producer.redirect(kind(self._sent, producer.options, self._clock))
        patched = [] if self._lets_real_ones_through else list(self._refuse())
        try:
            yield
        finally:
            for owner, name, method in patched:
                setattr(owner, name, method)
            for producer in producers:
                producer.redirect(None)

    def check(self) -> None:
        """Raise refused sends, also if the handler caught the error."""
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused

    def _refuse(self) -> Iterator[tuple[type[Any], str, Any]]:
        for module, class_name in _CLIENTS:
            if module not in sys.modules:
                continue
            owner: type[Any] = getattr(sys.modules[module], class_name)
            for name in _ASKS_KAFKA:
                yield owner, name, vars(owner)[name]
                setattr(owner, name, self._refusal(class_name, name))

    def _refusal(self, class_name: str, name: str) -> Callable[..., Any]:
        def refuse(producer: Any, *arguments: Any, **named: Any) -> Any:
            topic = arguments[0] if arguments else named.get("topic", "")
            made = "app.producer" if class_name == "Producer" else "app.async_producer"
            error = LifecycleError(
                f"a handler called {name}({topic!r}) of a {class_name} of its own (for "
                f"{producer.settings['bootstrap.servers']}), and consumer_for runs without Kafka. Make the producer "
                f"with {made}(...): what it sends is in `consumer.sent`. Or run the app against a Kafka with run_app. "
                "consumer_for(..., real_producers=True) lets it send"
            )
            self._refused = self._refused or error
            raise error

        return refuse
