"""What `Queue` and `AsyncQueue` share: the member that leases, the serdes, and what is checked at the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypedDict, TypeVar

from ottla.config import Settings, check_servers, consumer_settings
from ottla.errors import ConfigError, LifecycleError
from ottla.processes import forks
from ottla.quantities import Span, count, milliseconds_of, seconds, seconds_of
from ottla.queues.core.acknowledgements import Acknowledgement
from ottla.queues.core.effects import Effect, HandOut, JobTimedOut, LeaseLost, PartitionRefused, RecordsUnreadable
from ottla.queues.core.lease import Lease
from ottla.queues.io.group_settings import prepare_group
from ottla.queues.io.lease_client import LeaseClient
from ottla.queues.job import Job
from ottla.raising import again
from ottla.serdes import Serde, SerdeContext, as_serde
from ottla.showing import shown
from ottla.telemetry import log_event
from ottla.topics import text_problem, topic_problem
from ottla.wire_client.client_settings import connection_settings

Value = TypeVar("Value")

NOT_SETTLED_S: Final = 5.0
"""How long to wait for a job, while none can be leased because none is settled, before that is logged."""


class QueueOptions(TypedDict, total=False):
    """The arguments of `Queue` and `AsyncQueue` that their type does not depend on."""

    bootstrap_servers: str | Sequence[str] | None
    key: Any
    concurrency: int
    max_job_s: Span
    start: Literal["earliest", "latest"]
    topics_timeout_s: Span
    settings: Mapping[str, Any] | None


class QueueBase:
    """See the module."""

    _name: ClassVar[str] = "Queue"

    def __init__(
        self,
        *topics: str,
        group: str,
        value: Any = None,
        key: Any = None,
        bootstrap_servers: str | Sequence[str] | None = None,
        concurrency: int = 1,
        max_job_s: Span = 600.0,
        start: Literal["earliest", "latest"] = "earliest",
        topics_timeout_s: Span = 3.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        place = self._name
        if not topics:
            raise ConfigError(f"{place}: wanted at least one topic")
        if not isinstance(group, str):
            raise ConfigError(f"{place}: group: found {shown(group)}, wanted text")
        for problem in (*map(topic_problem, topics), text_problem(group)):
            if problem is not None:
                raise ConfigError(f"{place}: {problem}")
        if not group:
            raise ConfigError(f"{place}: the group must not be empty; members that share a group share its jobs")
        if start not in ("earliest", "latest"):
            raise ConfigError(f"{place}: start: found {shown(start)}, wanted 'earliest' or 'latest'")
        count(place, "concurrency", concurrency)
        seconds(place, "max_job_s", max_job_s, least=1.0)
        seconds(place, "topics_timeout_s", topics_timeout_s)
        self.group = group
        self._topics = list(topics)
        self._start = start
        self._topics_timeout_s = seconds_of(topics_timeout_s)
        self._concurrency = concurrency
        try:
            self._value: Serde[Any] = as_serde(value)
            self._key: Serde[Any] = as_serde(key)
        except TypeError as error:
            raise ConfigError(f"{place}: {error}") from error
        self._settings: Settings = consumer_settings(bootstrap_servers, group_id=group, settings=settings)
        check_servers(self._settings)
        self._error: BaseException | None = None
        self._has_started = False
        self._is_closed = False
        self._client = LeaseClient(
            connection_settings(self._settings),
            group=group,
            topics=topics,
            concurrency=concurrency,
            max_job_ms=milliseconds_of(max_job_s),
            max_waiting=1,
            on_effects=self._on_effects,
            on_ended=self._on_ended,
        )
        forks.refuses(self)

    @property
    def problems(self) -> tuple[str, ...]:
        """Return why no records are leased, where they should be."""
        return self._client.problems()

    def _on_effects(self, effects: list[Effect]) -> None:
        raise NotImplementedError

    def _on_ended(self, error: BaseException | None) -> None:
        raise NotImplementedError

    def _prepare(self, should_give_up: Callable[[], bool] = lambda: False) -> None:
        """Check and set what the group needs. Blocks."""
        prepare_group(
            self._client.settings,
            group=self.group,
            topics=self._topics,
            start=self._start,
            max_attempts=None,
            topics_timeout_s=self._topics_timeout_s,
            should_give_up=should_give_up,
        )

    def _leased(self, effects: Sequence[Effect]) -> list[Lease]:
        """Carry out what came of the leases, in the client's threads. Returns those that are to be handed out."""
        leases: list[Lease] = []
        for effect in effects:
            match effect:
                case HandOut(handed_out):
                    leases.extend(handed_out)
                case JobTimedOut(lease):
                    self._client.settle(lease, Acknowledgement.RELEASE)
                case LeaseLost(lease, why, was_handled):
                    place = {"partition": str(lease.topic_partition), "offset": lease.offset}
                    level = "warning" if lease.has_begun else "info"
                    log_event(
                        "lease_lost", level, {"group": self.group, **place, "reason": why, "is_handled": was_handled}
                    )
                case RecordsUnreadable(name, why):
                    fields = {"group": self.group, "partition": str(name), "error": why}
                    log_event("leased_records_unreadable", "error", fields)
                case PartitionRefused(name, error):
                    fields = {"group": self.group, "partition": str(name), "error": error.name}
                    log_event("queue_partition_refused", "error", fields)
        return leases

    def _would_block(self, lease: Lease) -> bool:
        record = lease.record
        return self._value.would_block([record.raw_value], SerdeContext(record.topic, "value")) or (
            self._key.would_block([record.raw_key], SerdeContext(record.topic, "key"))
        )

    def _job(self, lease: Lease) -> Job[Any] | None:
        """Decode the record. Returns None for a lease that ended before it was handed out."""
        record = lease.record
        try:
            record.value = self._value.deserialize_records([record], SerdeContext(record.topic, "value"))[0]
            record.key = self._key.deserialize(record.raw_key, SerdeContext(record.topic, "key"))
        except BaseException:
            self._client.settle_once(lease, Acknowledgement.RELEASE)
            raise
        if not self._client.begin(lease):
            self._client.settle_once(lease, Acknowledgement.RELEASE)
            return None
        return Job(self._client, lease, value=record.value, key=record.key)

    def _check_open(self) -> None:
        if self._error is not None:
            raise again(self._error)
        if self._is_closed:
            raise LifecycleError(f"{self._name}: it is closed; make another one")

    def _say_not_settled(self) -> None:
        """Log that the caller has as many jobs as it may have."""
        fields = {"group": self.group, "jobs": self._concurrency}
        log_event("jobs_not_settled", "warning", fields)

    def _forked(self) -> None:
        """Runs in a child process after fork: the threads are not there."""
        self._error = forks.carried_over(self._name, "threads and connections")
