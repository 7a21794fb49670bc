"""`AsyncAdmin`: see and change a cluster, on asyncio. The same methods as `Admin`, to be awaited."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.admin.admin_client import DEFAULT_TIMEOUT_S, SALT_BYTES, SCRAM_ITERATIONS, wanted_of, wire_settings_of
from ottla.admin.declared import apply_plan as plan_files
from ottla.admin.declared import applying as apply_steps
from ottla.admin.declared import declared_cluster as declarations
from ottla.admin.declared import planning as declared_plans
from ottla.admin.declared import reading as declared_reads
from ottla.admin.facts import facts_file
from ottla.admin.facts.admin_operation import AdminOperation
from ottla.admin.facts.cluster_facts import ClusterFacts, GroupInfo, Part, QuotaInfo, SettingInfo, TopicInfo
from ottla.admin.facts.facts_reader import EVERYTHING, read_facts
from ottla.admin.facts.protocol_names import BROKER_SETTINGS, TOPIC_SETTINGS
from ottla.admin.operation_runner import OnWait, OperationRunner
from ottla.admin.operations import acl_changes as acl_steps
from ottla.admin.operations import commit_times, schedule_waits
from ottla.admin.operations import consumer_groups as group_steps
from ottla.admin.operations import offset_resets as reset_steps
from ottla.admin.operations import quota_changes as quota_steps
from ottla.admin.operations import replica_changes as replica_steps
from ottla.admin.operations import scram_changes as scram_steps
from ottla.admin.operations import setting_changes as setting_steps
from ottla.admin.operations import topic_changes as topic_steps
from ottla.config import TopicSpec
from ottla.config.arguments import explained
from ottla.config.token_argument import TokenFunction, with_token
from ottla.quantities import Span
from ottla.topics import TopicPartition
from ottla.wire_client.client_settings import OnExchange

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.admin.declared.apply_plan import ApplyPlan, PlannedChange
    from ottla.admin.declared.declared_cluster import Applied, DeclaredCluster
    from ottla.admin.facts.lag import GroupLag
    from ottla.admin.operations.acl_changes import Acl
    from ottla.admin.operations.offset_resets import ResetPlan
    from ottla.admin.operations.replica_changes import ReplicaMove
    from ottla.admin.operations.scram_changes import ScramUser
    from ottla.admin.operations.setting_changes import SettingChange

T = TypeVar("T")


class AsyncAdmin:
    """`Admin` for asyncio: requests run in a few threads of its own, and are awaited. A cancelled operation sends no
    further request; requests that were sent may have taken effect."""

    @explained("AsyncAdmin")
    def __init__(
        self,
        bootstrap_servers: str | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        token: TokenFunction | None = None,
        timeout_s: Span = DEFAULT_TIMEOUT_S,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        on_wait: OnWait | None = None,
        on_exchange: OnExchange | None = None,
    ) -> None:
        given = with_token("AsyncAdmin", settings, token)
        wire = wire_settings_of(bootstrap_servers, given, timeout_s=timeout_s, on_exchange=on_exchange)
        self._carrier = OperationRunner(wire, on_wait=on_wait)
        self._now_ms = now_ms

    async def __aenter__(self) -> AsyncAdmin:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """As `Admin.close`."""
        await asyncio.to_thread(self._carrier.close)

    async def carry_out(self, asking: AdminOperation[T]) -> T:
        """As `Admin.carry_out`."""
        return await self._carrier.run_async(asking)

    # The cluster

    async def facts(
        self,
        parts: Collection[Part] = EVERYTHING,
        *,
        topics: Collection[str] | None = None,
        groups: Collection[str] | None = None,
        topic_settings: Sequence[str] | None = TOPIC_SETTINGS,
        broker_settings: Sequence[str] | None = BROKER_SETTINGS,
    ) -> ClusterFacts:
        """As `Admin.facts`."""
        wanted = wanted_of(parts, self._now_ms(), topics, groups, topic_settings, broker_settings)
        facts = await self._carrier.run_async(read_facts(wanted))
        if Part.COMMIT_TIMES in wanted.parts:
            facts = await asyncio.to_thread(commit_times.with_commit_times, facts, self._carrier.settings)
        if Part.SCHEDULES in wanted.parts:
            facts = await asyncio.to_thread(schedule_waits.with_waiting, facts, self._carrier.settings)
        return facts

    async def broker_settings(self, broker: int | None = None) -> dict[str, SettingInfo]:
        """As `Admin.broker_settings`."""
        return await self._carrier.run_async(setting_steps.broker_settings(broker))

    async def alter_broker_settings(
        self, broker: int | None, values: Mapping[str, object | None], *, dry_run: bool = False
    ) -> tuple[SettingChange, ...]:
        """As `Admin.alter_broker_settings`."""
        return await self._carrier.run_async(setting_steps.alter_broker_settings(broker, values, dry_run=dry_run))

    # Topics

    async def list_topics(self, *, internal: bool = False) -> tuple[TopicInfo, ...]:
        """As `Admin.list_topics`."""
        return await self._carrier.run_async(
            topic_steps.describe_topics(None, parts=(), at_ms=self._now_ms(), internal=internal)
        )

    async def describe_topics(
        self, *names: str, parts: Collection[Part] = (Part.OFFSETS, Part.TOPIC_SETTINGS)
    ) -> tuple[TopicInfo, ...]:
        """As `Admin.describe_topics`."""
        return await self._carrier.run_async(topic_steps.describe_topics(names, parts=parts, at_ms=self._now_ms()))

    async def topic_settings(self, topic: str) -> dict[str, SettingInfo]:
        """As `Admin.topic_settings`."""
        return await self._carrier.run_async(setting_steps.topic_settings(topic))

    async def create_topics(
        self, topics: Mapping[str, TopicSpec | None], *, dry_run: bool = False, wait: bool = True
    ) -> dict[str, tuple[int, int]]:
        """As `Admin.create_topics`."""
        return await self._carrier.run_async(topic_steps.create_topics(topics, dry_run=dry_run, wait=wait))

    async def alter_topic_settings(
        self, topic: str, values: Mapping[str, object | None], *, dry_run: bool = False
    ) -> tuple[SettingChange, ...]:
        """As `Admin.alter_topic_settings`."""
        return await self._carrier.run_async(setting_steps.alter_topic_settings(topic, values, dry_run=dry_run))

    async def add_partitions(self, topic: str, total: int, *, dry_run: bool = False) -> None:
        """As `Admin.add_partitions`."""
        await self._carrier.run_async(topic_steps.add_partitions(topic, total, dry_run=dry_run))

    async def delete_topics(self, *names: str) -> None:
        """As `Admin.delete_topics`."""
        await self._carrier.run_async(topic_steps.delete_topics(names))

    async def records_before(
        self, topic: str, position: str | dt.datetime, *, partitions: Collection[int] | None = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        """As `Admin.records_before`."""
        steps = topic_steps.records_before(topic, position, now_ms=self._now_ms(), partitions=partitions)
        return await self._carrier.run_async(steps)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """As `Admin.delete_records`."""
        return await self._carrier.run_async(topic_steps.delete_records(before))

    async def plan_replicas(self, topic: str, factor: int) -> tuple[ReplicaMove, ...]:
        """As `Admin.plan_replicas`."""
        return await self._carrier.run_async(replica_steps.plan_replicas(topic, factor, at_ms=self._now_ms()))

    async def alter_replicas(self, moves: Sequence[ReplicaMove], *, wait: bool = True) -> None:
        """As `Admin.alter_replicas`."""
        await self._carrier.run_async(replica_steps.alter_replicas(moves, wait=wait))

    async def elect_leaders(self, places: Collection[TopicPartition] | None = None) -> tuple[TopicPartition, ...]:
        """As `Admin.elect_leaders`."""
        return await self._carrier.run_async(replica_steps.elect_leaders(places))

    # ACLs

    async def find_acls(self, wanted: Acl | None = None) -> tuple[Acl, ...]:
        """As `Admin.find_acls`."""
        return await self._carrier.run_async(acl_steps.find_acls(wanted))

    async def create_acls(self, *acls: Acl) -> None:
        """As `Admin.create_acls`."""
        await self._carrier.run_async(acl_steps.create_acls(acls))

    async def delete_acls(self, *wanted: Acl) -> tuple[Acl, ...]:
        """As `Admin.delete_acls`."""
        return await self._carrier.run_async(acl_steps.delete_acls(wanted))

    # Quotas and users

    async def find_quotas(self, wanted: Mapping[str, str | None] | None = None) -> tuple[QuotaInfo, ...]:
        """As `Admin.find_quotas`."""
        return await self._carrier.run_async(quota_steps.find_quotas(wanted or {}))

    async def alter_quotas(
        self, entity: Mapping[str, str | None], values: Mapping[str, float | None], *, dry_run: bool = False
    ) -> None:
        """As `Admin.alter_quotas`."""
        await self._carrier.run_async(quota_steps.alter_quotas(entity, values, dry_run=dry_run))

    async def find_scram_users(self) -> tuple[ScramUser, ...]:
        """As `Admin.find_scram_users`."""
        return await self._carrier.run_async(scram_steps.find_scram_users())

    async def set_scram_user(
        self, user: str, mechanism: str, *, password: str, iterations: int = SCRAM_ITERATIONS
    ) -> None:
        """As `Admin.set_scram_user`."""
        salt = os.urandom(SALT_BYTES)
        steps = scram_steps.set_scram_user(user, mechanism, password=password, iterations=iterations, salt=salt)
        await self._carrier.run_async(steps)

    async def delete_scram_user(self, user: str, mechanism: str) -> None:
        """As `Admin.delete_scram_user`."""
        await self._carrier.run_async(scram_steps.delete_scram_user(user, mechanism))

    # Declarations

    async def plan_declared(
        self, declared: DeclaredCluster, *, applied: Applied | None = None, prune: bool = False, record: str = ""
    ) -> ApplyPlan:
        """As `Admin.plan_declared`."""
        before = declarations.NOTHING_APPLIED if applied is None else applied
        found = await self._carrier.run_async(declared_reads.read_declared(declared, before, at_ms=self._now_ms()))
        return declared_plans.plan_changes(declared, before, found, prune=prune, record=record)

    async def check_declared(self, plan: ApplyPlan) -> None:
        """As `Admin.check_declared`."""
        await self._carrier.run_async(apply_steps.check_plan(plan, at_ms=self._now_ms()))

    async def apply_declared(
        self,
        plan: ApplyPlan,
        *,
        undo_file: str | Path | None = None,
        passwords: Mapping[tuple[str, str], str] | None = None,
        on_made: Callable[[PlannedChange], object] | None = None,
    ) -> None:
        """As `Admin.apply_declared`."""
        salted = {key: (each, os.urandom(SALT_BYTES)) for key, each in (passwords or {}).items()}
        apply_steps.check_passwords(plan, salted)
        await self.check_declared(plan)
        if undo_file is not None:
            undo = plan_files.dump_plan(plan_files.undo_of(plan))
            await asyncio.to_thread(facts_file.write_whole, undo_file, undo)
        progress = apply_steps.ApplyProgress(on_made)
        for batch in apply_steps.batches_of(plan):
            steps = apply_steps.apply_batch(plan, batch, salted, at_ms=self._now_ms())
            with progress.of(batch):
                progress.add(await self._carrier.run_async(steps))

    # Groups

    async def list_groups(self) -> tuple[GroupInfo, ...]:
        """As `Admin.list_groups`."""
        return await self._carrier.run_async(group_steps.list_groups(at_ms=self._now_ms()))

    async def describe_groups(self, *names: str) -> tuple[GroupInfo, ...]:
        """As `Admin.describe_groups`."""
        return await self._carrier.run_async(group_steps.describe_groups(names, at_ms=self._now_ms()))

    async def group_lag(self, *names: str) -> tuple[GroupLag, ...]:
        """As `Admin.group_lag`."""
        return await self._carrier.run_async(group_steps.group_lag(names or None, at_ms=self._now_ms()))

    async def plan_reset(
        self,
        group: str,
        *,
        to: str | int | dt.datetime | None = None,
        shift: int | None = None,
        topics: Mapping[str, Collection[int] | None] | None = None,
    ) -> ResetPlan:
        """As `Admin.plan_reset`."""
        steps = reset_steps.plan_reset(group, to=to, shift=shift, topics=topics, at_ms=self._now_ms())
        return await self._carrier.run_async(steps)

    async def plan_copy(self, group: str, to: str) -> ResetPlan:
        """As `Admin.plan_copy`."""
        return await self._carrier.run_async(reset_steps.plan_copy(group, to, at_ms=self._now_ms()))

    async def plan_restore(self, file: str | Path) -> ResetPlan:
        """As `Admin.plan_restore`."""
        saved = reset_steps.load_undo(await asyncio.to_thread(facts_file.read_bounded, file), source=str(file))
        return await self._carrier.run_async(reset_steps.plan_restore(saved, at_ms=self._now_ms()))

    async def apply_reset(self, plan: ResetPlan, *, undo_file: str | Path | None = None) -> None:
        """As `Admin.apply_reset`."""
        if undo_file is not None:
            await asyncio.to_thread(facts_file.write_whole, undo_file, reset_steps.dump_undo(plan))
        await self._carrier.run_async(reset_steps.apply_reset(plan))

    async def delete_groups(self, *names: str) -> None:
        """As `Admin.delete_groups`."""
        await self._carrier.run_async(group_steps.delete_groups(names))

    async def group_settings(self, group: str) -> dict[str, SettingInfo]:
        """As `Admin.group_settings`."""
        return (await self._carrier.run_async(setting_steps.group_settings([group])))[group]

    async def alter_group_settings(
        self, group: str, values: Mapping[str, object | None], *, dry_run: bool = False
    ) -> tuple[SettingChange, ...]:
        """As `Admin.alter_group_settings`."""
        return await self._carrier.run_async(setting_steps.alter_group_settings(group, values, dry_run=dry_run))

    async def forget_offsets(self, group: str, *partitions: TopicPartition) -> None:
        """As `Admin.forget_offsets`."""
        await self._carrier.run_async(group_steps.forget_offsets(group, partitions))
