"""`AsyncAdmin`: see and change a cluster, on asyncio. The same methods as `Admin`, to be awaited."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ottla.admin.admin_client import SALT_BYTES, Admin, ConnectedAdmin, wanted_of
from ottla.admin.declared import apply_plan as plan_files
from ottla.admin.declared import applying as apply_steps
from ottla.admin.declared import declared_cluster as declarations
from ottla.admin.declared import planning as declared_plans
from ottla.admin.declared import reading as declared_reads
from ottla.admin.facts import facts_file
from ottla.admin.facts.admin_operation import AdminOperation
from ottla.admin.facts.cluster_facts import ClusterFacts, Part, SettingInfo
from ottla.admin.facts.facts_reader import EVERYTHING, read_facts
from ottla.admin.facts.protocol_names import BROKER_SETTINGS, TOPIC_SETTINGS
from ottla.admin.operations import commit_times, schedule_waits
from ottla.admin.operations import offset_resets as reset_steps
from ottla.admin.operations import setting_changes as setting_steps
from ottla.config.arguments import names_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.admin.declared.apply_plan import ApplyPlan, PlannedChange
    from ottla.admin.declared.declared_cluster import Applied, DeclaredCluster
    from ottla.admin.operations.offset_resets import ResetPlan

P = ParamSpec("P")
T = TypeVar("T")


class _AskedFor(Admin):
    """An `Admin` that keeps the operation which a method wants carried out, and carries out none."""

    asked: AdminOperation[Any]

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    def carry_out(self, asking: AdminOperation[T]) -> Any:
        self.asked = asking


def _awaited(
    method: Callable[Concatenate[Admin, P], T],
) -> Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, T]]:
    """Return a method of `Admin` as one to be awaited. For those that return the result of the one operation that they
    carry out."""

    @wraps(method)
    async def call(self: AsyncAdmin, /, *args: P.args, **options: P.kwargs) -> T:
        admin = _AskedFor(self._now_ms)
        method(admin, *args, **options)
        result: T = await self.carry_out(admin.asked)
        return result

    return call


@names_arguments
class AsyncAdmin(ConnectedAdmin):
    """`Admin` for asyncio: requests run in a few threads of its own, and are awaited. A cancelled operation sends no
    further request; requests that were sent may have taken effect."""

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
        facts = await self.carry_out(read_facts(wanted))
        if Part.COMMIT_TIMES in wanted.parts:
            facts = await asyncio.to_thread(commit_times.with_commit_times, facts, self._carrier.settings)
        if Part.SCHEDULES in wanted.parts:
            facts = await asyncio.to_thread(schedule_waits.with_waiting, facts, self._carrier.settings)
        return facts

    broker_settings = _awaited(Admin.broker_settings)
    alter_broker_settings = _awaited(Admin.alter_broker_settings)

    # Topics

    list_topics = _awaited(Admin.list_topics)
    describe_topics = _awaited(Admin.describe_topics)
    topic_settings = _awaited(Admin.topic_settings)
    create_topics = _awaited(Admin.create_topics)
    alter_topic_settings = _awaited(Admin.alter_topic_settings)
    add_partitions = _awaited(Admin.add_partitions)
    delete_topics = _awaited(Admin.delete_topics)
    records_before = _awaited(Admin.records_before)
    delete_records = _awaited(Admin.delete_records)
    plan_replicas = _awaited(Admin.plan_replicas)
    alter_replicas = _awaited(Admin.alter_replicas)
    elect_leaders = _awaited(Admin.elect_leaders)

    # ACLs

    find_acls = _awaited(Admin.find_acls)
    create_acls = _awaited(Admin.create_acls)
    delete_acls = _awaited(Admin.delete_acls)

    # Quotas and users

    find_quotas = _awaited(Admin.find_quotas)
    alter_quotas = _awaited(Admin.alter_quotas)
    find_scram_users = _awaited(Admin.find_scram_users)
    set_scram_user = _awaited(Admin.set_scram_user)
    delete_scram_user = _awaited(Admin.delete_scram_user)

    # Declarations

    async def plan_declared(
        self, declared: DeclaredCluster, *, applied: Applied | None = None, prune: bool = False, record: str = ""
    ) -> ApplyPlan:
        """As `Admin.plan_declared`."""
        before = declarations.NOTHING_APPLIED if applied is None else applied
        found = await self.carry_out(declared_reads.read_declared(declared, before, at_ms=self._now_ms()))
        return declared_plans.plan_changes(declared, before, found, prune=prune, record=record)

    check_declared = _awaited(Admin.check_declared)

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
                progress.add(await self.carry_out(steps))

    # Groups

    list_groups = _awaited(Admin.list_groups)
    describe_groups = _awaited(Admin.describe_groups)
    group_lag = _awaited(Admin.group_lag)
    plan_reset = _awaited(Admin.plan_reset)
    plan_copy = _awaited(Admin.plan_copy)

    async def plan_restore(self, file: str | Path) -> ResetPlan:
        """As `Admin.plan_restore`."""
        saved = reset_steps.load_undo(await asyncio.to_thread(facts_file.read_bounded, file), source=str(file))
        return await self.carry_out(reset_steps.plan_restore(saved, at_ms=self._now_ms()))

    async def apply_reset(self, plan: ResetPlan, *, undo_file: str | Path | None = None) -> None:
        """As `Admin.apply_reset`."""
        if undo_file is not None:
            await asyncio.to_thread(facts_file.write_whole, undo_file, reset_steps.dump_undo(plan))
        await self.carry_out(reset_steps.apply_reset(plan))

    delete_groups = _awaited(Admin.delete_groups)

    async def group_settings(self, group: str) -> dict[str, SettingInfo]:
        """As `Admin.group_settings`."""
        return (await self.carry_out(setting_steps.group_settings([group])))[group]

    alter_group_settings = _awaited(Admin.alter_group_settings)
    forget_offsets = _awaited(Admin.forget_offsets)
