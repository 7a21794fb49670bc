"""`App.producer`, `App.async_producer` and `App.relay`: what works beside the handlers, as long as the app runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack, overload

from ottla.app.background.app_producers import AppProducer, AppProducerOptions, AsyncAppProducer
from ottla.app.background.app_relay import AppRelay
from ottla.app.declaration.declaring import DeclaresOnApp
from ottla.app.handler.handler_options import Value
from ottla.config.arguments import explained
from ottla.outbox.outbox import Outbox
from ottla.outbox.relaying import without_needed
from ottla.producer.signature import Key
from ottla.quantities import Span
from ottla.serdes.base import SerdeOf
from ottla.typevars import BytesLike


class DeclaresBackground(DeclaresOnApp):
    """The part of `App` that declares producers and relays."""

    @overload
    def producer(
        self, *, value: None = None, key: None = None, **options: Unpack[AppProducerOptions]
    ) -> AppProducer[BytesLike, BytesLike]: ...

    @overload
    def producer(
        self, *, value: SerdeOf[Value], key: None = None, **options: Unpack[AppProducerOptions]
    ) -> AppProducer[Value, BytesLike]: ...

    @overload
    def producer(
        self, *, value: None = None, key: SerdeOf[Key], **options: Unpack[AppProducerOptions]
    ) -> AppProducer[BytesLike, Key]: ...

    @overload
    def producer(
        self, *, value: SerdeOf[Value], key: SerdeOf[Key], **options: Unpack[AppProducerOptions]
    ) -> AppProducer[Value, Key]: ...

    @overload
    def producer(
        self, *, value: Any = None, key: Any = None, **options: Unpack[AppProducerOptions]
    ) -> AppProducer[Any, Any]: ...

    def producer(
        self, *, value: Any = None, key: Any = None, **options: Unpack[AppProducerOptions]
    ) -> AppProducer[Any, Any]:
        """Return a producer for handlers and hooks: open while the app runs, closed when it has stopped. It takes the
        options of `Producer`, and has the app's address and `producer_settings`, with `settings` on top. Async handlers
        await the sends of `async_producer`.

        `topics` are those that it sends to, for the app's AsyncAPI document (`ottla asyncapi`). Sends to others are not
        refused."""
        self._refuse_while_running("a producer")
        producer: AppProducer[Any, Any] = AppProducer(self, {"value": value, "key": key, **options})
        self._parts.producers.append(producer)
        return producer

    @overload
    def async_producer(
        self, *, value: None = None, key: None = None, **options: Unpack[AppProducerOptions]
    ) -> AsyncAppProducer[BytesLike, BytesLike]: ...

    @overload
    def async_producer(
        self, *, value: SerdeOf[Value], key: None = None, **options: Unpack[AppProducerOptions]
    ) -> AsyncAppProducer[Value, BytesLike]: ...

    @overload
    def async_producer(
        self, *, value: None = None, key: SerdeOf[Key], **options: Unpack[AppProducerOptions]
    ) -> AsyncAppProducer[BytesLike, Key]: ...

    @overload
    def async_producer(
        self, *, value: SerdeOf[Value], key: SerdeOf[Key], **options: Unpack[AppProducerOptions]
    ) -> AsyncAppProducer[Value, Key]: ...

    @overload
    def async_producer(
        self, *, value: Any = None, key: Any = None, **options: Unpack[AppProducerOptions]
    ) -> AsyncAppProducer[Any, Any]: ...

    def async_producer(
        self, *, value: Any = None, key: Any = None, **options: Unpack[AppProducerOptions]
    ) -> AsyncAppProducer[Any, Any]:
        """Return the same for async handlers. Options are `AsyncProducer`'s."""
        self._refuse_while_running("a producer")
        producer: AsyncAppProducer[Any, Any] = AsyncAppProducer(self, {"value": value, "key": key, **options})
        self._parts.producers.append(producer)
        return producer

    @explained("App.relay")
    def relay(
        self,
        outbox: Outbox,
        *,
        interval_s: Span = 0.1,
        batch_rows: int = 500,
        batch_bytes: int = 4 * 1024 * 1024,
        lease_s: Span = 10.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Relay the records of `outbox` to Kafka while the app runs, in a thread of its own.

        Of several relays of one outbox, in any number of processes, one works; another one takes over at once when it
        stops, and after `lease_s` when it died. `interval_s` is how often the database is asked while nothing waits;
        at most `batch_rows` rows of `batch_bytes` together are read at a time. `settings` are a producer's, beside the
        app's `producer_settings`. The app is not ready once rows have waited for `unready_after_s`.
        """
        self._refuse_while_running("a relay")
        self._parts.relays.append(
            AppRelay(
                self,
                outbox,
                {
                    "interval_s": interval_s,
                    "batch_rows": batch_rows,
                    "batch_bytes": batch_bytes,
                    "lease_s": lease_s,
                    "settings": {**without_needed(self.producer_settings), **(settings or {})},
                    "unready_after_s": self.unready_after_s,
                    "drain_s": self.drain_s,
                    "hooks": self.hooks,
                },
            )
        )
