"""Reads a producer's topic limits and scheduler groups from the cluster, beside the sending."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import GroupIdNotFound, KafkaError, UnknownTopicOrPartitionError, for_code

from ottla.aio.aiokafka_internals import network_of
from ottla.aio.client.client_errors import error_of
from ottla.aio.client.declared_topics import create_topics
from ottla.aio.client.ending import end
from ottla.producer import Limit, limit_from_config
from ottla.producer.limits import TOPIC_CONFIG_NAME, LimitWatch
from ottla.schedule.topics import schedule_specs
from ottla.telemetry import log_event

# Where a value comes from, as DescribeConfigs numbers it (KIP-226).
_TOPICS_OWN: Final = 1
_KAFKAS_DEFAULT: Final = 5


class ClusterWatch(LimitWatch):
    """Keeps a `LimitsCache` filled. One task, started with the first topic."""

    def __init__(self, **asking: Any) -> None:
        super().__init__(**asking)
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def watch(self, topic: str) -> None:
        """Watch a topic from now on."""
        self._begin(topic)
        self._wake()

    def look_again(self, topic: str) -> None:
        """Ask again, because what is known about a topic was contradicted."""
        self._limits.ask_again(topic, now_ms=self._clock.monotonic_ms())
        self._wake()

    async def learn(self, topic: str) -> None:
        """Request one topic's limit now. Waits two seconds at most, and ignores errors."""
        try:
            async with asyncio.timeout(2.0):
                found, refused = await self._describe([topic])
        except TimeoutError:
            return
        self._on_limits(found, refused)

    async def limits_now(self, topics: list[str]) -> dict[str, Limit]:
        """Ask for limits and wait. Topics that do not exist, or that the cluster will not describe, are left out."""
        return (await self._describe(topics))[0]

    async def broker_limit_now(self, broker_id: int) -> int | None:
        """Return a broker's own `message.max.bytes`, which holds for topics without a limit of their own."""
        try:
            for _, _, entries in await self._ask([ConfigResource(ConfigResourceType.BROKER, str(broker_id))]):
                for entry in entries:
                    if entry[0] == "message.max.bytes":
                        return int(entry[1])
        except (TimeoutError, KafkaError, OSError, TypeError, ValueError):
            pass
        return None

    async def stop(self) -> None:
        await end(self._task)

    def _wake(self) -> None:
        self._changed.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="ottla-producer-cluster")

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            due_ms = self._next_due_ms()
            left_s = 3_600.0 if due_ms is None else max(0, due_ms - self._clock.monotonic_ms()) / 1000
            if left_s > 0:
                try:
                    async with asyncio.timeout(left_s):
                        await self._changed.wait()
                except TimeoutError:
                    pass
            topics = self._limits.due(self._clock.monotonic_ms())
            if topics:
                self._on_limits(*await self._describe(topics))
                for topic in self._schedules_to_make():
                    await self._make_schedule(topic)
            for group in self._schedulers.due(self._clock.monotonic_ms()):
                self._on_scheduler_state(group, await self._state_of(group))

    def _on_limits(self, found: Mapping[str, Limit], refused: list[str]) -> None:
        self._answered(found, refused)
        self._tell(found)

    async def _make_schedule(self, topic: str) -> None:
        """Create the topic of a schedule for which a message waits, if no scheduler has created it yet."""
        servers = ",".join(self._admin_config["bootstrap_servers"])
        try:
            async with self._admin() as admin:
                specs = schedule_specs(topic, brokers=len(network_of(admin).cluster.brokers()))
                await create_topics(admin, specs, servers=servers, timeout_s=self._timeout_s)
        except (TimeoutError, OSError, KafkaError) as error:
            self._schedule_not_made(topic, error_of(error, servers))
        except Exception as error:  # it may not: the sends say what to run
            self._schedule_not_made(topic, error)

    async def _describe(self, topics: list[str]) -> tuple[dict[str, Limit], list[str]]:
        """Return (limits by topic, topics that the cluster will not describe). What failed for now is in neither."""
        found: dict[str, Limit] = {}
        refused: list[str] = []
        resources = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
        try:
            answers = await self._ask(resources)
        except (TimeoutError, KafkaError, OSError):
            return found, refused
        except Exception as problem:  # whatever it is: without this task no limit would be looked up any more
            if len(topics) > 1:  # it may be one of them: the others are not to be without limits for it
                for topic in topics:
                    found_of_one, refused_of_one = await self._describe([topic])
                    found.update(found_of_one)
                    refused += refused_of_one
                return found, refused
            log_event("topic_limits_unknown", "warning", {"topics": topics, "error": repr(problem)})
            return found, topics  # asked again, but not at once
        for error_code, topic, entries in answers:
            error = for_code(error_code)
            if error_code != 0:
                if error is UnknownTopicOrPartitionError or not error.retriable:
                    self._missing.add(topic)
                if not error.retriable:
                    refused.append(topic)
                continue
            for entry in entries:
                if entry[0] == TOPIC_CONFIG_NAME:
                    found[topic] = limit_from_config(
                        topic,
                        entry[1],
                        is_topics_own=entry[3] == _TOPICS_OWN,
                        is_broker_default=entry[3] == _KAFKAS_DEFAULT,
                    )
        return found, refused

    async def _state_of(self, group: str) -> str | None:
        """Return the group's state in capitals; None if the response has none."""
        try:
            async with self._admin() as admin:
                (answer,) = await admin.describe_consumer_groups([group])
            ((error_code, _, state, *_),) = answer.groups
        except Exception:  # whatever it is: it is asked again, and this task has other work
            return None
        if for_code(error_code) is GroupIdNotFound:
            return "DEAD"
        return str(state).upper() if error_code == 0 else None

    async def _ask(self, resources: list[ConfigResource]) -> list[tuple[int, str, list[Any]]]:
        """Return (error code, name, entries) per resource."""
        async with self._admin() as admin:
            responses = await admin.describe_configs(resources)
        return [(code, name, entries) for answer in responses for code, _, _, name, entries in answer.resources]

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[Any]:
        """Open a connection for one question, which comes every few minutes."""
        admin = AIOKafkaAdminClient(**self._admin_config)
        try:
            async with asyncio.timeout(self._timeout_s):
                await admin.start()
                yield admin
        finally:
            await admin.close()
