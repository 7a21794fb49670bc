"""Serves the client's delivery reports: one background thread, and the sending threads in passing.

Who polls matters. The client takes the GIL again for each report. While a thread sends flat out, the background thread
would get it once per switch interval (5 ms), about 200 reports a second, and the buffer would fill. So a thread that
sends polls for itself every `SERVE_EVERY` sends, and the background thread steps aside while that happens.

A flush polls too. Within it the client looks whether anything is outstanding when a report comes, and else every 10 ms:
where another thread takes the last report, these waits never end. So the background thread steps aside
for a flush as well. It may be within a poll when the flush begins; so the first waits of a flush are short.

The caller's own callbacks run in the background thread only: never inside a send that may hold the caller's locks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from ottla.errors import OttlaError, UndeliveredRecord
from ottla.producer import DeliveryFailure, DeliveryTracker
from ottla.producer.deliveries import Tracked, log_failed_callback
from ottla.sync.produce.delivery import RecordDelivery, TracedDelivery, pending
from ottla.telemetry import log_event

if TYPE_CHECKING:
    from ottla.sync.produce.unreported_batches import UnreportedBatch

SERVE_EVERY: Final = 256
"""Sends between two polls of a sending thread. A power of two."""

_PAUSE_S: Final = 0.05
"""Delay after an unexpected error, which may recur at once."""


class ReportService:
    """The tracker of one producer and the thread that feeds it."""

    def __init__(
        self, client: Any, *, explain: Callable[[Any, Any], OttlaError], longest_wait_s: float, name: str
    ) -> None:
        self.tracker: DeliveryTracker[Tracked] = DeliveryTracker(pending)
        self.longest_wait_s = longest_wait_s
        self.on_failure: Callable[[Any, str], None] = lambda error, topic: None
        self.on_fatal: Callable[[Any], None] = lambda error: None
        self.wants_to_know_first: Callable[[Any, Any, Callable[[], None]], bool] = lambda error, message, then: False
        """Return whether an error needs a response of the cluster first; if so, `then` is called when that arrived or
        failed."""
        self.on_each_round: Callable[[], None] = lambda: None
        """Called by the background thread after each poll for reports, every 50 ms at the latest."""
        self._unreported: list[UnreportedBatch] = []
        """Deliveries without reports, settled when the client's queue is empty."""
        self._client = client
        self._explain = explain
        self._served_elsewhere = 0
        """Other threads poll, as long as this changes."""
        self._wake = threading.Event()
        self._pause = threading.Event()
        self._stopping = False
        self._callbacks: SimpleQueue[tuple[Tracked, Callable[[Any], None]]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"{name}-reports", daemon=True)

    @property
    def is_calling_back(self) -> bool:
        """Return whether this is the background thread, which runs the callers' callbacks."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Serve what is left of the callbacks and end the thread."""
        self._stopping = True
        self._pause.set()
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=10)

    def serve_in_passing(self) -> None:
        """Process the available reports in the calling thread, and drop settled deliveries."""
        self._served_elsewhere += 1
        self.poll(0)
        self.tracker.sweep_in_passing(2 * SERVE_EVERY, unfinished=len(self._client))

    def serve_here(self, timeout_s: float) -> bool:
        """Process reports if this is the background thread: no other thread would while a callback of the caller
        waits."""
        if not self.is_calling_back:
            return False
        self.poll(timeout_s)
        return True

    def poll(self, timeout_s: float) -> None:
        """Serve the client's reports, for at most `timeout_s`.

        The client raises a fatal error (it was fenced, say) out of whoever polls next, and only there. That thread need
        not be concerned, and the background thread must not end: the records that failed for it, and every later call
        of the client, name it again.
        """
        try:
            self._client.poll(timeout_s)
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self.on_fatal(error.args[0])

    def flush(self, timeout_s: float) -> int:
        """Poll until nothing is outstanding; returns how many records still are."""
        self._served_elsewhere += 1
        unreported = [
            batch for batch in self._unreported if batch.is_sent
        ]  # what is sent from here on may not be waited for
        try:
            still_out = int(self._client.flush(timeout_s))
            if not still_out:
                for batch in unreported:
                    try:
                        self._unreported.remove(batch)  # atomic: of two threads that flush one gets it
                    except ValueError:
                        continue
                    batch.client_is_empty()
            return still_out
        except KafkaException as error:
            if not error.args[0].fatal():
                raise
            self.on_fatal(error.args[0])
            return len(self._client)

    @property
    def has_unreported(self) -> bool:
        """Return whether records without reports are not settled."""
        return bool(self._unreported)

    def add_unreported(self, batch: UnreportedBatch) -> None:
        """Count records that are sent without reports. One thread sends them and flushes."""
        self._unreported.append(batch)
        self.tracker.outstanding.append(batch)

    def someone_waits(self) -> None:
        """Have the reports polled by another thread, as this one is about to wait for one."""
        self._wake.set()

    def delivery_failed(self, delivery: RecordDelivery, error: Any, message: Any) -> None:
        """Record that the client gave up a record."""
        partition = message.partition()
        self.explain_then(
            error, message, lambda explained: self.fail(delivery, explained, partition=partition, message=message)
        )

    def explain_then(self, error: Any, message: Any, settle: Callable[[OttlaError], None]) -> None:
        """Settle a failed record with its error, at once or as soon as the cluster has said what the error names."""
        topic = message.topic()
        if not self.wants_to_know_first(error, message, lambda: settle(self._explain(error, message))):
            settle(self._explain(error, message))
        self.on_failure(error, topic)

    def fail(
        self, delivery: RecordDelivery, error: OttlaError, *, partition: int | None = None, message: Any = False
    ) -> None:
        """Settle a delivery as failed. The failure is kept until it is read."""
        self.tracker.failed(delivery, self.failure(delivery, error, partition))
        if isinstance(delivery, TracedDelivery):
            delivery.span.not_delivered(error)
        delivery._error = error
        delivery._message = message
        if delivery._waiter is not None:
            delivery._waiter.set()
        if delivery._callbacks is not None:
            self.run_callbacks(delivery, delivery._callbacks)

    def failure(self, delivery: Tracked, error: OttlaError, partition: int | None) -> DeliveryFailure:
        """Return what `flush` lists of a record that was not delivered."""
        is_known = partition is not None and partition >= 0
        record = UndeliveredRecord(
            topic=delivery.topic, partition=partition if is_known else None, key=delivery.key, error=str(error)
        )
        return DeliveryFailure(record, error)

    def run_callbacks(self, delivery: Tracked, callbacks: list[Callable[[Any], None]]) -> None:
        """Hand the caller's callbacks to the background thread, each exactly once."""
        while True:
            try:
                callback = callbacks.pop(0)  # atomic: of two threads one gets it
            except IndexError:
                break
            self._callbacks.put((delivery, callback))
        self._wake.set()

    def _run(self) -> None:
        poll, wake = self.poll, self._wake
        seen = 0
        while not self._stopping:
            try:
                if seen != self._served_elsewhere:  # somebody sends flat out and polls in passing, or flushes
                    seen = self._served_elsewhere
                    if wake.wait(0.005):
                        wake.clear()
                        if self._callbacks.empty():  # a thread waits for its delivery
                            poll(0)
                else:
                    wake.clear()
                    poll(0.05)
                    self.tracker.sweep()
                self._call_back()
                self.on_each_round()
            except BaseException as error:  # without this thread no delivery would ever be settled
                log_event("delivery_reports_failed", "error", {"error": repr(error), "exc_info": error})
                self._pause.wait(_PAUSE_S)
        self._call_back()

    def _call_back(self) -> None:
        while True:
            try:
                delivery, callback = self._callbacks.get_nowait()
            except Empty:
                return
            try:
                callback(delivery)
            except BaseException as error:  # a caller's mistake must not end the thread that serves everybody
                log_failed_callback(delivery, error)
