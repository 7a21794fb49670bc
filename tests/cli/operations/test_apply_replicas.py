"""`ottla apply` and replication factors: placed by the planner, moved as `ottla plan run` moves, and moved back."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_output import Run, rows

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin
from ottla.admin.placement.run_throttles import FREE_BYTES
from ottla.testing import Kafka, wait_until


def factors(admin: Admin, topic: str) -> set[int]:
    (found,) = admin.describe_topics(topic, parts=())
    return {len(each.replicas) for each in found.partitions}


def declare(topic: str, *lines: str) -> None:
    Path("cluster.toml").write_text("\n".join([f"[topics.{topic}]", *lines]))


def test_replicas_are_added_and_an_undo_takes_them_away(
    ottla: Run, admin: Admin, cluster: EmbeddedCluster, name: str
) -> None:
    admin.create_topics({name: None})
    Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster).produce(name, [b"1"] * 10, partition=0)
    declare(name, "partitions = 3", "replication_factor = 3")
    shown = ottla("apply", "plan", "cluster.toml", "--exit-code")
    assert shown.exit_code == 1
    assert [line.split("\t")[:5] for line in shown.stdout.splitlines()] == [
        ["partitions", name, "", "1", "3"],
        ["replicas", name, "", "1", "3"],
    ]
    applied = ottla("apply", "cluster.toml", "--yes", "--undo", "undo.json")
    assert applied.exit_code == 0, applied.output
    assert factors(admin, name) == {3}, "of new partitions as well"
    assert len(list(Path().glob("apply-replicas-*.json.journal"))) == 1
    assert rows(ottla("apply", "plan", "cluster.toml")) == []
    undone = ottla("apply", "undo.json", "--yes")
    assert undone.exit_code == 0, undone.output
    assert f"not reverted: topic {name}: 1 partitions became 3" in undone.stderr
    wait_until(lambda: factors(admin, name) == {1}, timeout_s=30)


def test_more_replicas_than_brokers_are_refused_before_anything_is_changed(ottla: Run, admin: Admin, name: str) -> None:
    admin.create_topics({name: None})
    declare(name, "replication_factor = 4", 'settings.retention.ms = "1h"')
    refused = ottla("apply", "cluster.toml", "--yes")
    assert (refused.exit_code, "found 4 replicas, wanted 1 to 3, the brokers that are up" in refused.stderr) == (
        2,
        True,
    )
    assert admin.topic_settings(name)["retention.ms"].value == "604800000"


def test_much_to_copy_wants_a_throttle_before_anything_is_changed(
    ottla: Run, admin: Admin, cluster: EmbeddedCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.admin.placement.run_throttles.FREE_BYTES", 1)
    assert FREE_BYTES > 1
    admin.create_topics({name: None})
    Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster).produce(name, [b"1" * 1000] * 10, partition=0)
    declare(name, "replication_factor = 2", 'settings.retention.ms = "1h"')
    refused = ottla("apply", "cluster.toml", "--yes")
    assert (refused.exit_code, "wanted --throttle" in refused.stderr) == (2, True), refused.output
    assert admin.topic_settings(name)["retention.ms"].value == "604800000"
    assert ottla("apply", "cluster.toml", "--yes", "--no-throttle").exit_code == 0
    assert factors(admin, name) == {2}
