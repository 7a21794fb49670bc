"""The tracker of one asyncio producer, and what happens when a record is settled. Everything runs on its event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.errors import OttlaError, UndeliveredRecord
from ottla.producer import DeliveryFailure, DeliveryTracker
from ottla.producer.deliveries import Tracked, log_failed_callback


class Reports:
    """Failures that were not raised yet, and the callers' callbacks."""

    def __init__(self) -> None:
        self.tracker: DeliveryTracker[Tracked] = DeliveryTracker()

    def failed(self, delivery: Tracked, error: OttlaError, partition: int | None) -> DeliveryFailure:
        """Keep the failure of a record that was not delivered, until it is raised."""
        failure = DeliveryFailure(
            UndeliveredRecord(topic=delivery.topic, partition=partition, key=delivery.key, error=str(error)), error
        )
        self.tracker.failed(delivery, failure)
        return failure

    def run_callbacks(self, delivery: Tracked, callbacks: list[Callable[[Any], Any]]) -> None:
        for callback in callbacks:
            try:
                callback(delivery)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # a caller's mistake: the next records are settled too
                log_failed_callback(delivery, error)
