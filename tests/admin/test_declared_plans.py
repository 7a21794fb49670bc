"""From declarations and facts to a plan: pure, so that any cluster and any declaration can be tried."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.admin.declared.applied_file import read_applied, write_applied
from ottla.admin.declared.apply_plan import ApplyPlan, Kind, PlannedChange, dump_plan, load_plan, undo_of
from ottla.admin.declared.applying import batches_of, remaining
from ottla.admin.declared.declared_cluster import (
    NOTHING,
    NOTHING_APPLIED,
    Applied,
    AppliedTopic,
    DeclaredCluster,
    DeclaredQuota,
    DeclaredTopic,
    DeclaredUser,
    Prune,
    applied_of,
    both_applied,
    merged,
)
from ottla.admin.declared.found_cluster import FoundCluster
from ottla.admin.declared.planning import plan_changes, same_value
from ottla.admin.facts.cluster_facts import AclInfo, PartitionInfo, QuotaInfo, SettingInfo, TopicInfo
from ottla.admin.operations.scram_changes import ScramUser
from ottla.errors import InputError

DEFAULTS = {"retention.ms": "604800000", "cleanup.policy": "delete", "segment.bytes": "1073741824"}
GROUP_DEFAULTS = {"share.auto.offset.reset": "latest", "share.session.timeout.ms": "45000"}


def topic(
    name: str, own: Mapping[str, str] | None = None, *, partitions: int = 1, replicas: int = 1, internal: bool = False
) -> TopicInfo:
    """A topic as a broker describes it."""
    held = tuple(range(1, replicas + 1))
    return TopicInfo(
        name=name,
        topic_id=f"id-{name}",
        is_internal=internal,
        partitions=tuple(
            PartitionInfo(partition=number, leader=1, leader_epoch=0, replicas=held, in_sync=held)
            for number in range(partitions)
        ),
        settings=described(DEFAULTS, own or {}, "DYNAMIC_TOPIC_CONFIG"),
    )


def described(defaults: Mapping[str, str], own: Mapping[str, str], source: str) -> dict[str, SettingInfo]:
    found = {name: SettingInfo(value=value, source="DEFAULT_CONFIG") for name, value in defaults.items()}
    return {**found, **{name: SettingInfo(value=value, source=source) for name, value in own.items()}}


def cluster(*topics: TopicInfo, **parts: object) -> FoundCluster:
    return replace(
        FoundCluster(cluster_id="c", at_ms=0, topics={each.name: each for each in topics}),
        **parts,  # type: ignore[arg-type]
    )


def orders(partitions: int | None = None, **settings: str) -> DeclaredCluster:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return DeclaredCluster(topics={"orders": DeclaredTopic(partitions=partitions, settings=named)})


def texts(plan: ApplyPlan) -> list[str]:
    return [str(each) for each in plan.changes]


# A setting: declared, dynamic, default


def test_a_declared_setting_is_set_and_what_was_never_declared_is_left_alone() -> None:
    found = cluster(topic("orders", {"segment.bytes": "5"}))
    plan = plan_changes(orders(retention_ms="1"), NOTHING_APPLIED, found)
    assert texts(plan) == ["topic setting orders retention.ms: none to 1"]
    assert plan.changes[0].inherited == "604800000"


def test_a_setting_that_was_declared_and_is_removed_is_unset() -> None:
    found = cluster(topic("orders", {"segment.bytes": "5", "retention.ms": "1"}))
    before = applied_of(orders(retention_ms="1"))
    assert texts(plan_changes(orders(), before, found)) == ["topic setting orders retention.ms: 1 to none"]
    assert texts(plan_changes(NOTHING, before, found)) == ["topic setting orders retention.ms: 1 to none"]


def test_a_removed_setting_that_another_has_unset_already_is_no_change() -> None:
    before = applied_of(orders(retention_ms="1"))
    assert plan_changes(orders(), before, cluster(topic("orders"))).changes == ()


def test_a_value_that_is_the_default_is_set_once_and_never_again() -> None:
    wanted = orders(retention_ms="604800000")
    plan = plan_changes(wanted, NOTHING_APPLIED, cluster(topic("orders")))
    assert texts(plan) == ["topic setting orders retention.ms: none to 604800000"]
    after = cluster(topic("orders", {"retention.ms": "604800000"}))
    assert plan_changes(wanted, plan.applied, after).changes == ()


@pytest.mark.parametrize(
    ("one", "other"), [("0.50", "0.5"), ("TRUE", "true"), ("compact, delete", "compact,delete"), (" 7 ", "7")]
)
def test_two_texts_of_one_value_are_no_drift(one: str, other: str) -> None:
    assert same_value(one, other)
    assert not same_value(one, "8")


@pytest.mark.parametrize(
    ("one", "other"), [("9223372036854775807", "9223372036854775806"), ("", "0"), ("nan", "0"), ("a,b", "b,a")]
)
def test_two_values_are_not_one(one: str, other: str) -> None:
    assert not same_value(one, other)
    assert same_value(one, one)


def test_a_setting_that_the_cluster_does_not_know_is_refused_before_anything_is_planned() -> None:
    with pytest.raises(InputError, match=re.escape("topic setting orders: the cluster knows no setting retention.min")):
        plan_changes(orders(retention_min="1"), NOTHING_APPLIED, cluster(topic("orders")))


# Partitions and replicas


def test_partitions_only_grow_and_the_change_says_that_keys_move() -> None:
    grown = plan_changes(orders(3), NOTHING_APPLIED, cluster(topic("orders", partitions=2)))
    assert texts(grown) == ["partitions orders: 2 to 3"]
    assert grown.changes[0].note == "records of a key may go to another partition, out of order with earlier ones"
    with pytest.raises(InputError, match="declared with 1 partitions, and it has 2: partitions only grow; declare 2"):
        plan_changes(orders(1), NOTHING_APPLIED, cluster(topic("orders", partitions=2)))


def test_replicas_are_for_the_planner() -> None:
    wanted = DeclaredCluster(topics={"orders": DeclaredTopic(replication_factor=2)})
    plan = plan_changes(wanted, NOTHING_APPLIED, cluster(topic("orders", replicas=1)))
    assert (plan.replica_factors, batches_of(plan)) == ({"orders": 2}, [])


# Deletion


def test_nothing_is_deleted_without_prune() -> None:
    wanted = DeclaredCluster(prune=Prune(prefixes=("b.",)))
    found = cluster(topic("b.a"), topic("c"))
    assert plan_changes(wanted, NOTHING_APPLIED, found).changes == ()
    assert plan_changes(wanted, NOTHING_APPLIED, found, prune=True).deleted_topics == ("b.a",)


def test_prune_deletes_what_an_owner_declared_before_and_no_topic_of_another() -> None:
    declared = DeclaredCluster(
        topics={"a": DeclaredTopic(owner="billing"), "b": DeclaredTopic(owner="web"), "c": DeclaredTopic()}
    )
    found = cluster(*map(topic, "abcd"))
    wanted = DeclaredCluster(prune=Prune(owners=("billing",)))
    without = plan_changes(wanted, applied_of(declared), found)
    assert without.changes == ()
    assert plan_changes(wanted, without.applied, found, prune=True).deleted_topics == ("a",), "the owner is remembered"


@pytest.mark.parametrize("prefix", ["", "_", "__", "_schemas"])
def test_a_prefix_of_all_topics_or_of_internal_ones_is_refused(prefix: str) -> None:
    with pytest.raises(InputError, match="prune: found the prefix"):
        plan_changes(DeclaredCluster(prune=Prune(prefixes=(prefix,))), NOTHING_APPLIED, cluster(), prune=True)


def test_internal_topics_are_neither_declared_nor_deleted() -> None:
    named = topic("internal-by-kafka", internal=True)
    with pytest.raises(InputError, match="found an internal topic of Kafka"):
        plan_changes(DeclaredCluster(topics={"__consumer_offsets": DeclaredTopic()}), NOTHING_APPLIED, cluster())
    with pytest.raises(InputError, match="found an internal topic of Kafka"):
        plan_changes(DeclaredCluster(topics={named.name: DeclaredTopic()}), NOTHING_APPLIED, cluster(named))
    wanted = DeclaredCluster(prune=Prune(prefixes=("internal",), owners=("x",)))
    before = Applied(topics={"__state": AppliedTopic(owner="x")})
    assert plan_changes(wanted, before, cluster(named, topic("__state")), prune=True).changes == ()


# Rights, quotas, users


READ = AclInfo(
    resource="topic",
    name="orders",
    pattern="literal",
    principal="User:a",
    host="*",
    operation="read",
    permission="allow",
)
WRITE = replace(READ, operation="write")


def test_an_acl_that_was_declared_and_is_removed_is_deleted_and_others_stay() -> None:
    found = cluster(acls=(READ, WRITE))
    assert plan_changes(NOTHING, NOTHING_APPLIED, found).changes == ()
    plan = plan_changes(NOTHING, Applied(acls=(READ,)), found)
    assert texts(plan) == ["acl User:a read topic orders: allow to none"]
    assert texts(plan_changes(DeclaredCluster(acls=(READ,)), NOTHING_APPLIED, cluster(acls=(WRITE,)))) == [
        "acl User:a read topic orders: none to allow"
    ]


def test_quotas_are_compared_three_ways() -> None:
    entity = {"user": "a", "client-id": None}
    found = cluster(
        quotas=(
            QuotaInfo(entity=entity, name="producer_byte_rate", value=5.0),
            QuotaInfo(entity=entity, name="consumer_byte_rate", value=6.0),
            QuotaInfo(entity={"user": "a"}, name="consumer_byte_rate", value=7.0),
        )
    )
    wanted = DeclaredCluster(quotas=(DeclaredQuota(entity=entity, values={"request_percentage": 0.5}),))
    before = applied_of(DeclaredCluster(quotas=(DeclaredQuota(entity=entity, values={"producer_byte_rate": 5.0}),)))
    assert texts(plan_changes(wanted, before, found)) == [
        "quota client-id <default>, user a producer_byte_rate: 5 to none",
        "quota client-id <default>, user a request_percentage: none to 0.5",
    ]


def test_a_user_who_has_a_password_keeps_it_and_is_deleted_by_prune_alone() -> None:
    user = DeclaredUser(user="a", mechanism="SCRAM-SHA-512", iterations=8192, secret=("env", "A"))
    there = cluster(users=(ScramUser(user="a", mechanism="SCRAM-SHA-512", iterations=8192),))
    wanted = DeclaredCluster(users=(user,))
    assert plan_changes(wanted, NOTHING_APPLIED, there).changes == ()
    (created,) = plan_changes(wanted, NOTHING_APPLIED, cluster(users=())).changes
    assert (created.old, created.new, created.secret) == (None, "8192 iterations", ("env", "A"))
    kept = plan_changes(NOTHING, applied_of(wanted), there)
    assert (kept.changes, kept.applied.users) == ((), (("a", "SCRAM-SHA-512"),))
    (deleted,) = plan_changes(NOTHING, kept.applied, there, prune=True).changes
    assert (deleted.kind, deleted.new) == (Kind.USER, None)


# Properties

names = st.sampled_from(["a", "b", "own.c", "own.d"])
values = st.sampled_from(["1", "2", "604800000"])
settings = st.dictionaries(st.sampled_from(sorted(DEFAULTS)), values)
group_settings = st.dictionaries(st.sampled_from(sorted(GROUP_DEFAULTS)), values)
acls = st.lists(
    st.builds(replace, st.just(READ), name=names, operation=st.sampled_from(["read", "write"])), unique=True
)
entities = st.sampled_from([{"user": "a"}, {"user": None}, {"client-id": "a"}])
quota_values = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "request_percentage"]), st.sampled_from([1.0, 2.5])
)
declared_clusters = st.builds(
    DeclaredCluster,
    topics=st.dictionaries(
        names,
        st.builds(
            DeclaredTopic,
            partitions=st.none() | st.integers(3, 5),
            settings=settings,
            owner=st.none() | st.sampled_from(["x", "y"]),
        ),
    ),
    groups=st.dictionaries(names, group_settings),
    acls=acls.map(tuple),
    quotas=st.lists(
        st.builds(DeclaredQuota, entity=entities, values=quota_values),
        max_size=3,
        unique_by=lambda each: str(each.entity),
    ).map(tuple),
    prune=st.builds(Prune, prefixes=st.sampled_from([(), ("own.",)]), owners=st.sampled_from([(), ("x",), ("x", "y")])),
)
found_clusters = st.builds(
    lambda topics, groups, acls, quotas: cluster(
        topic("__consumer_offsets"),
        *(topic(name, own, partitions=partitions) for name, (own, partitions) in topics.items()),
        groups=groups,
        acls=tuple(acls),
        quotas=tuple(quotas),
    ),
    st.dictionaries(names, st.tuples(settings, st.integers(1, 3))),
    st.fixed_dictionaries(
        {name: group_settings.map(lambda own: described(GROUP_DEFAULTS, own, "DYNAMIC_GROUP_CONFIG")) for name in "ab"}
        | {
            name: group_settings.map(lambda own: described(GROUP_DEFAULTS, own, "DYNAMIC_GROUP_CONFIG"))
            for name in ("own.c", "own.d")
        }
    ),
    acls,
    st.lists(
        st.builds(
            QuotaInfo,
            entity=entities,
            name=st.sampled_from(["producer_byte_rate", "request_percentage"]),
            value=st.sampled_from([1.0, 2.5]),
        ),
        unique_by=lambda each: (str(each.entity), each.name),
    ),
)


def made(found: FoundCluster, change: PlannedChange) -> FoundCluster:
    """What a cluster has after a change, as Kafka makes it."""
    topics, groups = dict(found.topics), dict(found.groups)
    held, quotas = list(found.acls or ()), list(found.quotas or ())
    there = topics.get(change.subject)
    if change.kind is Kind.TOPIC and change.new is None:
        del topics[change.subject]
    elif change.kind is Kind.TOPIC and change.shape is not None:
        assert there is None
        topics[change.subject] = topic(change.subject, change.shape.settings, partitions=change.shape.partitions or 1)
    elif change.kind is Kind.PARTITIONS and there is not None:
        assert int(change.new or 0) > len(there.partitions)
        topics[change.subject] = topic(change.subject, own(there.settings), partitions=int(change.new or 0))
    elif change.kind is Kind.TOPIC_SETTING and there is not None:
        topics[change.subject] = topic(
            change.subject, altered(own(there.settings), change), partitions=len(there.partitions)
        )
    elif change.kind is Kind.GROUP_SETTING:
        altered_now = altered(own(groups[change.subject]), change)
        groups[change.subject] = described(GROUP_DEFAULTS, altered_now, "DYNAMIC_GROUP_CONFIG")
    elif change.kind is Kind.ACL and change.acl is not None:
        held = [each for each in held if each != change.acl] + ([] if change.new is None else [change.acl])
    elif change.kind is Kind.QUOTA:
        quotas = [each for each in quotas if (each.entity, each.name) != (change.entity, change.name)]
        if change.new is not None:
            quotas.append(QuotaInfo(entity=change.entity, name=change.name, value=float(change.new)))
    return replace(found, topics=topics, groups=groups, acls=tuple(held), quotas=tuple(quotas))


def own(described_settings: Mapping[str, SettingInfo]) -> dict[str, str]:
    return {name: str(each.value) for name, each in described_settings.items() if each.source.startswith("DYNAMIC")}


def altered(before: dict[str, str], change: PlannedChange) -> dict[str, str]:
    rest = {name: value for name, value in before.items() if name != change.name}
    return rest if change.new is None else {**rest, change.name: change.new}


def after(plan: ApplyPlan, found: FoundCluster) -> FoundCluster:
    for change in plan.changes:
        found = made(found, change)
    return found


@given(declared_clusters, declared_clusters, found_clusters, st.booleans())
def test_a_plan_that_was_applied_leaves_nothing_to_plan(
    first: DeclaredCluster, then: DeclaredCluster, found: FoundCluster, prune: bool
) -> None:
    begun = plan_changes(first, NOTHING_APPLIED, found)
    found = after(begun, found)
    assert plan_changes(first, begun.applied, found).changes == ()
    plan = plan_changes(no_fewer(then, found), begun.applied, found, prune=prune)
    assert plan_changes(no_fewer(then, found), plan.applied, after(plan, found), prune=prune).changes == ()


@given(declared_clusters, declared_clusters, found_clusters, st.booleans())
def test_only_what_is_or_was_declared_is_touched(
    first: DeclaredCluster, then: DeclaredCluster, found: FoundCluster, prune: bool
) -> None:
    before = applied_of(first)
    then = no_fewer(then, found)
    for change in plan_changes(then, before, found, prune=prune).changes:
        was_set = change.name in (before.topics.get(change.subject) or AppliedTopic()).settings
        match change.kind:
            case Kind.TOPIC_SETTING:
                declared = then.topics.get(change.subject)
                assert was_set or (declared is not None and declared.settings.get(change.name) == change.new)
            case Kind.GROUP_SETTING:
                assert change.name in {*then.groups.get(change.subject, ()), *before.groups.get(change.subject, ())}
            case Kind.ACL:
                assert change.acl in {*then.acls, *before.acls}
            case Kind.TOPIC if change.new is None:
                assert prune
                assert not change.subject.startswith("__")
                assert change.subject not in then.topics
                owner = (before.topics.get(change.subject) or AppliedTopic()).owner
                assert change.subject.startswith(then.prune.prefixes) or owner in then.prune.owners
            case Kind.QUOTA:
                keys = {(str(each.entity), name) for each in then.quotas for name in each.values}
                keys |= {(str(each.entity), name) for each in before.quotas for name in each.names}
                assert (str(change.entity), change.name) in keys
            case _:
                assert change.subject in then.topics


@given(declared_clusters, found_clusters, st.data())
def test_what_was_applied_half_way_goes_on_and_a_change_of_another_is_refused(
    declared: DeclaredCluster, found: FoundCluster, data: st.DataObject
) -> None:
    plan = plan_changes(no_fewer(declared, found), NOTHING_APPLIED, found)
    count = data.draw(st.integers(0, len(plan.changes)))
    half = after(replace(plan, changes=plan.changes[:count]), found)
    assert remaining(plan, plan.changes, half) == plan.changes[count:]
    assert remaining(plan, plan.changes, after(plan, found)) == ()
    settings_changed = [each for each in plan.changes if each.kind is Kind.TOPIC_SETTING]
    for each in settings_changed[:1]:
        meddled = made(half, replace(each, new="77"))
        with pytest.raises(InputError, match=f"changed since it was planned: .*{each.subject}.*is 77 now; plan again"):
            remaining(plan, plan.changes, meddled)


@given(declared_clusters, found_clusters)
def test_an_undo_puts_back_all_that_can_be(declared: DeclaredCluster, found: FoundCluster) -> None:
    plan = plan_changes(no_fewer(declared, found), NOTHING_APPLIED, found)
    undo = load_plan(dump_plan(undo_of(plan)), source="undo.json")
    assert undo == undo_of(plan)
    back = after(undo, after(plan, found))
    for name, before in found.topics.items():
        assert own(back.topics[name].settings) == own(before.settings)
    assert {name: own(each) for name, each in back.groups.items()} == {
        name: own(each) for name, each in found.groups.items()
    }
    assert set(back.acls or ()) == set(found.acls or ())
    assert sorted(map(repr, back.quotas or ())) == sorted(map(repr, found.quotas or ()))
    created = [each.subject for each in plan.changes if each.kind is Kind.TOPIC]
    assert [each for each in undo.lost if "created" in each] == [f"topic {name}: created" for name in created[::-1]]


@given(declared_clusters, declared_clusters)
def test_the_record_of_a_half_applied_plan_knows_both_declarations(
    one: DeclaredCluster, other: DeclaredCluster
) -> None:
    both = both_applied(applied_of(one), applied_of(other))
    assert set(both.acls) == {*one.acls, *other.acls}
    for part in (one, other):
        for name, declared in part.topics.items():
            assert set(both.topics[name].settings) >= set(declared.settings)
        for name, declared_settings in part.groups.items():
            assert set(both.groups[name]) >= set(declared_settings)


def no_fewer(declared: DeclaredCluster, found: FoundCluster) -> DeclaredCluster:
    """A declaration that no topic has more partitions than: those are refused."""
    return replace(
        declared,
        topics={
            name: each
            if name not in found.topics or each.partitions is None
            else replace(each, partitions=max(each.partitions, len(found.topics[name].partitions)))
            for name, each in declared.topics.items()
        },
    )


# Files and several sources


def test_a_topic_that_was_deleted_and_created_again_is_refused() -> None:
    found = cluster(topic("orders"))
    plan = plan_changes(orders(retention_ms="1"), NOTHING_APPLIED, found)
    again = cluster(replace(topic("orders"), topic_id="another"))
    with pytest.raises(InputError, match="topic orders: deleted and created again since; plan again"):
        remaining(plan, plan.changes, again)
    with pytest.raises(InputError, match="topic orders: deleted since; plan again"):
        remaining(plan, plan.changes, cluster())
    with pytest.raises(InputError, match="the plan is of cluster 'c', and this is cluster 'd'"):
        remaining(plan, plan.changes, replace(found, cluster_id="d"))


def test_a_topic_that_another_created_otherwise_is_refused() -> None:
    plan = plan_changes(orders(3, retention_ms="1"), NOTHING_APPLIED, cluster())
    assert remaining(plan, plan.changes, cluster(topic("orders", {"retention.ms": "1"}, partitions=3))) == ()
    for other in (topic("orders", {"retention.ms": "1"}), topic("orders", {"retention.ms": "2"}, partitions=3)):
        with pytest.raises(InputError, match="topic orders: created otherwise since; plan again"):
            remaining(plan, plan.changes, cluster(other))


def test_two_sources_may_complete_one_topic_and_not_contradict_each_other() -> None:
    of_app = DeclaredCluster(topics={"orders": DeclaredTopic(settings={"retention.ms": "1"})})
    both = merged([("cluster.toml", orders(3)), ("billing:app", of_app)])
    assert both.topics["orders"] == DeclaredTopic(partitions=3, settings={"retention.ms": "1"})
    with pytest.raises(InputError, match=r"b\.toml: topic orders: partitions: found 4, and 3 in a\.toml"):
        merged([("a.toml", orders(3)), ("b.toml", orders(4))])
    with pytest.raises(InputError, match=r"b\.toml: group g: declared differently in a\.toml"):
        merged([("a.toml", DeclaredCluster(groups={"g": {"x": "1"}})), ("b.toml", DeclaredCluster(groups={"g": {}}))])


def test_the_record_keeps_clusters_apart(tmp_path: Path) -> None:
    path = tmp_path / "cluster.applied.json"
    one, other = applied_of(orders(retention_ms="1")), Applied(acls=(READ,))
    assert read_applied(path, "one") == NOTHING_APPLIED
    write_applied(path, "one", one)
    write_applied(path, "other", other)
    assert (read_applied(path, "one"), read_applied(path, "other")) == (one, other)
    path.write_text('{"schema": "ottla.applied/1", "clusters": []}')
    with pytest.raises(InputError, match=r"cluster\.applied\.json"):
        read_applied(path, "one")


def test_the_record_loses_nothing_of_commands_that_write_it_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "cluster.applied.json"
    one, other = applied_of(orders(retention_ms="1")), Applied(acls=(READ,))
    clusters = [f"cluster-{number}" for number in range(8)]
    begin = threading.Barrier(len(clusters))

    def write(cluster: str) -> None:
        begin.wait(30)
        for applied in (one, other) * 10:
            write_applied(path, cluster, applied)

    with ThreadPoolExecutor(len(clusters)) as pool:
        list(pool.map(write, clusters))
    assert [read_applied(path, cluster) for cluster in clusters] == [other] * len(clusters)


def test_what_another_command_recorded_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "cluster.applied.json"
    mine, of_another = applied_of(orders(retention_ms="1")), Applied(acls=(READ,))
    write_applied(path, "one", NOTHING_APPLIED)
    write_applied(path, "one", mine, expected=[NOTHING_APPLIED])
    assert read_applied(path, "one") == mine
    write_applied(path, "one", of_another)
    write_applied(path, "one", mine, expected=[NOTHING_APPLIED, mine])
    both = read_applied(path, "one")
    assert (set(both.topics), both.acls) == ({"orders"}, (READ,))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (PlannedChange(kind=Kind.TOPIC, subject="__consumer_offsets", old="1 partitions", new=None), "internal topic"),
        (PlannedChange(kind=Kind.TOPIC, subject="orders", old=None, new="x"), "found no shape"),
        (PlannedChange(kind=Kind.PARTITIONS, subject="orders", old="1", new="many"), "found 'many', wanted a number"),
        (PlannedChange(kind=Kind.REPLICAS, subject="orders", old="1", new=None), "found None, wanted a number"),
        (PlannedChange(kind=Kind.QUOTA, subject="a", name="x", old=None, new="1"), "wanted a number of an entity"),
        (PlannedChange(kind=Kind.QUOTA, subject="a", name="x", old=None, new="nan", entity={"user": "a"}), "'nan'"),
        (PlannedChange(kind=Kind.USER, subject="a", name="PLAIN", old=None, new="8192 iterations"), "'PLAIN'"),
        (PlannedChange(kind=Kind.USER, subject="a", name="SCRAM-SHA-512", old=None, new="1e9"), "found '1e9'"),
        (PlannedChange(kind=Kind.ACL, subject="a", name="x", old=None, new="allow"), "found no ACL"),
        *(
            (
                PlannedChange(
                    kind=Kind.USER,
                    subject="a",
                    name="SCRAM-SHA-512",
                    old=None,
                    new="8192 iterations",
                    secret=secret,
                ),
                "wanted .*VARIABLE",
            )
            for secret in (("env",), ("env", "A", "B"), ("command",), ("file", "x"))
        ),
    ],
)
def test_a_plan_file_that_was_edited_is_checked(change: PlannedChange, problem: str) -> None:
    plan = ApplyPlan(cluster_id="c", at_ms=0, changes=(change,))
    with pytest.raises(InputError, match=rf"plan\.json: change 1, .*{problem}"):
        load_plan(dump_plan(plan), source="plan.json")


def test_a_topic_that_kafka_calls_internal_is_not_deleted_by_any_plan() -> None:
    named = topic("internal-by-kafka", internal=True)
    change = PlannedChange(kind=Kind.TOPIC, subject=named.name, old="1 partitions", new=None, topic_id=named.topic_id)
    plan = ApplyPlan(cluster_id="c", at_ms=0, changes=(change,))
    with pytest.raises(InputError, match="found an internal topic of Kafka"):
        remaining(plan, plan.changes, cluster(named))
