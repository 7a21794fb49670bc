"""`Admin`: see and change a cluster, for threads."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.admin.facts.admin_operation import AdminOperation
from ottla.admin.facts.cluster_facts import ClusterFacts, GroupInfo, Part, QuotaInfo, SettingInfo, TopicInfo
from ottla.admin.facts.facts_reader import EVERYTHING, WantedFacts, read_facts
from ottla.admin.facts.protocol_names import BROKER_SETTINGS, TOPIC_SETTINGS
from ottla.admin.operation_runner import OnWait, OperationRunner
from ottla.config import TopicSpec, admin_settings
from ottla.config.arguments import explained
from ottla.config.token_argument import TokenFunction, with_token
from ottla.lazy import LazyModule
from ottla.quantities import MOST_COUNT, Span, seconds
from ottla.topics import TopicPartition
from ottla.wire_client.client_settings import OnExchange, WireSettings, connection_settings

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.admin.declared import apply_plan as plan_files
    from ottla.admin.declared import applying as apply_steps
    from ottla.admin.declared import declared_cluster as declarations
    from ottla.admin.declared import planning as declared_plans
    from ottla.admin.declared import reading as declared_reads
    from ottla.admin.declared.apply_plan import ApplyPlan, PlannedChange
    from ottla.admin.declared.declared_cluster import Applied, DeclaredCluster
    from ottla.admin.facts import facts_file
    from ottla.admin.facts.lag import GroupLag
    from ottla.admin.operations import acl_changes as acl_steps
    from ottla.admin.operations import commit_times, schedule_waits
    from ottla.admin.operations import consumer_groups as group_steps
    from ottla.admin.operations import offset_resets as reset_steps
    from ottla.admin.operations import quota_changes as quota_steps
    from ottla.admin.operations import replica_changes as replica_steps
    from ottla.admin.operations import scram_changes as scram_steps
    from ottla.admin.operations import setting_changes as setting_steps
    from ottla.admin.operations import topic_changes as topic_steps
    from ottla.admin.operations.acl_changes import Acl
    from ottla.admin.operations.offset_resets import ResetPlan
    from ottla.admin.operations.replica_changes import ReplicaMove
    from ottla.admin.operations.scram_changes import ScramUser
    from ottla.admin.operations.setting_changes import SettingChange
else:  # a command lists topics, and has no use for what changes them
    acl_steps = LazyModule("ottla.admin.operations.acl_changes")
    apply_steps = LazyModule("ottla.admin.declared.applying")
    commit_times = LazyModule("ottla.admin.operations.commit_times")
    declarations = LazyModule("ottla.admin.declared.declared_cluster")
    declared_plans = LazyModule("ottla.admin.declared.planning")
    declared_reads = LazyModule("ottla.admin.declared.reading")
    facts_file = LazyModule("ottla.admin.facts.facts_file")
    group_steps = LazyModule("ottla.admin.operations.consumer_groups")
    plan_files = LazyModule("ottla.admin.declared.apply_plan")
    quota_steps = LazyModule("ottla.admin.operations.quota_changes")
    replica_steps = LazyModule("ottla.admin.operations.replica_changes")
    reset_steps = LazyModule("ottla.admin.operations.offset_resets")
    schedule_waits = LazyModule("ottla.admin.operations.schedule_waits")
    scram_steps = LazyModule("ottla.admin.operations.scram_changes")
    setting_steps = LazyModule("ottla.admin.operations.setting_changes")
    topic_steps = LazyModule("ottla.admin.operations.topic_changes")

T = TypeVar("T")

DEFAULT_TIMEOUT_S: Final = 30.0
SALT_BYTES: Final = 24
"""Random bytes that salt the hash of a password."""
SCRAM_ITERATIONS: Final = 8_192
"""Rounds of the hash of a password, unless others are asked for. Kafka takes 4,096 to 16,384."""


class Admin:
    """The topics, groups and brokers of one cluster. Thread-safe; connects when it is first used.

    `settings` are Kafka's dotted names for how to connect (`security.protocol`, `sasl.username`, ...), or all settings
    with `bootstrap.servers` among them; the environment (OTTLA_ADMIN_*, OTTLA_CLIENT_*) counts as for every client.
    `token` is a function, sync or async, that returns an `ottla.tokens.Token` for SASL OAUTHBEARER. `timeout_s` bounds
    one operation: its questions, and waiting for leaders and coordinators. `on_wait` is called while an operation
    waits, with how many questions were answered of how many, and at its end once with the same number twice.
    `on_exchange` is called after each answer with the broker's address, the API and the seconds it took, from whatever
    thread asked.

    Every method raises `BrokerUnavailable` when no broker answers, `AuthenticationError` when none lets this client in,
    and `BrokerRefused` for what a broker refuses; what else it raises stands in its docstring.
    """

    @explained("Admin")
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
        given = with_token("Admin", settings, token)
        wire = wire_settings_of(bootstrap_servers, given, timeout_s=timeout_s, on_exchange=on_exchange)
        self._carrier = OperationRunner(wire, on_wait=on_wait)
        self._now_ms = now_ms

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the object cannot be used again. Safe to repeat."""
        self._carrier.close()

    def carry_out(self, asking: AdminOperation[T]) -> T:
        """Run an operation of `ottla.admin`, such as a step of a plan, and return its result."""
        return self._carrier.run(asking)

    # The cluster

    def facts(
        self,
        parts: Collection[Part] = EVERYTHING,
        *,
        topics: Collection[str] | None = None,
        groups: Collection[str] | None = None,
        topic_settings: Sequence[str] | None = TOPIC_SETTINGS,
        broker_settings: Sequence[str] | None = BROKER_SETTINGS,
    ) -> ClusterFacts:
        """Return what is known of the cluster now: these parts of it, of these topics and groups (None: of all).

        Settings are those that are named; None reads all, which takes three times as long. What could not be read is
        listed in `not_read` of what is returned. `Part.COMMIT_TIMES` and `Part.SCHEDULES` read records, and are read
        only where they are named.
        """
        wanted = wanted_of(parts, self._now_ms(), topics, groups, topic_settings, broker_settings)
        facts = self._carrier.run(read_facts(wanted))
        if Part.COMMIT_TIMES in wanted.parts:
            facts = commit_times.with_commit_times(facts, self._carrier.settings)
        if Part.SCHEDULES in wanted.parts:
            facts = schedule_waits.with_waiting(facts, self._carrier.settings)
        return facts

    def broker_settings(self, broker: int | None = None) -> dict[str, SettingInfo]:
        """Return all settings of a broker; of None what was set for all brokers at once."""
        return self._carrier.run(setting_steps.broker_settings(broker))

    def alter_broker_settings(
        self, broker: int | None, values: Mapping[str, object | None], *, dry_run: bool = False
    ) -> tuple[SettingChange, ...]:
        """Set settings of one broker, or with None of all brokers; None as a value unsets one.

        Returns what was and what is; with `dry_run` the cluster checks, and nothing changes.
        """
        return self._carrier.run(setting_steps.alter_broker_settings(broker, values, dry_run=dry_run))

    # Topics

    def list_topics(self, *, internal: bool = False) -> tuple[TopicInfo, ...]:
        """Return all topics that this client may see, by name, with leaders and replicas and without offsets and
        settings."""
        return self._carrier.run(topic_steps.describe_topics(None, parts=(), at_ms=self._now_ms(), internal=internal))

    def describe_topics(
        self, *names: str, parts: Collection[Part] = (Part.OFFSETS, Part.TOPIC_SETTINGS)
    ) -> tuple[TopicInfo, ...]:
        """Return topics with the parts that are wanted. Raises `UnknownTopic`."""
        return self._carrier.run(topic_steps.describe_topics(names, parts=parts, at_ms=self._now_ms()))

    def topic_settings(self, topic: str) -> dict[str, SettingInfo]:
        """Return all settings of a topic. Raises `UnknownTopic`."""
        return self._carrier.run(setting_steps.topic_settings(topic))

    def create_topics(
        self, topics: Mapping[str, TopicSpec | None], *, dry_run: bool = False, wait: bool = True
    ) -> dict[str, tuple[int, int]]:
        """Create topics; None takes the cluster's defaults. Returns (partitions, replication factor) of each.

        With `wait` it returns when every partition has a leader. With `dry_run` the cluster checks and creates nothing.
        Raises `InputError` for what cannot be, `PartlyDone` when some of several were created.
        """
        return self._carrier.run(topic_steps.create_topics(topics, dry_run=dry_run, wait=wait))

    def alter_topic_settings(
        self, topic: str, values: Mapping[str, object | None], *, dry_run: bool = False
    ) -> tuple[SettingChange, ...]:
        """Set settings of a topic; None unsets one, and those that are not named stay. Raises `UnknownTopic`.

        Returns what was and what is; with `dry_run` the cluster checks, and nothing changes.
        """
        return self._carrier.run(setting_steps.alter_topic_settings(topic, values, dry_run=dry_run))

    def add_partitions(self, topic: str, total: int, *, dry_run: bool = False) -> None:
        """Give a topic more partitions: `total` in all. Raises `UnknownTopic`.

        Records of one key go to another partition from then on, and are no longer in order with those before.
        """
        self._carrier.run(topic_steps.add_partitions(topic, total, dry_run=dry_run))

    def delete_topics(self, *names: str) -> None:
        """Delete topics and all their records; returns when the cluster no longer has them.

        Raises `UnknownTopic`, and `PartlyDone` when some of several were deleted.
        """
        self._carrier.run(topic_steps.delete_topics(names))

    def records_before(
        self, topic: str, position: str | dt.datetime, *, partitions: Collection[int] | None = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return (first offset, offset of `position`) of each partition: the range that `delete_records` would delete.

        `position` is `latest` or a time: a datetime, ISO 8601 (UTC unless it says otherwise), or `-2h`. Raises
        `UnknownTopic`, and `ConfigError` for a position that is none of these.
        """
        steps = topic_steps.records_before(topic, position, now_ms=self._now_ms(), partitions=partitions)
        return self._carrier.run(steps)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete all records before an offset of each partition. Returns where each log begins now.

        Raises `InputError` and deletes nothing where an offset is behind the end of its log, and `UnknownTopic`.
        """
        return self._carrier.run(topic_steps.delete_records(before))

    def plan_replicas(self, topic: str, factor: int) -> tuple[ReplicaMove, ...]:
        """Return the moves that give each partition of a topic `factor` replicas. Nothing is changed; replicas that can
        stay do not move. Raises `UnknownTopic`, and `InputError` where fewer brokers than that are up."""
        return self._carrier.run(replica_steps.plan_replicas(topic, factor, at_ms=self._now_ms()))

    def alter_replicas(self, moves: Sequence[ReplicaMove], *, wait: bool = True) -> None:
        """Move replicas; with `wait` until the new ones are in sync. Raises `PartlyDone` when some were refused.

        What is not done within the time of one operation raises `PartitionUnavailable`, and goes on.
        """
        self._carrier.run(replica_steps.alter_replicas(moves, wait=wait))

    def elect_leaders(self, places: Collection[TopicPartition] | None = None) -> tuple[TopicPartition, ...]:
        """Let the preferred replica of partitions lead (None: of all). Returns those that have another leader now.

        Raises `PartlyDone` where some of them cannot lead.
        """
        return self._carrier.run(replica_steps.elect_leaders(places))

    # ACLs

    def find_acls(self, wanted: Acl | None = None) -> tuple[Acl, ...]:
        """Return the ACLs that match a filter, sorted; all of them without one. Raises `AclsRefused`."""
        return self._carrier.run(acl_steps.find_acls(wanted))

    def create_acls(self, *acls: Acl) -> None:
        """Create ACLs; existing ones are unchanged. Raises `AclsRefused`, or `PartlyDone` if some were created."""
        self._carrier.run(acl_steps.create_acls(acls))

    def delete_acls(self, *wanted: Acl) -> tuple[Acl, ...]:
        """Delete the ACLs that match any of these filters, and return them.

        Raises `AclsRefused`, and `PartlyDone` when some were deleted.
        """
        return self._carrier.run(acl_steps.delete_acls(wanted))

    # Quotas and users

    def find_quotas(self, wanted: Mapping[str, str | None] | None = None) -> tuple[QuotaInfo, ...]:
        """Return the quotas of entities that match; all of them without one.

        An entity is a name for each kind (`user`, `client-id`, `ip`); None stands for all without one of their own.
        """
        return self._carrier.run(quota_steps.find_quotas(wanted or {}))

    def alter_quotas(
        self, entity: Mapping[str, str | None], values: Mapping[str, float | None], *, dry_run: bool = False
    ) -> None:
        """Set quotas of one entity, all of them or none; None removes one. With `dry_run` the cluster only checks."""
        self._carrier.run(quota_steps.alter_quotas(entity, values, dry_run=dry_run))

    def find_scram_users(self) -> tuple[ScramUser, ...]:
        """Return the SCRAM credentials of all users. Brokers return no passwords."""
        return self._carrier.run(scram_steps.find_scram_users())

    def set_scram_user(self, user: str, mechanism: str, *, password: str, iterations: int = SCRAM_ITERATIONS) -> None:
        """Give a user a password for SCRAM-SHA-256 or SCRAM-SHA-512, in place of the one before. Brokers receive its
        salted hash alone."""
        salt = os.urandom(SALT_BYTES)
        steps = scram_steps.set_scram_user(user, mechanism, password=password, iterations=iterations, salt=salt)
        self._carrier.run(steps)

    def delete_scram_user(self, user: str, mechanism: str) -> None:
        """Delete a user's password for a mechanism. Open connections stay."""
        self._carrier.run(scram_steps.delete_scram_user(user, mechanism))

    # Declarations

    def plan_declared(
        self, declared: DeclaredCluster, *, applied: Applied | None = None, prune: bool = False, record: str = ""
    ) -> ApplyPlan:
        """Return the changes that make the cluster as declared. Changes nothing.

        `applied` is the record of what was declared last: of it, what is no longer declared is unset. With `prune`
        topics under declared prefixes, or of declared owners, are deleted. `record` is the file of that record. Raises
        `InputError` for what cannot be, as fewer partitions than there are.
        """
        before = declarations.NOTHING_APPLIED if applied is None else applied
        found = self._carrier.run(declared_reads.read_declared(declared, before, at_ms=self._now_ms()))
        return declared_plans.plan_changes(declared, before, found, prune=prune, record=record)

    def check_declared(self, plan: ApplyPlan) -> None:
        """Have the cluster check a plan. Changes nothing. Raises `InputError` where the cluster is no longer as the
        plan was made from, and `BrokerRefused` for what it would refuse."""
        self._carrier.run(apply_steps.check_plan(plan, at_ms=self._now_ms()))

    def apply_declared(
        self,
        plan: ApplyPlan,
        *,
        undo_file: str | Path | None = None,
        passwords: Mapping[tuple[str, str], str] | None = None,
        on_made: Callable[[PlannedChange], object] | None = None,
    ) -> None:
        """Make the changes of a plan, but for those of replicas (`plan.replica_factors`), which the planner moves.

        `undo_file` gets the plan that reverts it, before anything changes. `passwords` are those of users that the plan
        creates, by user and mechanism. `on_made` is called with each change that was made. Raises `InputError` where
        the cluster is no longer as the plan was made from, and nothing is changed then; `PartlyDone` if it fails half
        way: the same plan goes on.
        """
        salted = {key: (each, os.urandom(SALT_BYTES)) for key, each in (passwords or {}).items()}
        apply_steps.check_passwords(plan, salted)
        self.check_declared(plan)
        if undo_file is not None:
            facts_file.write_whole(undo_file, plan_files.dump_plan(plan_files.undo_of(plan)))
        progress = apply_steps.ApplyProgress(on_made)
        for batch in apply_steps.batches_of(plan):
            with progress.of(batch):
                progress.add(self._carrier.run(apply_steps.apply_batch(plan, batch, salted, at_ms=self._now_ms())))

    # Groups

    def list_groups(self) -> tuple[GroupInfo, ...]:
        """Return all groups that this client may see, with type and state, without members and offsets."""
        return self._carrier.run(group_steps.list_groups(at_ms=self._now_ms()))

    def describe_groups(self, *names: str) -> tuple[GroupInfo, ...]:
        """Return groups with their members and committed offsets, ordered by name. Raises `UnknownGroup`."""
        return self._carrier.run(group_steps.describe_groups(names, at_ms=self._now_ms()))

    def group_lag(self, *names: str) -> tuple[GroupLag, ...]:
        """Return how far groups are behind on each partition; of all groups if none is named. Raises `UnknownGroup`."""
        return self._carrier.run(group_steps.group_lag(names or None, at_ms=self._now_ms()))

    def plan_reset(
        self,
        group: str,
        *,
        to: str | int | dt.datetime | None = None,
        shift: int | None = None,
        topics: Mapping[str, Collection[int] | None] | None = None,
    ) -> ResetPlan:
        """Return what `apply_reset` would do. Changes nothing.

        `to` is `earliest`, `latest`, an offset, or a time: a datetime, ISO 8601 (UTC unless it says otherwise), or
        `-2h`. `shift` is a number of records, negative for back. `topics` are those to set, with their partitions or
        None for all; without, everything that the group has committed. An offset that the log does not have becomes the
        nearest that it has. Raises `UnknownGroup` and `UnknownTopic`.
        """
        steps = reset_steps.plan_reset(group, to=to, shift=shift, topics=topics, at_ms=self._now_ms())
        return self._carrier.run(steps)

    def plan_copy(self, group: str, to: str) -> ResetPlan:
        """Return the planned reset of group `to` to the offsets of `group`, without applying it. Raises `UnknownGroup`,
        and `InputError` if one of them is a share group."""
        return self._carrier.run(reset_steps.plan_copy(group, to, at_ms=self._now_ms()))

    def plan_restore(self, file: str | Path) -> ResetPlan:
        """Return what it would do to put a group back where it was when the undo file was written, and nothing done.

        Raises `InputError` for a file that is none, of another cluster, or of topics that were deleted and created
        again since.
        """
        saved = reset_steps.load_undo(facts_file.read_bounded(file), source=str(file))
        return self._carrier.run(reset_steps.plan_restore(saved, at_ms=self._now_ms()))

    def apply_reset(self, plan: ResetPlan, *, undo_file: str | Path | None = None) -> None:
        """Do what was planned. `undo_file` gets what was committed before, and is on disk before anything changes.

        Raises `GroupInUse` while the group has members, and `InputError` when it has committed something since the plan
        was made; nothing is changed then. Raises `PartlyDone` when some offsets were changed and some were refused.
        """
        if undo_file is not None:
            facts_file.write_whole(undo_file, reset_steps.dump_undo(plan))
        self._carrier.run(reset_steps.apply_reset(plan))

    def delete_groups(self, *names: str) -> None:
        """Delete groups with all that they committed.

        Raises `GroupInUse` where one has members, `UnknownGroup`, and `PartlyDone` when some of several were deleted.
        """
        self._carrier.run(group_steps.delete_groups(names))

    def group_settings(self, group: str) -> dict[str, SettingInfo]:
        """Return all settings of a group, whether it exists or not."""
        return self._carrier.run(setting_steps.group_settings([group]))[group]

    def alter_group_settings(
        self, group: str, values: Mapping[str, object | None], *, dry_run: bool = False
    ) -> tuple[SettingChange, ...]:
        """Set settings of a group, whether it exists or not; None unsets one. Returns as `alter_topic_settings`."""
        return self._carrier.run(setting_steps.alter_group_settings(group, values, dry_run=dry_run))

    def forget_offsets(self, group: str, *partitions: TopicPartition) -> None:
        """Delete what a group committed for partitions.

        Raises `GroupInUse` while members subscribe to their topics, `PartlyDone` while they subscribe to some of them,
        and `InputError` for a share group.
        """
        self._carrier.run(group_steps.forget_offsets(group, partitions))


def wanted_of(
    parts: Collection[Part],
    at_ms: int,
    topics: Collection[str] | None,
    groups: Collection[str] | None,
    topic_settings: Sequence[str] | None,
    broker_settings: Sequence[str] | None,
) -> WantedFacts:
    """Return what `facts` was asked for."""
    return WantedFacts(
        parts=frozenset(parts),
        at_ms=at_ms,
        topics=None if topics is None else tuple(topics),
        groups=None if groups is None else tuple(groups),
        topic_settings=None if topic_settings is None else tuple(topic_settings),
        broker_settings=None if broker_settings is None else tuple(broker_settings),
    )


def wire_settings_of(
    bootstrap_servers: str | None,
    settings: Mapping[str, Any] | None,
    *,
    timeout_s: Span,
    on_exchange: OnExchange | None = None,
) -> WireSettings:
    """Return how an administrator connects."""
    limit_s = seconds("Admin", "timeout_s", timeout_s, above=0, most=MOST_COUNT // 1_000)
    given = dict(settings or {})
    servers = bootstrap_servers or given.pop("bootstrap.servers", None)
    given.pop("bootstrap.servers", None)
    resolved = admin_settings(servers, settings=given)
    names = {"client.id": "ottla-admin", **resolved}
    timeout_ms = max(1, round(limit_s * 1000))
    return connection_settings(names, api_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms, on_exchange=on_exchange)
