"""The slow path of a record into librdkafka: a full buffer, a refusal, a partitioner of our own.

The fast path is in `Producer.send` and `send_many`, which call librdkafka themselves because a call more would cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from ottla.clock import Clock
from ottla.config import Settings
from ottla.errors import LifecycleError, OttlaError
from ottla.producer import Partitioner, size_in_own_batch
from ottla.producer.encoded import bad_arguments
from ottla.records import Headers
from ottla.sync.produce.delivery import RecordDelivery
from ottla.sync.produce.placement import PartitionPlacement, RecordToPlace
from ottla.sync.produce.produce_errors import ErrorTranslator
from ottla.sync.produce.reports import ReportService

FATAL_ERROR_WAIT_S: Final = 1.0
"""How long a send that is refused for good waits for the reason: another thread may just be getting it."""


REFUSALS: Final = (BufferError, KafkaException, TypeError, AttributeError, ValueError, OverflowError)
"""Errors of the client's `produce` for a record that it does not accept."""


class SendBuffer:
    """The buffer of one client. `after_failure` is called with every error of a record; `check_open` raises once
    closed.

    `partitioner` is one that librdkafka does not have, or None: such records wait here until their topic's partitions
    are known.
    """

    def __init__(
        self,
        client: Any,
        settings: Settings,
        *,
        partitioner: Partitioner | None,
        reports: ReportService,
        errors: ErrorTranslator,
        clock: Clock,
        after_failure: Callable[[Any, str], None],
        check_open: Callable[[], None],
    ) -> None:
        self._client = client
        self._produce = client.produce
        self._settings = settings
        self._reports = reports
        self._errors = errors
        self._clock = clock
        self._after_failure = after_failure
        self._check_open = check_open
        self._placement = None
        if partitioner is not None:
            self._placement = PartitionPlacement(
                partitioner,
                produce=self._hand_over,
                fail=reports.fail,
                sticky_ms=max(10, int(2 * settings["linger.ms"])),
                most_bytes=settings["buffer.memory"],
            )

    @property
    def places_itself(self) -> bool:
        """Return whether partitions are chosen here."""
        return self._placement is not None

    @property
    def held(self) -> int:
        """Records that wait for their topic's partitions."""
        return 0 if self._placement is None else self._placement.held

    def __len__(self) -> int:
        """Return records that are not settled yet. Events that librdkafka has not delivered, such as errors, count as
        well."""
        return len(self._client) + self.held

    # -- in ---------------------------------------------------------------------------------------------------------

    def send(
        self,
        delivery: RecordDelivery,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
    ) -> None:
        """Send one record as it has to be, and wait for room."""
        placement = self._placement
        if placement is None or partition is not None:
            self._send_with_room(delivery, value, partition, timestamp_ms, headers)
            return
        record = RecordToPlace(
            delivery,
            value,
            self._clock.now_ms() if timestamp_ms is None else timestamp_ms,
            list(headers) or None,
            size_in_own_batch(delivery.key, value, headers),
            self._clock.monotonic_ms() + self._settings["delivery.timeout.ms"],
        )
        self.with_room(delivery.topic, lambda: placement.place(record, now_ms=self._clock.monotonic_ms()))

    def handle_rejected(
        self,
        error: Exception,
        delivery: RecordDelivery,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
    ) -> None:
        """Handle a record that the client did not take: wait for room, settle it as refused, or raise `InputError` for
        arguments that cannot be. `error` is one of `REFUSALS`."""
        if not isinstance(error, BufferError | KafkaException):
            raise bad_arguments(
                delivery.topic, headers, error, partition=partition, timestamp_ms=timestamp_ms
            ) from error
        if isinstance(error, KafkaException):
            self._refused_at_once(error, delivery, value, partition, headers)
        else:
            self._send_with_room(delivery, value, partition, timestamp_ms, headers)

    def with_room(self, topic: str, attempt: Callable[[], Any]) -> None:
        """Back-pressure: try, and while the buffer is full serve reports, which is what makes room."""
        deadline = time.monotonic() + self._settings["max.block.ms"] / 1000
        while True:
            try:
                attempt()
                return
            except BufferError:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise self._errors.buffer_full(topic, len(self)) from None
                self._reports.poll(min(left_s, 0.05))
                if self._placement is not None:
                    self._placement.drain(now_ms=self._clock.monotonic_ms())
            self._check_open()

    def refusal(
        self,
        error: KafkaException,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> OttlaError:
        """Return why librdkafka did not take a record. Raises if it takes no record any more."""
        problem = error.args[0]
        is_at_its_end = problem.fatal() or problem.code() == KafkaError._FATAL
        if is_at_its_end:
            self._await_fatal_error()
        explained = self._errors.of_record(problem, topic, partition, key, value, headers)
        if is_at_its_end or isinstance(explained, LifecycleError):
            raise explained from error
        self._after_failure(problem, topic)
        return explained

    def _await_fatal_error(self) -> None:
        """Poll until the client says why it failed: it says so once, to the next poll."""
        deadline = time.monotonic() + FATAL_ERROR_WAIT_S
        while not self._errors.has_fatal_error and time.monotonic() < deadline:
            self._reports.poll(0.01)

    # -- held -------------------------------------------------------------------------------------------------------

    def on_partitions(self, topic: str, every: list[int], available: list[int]) -> None:
        """Send what waited for the partitions of a topic."""
        if self._placement is not None:
            self._placement.partitions_are(topic, every, available, now_ms=self._clock.monotonic_ms())

    def on_topic_missing(self, topic: str) -> None:
        """Fail what waits for a topic that the cluster does not have."""
        if self._placement is not None:
            for delivery in self._placement.take_all_of(topic):
                self._reports.fail(delivery, self._errors.unknown_topic(topic))

    def expire_held_records(self) -> None:
        """Send records whose partitions are known now, and fail those that waited too long."""
        if self._placement is None or not self._placement.held:
            return
        now_ms = self._clock.monotonic_ms()
        self._placement.drain(now_ms=now_ms)
        for delivery in self._placement.take_expired(now_ms=now_ms):
            self._reports.fail(delivery, self._errors.timed_out(delivery.topic))

    def give_up_held(self) -> None:
        """Settle as failed what waits for partitions."""
        if self._placement is not None:
            for delivery in self._placement.take_expired(now_ms=0, all_of_them=True):
                problem = f"{delivery.topic}: given up before its partitions were known"
                self._reports.fail(delivery, LifecycleError(problem))

    # -- parts ------------------------------------------------------------------------------------------------------

    def _send_with_room(
        self,
        delivery: RecordDelivery,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
    ) -> None:
        self.with_room(delivery.topic, lambda: self._hand_over(delivery, value, partition, timestamp_ms, headers))

    def _hand_over(
        self,
        delivery: RecordDelivery,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers | None,
    ) -> None:
        try:
            self._produce(
                delivery.topic,
                value,
                delivery.key,
                -1 if partition is None else partition,
                delivery,
                None,
                0 if timestamp_ms is None else timestamp_ms,
                list(headers or ()) or None,
            )
        except KafkaException as error:
            self._refused_at_once(error, delivery, value, partition, headers or ())

    def _refused_at_once(
        self,
        error: KafkaException,
        delivery: RecordDelivery,
        value: bytes | None,
        partition: int | None,
        headers: Headers,
    ) -> None:
        """Fail the delivery with what librdkafka found at once: the same errors as those it finds later are raised in
        the same place."""
        explained = self.refusal(error, delivery.topic, partition, delivery.key, value, headers)
        self._reports.fail(delivery, explained, partition=partition)
