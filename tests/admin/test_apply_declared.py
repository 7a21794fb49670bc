"""Declarations applied to a cluster, by both clients: once, again, by two at a time, and after a change of another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, PartlyDone, TopicSpec
from ottla.admin.declared.apply_plan import load_plan
from ottla.admin.declared.declared_cluster import (
    Applied,
    DeclaredCluster,
    DeclaredQuota,
    DeclaredTopic,
    DeclaredUser,
    applied_of,
)
from ottla.errors import InputError, OttlaError
from ottla.wire_client.errors import BrokerRefused

Ask = Callable[..., Any]


def orders(name: str, partitions: int | None = None, **settings: str) -> DeclaredCluster:
    named = {each.replace("_", "."): value for each, value in settings.items()}
    return DeclaredCluster(topics={name: DeclaredTopic(partitions=partitions, settings=named)})


def own(admin: Admin, topic: str) -> dict[str, str | None]:
    found = admin.topic_settings(topic).items()
    return {name: each.value for name, each in found if each.source == "DYNAMIC_TOPIC_CONFIG"}


def test_a_topic_is_created_grown_set_and_unset(ask: Ask, admin: Admin, name: str, tmp_path: Path) -> None:
    first = orders(name, 2, retention_ms="3600000", segment_bytes="1048576")
    plan = ask("plan_declared", first)
    ask("apply_declared", plan, undo_file=tmp_path / "one.json")
    assert own(admin, name) == {"retention.ms": "3600000", "segment.bytes": "1048576"}
    admin.alter_topic_settings(name, {"max.message.bytes": 5000})  # by another
    then = ask("plan_declared", orders(name, 3, retention_ms="7200000"), applied=plan.applied)
    assert sorted(f"{each.kind} {each.name}" for each in then.changes) == [
        "partitions ",
        "topic setting retention.ms",
        "topic setting segment.bytes",
    ]
    made: list[str] = []
    ask("apply_declared", then, undo_file=tmp_path / "two.json", on_made=lambda each: made.append(each.name))
    assert own(admin, name) == {"retention.ms": "7200000", "max.message.bytes": "5000"}
    assert sorted(made) == ["", "retention.ms", "segment.bytes"]
    assert ask("plan_declared", orders(name, 3, retention_ms="7200000"), applied=then.applied).changes == ()
    undo = load_plan((tmp_path / "two.json").read_bytes(), source="two.json")
    ask("apply_declared", undo)
    assert own(admin, name) == {"retention.ms": "3600000", "segment.bytes": "1048576", "max.message.bytes": "5000"}
    assert undo.lost == (f"topic {name}: 2 partitions became 3",)


def test_a_plan_is_applied_to_what_it_was_made_from_only(ask: Ask, admin: Admin, name: str, tmp_path: Path) -> None:
    admin.create_topics({name: None})
    plan = ask("plan_declared", orders(name, 2, retention_ms="3600000"))
    admin.alter_topic_settings(name, {"retention.ms": 1})
    with pytest.raises(InputError, match=r"changed since it was planned: .* retention.ms: .*is 1 now; plan again"):
        ask("apply_declared", plan, undo_file=tmp_path / "undo.json")
    assert len(admin.describe_topics(name)[0].partitions) == 1
    assert not (tmp_path / "undo.json").exists(), "nothing is to be undone"
    admin.delete_topics(name)
    with pytest.raises(InputError, match=f"topic {name}: deleted since"):
        ask("apply_declared", plan)
    admin.create_topics({name: None})
    with pytest.raises(InputError, match=f"topic {name}: deleted and created again since"):
        ask("apply_declared", plan)


def test_what_the_cluster_refuses_is_known_before_anything_is_changed(ask: Ask, admin: Admin, name: str) -> None:
    admin.create_topics({name: None})
    declared = DeclaredCluster(
        topics={
            f"{name}-new": DeclaredTopic(partitions=1),
            name: DeclaredTopic(settings={"retention.ms": "soon"}),
        }
    )
    plan = ask("plan_declared", declared)
    with pytest.raises(BrokerRefused, match="INVALID_CONFIG"):
        ask("apply_declared", plan)
    too_many = DeclaredCluster(topics={f"{name}-new": DeclaredTopic(replication_factor=9)})
    with pytest.raises(BrokerRefused, match="INVALID_REPLICATION_FACTOR"):
        ask("apply_declared", ask("plan_declared", too_many))
    assert f"{name}-new" not in {topic.name for topic in admin.list_topics()}


def test_what_fails_half_way_says_what_is_made_and_goes_on(
    ask: Ask, admin: Admin, cluster: EmbeddedCluster, name: str
) -> None:
    admin.create_topics({name: None})
    declared = DeclaredCluster(
        topics={
            f"{name}-new": DeclaredTopic(partitions=2),
            name: DeclaredTopic(settings={"retention.ms": "3600000"}),
        }
    )
    plan = ask("plan_declared", declared)
    with (
        cluster.faults.add(
            api="INCREMENTAL_ALTER_CONFIGS", error="POLICY_VIOLATION", when=lambda each: not each.validate_only
        ),
        pytest.raises(PartlyDone, match="POLICY_VIOLATION") as failed,
    ):
        ask("apply_declared", plan)
    assert failed.value.done == (f"topic {name}-new: none to 2 partitions",)
    assert own(admin, name) == {}
    ask("apply_declared", plan)
    assert own(admin, name) == {"retention.ms": "3600000"}
    assert ask("plan_declared", declared, applied=plan.applied).changes == ()


def test_who_applies_at_the_same_time_is_refused_or_wins_and_a_plan_mends_it(
    cluster: EmbeddedCluster, admin: Admin, name: str
) -> None:
    """The same plan twice is one plan. Of two different ones the later is refused, unless both looked at once."""
    names = [f"{name}-{number}" for number in range(5)]
    admin.create_topics(dict.fromkeys(names))
    wanted = {
        value: DeclaredCluster(topics={each: DeclaredTopic(settings={"retention.ms": value}) for each in names})
        for value in ("3600000", "7200000")
    }
    plans = [admin.plan_declared(wanted[value]) for value in ("3600000", "3600000", "7200000")]
    errors: list[OttlaError | None] = [None, None, None]
    begin = threading.Barrier(3)

    def run(number: int) -> None:
        with Admin(cluster.bootstrap_servers, timeout_s=20) as each:
            begin.wait(30)
            try:
                each.apply_declared(plans[number])
            except OttlaError as error:
                errors[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found = {own(admin, each)["retention.ms"] for each in names}
    assert found <= set(wanted)
    assert all("changed since it was planned" in str(error) for error in errors if error is not None), errors
    for value in ("7200000", "3600000"):
        admin.apply_declared(admin.plan_declared(wanted[value]))
        assert {own(admin, each)["retention.ms"] for each in names} == {value}


def test_a_plan_that_begins_while_another_is_applied_is_refused(
    cluster: EmbeddedCluster, admin: Admin, name: str
) -> None:
    """The first has made half of its changes and waits; the second was planned before it began."""
    names = [f"{name}-{number}" for number in range(2)]
    admin.create_topics(dict.fromkeys(names))
    first, second = (
        admin.plan_declared(
            DeclaredCluster(topics={each: DeclaredTopic(settings={"retention.ms": value}) for each in names})
        )
        for value in ("3600000", "7200000")
    )
    seen: list[OttlaError] = []

    def apply_the_other(_: object) -> None:
        with Admin(cluster.bootstrap_servers, timeout_s=20) as other:
            try:
                other.apply_declared(second)
            except OttlaError as error:
                seen.append(error)

    admin.apply_declared(first, on_made=apply_the_other)
    assert len(seen) == 2
    assert all("changed since it was planned" in str(error) for error in seen)
    assert {own(admin, each)["retention.ms"] for each in names} == {"3600000"}


def test_groups_quotas_and_users(ask: Ask, admin: Admin, name: str) -> None:
    declared = DeclaredCluster(
        groups={name: {"share.auto.offset.reset": "earliest"}},
        quotas=(DeclaredQuota(entity={"user": name}, values={"producer_byte_rate": 1e6}),),
        users=(DeclaredUser(user=name, mechanism="SCRAM-SHA-512", iterations=4096, secret=("env", "X")),),
    )
    plan = ask("plan_declared", declared)
    with pytest.raises(InputError, match=f"user {name}, SCRAM-SHA-512: found no password, wanted one to set"):
        ask("apply_declared", plan)
    assert len(ask("plan_declared", declared).changes) == 3, "nothing is changed"
    ask("apply_declared", plan, passwords={(name, "SCRAM-SHA-512"): "hunter2"})
    assert "hunter2" not in repr(plan)
    assert next(each for each in admin.find_scram_users() if each.user == name).iterations == 4096
    assert ask("plan_declared", declared, applied=plan.applied).changes == ()
    removed = ask("plan_declared", DeclaredCluster(), applied=plan.applied, prune=True)
    assert sorted(each.kind for each in removed.changes) == ["group setting", "quota", "user"]
    ask("apply_declared", removed)
    assert name not in {each.user for each in admin.find_scram_users()}
    assert list(admin.find_quotas({"user": name})) == []


def test_a_topic_is_deleted_by_prune_alone(ask: Ask, admin: Admin, name: str) -> None:
    from ottla.admin.declared.declared_cluster import Prune

    admin.create_topics({f"{name}.old": TopicSpec(partitions=2), f"{name}-kept": None})
    declared = DeclaredCluster(prune=Prune(prefixes=(f"{name}.",)))
    assert ask("plan_declared", declared).changes == ()
    plan = ask("plan_declared", declared, prune=True)
    assert plan.deleted_topics == (f"{name}.old",)
    ask("apply_declared", plan)
    names = {topic.name for topic in admin.list_topics()}
    assert (f"{name}.old" in names, f"{name}-kept" in names) == (False, True)
    ask("apply_declared", plan)


def test_the_record_of_another_declaration_is_not_needed(ask: Ask, admin: Admin, name: str) -> None:
    """Without a record nothing is unset: what is not known to have been declared is left alone."""
    admin.create_topics({name: TopicSpec(config={"retention.ms": 5})})
    assert ask("plan_declared", orders(name)).changes == ()
    assert ask("plan_declared", orders(name), applied=Applied()).changes == ()
    assert len(ask("plan_declared", orders(name), applied=applied_of(orders(name, retention_ms="5"))).changes) == 1
