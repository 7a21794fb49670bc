"""`ottla topics` on a cluster of three brokers: what it shows, what it changes, and how it ends when it cannot."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from click.testing import CliRunner
from command_output import Run, document, rows

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli import main
from ottla.errors import InputError
from ottla.testing import Kafka


def produce(cluster: EmbeddedCluster, topic: str, count: int, *, size: int = 10, partition: int = 0) -> None:
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    kafka.produce(topic, [b"x" * size] * count, partition=partition)


def test_topics_are_listed_one_a_line_and_by_pattern(ottla: Run, admin: Admin, topic: str, name: str) -> None:
    admin.create_topics({name: TopicSpec(partitions=1, replication_factor=1)})
    assert [topic, "3", "3", ""] in rows(ottla("topics", "list"))
    assert rows(ottla("topics", "list", f"{name[:-1]}?")) == [[name, "1", "1", ""]]
    assert rows(ottla("topics", "list", "nothing-*")) == []
    found = document(ottla("topics", "list", topic, "--format", "json"), "ottla.topics.list/1")["items"]
    assert found == [{"topic": topic, "partitions": 3, "replicas": 3, "problems": None, "internal": False}]


def test_internal_topics_are_listed_when_they_are_asked_for(ottla: Run, cluster: EmbeddedCluster, admin: Admin) -> None:
    admin.apply_reset(admin.plan_reset("somebody", to="earliest", topics={_fresh(admin): None}))
    names = {row[0] for row in rows(ottla("topics", "list", "--internal"))}
    assert "__consumer_offsets" in names
    assert "__consumer_offsets" not in {row[0] for row in rows(ottla("topics", "list"))}


def _fresh(admin: Admin) -> str:
    admin.create_topics({"committed": TopicSpec(partitions=1, replication_factor=1)})
    return "committed"


def test_topics_are_sorted_by_what_is_in_them(ottla: Run, cluster: EmbeddedCluster, admin: Admin) -> None:
    for each, count, size in (("sorted-few", 2, 1000), ("sorted-many", 20, 1), ("sorted-none", 0, 0)):
        admin.create_topics({each: TopicSpec(partitions=1, replication_factor=1)})
        produce(cluster, each, count, size=size)
    by_records = rows(ottla("topics", "list", "sorted-*", "--sort", "records"))
    assert [(row[0], row[3]) for row in by_records] == [
        ("sorted-many", "20"),
        ("sorted-few", "2"),
        ("sorted-none", "0"),
    ]
    by_bytes = rows(ottla("topics", "list", "sorted-*", "--sort", "bytes"))
    assert [row[0] for row in by_bytes] == ["sorted-few", "sorted-many", "sorted-none"]
    assert int(by_bytes[0][3]) > 2000
    by_rate = rows(ottla("topics", "list", "sorted-*", "--sort", "rate", "--over", "0.05"))
    assert {row[3] for row in by_rate} == {"0"}, "nothing was written meanwhile"


def test_a_topic_is_shown_with_its_size_settings_partitions_and_groups(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, topic: str
) -> None:
    admin.alter_topic_settings(topic, {"retention.bytes": 1000})
    produce(cluster, topic, 5)
    admin.apply_reset(admin.plan_reset(f"{topic}-readers", to="earliest", topics={topic: None}))
    shown = document(ottla("topics", "show", topic, "--groups", "--format", "json"), "ottla.topics.show/1")
    assert (shown["partitions"], shown["replicas"], shown["records"]) == (3, 3, 5)
    assert shown["retention_bytes_limit"] == 1000 * 3 * 3, "it is a limit of one partition"
    assert shown["settings"] == {
        "retention.bytes": {"value": "1000", "source": "DYNAMIC_TOPIC_CONFIG", "sensitive": False}
    }
    assert shown["groups"] == [{"group": f"{topic}-readers", "state": "Empty", "lag": 5}]
    assert [each["end_offset"] for each in shown["partition_list"]] == [5, 0, 0]

    partitions = rows(ottla("topics", "show", topic, "--partitions"))
    assert [row[0] for row in partitions] == ["0", "1", "2"]
    assert partitions[0][5] == "5"
    table = ottla("topics", "show", topic, "--partitions", "--format", "table").stdout
    assert "retention bytes limit  8.8 KiB" in table
    everything = document(ottla("topics", "show", topic, "--settings", "--format", "json"), "ottla.topics.show/1")
    assert everything["settings"]["cleanup.policy"]["source"] == "DEFAULT_CONFIG"


def test_the_id_of_a_leader_is_no_amount() -> None:
    with EmbeddedCluster(first_broker_id=1001) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics({"orders": TopicSpec(partitions=1, replication_factor=1)})
        shown = CliRunner().invoke(
            main, ["topics", "show", "orders", "-b", cluster.bootstrap_servers, "--partitions", "--format", "table"]
        )

    assert re.search(r"^ +0 +1001 +1001 +1001 ", shown.stdout, re.MULTILINE), shown.output


def test_what_is_created_has_its_settings_and_what_exists_stays(ottla: Run, admin: Admin, name: str) -> None:
    arguments = ("topics", "create", name, "-p", "2", "-r", "2", "retention.ms=7d", "segment.bytes=256MiB")
    dry = document(ottla(*arguments, "--dry-run", "--format", "json"), "ottla.topics.create/1")
    wanted = {"topic": name, "result": "would be created", "partitions": 2, "replicas": 2, "differs": None}
    assert dry["items"] == [wanted]
    assert name not in {each.name for each in admin.list_topics()}
    assert rows(ottla(*arguments)) == [[name, "created", "2", "2", ""]]
    settings = admin.topic_settings(name)
    assert (settings["retention.ms"].value, settings["segment.bytes"].value) == ("604800000", "268435456")

    assert rows(ottla(*arguments)) == [[name, "exists", "2", "2", ""]]
    other = ottla("topics", "create", name, f"{name}-b", "-p", "5", "retention.ms=1d", "--format", "json")
    assert other.exit_code == 1
    there, new = document(other, "ottla.topics.create/1")["items"]
    assert there["differs"] == "with 2 partitions and not 5, with retention.ms=604800000 and not 86400000"
    assert new == {"topic": f"{name}-b", "result": "created", "partitions": 5, "replicas": 1, "differs": None}


def test_topics_that_are_all_refused_are_not_begun(ottla: Run, admin: Admin, name: str) -> None:
    refused = ottla("topics", "create", f"{name}-a", f"{name}-b", "-r", "9")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"{name}-a" in refused.stderr
    assert f"{name}-b" in refused.stderr
    assert not {each.name for each in admin.list_topics() if each.name.startswith(name)}


def test_settings_are_shown_before_they_change(ottla: Run, admin: Admin, topic: str) -> None:
    arguments = ("topics", "set", topic, "retention.ms=1h", "cleanup.policy=delete", "--format", "json")
    (dry,) = document(ottla(*arguments, "--dry-run"), "ottla.topics.set/1")["items"][:1]
    assert (dry["old"], dry["new"]) == ("604800000", "3600000")
    assert admin.topic_settings(topic)["retention.ms"].value == "604800000"
    unasked = ottla(*arguments)
    assert unasked.exit_code == 2
    assert "--yes" in unasked.stderr
    assert admin.topic_settings(topic)["retention.ms"].value == "604800000"
    assert ottla(*arguments, "--yes").exit_code == 0
    assert admin.topic_settings(topic)["retention.ms"].value == "3600000"
    again = ottla("topics", "set", topic, "retention.ms=1h")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "nothing to change\n")

    admin.alter_topic_settings(topic, {"segment.bytes": 1 << 20})
    _, back = rows(ottla("topics", "unset", topic, "retention.ms", "segment.bytes", "--yes"))
    assert back == ["segment.bytes", "1048576", "DYNAMIC_TOPIC_CONFIG", "1073741824", "DEFAULT_CONFIG"]
    assert admin.topic_settings(topic)["retention.ms"].value == "604800000"


def test_partitions_are_added_and_never_taken_away(ottla: Run, admin: Admin, topic: str) -> None:
    dry = ottla("topics", "add-partitions", topic, "5", "--dry-run", "--format", "json")
    assert document(dry, "ottla.topics.add-partitions/1")["items"] == [{"topic": topic, "old": 3, "new": 5}]
    assert rows(ottla("topics", "add-partitions", topic, "5", "--yes")) == [[topic, "3", "5"]]
    assert ottla("topics", "add-partitions", topic, "5").stderr.startswith(f"{topic} has 5 partitions already")
    fewer = ottla("topics", "add-partitions", topic, "2", "--yes")
    assert fewer.exit_code == 2
    assert len(admin.describe_topics(topic, parts=())[0].partitions) == 5


def test_replicas_are_added_and_removed(ottla: Run, admin: Admin, name: str) -> None:
    admin.create_topics({name: TopicSpec(partitions=4, replication_factor=1)})
    before = {each.partition: each.replicas for each in admin.describe_topics(name, parts=())[0].partitions}
    planned = document(
        ottla("topics", "set-replicas", name, "3", "--dry-run", "--format", "json"), "ottla.topics.set-replicas/1"
    )
    assert all(sorted(each["new"]) == [1, 2, 3] for each in planned["items"])
    assert all(each["new"][0] == before[each["partition"]][0] for each in planned["items"]), "leaders stay"
    assert admin.describe_topics(name, parts=())[0].replication_factor == 1
    assert ottla("topics", "set-replicas", name, "3", "--yes").exit_code == 0
    (fact,) = admin.describe_topics(name, parts=())
    assert all(set(each.in_sync) == {1, 2, 3} for each in fact.partitions)
    assert ottla("topics", "set-replicas", name, "2", "--yes").exit_code == 0
    assert admin.describe_topics(name, parts=())[0].replication_factor == 2
    too_many = ottla("topics", "set-replicas", name, "4", "--yes")
    assert too_many.exit_code == 2
    assert "wanted 1 to 3, the brokers that are up" in too_many.stderr
    assert "nothing to change" in ottla("topics", "set-replicas", name, "2").stderr


def test_records_are_trimmed_by_time_and_by_offset(ottla: Run, cluster: EmbeddedCluster, topic: str) -> None:
    produce(cluster, topic, 10)
    produce(cluster, topic, 4, partition=1)
    dry = rows(ottla("topics", "delete-records", topic, "--before", "0:4", "--before", "1:0", "--dry-run"))
    assert dry == [["0", "0", "4", "4"], ["1", "0", "0", "0"]]
    assert ottla("topics", "delete-records", topic, "--before", "0:4", "--yes").exit_code == 0
    assert rows(ottla("topics", "delete-records", topic, "--before", "latest", "--yes"))[:2] == [
        ["0", "4", "10", "6"],
        ["1", "0", "4", "4"],
    ]
    nothing = ottla("topics", "delete-records", topic, "--before", "-1h")
    assert (nothing.exit_code, nothing.stderr) == (0, "nothing to delete\n")
    assert rows(nothing)[0] == ["0", "10", "10", "0"]


def test_trimming_before_a_time_before_1970_deletes_nothing(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, topic: str
) -> None:
    produce(cluster, topic, 3)
    assert ottla("topics", "delete-records", topic, "--before", "1960-01-01", "--yes").exit_code == 2
    long_ago = dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)
    with pytest.raises(InputError, match="wanted a time since 1970"):
        admin.records_before(topic, long_ago)
    with (
        Admin(cluster.bootstrap_servers, now_ms=lambda: 3_600_000) as begun_at_the_epoch,
        pytest.raises(InputError, match=r"found '-7d', .* clock says 1970-01-01T01:00:00"),
    ):
        begun_at_the_epoch.records_before(topic, "-7d")
    assert admin.describe_topics(topic)[0].partitions[0].records == 3


def test_a_topic_is_deleted_with_its_name_typed(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(cluster, topic, 3)
    admin.apply_reset(admin.plan_reset(f"{topic}-group", to="earliest", topics={topic: None}))
    ((shown, partitions, records, _, groups),) = rows(ottla("topics", "delete", topic, "--dry-run"))
    assert (shown, partitions, records, groups) == (topic, "3", "3", f'["{topic}-group"]')
    monkeypatch.setattr("ottla.cli.shared.consent.is_terminal", lambda stream: True)
    wrong = ottla("topics", "delete", topic, input="yes\n")
    assert (wrong.exit_code, "nothing was changed" in wrong.stderr) == (2, True)
    right = ottla("topics", "delete", topic, input=f"{topic}\n")
    assert right.exit_code == 0, right.output
    assert topic not in {each.name for each in admin.list_topics()}


def test_of_several_topics_one_cannot_be_deleted(ottla: Run, admin: Admin, topic: str) -> None:
    ended = ottla("topics", "delete", topic, "no-such-topic", "--yes")
    assert ended.exit_code == 1
    assert f"done: {topic}" in ended.stderr
    assert "UnknownTopic: no-such-topic" in ended.stderr
    assert topic not in {each.name for each in admin.list_topics()}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["create", "or ders"], "topic: found 'or ders', wanted a name of 1 to 249 letters"),
        (["create", "retention.ms=7d"], "found only settings, wanted the name of a topic"),
        (
            ["create", "new", "retention.ms=7parsecs"],
            "retention.ms: found 7parsecs, wanted a number of ms, or",
        ),
        (["create", "new", "segment.ms=soon"], "INVALID_CONFIG"),
        (["create", "far-too-safe", "-r", "7"], "INVALID_REPLICATION_FACTOR"),
        (["set", "TOPIC", "no.such.setting=1", "--yes"], "no.such.setting"),
        (["set", "TOPIC", "retention.ms"], "found 'retention.ms', wanted NAME=VALUE"),
        (["set", "missing", "retention.ms=1", "--yes"], "missing: the cluster has no such topic"),
        (["show", "missing"], "missing: the cluster has no such topic"),
        (["delete", "missing", "--yes"], "missing: the cluster has no such topic"),
        (["delete", "__consumer_offsets", "--yes"], "is an internal topic of Kafka: --internal allows it"),
        (["delete-records", "TOPIC", "--before", "tomorrow"], "found 'tomorrow', wanted earliest, latest"),
        (
            ["delete-records", "TOPIC", "--before", "1960-01-01", "--yes"],
            "found '1960-01-01', wanted a time since 1970",
        ),
        (
            ["delete-records", "TOPIC", "--before", "-999999999d", "--yes"],
            "wanted a time since 1970 (this machine's clock",
        ),
        (["delete-records", "TOPIC", "--before", "0:9"], "found offset 9, wanted at most 0, the end of the log"),
        (["delete-records", "TOPIC", "--before", "9:0"], "the topic has 3 partitions, and no such partition"),
        (
            ["delete-records", "TOPIC", "--before", "0:0", "--before", "-1h"],
            "wanted one time, or P:O of different partitions",
        ),
        (["add-partitions", "missing", "3", "--yes"], "missing: the cluster has no such topic"),
        (["set-replicas", "missing", "3", "--yes"], "missing: the cluster has no such topic"),
        (["list", "-b", "127.0.0.1:1"], "no Kafka broker answered at 127.0.0.1:1"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(ottla: Run, topic: str, arguments: list[str], told: str) -> None:
    ended = ottla("topics", *[topic if each == "TOPIC" else each for each in arguments])
    assert ended.exit_code == 2, ended.output
    assert told in ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr


CHANGES = [
    ("CREATE_TOPICS", ["create", "NEW", "-r", "1"]),
    ("INCREMENTAL_ALTER_CONFIGS", ["set", "TOPIC", "retention.ms=1h", "--yes"]),
    ("INCREMENTAL_ALTER_CONFIGS", ["unset", "TOPIC", "segment.ms", "--yes"]),
    ("CREATE_PARTITIONS", ["add-partitions", "TOPIC", "6", "--yes"]),
    ("ALTER_PARTITION_REASSIGNMENTS", ["set-replicas", "TOPIC", "2", "--yes"]),
    ("DELETE_TOPICS", ["delete", "TOPIC", "--yes"]),
]


@pytest.mark.parametrize(("api", "arguments"), CHANGES, ids=[each[1][0] for each in CHANGES])
def test_a_broker_that_goes_away_in_a_change_is_not_called_done(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, topic: str, name: str, api: str, arguments: list[str]
) -> None:
    admin.alter_topic_settings(topic, {"segment.ms": 3_600_000})
    given = ["topics", *[{"TOPIC": topic, "NEW": name}.get(each, each) for each in arguments]]
    is_checked_before = api in ("INCREMENTAL_ALTER_CONFIGS", "CREATE_PARTITIONS")
    with cluster.faults.add(
        api=api,
        disconnect=True,
        after_apply=True,
        count=1,
        when=lambda request: not (is_checked_before and request.validate_only),
    ) as lost:
        ended = ottla(*given)
        assert lost.hits == 1
    assert ended.exit_code == 1, ended.output
    assert f"whether {api} was done is not known" in ended.stderr
    assert ended.stderr.count("ottla: ") == 1
    again = ottla(*given)  # the answer was lost and the change was made: the command says so, and repeats nothing
    assert again.exit_code == (2 if api == "DELETE_TOPICS" else 0), again.output


def test_trimming_again_after_a_lost_answer_deletes_no_more(ottla: Run, cluster: EmbeddedCluster, topic: str) -> None:
    produce(cluster, topic, 10)
    with cluster.faults.add(api="DELETE_RECORDS", disconnect=True, after_apply=True, count=1) as lost:
        ended = ottla("topics", "delete-records", topic, "--before", "0:4", "--yes")
        assert lost.hits == 1
    assert ended.exit_code == 0, "asking twice deletes no more than once"
    assert rows(ottla("topics", "delete-records", topic, "--before", "0:4"))[0] == ["0", "4", "4", "0"]


def test_an_address_that_refuses_is_told_within_a_second() -> None:
    import time

    started = time.monotonic()
    assert CliRunner().invoke(main, ["topics", "list", "-b", "127.0.0.1:1"]).exit_code == 2
    assert time.monotonic() - started < 1


def test_settings_of_many_topics_are_shown_and_checked_before_any_changes(ottla: Run, admin: Admin, name: str) -> None:
    topics = [f"{name}.a", f"{name}.b", f"{name}.c", f"other-{name}.a"]
    admin.create_topics(dict.fromkeys(topics))
    admin.alter_topic_settings(f"{name}.c", {"retention.ms": 3_600_000})
    pattern = ("--matching", f"{name}\\..*")
    shown = document(
        ottla("topics", "set", *pattern, "retention.ms=1h", "--dry-run", "--format", "json"), "ottla.topics.set/1"
    )
    assert [(each["topic"], each["new"]) for each in shown["items"]] == [
        (f"{name}.a", "3600000"),
        (f"{name}.b", "3600000"),
    ]
    refused = ottla("topics", "set", *pattern, "retention.ms=soon", "--yes")
    assert (refused.exit_code, "INVALID_CONFIG" in refused.stderr) == (2, True)
    asked = ottla("topics", "set", *pattern, "retention.ms=1h")
    assert (asked.exit_code, "Change the settings of 3 topics?" in asked.stderr) == (2, True)
    changed = ottla("topics", "set", *pattern, "retention.ms=1h", "--yes")
    assert (changed.exit_code, changed.stderr) == (0, "2 topics: changed\n")
    values = [admin.topic_settings(each)["retention.ms"].value for each in topics]
    assert values == ["3600000", "3600000", "3600000", "604800000"]
    named = ottla("topics", "set", f"{name}.a", f"{name}.b", "retention.ms=2h", "--yes")
    assert [row[:3] for row in rows(named)] == [[each, "retention.ms", "3600000"] for each in topics[:2]]
    unset = ottla("topics", "unset", *pattern, "retention.ms", "--yes")
    assert [row[0] for row in rows(unset)] == topics[:3]
    nothing = ottla("topics", "unset", *pattern, "retention.ms", "--yes")
    assert (nothing.exit_code, nothing.stderr) == (0, "nothing to change in 3 topics\n")


def test_of_many_topics_those_that_failed_are_named(
    ottla: Run, admin: Admin, cluster: EmbeddedCluster, name: str
) -> None:
    topics = [f"{name}.a", f"{name}.b"]
    admin.create_topics(dict.fromkeys(topics))
    is_second = {"seen": 0}

    def is_the_second_change(request: Any) -> bool:
        is_second["seen"] += not request.validate_only
        return not request.validate_only and is_second["seen"] == 2

    with cluster.faults.add(api="INCREMENTAL_ALTER_CONFIGS", error="POLICY_VIOLATION", when=is_the_second_change):
        failed = ottla("topics", "set", "--matching", f"{name}.*", "retention.ms=1h", "--yes")
    assert failed.exit_code == 1
    assert f"done: {name}.a" in failed.stderr
    assert "POLICY_VIOLATION" in failed.stderr
    assert "changed" not in failed.stderr


def test_topics_are_deleted_by_a_pattern_after_they_are_shown(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, name: str
) -> None:
    topics = [f"{name}.a", f"{name}.b", f"{name}-kept"]
    admin.create_topics(dict.fromkeys(topics))
    pattern = ("--matching", f"{name}\\.[ab]")
    shown = ottla("topics", "delete", *pattern, "--dry-run")
    assert [row[:3] for row in rows(shown)] == [[each, "1", "0"] for each in topics[:2]]
    asked = ottla("topics", "delete", *pattern)
    assert (asked.exit_code, "Delete 2 topics with all records?" in asked.stderr) == (2, True)
    assert ottla("topics", "delete", *pattern, "--yes").exit_code == 0
    assert [each.name for each in admin.list_topics() if each.name.startswith(name)] == [f"{name}-kept"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["delete", "--matching", "no-such-.*", "--yes"], "--matching: found no topics whose whole name 'no-such-.*'"),
        (["delete", "--matching", "__.*", "--yes"], "found no topics whose whole name"),
        (["delete", "--matching", "(a+)+\\1", "--yes"], "wanted a regular expression as RE2 takes it"),
        (["delete", "a", "--matching", "a"], "found both, wanted names of topics or --matching"),
        (["delete"], "found neither, wanted names of topics or --matching"),
        (["set", "--matching", ".*"], "Missing argument"),
        (["set", "a"], "found 'a', wanted NAME=VALUE"),
        (["set", "retention.ms=1"], "found neither, wanted names of topics or --matching"),
        (["set", "a", "retention.ms=1", "--matching", "a"], "found both"),
        (["unset", "a"], "found the topic a alone, wanted names of settings as well"),
    ],
)
def test_a_pattern_with_a_mistake_changes_nothing(ottla: Run, topic: str, arguments: list[str], problem: str) -> None:
    ended = ottla("topics", *arguments)
    assert (ended.exit_code, problem in ended.stderr) == (2, True), ended.output
