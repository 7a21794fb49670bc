"""Topics are created, changed and deleted over HTTP: shown first, agreed to, written down, and done once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from console_changes import applied, audit, planned, refused, rows
from console_kit import Running, running_console

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli import main
from ottla.config import Settings
from ottla.console.state import ConsoleOptions


@pytest.fixture
def topic(admin: Admin, request: pytest.FixtureRequest) -> str:
    name = f"changed-{request.node.name}"[:200].replace("[", "-").replace("]", "")
    admin.create_topics({name: TopicSpec(partitions=2, replication_factor=3)})
    return name


def test_a_topic_is_created_as_it_was_shown(writing: Running, admin: Admin, tmp_path: Path) -> None:
    plan = planned(
        writing, "topics.create", topic="made", partitions="4", settings="retention.ms=7d\n\nmax.message.bytes=2MiB"
    )
    assert rows(plan) == {
        "topic": (None, "made"),
        "partitions": (None, 4),
        "replicas": (None, 1),
        "retention.ms": (None, "604800000"),
        "max.message.bytes": (None, "2097152"),
    }
    assert "made" not in {each.name for each in admin.list_topics()}, "it was only shown"
    assert audit(tmp_path) == []
    assert applied(writing, plan) == "made is created."
    (made,) = admin.describe_topics("made")
    assert (len(made.partitions), made.settings["retention.ms"].value) == (4, "604800000")
    (line,) = audit(tmp_path)
    assert (line["what"], line["subject"], line["after"]["partitions"]) == ("topics.create", "made", 4)
    assert "no longer known" in refused(writing, "change/apply", plan=plan["plan"])
    assert "has this topic already" in refused(writing, "change/plan", kind="topics.create", topic="made")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "topics.create", "topic": "a b"}, "wanted a name of 1 to 249"),
        ({"kind": "topics.create", "topic": "ok", "settings": "retention.ms"}, "wanted NAME=VALUE"),
        ({"kind": "topics.create", "topic": "ok", "settings": "no.such.setting=1"}, "no.such.setting"),
        ({"kind": "topics.create", "topic": "ok", "partitions": 0}, "wanted a whole number"),
        ({"kind": "topics.create", "topic": "ok", "replicas": 9}, "9"),
        ({"kind": "topics.create", "topic": "ok", "settings": "\n".join(["a=1"] * 201)}, "at most 200"),
        ({"kind": "topics.set", "topic": "orders"}, "found nothing to change"),
        (
            {"kind": "topics.set", "topic": "orders", "settings": "retention.ms=1", "unset": "retention.ms"},
            "one of them",
        ),
        ({"kind": "topics.set", "topic": "nowhere", "settings": "retention.ms=1"}, "no such topic"),
        ({"kind": "topics.add-partitions", "topic": "orders", "total": 1}, "1"),
        ({"kind": "topics.add-partitions", "topic": "orders"}, "wanted the number of partitions"),
        ({"kind": "topics.delete", "topic": "__consumer_offsets"}, "internal topic"),
        ({"kind": "topics.delete", "topic": "nowhere"}, "no such topic"),
        ({"kind": "topics.delete", "topic": "orders", "more": "x"}, "found the parameter 'more'"),
        ({"kind": "files.delete"}, "wanted one of topics.create"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written_down(
    writing: Running, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    assert said in refused(writing, "change/plan", **given)
    assert audit(tmp_path) == []


def test_settings_are_set_and_removed_together(writing: Running, admin: Admin, topic: str) -> None:
    admin.alter_topic_settings(topic, {"segment.bytes": 1_048_576})
    plan = planned(writing, "topics.set", topic=topic, settings="retention.ms=1h", unset="segment.bytes")
    assert rows(plan) == {
        "retention.ms": ("604800000 (DEFAULT_CONFIG)", "3600000 (DYNAMIC_TOPIC_CONFIG)"),
        "segment.bytes": ("1048576 (DYNAMIC_TOPIC_CONFIG)", "1073741824 (DEFAULT_CONFIG)"),
    }
    applied(writing, plan)
    found = writing.get("topic", name=topic)["settings"]
    assert (found["retention.ms"]["value"], found["segment.bytes"]["source"]) == ("3600000", "DEFAULT_CONFIG")
    again = planned(writing, "topics.set", topic=topic, settings="retention.ms=1h")
    assert (again["plan"], again["items"]) == (None, []), "there is nothing to change"


def test_what_was_changed_since_it_was_shown_is_not_changed_on_top_of(
    writing: Running, admin: Admin, topic: str, tmp_path: Path
) -> None:
    plan = planned(writing, "topics.set", topic=topic, settings="retention.ms=1h")
    admin.alter_topic_settings(topic, {"retention.ms": 5_000_000})
    assert "is not as it was shown" in refused(writing, "change/apply", plan=plan["plan"])
    assert admin.topic_settings(topic)["retention.ms"].value == "5000000"
    assert audit(tmp_path) == []


def test_partitions_are_added_with_a_warning(writing: Running, admin: Admin, topic: str) -> None:
    plan = planned(writing, "topics.add-partitions", topic=topic, total="5")
    assert rows(plan) == {"partitions": (2, 5)}
    assert any("another partition" in note for note in plan["notes"])
    applied(writing, plan)
    assert len(admin.describe_topics(topic)[0].partitions) == 5


def test_a_topic_is_deleted_only_when_its_name_is_typed(
    writing: Running, admin: Admin, write: Any, topic: str, tmp_path: Path
) -> None:
    write(topic, [(b"k", b"v", ())] * 3)
    admin.apply_reset(admin.plan_reset(f"group-{topic}", to="earliest", topics={topic: None}))
    plan = planned(writing, "topics.delete", topic=topic)
    assert rows(plan)["records"] == ("3", None)
    assert plan["typed"] == topic
    assert any(f"group-{topic}" in note for note in plan["notes"])
    assert "to agree" in refused(writing, "change/apply", plan=plan["plan"], typed="orders")
    assert "no longer known" in refused(writing, "change/apply", plan=plan["plan"], typed=topic), (
        "a slip costs the plan"
    )
    assert topic in {each.name for each in admin.list_topics()}
    applied(writing, planned(writing, "topics.delete", topic=topic), typed=topic)
    assert topic not in {each.name for each in admin.list_topics()}
    assert [line["what"] for line in audit(tmp_path)] == ["topics.delete"]


def test_another_topic_of_that_name_is_not_deleted(writing: Running, admin: Admin, topic: str) -> None:
    plan = planned(writing, "topics.delete", topic=topic)
    admin.delete_topics(topic)
    admin.create_topics({topic: TopicSpec(partitions=2, replication_factor=3)})
    assert "is not as it was shown" in refused(writing, "change/apply", plan=plan["plan"], typed=topic)
    assert topic in {each.name for each in admin.list_topics()}


def test_a_console_that_only_reads_plans_nothing(console: Running) -> None:
    assert console.post("change/plan", kind="topics.delete", topic="orders").status == 403
    assert console.post("change/apply", plan=1).status == 403


def test_a_cluster_that_wants_its_name_gets_it(kafka: Settings, admin: Admin, topic: str, tmp_path: Path) -> None:
    choices = ConsoleOptions(may_write=True, folder=tmp_path, name="prod", asks_name=True)
    with running_console(kafka, choices) as console:
        plan = planned(console, "topics.set", topic=topic, settings="retention.ms=1h")
        assert "type the cluster's name" in refused(console, "change/apply", plan=plan["plan"])
        applied(console, plan, confirm="prod")


def test_nothing_changes_where_the_audit_file_cannot_be_written(
    kafka: Settings, admin: Admin, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "ottla-console-audit.jsonl").mkdir()
    with running_console(kafka, ConsoleOptions(may_write=True, folder=tmp_path)) as console:
        plan = planned(console, "topics.set", topic=topic, settings="retention.ms=1h")
        assert "nothing was changed" in refused(console, "change/apply", plan=plan["plan"])
    assert admin.topic_settings(topic)["retention.ms"].source == "DEFAULT_CONFIG"


def test_the_command_shows_the_same_of_a_deletion(writing: Running, cluster: EmbeddedCluster, topic: str) -> None:
    shown = CliRunner().invoke(
        main, ["topics", "delete", topic, "--dry-run", "--format", "json", "-b", cluster.bootstrap_servers]
    )
    (item,) = json.loads(shown.stdout)["items"]
    found = rows(planned(writing, "topics.delete", topic=topic))
    assert found["partitions"][0] == item["partitions"]
    assert found["records"][0] == f"{item['records']:,}"
