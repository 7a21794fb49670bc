"""Converts librdkafka's delivery errors to Ottla's errors, sorted by what the caller should do."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import KafkaError

from ottla.config import Settings
from ottla.errors import (
    FencedError,
    InputError,
    LifecycleError,
    OttlaError,
    RetriableError,
)
from ottla.producer import LimitsCache, size_in_own_batch
from ottla.producer.explain import Explain
from ottla.sync.client.client_errors import NOT_ACCEPTED, NOT_ALLOWED, UNREACHABLE
from ottla.telemetry import log_event

UNKNOWN_TOPIC: Final = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})
TOO_LARGE: Final = KafkaError.MSG_SIZE_TOO_LARGE
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        getattr(KafkaError, "PRODUCER_FENCED", 90),
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
    }
)
_UNREACHABLE: Final = UNREACHABLE | {KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT_QUEUE}
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_REFUSED: Final = NOT_ALLOWED | {KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
_REFUSED_RECORDS: Final = frozenset({KafkaError._INVALID_ARG, KafkaError.INVALID_TIMESTAMP, KafkaError.TOPIC_EXCEPTION})
_TOO_FEW_REPLICAS: Final = frozenset({KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND})


class ErrorTranslator(Explain):
    """Turns librdkafka's codes into errors."""

    def __init__(self, settings: Settings, limits: LimitsCache) -> None:
        super().__init__(settings, limits)
        self._log_again_s = 0.0
        self._fatal: KafkaError | None = None
        """The client's fatal error. It is reported once, in a callback; every call then fails with a bare _FATAL."""

    @property
    def has_fatal_error(self) -> bool:
        """Return whether the client reported a fatal error."""
        return self._fatal is not None

    def on_error(self, error: KafkaError) -> None:
        """Log what the client says about its connections: "all brokers are down" at most once in a while."""
        if error.fatal():
            self._fatal = error
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last_problem = error.str()
            self.login_problem = error.str() if error.code() in NOT_ACCEPTED else ""
            return
        now_s = time.monotonic()
        if now_s >= self._log_again_s:
            self._log_again_s = now_s + 60
            problem = self.last_problem or error.str()
            log_event("brokers_down", "warning", {"servers": self.servers, "last_problem": problem})

    def of_delivery(self, error: KafkaError, message: Any) -> OttlaError:
        """Return the error for a record that the client gave up."""
        return self.of_record(
            error, message.topic(), message.partition(), message.key(), message.value(), message.headers() or []
        )

    def of_record(
        self, error: KafkaError, topic: str, partition: int | None, key: Any, value: Any, headers: Any
    ) -> OttlaError:
        code = error.code()
        if code in UNKNOWN_TOPIC:
            return self.unknown_topic(topic)
        if code == KafkaError._UNKNOWN_PARTITION:
            return self.unknown_partition(topic, partition)
        if code == KafkaError.INVALID_RECORD:
            return self.refused_record(topic)
        if code == TOO_LARGE:
            return self.too_large(topic, size_in_own_batch(key, value, headers))
        if code == KafkaError._MSG_TIMED_OUT:
            return self.timed_out(topic)
        if code in _PURGED:
            return self.given_up(topic)
        if code in _TOO_FEW_REPLICAS:
            return RetriableError(
                f"{topic}: fewer replicas are in sync than min.insync.replicas requires ({error.str()})"
            )
        return self.of_call(error, what=topic, topic=topic)

    def of_call(self, error: KafkaError, *, what: str, topic: str = "") -> OttlaError:
        """Return the error for anything else that the client refused or could not do."""
        if error.code() == KafkaError._FATAL and self._fatal is not None:
            error = self._fatal
        code = error.code()
        if code in _FENCED:
            return FencedError(f"{what}: a newer producer with the same transactional.id took over ({error.str()})")
        if code in _UNREACHABLE:
            return self.unavailable(f"{what}: {error.str()}")
        if code in NOT_ACCEPTED:
            return self.not_accepted(f"{what}: {error.str()}")
        if code in _REFUSED:
            return self.refused(what, error.str(), code=error.name(), topic=topic)
        if error.fatal():
            return LifecycleError(f"{what}: the producer cannot continue; create a new one: {error.str()}")
        if code in (KafkaError._STATE, KafkaError.INVALID_TXN_STATE):
            return LifecycleError(f"{what}: {error.str()}")
        if code in _REFUSED_RECORDS:
            return InputError(f"{what}: {error.str()}")
        return RetriableError(f"{what}: {error.name()}: {error.str()}")
