"""The sink of failed records in threads: it sends, and the producer calls back (`DeadLetterProducer`)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ottla.app.member.dead_letter_producer import DeadLetterProducer, send_arguments
from ottla.consumer.model.failed_writes import FormsToWrite, OnWritten, Write
from ottla.stepping import run
from ottla.sync.produce.delivery import Delivery
from ottla.sync.produce.producer import Producer


class ProducerSink(DeadLetterProducer):
    """Dead letters through an idempotent producer."""

    _producer: Producer[Any, Any] | None

    def __init__(self, bootstrap_servers: Any, settings: Mapping[str, Any]) -> None:
        super().__init__(bootstrap_servers, settings)
        self._lock = threading.Lock()

    def write(self, failed_write: Write, on_written: OnWritten) -> None:
        self._send(failed_write, FormsToWrite(failed_write, on_written))

    def close(self, timeout_s: float) -> None:
        run(self._closing(timeout_s))

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
            self._started().send(**send_arguments(failed_write, dead), on_delivery=delivered)
        except Exception as error:  # whatever it is: a write that is never answered is never retried
            settle(error)

    def _started(self) -> Producer[Any, Any]:
        with self._lock:
            if self._producer is None:
                self._producer = self._made(Producer)
            return self._producer
