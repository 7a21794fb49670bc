"""Writes dead letters, and records for retry topics, with a producer of their own.

It says of each when it is acknowledged, or that it is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ottla.config import dead_letter_arguments
from ottla.consumer.effects import Write
from ottla.delivery.dead_letter import DeadLetterRecord, without_details
from ottla.errors import DeliveryError, RecordTooLarge
from ottla.sync.delivery import Delivery
from ottla.sync.producer import Producer

OnWritten = Callable[[Write, str | None], None]
"""Called once per dead letter with the error, None when it is acknowledged. From any thread."""


class DeadLetterSink(Protocol):
    """Where the engine puts dead letters. Tests have one that refuses."""

    def write(self, letter: Write, on_written: OnWritten) -> None:
        """Start writing. Must not raise, and must call `on_written` in the end."""

    def close(self, timeout_s: float) -> None:
        """Wait for what is under way, at most `timeout_s` seconds."""


class ProducerSink:
    """Dead letters through an idempotent producer, made with the first one: most services never need it."""

    def __init__(self, bootstrap_servers: Any, settings: Mapping[str, Any]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._producer: Producer[Any, Any] | None = None
        self._arguments = dead_letter_arguments(settings)
        self._lock = threading.Lock()

    def write(self, letter: Write, on_written: OnWritten) -> None:
        self._send(letter, letter.build(), on_written, may_shorten=True)

    def close(self, timeout_s: float) -> None:
        if self._producer is None:
            return
        try:
            self._producer.close(timeout_s)
        except DeliveryError:
            pass  # Each failure was told to the session, which has not committed those records.

    def _send(self, letter: Write, dead: DeadLetterRecord, on_written: OnWritten, *, may_shorten: bool) -> None:
        def delivered(delivery: Delivery) -> None:
            delivery.mark_handled()  # the session hears of it
            settle(delivery.exception())

        def settle(error: Exception | None) -> None:
            if isinstance(error, RecordTooLarge) and may_shorten:
                self._send(letter, without_details(dead), on_written, may_shorten=False)
            else:
                on_written(letter, None if error is None else f"{type(error).__name__}: {error}")

        try:
            self._started().send(
                letter.target,
                dead.value,
                key=dead.key,
                headers=dead.headers,
                partition=letter.target_partition,
                on_delivery=delivered,
            )
        except Exception as error:  # whatever it is: a letter that is never answered is never tried again
            settle(error)

    def _started(self) -> Producer[Any, Any]:
        with self._lock:
            if self._producer is None:
                self._producer = Producer(self._bootstrap_servers, profile="low_latency", **self._arguments)
            return self._producer
