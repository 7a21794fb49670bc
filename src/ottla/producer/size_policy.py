"""Limits of a topic as one decision for both shells: record size and batch size."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.config import Settings, check_batch_size_against_limit
from ottla.errors import ConfigError
from ottla.producer.limits import Limit, LimitsCache
from ottla.producer.size import size_in_own_batch
from ottla.raising import again
from ottla.records import Headers
from ottla.telemetry import log_event


class SizePolicy:
    """Refuses records over a limit, and topics whose limit is below `batch.size`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.limits = LimitsCache(
            client_limit_bytes=settings["max.request.size"], max_age_ms=settings["metadata.max.age.ms"]
        )
        self._refused: dict[str, ConfigError] = {}
        self._is_brokers = False

    def leave_to_broker(self) -> None:
        """Refuse nothing here: only the broker knows what is left of a record once it is compressed."""
        self._is_brokers = True

    def check(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Check the exact size of a record near a limit. Raises RecordTooLarge, or ConfigError for a refused topic."""
        if self._is_brokers:
            return
        if topic in self._refused:
            raise again(self._refused[topic])
        self.limits.check(topic, size_in_own_batch(key, value, headers))

    def on_limit(self, topic: str, limit: Limit) -> None:
        """Check `batch.size` against a topic's limit, which the cluster has just reported."""
        if self._is_brokers:
            return
        try:
            self.check_batch_size({topic: limit})
        except ConfigError as error:
            if topic not in self._refused:
                log_event("batch_size_above_topic_limit", "error", {"topic": topic, "error": str(error)})
            self._refused[topic] = error
            self.limits.effective[topic] = 0  # every send takes the exact check, which raises it
        else:
            self._refused.pop(topic, None)

    def check_batch_size(self, limits: Mapping[str, Limit]) -> None:
        """Raise ConfigError when `batch.size` is above the limit of one of these topics."""
        for topic, limit in limits.items():
            check_batch_size_against_limit(
                self._settings, limit_bytes=limit.limit_bytes, topic=topic, set_by=limit.setting
            )

    def check_batch_size_of_broker(self, limit_bytes: int | None) -> None:
        """Raise ConfigError when `batch.size` is above what topics without a limit of their own take."""
        if limit_bytes is not None:
            check_batch_size_against_limit(
                self._settings, limit_bytes=limit_bytes, topic=None, set_by="message.max.bytes of the broker"
            )
