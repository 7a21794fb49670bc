"""The sink of failed records in threads: it sends, and the producer calls back (`DeadLetterProducer`)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol

from ottla.app.member.dead_letter_producer import DeadLetterProducer
from ottla.consumer.model.failed_writes import FormsToWrite, OnWritten, Write
from ottla.errors import DeliveryError
from ottla.sync.produce.delivery import Delivery
from ottla.sync.produce.producer import Producer


class DeadLetterSink(Protocol):
    """Where the member writes dead letters. Tests have one that refuses."""

    def write(self, failed_write: Write, on_written: OnWritten) -> None:
        """Start writing. Must not raise, and must eventually call `on_written`."""

    def close(self, timeout_s: float) -> None:
        """Wait for what is under way, at most `timeout_s` seconds."""


class ProducerSink(DeadLetterProducer):
    """Dead letters through an idempotent producer."""

    _producer: Producer[Any, Any] | None

    def __init__(self, bootstrap_servers: Any, settings: Mapping[str, Any]) -> None:
        super().__init__(bootstrap_servers, settings)
        self._lock = threading.Lock()

    def write(self, failed_write: Write, on_written: OnWritten) -> None:
        self._send(failed_write, FormsToWrite(failed_write, on_written))

    def close(self, timeout_s: float) -> None:
        if self._producer is None:
            return
        try:
            self._producer.close(timeout_s)
        except DeliveryError:
            pass  # Each failure was reported to the session, which has not committed those records.

    def _send(self, failed_write: Write, forms: FormsToWrite) -> None:
        dead = forms.next()
        if dead is None:
            return

        def delivered(delivery: Delivery) -> None:
            delivery.mark_handled()  # the session gets its outcome
            settle(delivery.exception())

        def settle(error: Exception | None) -> None:
            if not forms.is_settled(error):
                self._send(failed_write, forms)

        try:
            self._started().send(
                failed_write.target,
                dead.value,
                key=dead.key,
                headers=dead.headers,
                partition=failed_write.target_partition,
                on_delivery=delivered,
                detached=True,
            )
        except Exception as error:  # whatever it is: a write that is never answered is never retried
            settle(error)

    def _started(self) -> Producer[Any, Any]:
        with self._lock:
            if self._producer is None:
                self._producer = self._made(Producer)
            return self._producer
