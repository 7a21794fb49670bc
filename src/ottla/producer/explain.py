"""Texts of send errors: the place, the value found, the remedy. The same in both shells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.config import Principal, Settings, create_command, principal_of, tokens_of_client
from ottla.errors import (
    AuthenticationError,
    BrokerUnavailable,
    BufferFull,
    ConfigError,
    InputError,
    LifecycleError,
    OttlaError,
    RecordTooLarge,
    RetriableError,
    UnknownTopic,
)
from ottla.producer.limits import LimitsCache
from ottla.producer.refusals import Refusals
from ottla.schedule.topics import command_for, is_schedule


class Explain:
    """Knows what a message should name: addresses, settings, limits, and the last problem with a connection."""

    def __init__(self, settings: Settings, limits: LimitsCache) -> None:
        self.settings = settings
        self.limits = limits
        self.servers = str(settings.get("bootstrap.servers", ""))
        self.login_problem = ""
        """The client's last error about a refused login or certificate."""
        self.unmade_schedules: Mapping[str, str] = {}
        """Topic of a schedule that is missing → why this client could not create it."""
        self.refusals = Refusals(str(settings.get("client.id", "")))
        self.last_problem = ""
        """The client's last connection error; empty without one."""

    def of_call(self, problem: Any, *, what: str) -> OttlaError:
        """Return the error for a call of the client that failed. `what` was asked for."""
        raise NotImplementedError

    def unavailable(self, text: str) -> RetriableError | AuthenticationError:
        """Return the error for brokers that do not respond, with their addresses, the observed failure and what to
        check. Also used for brokers that refuse records for now, and for a refused login."""
        if self.refusals:
            return RetriableError(
                f"the brokers at {self.servers} answer, and do not take records for now ({text.rstrip('.')}): "
                f"{self.refusals.one()}"
            )
        if self.login_problem:
            return self.not_accepted(f"{self.login_problem} ({text.rstrip('.')})")
        seen = f" The last problem: {self.last_problem}." if self.last_problem else ""
        protocol = self.settings.get("security.protocol", "PLAINTEXT")
        return BrokerUnavailable(
            f"no Kafka broker answered at {self.servers} ({text.rstrip('.')}).{seen} Check that the address "
            f"and port are a Kafka listener, that it is up, and that it speaks security.protocol={protocol}"
        )

    def unknown_topic(self, topic: str) -> UnknownTopic:
        if is_schedule(topic):
            reason = self.unmade_schedules.get(topic)
            return UnknownTopic(
                f"{topic}: the cluster at {self.servers} does not have the topic of this schedule"
                f"{'' if reason is None else f', and this client could not create it ({reason})'}; create it with "
                f"`{command_for(topic, self.servers)}`, which also delivers what waits"
            )
        return UnknownTopic(
            f"{topic}: the cluster at {self.servers} does not have this topic (and a producer creates none by writing "
            f"to it: allow.auto.create.topics=false); create it with "
            f"`{create_command([topic], self.servers)}`, or fix the name"
        )

    def unknown_partition(self, topic: str, partition: int | None) -> InputError:
        return InputError(f"{topic}: found partition {partition}, wanted one that the topic has")

    def too_large(self, topic: str, size_bytes: int) -> OttlaError:
        """Return the error for a record that had passed the size check: the limit was not known yet, or has changed."""
        error = self._too_large(topic, size_bytes)
        error.is_too_large = True
        return error

    def contradicts_limit(self, topic: str, size_bytes: int) -> bool:
        """Return whether the limit must be fetched first, because the known one does not explain a refusal as too
        large."""
        limit = self.limits.topic_limit(topic)
        return limit is None or size_bytes <= limit.limit_bytes

    def _too_large(self, topic: str, size_bytes: int) -> InputError:
        limit = self.limits.topic_limit(topic)
        if limit is None:
            return InputError(
                f"{topic}: the broker refused a record of {size_bytes:,} bytes encoded as too large; the topic's "
                "max.message.bytes could not be read (DescribeConfigs)"
            )
        if size_bytes > limit.limit_bytes:
            return RecordTooLarge(
                topic=topic, size_bytes=size_bytes, limit_bytes=limit.limit_bytes, setting=limit.setting
            )
        return ConfigError(
            f"batch.size: found {self.settings['batch.size']:,}, wanted at most {limit.limit_bytes:,}, set by "
            f"{limit.setting}: the broker refused a batch as too large"
        )

    def refused_record(self, topic: str) -> InputError:
        """Return a broker's INVALID_RECORD, which names no cause."""
        return InputError(
            f"{topic}: the broker refused the record (INVALID_RECORD); a topic with cleanup.policy=compact takes only "
            "records with a key"
        )

    def buffer_full(self, topic: str, waiting: int) -> BufferFull:
        seen = self.refusals.reason(topic) or self.last_problem
        problem = f" The last problem: {seen}." if seen else ""
        settings = self.settings
        return BufferFull(
            f"{topic}: the send buffer stayed full for max.block.ms={settings['max.block.ms']}: {waiting:,} records "
            f"wait for {self.servers} (buffer.memory={settings['buffer.memory']:,}, "
            f"queue.buffering.max.messages={settings['queue.buffering.max.messages']:,}).{problem}"
        )

    def not_accepted(self, text: str) -> AuthenticationError | RetriableError:
        """Return the error for a failed login, or a refused certificate."""
        asking = Principal(principal=principal_of(self.settings), tokens=tokens_of_client(self.settings))
        return asking.not_accepted(text, servers=self.servers)

    def timed_out(self, topic: str) -> RetriableError | AuthenticationError:
        """Return the error for a record whose delivery.timeout.ms passed."""
        text = f"{topic}: not acknowledged within delivery.timeout.ms={self.settings['delivery.timeout.ms']}"
        reason = self.refusals.reason(topic)
        if reason is not None:
            return RetriableError(f"{text}: the brokers at {self.servers} answer, and do not take it for now: {reason}")
        return self.unavailable(text)

    def given_up(self, topic: str) -> LifecycleError:
        """Return the error for a record that was given up: the producer was closed, or aborted what it had open."""
        if self.settings.get("transactional.id"):
            return LifecycleError(f"{topic}: given up with its transaction before a broker acknowledged the record")
        return LifecycleError(f"{topic}: the producer was closed before a broker acknowledged the record")

    def partition_missing(self, topic: str) -> ConfigError:
        return ConfigError(f"{topic}: found no partition, wanted send(..., partition=n): partitioner=explicit")

    def transactional_id_missing(self) -> ConfigError:
        return ConfigError(
            "transactional.id: found nothing, wanted a name that only this instance has, the same across restarts"
        )

    def refused(self, what: str, text: Any, *, code: str = "", topic: str = "") -> ConfigError:
        """Return the error for a refusal. `code`: Kafka's name of the error, where it has one. `topic`: whose records
        were refused."""
        asking = Principal(
            principal=principal_of(self.settings),
            topics=(topic,) if topic else (),
            transactional_id=str(self.settings.get("transactional.id") or ""),
            writes=True,
        )
        return ConfigError(f"{what}: {asking.refused(code, str(text), servers=self.servers)}")
