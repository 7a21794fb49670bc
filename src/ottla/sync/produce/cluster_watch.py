"""Reads a producer's topic limits, partition counts and scheduler groups from the cluster, beside the sending. One
thread per producer, started with the first request. It may block; sending never waits for it."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

from ottla.processes import forks
from ottla.producer import Limit, limit_from_config
from ottla.producer.limits import TOPIC_CONFIG_NAME, LimitWatch
from ottla.schedule.topics import schedule_specs
from ottla.sync.client.declared_topics import create_topics
from ottla.sync.client.guarded import AdminClient
from ottla.sync.client.reachable import brokers_of
from ottla.telemetry import log_event

_RETRY_MS: Final = 500


class ClusterWatch(LimitWatch):
    """Keeps a `LimitsCache` filled and says which partitions topics have."""

    def __init__(
        self,
        client: Any,
        *,
        on_partitions: Callable[[str, list[int], list[int]], None],
        on_missing: Callable[[str], None],
        why_not_taken: Callable[[str], None],
        max_age_ms: int,
        propagation_ms: int,
        name: str,
        **asking: Any,
    ) -> None:
        super().__init__(**asking)
        self._client = client
        self._on_partitions = on_partitions
        self._on_missing = on_missing
        self._why_not_taken = why_not_taken
        self._after_reason: list[tuple[str, Callable[[], None]]] = []
        self._max_age_ms = max_age_ms
        self._propagation_ms = propagation_ms
        self._missing_since_ms: dict[str, int] = {}
        self._changed = threading.Condition()
        self._partitions_due_ms: dict[str, int] = {}
        self._after_limit: list[tuple[str, Callable[[], None]]] = []
        self._thread: threading.Thread | None = None
        self._name = name
        self._stopping = False
        self._admin: AdminClient | None = None
        forks.owns(self)

    def watch(self, topic: str, *, partitions: bool) -> None:
        """Watch a topic. `partitions`: its partition count is wanted as well as its limit."""
        with self._changed:
            self._begin(topic)
            if partitions:
                self._partitions_due_ms.setdefault(topic, self._clock.monotonic_ms())
            self._wake()

    def look_again(self, topic: str) -> None:
        """Ask again, because what is known about a topic was contradicted."""
        with self._changed:
            self._limits.ask_again(topic, now_ms=self._clock.monotonic_ms())
            self._wake()

    def after_limit(self, topic: str, action: Callable[[], None]) -> bool:
        """Ask for a topic's limit now, and call `action` with or without an answer. False: stopped already."""
        with self._changed:
            if self._stopping:
                return False
            self._after_limit.append((topic, action))
            self._wake()
        return True

    def after_reason(self, topic: str, action: Callable[[], None]) -> bool:
        """Ask why a topic's records are not taken, and call `action` then. False: stopped already."""
        with self._changed:
            if self._stopping:
                return False
            self._after_reason.append((topic, action))
            self._wake()
        return True

    def look_for_partitions(self, topic: str, *, once: bool = False) -> None:
        """Ask for a topic's partitions now. It also makes the client forget that it did not find the topic."""
        with self._changed:
            if not (once and topic in self._partitions_due_ms):
                self._partitions_due_ms[topic] = self._clock.monotonic_ms() + (_RETRY_MS if once else 0)
            self._wake()

    def limits_now(self, topics: list[str], timeout_s: float) -> dict[str, Limit]:
        """Ask for limits and wait. Topics that do not exist, or that the cluster will not describe, are left out."""
        return self._describe(topics, timeout_s)[0]

    def broker_limit_now(self, broker_id: int, timeout_s: float) -> int | None:
        """Return a broker's own `message.max.bytes`, which holds for topics without a limit of their own."""
        resource = ConfigResource(ResourceType.BROKER, str(broker_id))
        try:
            entries = self._wait(self._describe_configs([resource], timeout_s)[resource], timeout_s)
            return int(entries["message.max.bytes"].value)
        except (KafkaException, KeyError, TypeError, ValueError, TimeoutError):
            return None

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)
        self._admin = None

    def _c_clients(self) -> Iterable[object | None]:
        return (self._admin,)

    def _wake(self) -> None:
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(target=self._run, name=f"{self._name}-cluster", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and (left_s := self._until_due_s()) > 0:
                    self._changed.wait(left_s)
                actions, self._after_limit = self._after_limit, []
                reasons, self._after_reason = self._after_reason, []
                if self._stopping:
                    break
                now_ms = self._clock.monotonic_ms()
                limits_of = self._limits.due(now_ms)
                groups = self._schedulers.due(now_ms)
                partitions_of = [topic for topic, due_ms in self._partitions_due_ms.items() if due_ms <= now_ms]
                for topic in partitions_of:
                    self._partitions_due_ms[topic] = now_ms + _RETRY_MS
            for topic in dict.fromkeys(topic for topic, _ in reasons):
                self._why_not_taken(topic)
            for _, action in reasons:
                action()
            for topic in partitions_of:
                self._ask_for_partitions(topic)
            limits_of = sorted({*limits_of, *(topic for topic, _ in actions)})
            if limits_of:
                self._ask_for_limits(limits_of)
            for _, action in actions:
                action()
            for group in groups:
                self._on_scheduler_state(group, self._state_of(group))
        for _, action in [*reasons, *actions]:
            action()

    def _until_due_s(self) -> float:
        if self._after_limit or self._after_reason:
            return 0.0
        due_ms = [*self._partitions_due_ms.values()]
        other_due_ms = self._next_due_ms()
        if other_due_ms is not None:
            due_ms.append(other_due_ms)
        if not due_ms:
            return 3_600.0
        return max(0, min(due_ms) - self._clock.monotonic_ms()) / 1000

    def _ask_for_partitions(self, topic: str) -> None:
        try:
            metadata = self._client.list_topics(topic, timeout=min(self._timeout_s, 1.0)).topics.get(topic)
        except KafkaException:
            return  # asked again when due
        if metadata is None or metadata.error is not None or not metadata.partitions:
            if metadata is not None and metadata.error is not None:
                self._on_missing_topic(topic, metadata.error)
            return
        self._missing_since_ms.pop(topic, None)
        every = sorted(metadata.partitions)
        available = [number for number in every if metadata.partitions[number].leader >= 0]
        with self._changed:
            self._partitions_due_ms[topic] = self._clock.monotonic_ms() + self._max_age_ms
        self._on_partitions(topic, every, available)

    def _on_missing_topic(self, topic: str, error: KafkaError) -> None:
        """Report a topic as missing once the cluster has said so for as long as a new topic may take to be known
        everywhere."""
        if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._missing_since_ms.setdefault(topic, now_ms) >= self._propagation_ms:
            self._on_missing(topic)

    def _ask_for_limits(self, topics: list[str]) -> None:
        try:
            found, refused = self._describe(topics, self._timeout_s)
        except Exception as error:  # whatever it is: without this thread no limit would be looked up any more
            if len(topics) > 1:  # it may be one of them: the others are not to be without limits for it
                for topic in topics:
                    self._ask_for_limits([topic])
                return
            log_event("topic_limits_unknown", "warning", {"topics": topics, "error": repr(error)})
            found, refused = {}, topics  # asked again, but not at once
        with self._changed:
            self._answered(found, refused)
        self._tell(found)
        for topic in self._schedules_to_make():
            self._make_schedule(topic)

    def _make_schedule(self, topic: str) -> None:
        """Create the topic of a schedule for which a message waits, if no scheduler has created it yet."""
        admin = self._ask()
        try:
            specs = schedule_specs(topic, brokers=len(brokers_of(admin, self._timeout_s)))
            create_topics(admin, specs, servers=self._admin_config["bootstrap.servers"], timeout_s=self._timeout_s)
        except Exception as error:  # not permitted, or no response: the sends' errors name the command
            self._schedule_not_made(topic, error)
            return
        self.look_for_partitions(topic)

    def _describe(self, topics: list[str], timeout_s: float) -> tuple[dict[str, Limit], list[str]]:
        """Return (limits by topic, topics that the cluster will not describe). What failed for now is in neither."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found: dict[str, Limit] = {}
        refused: list[str] = []
        for resource, future in self._describe_configs(resources, timeout_s).items():
            try:
                entry = self._wait(future, timeout_s)[TOPIC_CONFIG_NAME]
            except KafkaException as error:
                is_refused = not _is_passing(error.args[0])
                if is_refused or error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self._missing.add(resource.name)
                if is_refused:
                    refused.append(resource.name)
                continue
            except (KeyError, TimeoutError):
                continue
            source = int(getattr(entry.source, "value", entry.source))  # the binding gives the number
            found[resource.name] = limit_from_config(
                resource.name,
                entry.value,
                is_topics_own=source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
                is_broker_default=source == ConfigSource.DEFAULT_CONFIG.value,
            )
        return found, refused

    def _wait(self, future: Any, timeout_s: float) -> Any:
        """Return the future's result. Stopping ends the wait."""
        deadline = time.monotonic() + timeout_s
        while not future.done() and not self._stopping and (left_s := deadline - time.monotonic()) > 0:
            concurrent.futures.wait([future], timeout=min(0.1, left_s))
        return future.result(0)

    def _state_of(self, group: str) -> str | None:
        """Return the group's state in capitals; None if the response has none."""
        try:
            (future,) = self._ask().describe_consumer_groups([group], request_timeout=self._timeout_s).values()
            return str(self._wait(future, self._timeout_s).state.name)
        except KafkaException as error:
            return "DEAD" if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND else None
        except Exception:  # whatever it is: it is asked again, and this thread has other work
            return None

    def _describe_configs(self, resources: list[ConfigResource], timeout_s: float) -> dict[ConfigResource, Any]:
        futures: dict[ConfigResource, Any] = self._ask().describe_configs(resources, request_timeout=timeout_s)
        return futures

    def _ask(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self._admin_config)
        return self._admin


def _is_passing(error: KafkaError) -> bool:
    """Return whether asking again soon makes sense: the topic may be on its way, or the network may come back."""
    return error.retriable() or error.code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
    )
