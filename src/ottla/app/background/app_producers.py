"""Producers that belong to an app: open while it runs, with its address and security settings.

    invoices = app.producer(value=Json(Invoice), key=Str())

    @app.handler("orders", value=Json(Order))
    def on_order(order: Order) -> None:
        invoices.send("invoices", invoice_of(order), key=str(order.id))

They are made before the first `on_start` hook runs, and flushed and closed after the last `on_stop` hook. Declaring one
imports no Kafka client. `ottla.testing.consumer_for` captures what they send.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Unpack

from ottla.app.background.background_task import AppSettings, in_thread
from ottla.config.priorities import topics_of
from ottla.errors import ConfigError, LifecycleError
from ottla.producer.bulk import Outgoing
from ottla.producer.signature import BulkOptions, ProducerOptions, SendOptions, lists_options
from ottla.quantities import Span
from ottla.showing import shown
from ottla.topics import topic_problem
from ottla.typevars import K_contra, V_contra

if TYPE_CHECKING:
    from ottla.aio.produce.bulk import AsyncBulk
    from ottla.aio.produce.delivery import AsyncDelivery
    from ottla.sync.produce.bulk import Bulk
    from ottla.sync.produce.delivery import Delivery


class AppProducerOptions(ProducerOptions, total=False):
    """The options of an app's producer."""

    topics: Sequence[str]
    """The topics that it sends to, for documents of the app."""


class AppProducerArguments(AppProducerOptions, total=False):
    """The same, with the serdes."""

    value: Any
    key: Any


class _OfAnApp:
    """Base of both: forwards to the real producer while the app runs, or to what a test put in its place."""

    module: str
    name: str

    def __init__(self, owner: AppSettings, options: AppProducerArguments) -> None:
        self._owner = owner
        self.options: AppProducerArguments = {**options}
        self.topics = _declared_topics(self.options.pop("topics", ()))
        self._target: Any = None

    def redirect(self, target: Any) -> None:
        """Send records to `target` instead of Kafka; None ends that."""
        self._target = target
        # Sends go to the target directly: `send` of the class, with a dict of options, would add 0.5 µs to each.
        self.__dict__.pop("send", None)
        if target is not None:
            self.__dict__["send"] = target.send

    @property
    def _open(self) -> Any:
        if self._target is None:
            raise LifecycleError(
                f"this producer works only while app {self._owner.group!r} runs, and the app is not running: send in "
                f"handlers and hooks, or create your own {self.name}"
            )
        return self._target

    def _made(self) -> Any:
        settings = {**self._owner.producer_settings, **(self.options.get("settings") or {})}
        make = getattr(importlib.import_module(self.module), self.name)
        own: AppProducerOptions = {"hooks": self._owner.hooks}
        if self._owner.start_timeout_s is not None:
            own["start_timeout_s"] = self._owner.start_timeout_s
        return make(self._owner.bootstrap_servers, **{**own, **self.options, "settings": settings})

    @property
    def _problems(self) -> tuple[str, ...]:
        """Topics whose records brokers do not take for now, and why."""
        found: tuple[str, ...] = getattr(self._target, "_problems", ())  # a test may have put something else there
        return found

    def _taken(self) -> Any:
        target = self._target
        self.redirect(None)
        return target


class AppProducer(_OfAnApp, Generic[V_contra, K_contra]):
    """An app's threaded producer, made by `App.producer`. Any thread may send."""

    module, name = "ottla.sync.produce.producer", "Producer"

    @lists_options(SendOptions)
    def send(
        self,
        topic: str,
        value: V_contra | None = None,
        *,
        key: K_contra | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
        **options: Unpack[SendOptions],
    ) -> Delivery:
        """Send, as `Producer.send` does. Raises `LifecycleError` while the app does not run."""
        delivery: Delivery = self._open.send(topic, value, key=key, on_delivery=on_delivery, **options)
        return delivery

    @lists_options(BulkOptions)
    def send_many(
        self, topic: str, records: Iterable[Outgoing | tuple[Any, ...]], **options: Unpack[BulkOptions]
    ) -> Bulk:
        """Send many, as `Producer.send_many` does."""
        bulk: Bulk = self._open.send_many(topic, records, **options)
        return bulk

    def cancel(self, schedule_id: str) -> Bulk:
        """Cancel, as `Producer.cancel` does."""
        bulk: Bulk = self._open.cancel(schedule_id)
        return bulk

    def flush(self, timeout_s: Span | None = None) -> None:
        """Flush, as `Producer.flush` does."""
        self._open.flush(timeout_s)

    def open(self) -> None:
        """Make the producer. The app's runner does."""
        self.redirect(self._made())

    def close(self) -> Awaitable[None] | None:
        """Flush and close it. On an event loop that is to be awaited: a thread waits there."""
        target = self._taken()
        return None if target is None else in_thread(target.close)


class AsyncAppProducer(_OfAnApp, Generic[V_contra, K_contra]):
    """An app's producer for async handlers, made by `App.async_producer`. It belongs to the loop they run on."""

    module, name = "ottla.aio.produce.producer", "AsyncProducer"

    @lists_options(SendOptions)
    def send(
        self,
        topic: str,
        value: V_contra | None = None,
        *,
        key: K_contra | None = None,
        on_delivery: Callable[[AsyncDelivery], None] | None = None,
        **options: Unpack[SendOptions],
    ) -> AsyncDelivery:
        """Send, as `AsyncProducer.send` does. Raises `LifecycleError` while the app does not run."""
        delivery: AsyncDelivery = self._open.send(topic, value, key=key, on_delivery=on_delivery, **options)
        return delivery

    @lists_options(BulkOptions)
    async def send_many(
        self, topic: str, records: Iterable[Outgoing | tuple[Any, ...]], **options: Unpack[BulkOptions]
    ) -> AsyncBulk:
        """Send many, as `AsyncProducer.send_many` does."""
        bulk: AsyncBulk = await self._open.send_many(topic, records, **options)
        return bulk

    def cancel(self, schedule_id: str) -> AsyncBulk:
        """Cancel, as `AsyncProducer.cancel` does."""
        bulk: AsyncBulk = self._open.cancel(schedule_id)
        return bulk

    async def flush(self, timeout_s: Span | None = None) -> None:
        """Flush, as `AsyncProducer.flush` does."""
        await self._open.flush(timeout_s)

    async def open(self) -> None:
        """Make and start the producer. The app's runner does, on the loop of the handlers."""
        made = self._made()
        await made.start()
        self.redirect(made)

    async def close(self) -> None:
        """Flush and close it."""
        target = self._taken()
        if target is not None:
            await target.close()


def _declared_topics(given: object) -> tuple[str, ...]:
    """Return the topics that a producer declares. Raises `ConfigError` for what is no list of topics."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"producer: topics: found {shown(given)}, wanted a list of names: topics=['invoices']")
    names, _ = topics_of("producer", tuple(given))
    for name in names:
        if (problem := topic_problem(name)) is not None:
            raise ConfigError(f"producer: {problem}")
    return tuple(names)
