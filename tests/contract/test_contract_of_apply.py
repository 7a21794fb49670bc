"""`ottla apply` of everything that a file can declare: the same on Apache Kafka as on the embedded broker.

Schemas are in the embedded registry, whose topic is on the same cluster.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from apache_kafka import ApacheKafka, wanted
from command_output import Run, document, rows
from console_kit import running_console

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, PartlyDone
from ottla.admin.declared.apply_plan import load_plan
from ottla.admin.declared.declared_cluster import DeclaredCluster, DeclaredTopic
from ottla.cli.shared.cluster_options import cluster_settings
from ottla.console.state import ConsoleOptions
from ottla.serdes.registry_admin import RegistryAdmin
from ottla.testing import wait_until
from ottla.testing.registry import EmbeddedRegistry

pytestmark = pytest.mark.timeout(400)

_numbers = count(1)
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SECRET = "corr3ct-h0rse"
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WITH_NOTE = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
WITHOUT_ID = {**ORDER, "fields": []}
WHOLE = """
owner = "{name}"

[topics."{name}"]
partitions = 2
replication_factor = 1
settings.retention.ms = "1h"
settings.cleanup.policy = ["compact", "delete"]

[groups."{name}"]
settings.share.auto.offset.reset = "earliest"

[[acls]]
allow = ["User:{name}"]
topics = ["{name}"]
groups = ["{name}"]
consumer = true

[[quotas]]
user = "{name}"
producer_byte_rate = "1MB"

[[users]]
name = "{name}"
iterations = 4096
password_env = "APPLIED_PASSWORD"

[schemas."{name}-value"]
file = "order.avsc"
compatibility = "FULL"
"""
KINDS = [
    "topic", "group setting", "quota", "user", "acl", "acl", "acl", "compatibility level", "schema",
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster | ApacheKafka]:
    """One broker with an authorizer, on which everybody may do everything."""
    if wanted() is None:
        with EmbeddedCluster(config=AUTHORIZED) as embedded:
            yield embedded
        return
    with ApacheKafka(config=AUTHORIZED) as real:
        yield real


@pytest.fixture(scope="module")
def bootstrap_servers(cluster: EmbeddedCluster | ApacheKafka) -> str:
    return cluster.bootstrap_servers


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers, timeout_s=60) as made:
        yield made


@pytest.fixture(scope="module")
def registry(bootstrap_servers: str) -> Iterator[RegistryAdmin]:
    with EmbeddedRegistry(bootstrap_servers) as running:
        yield RegistryAdmin(running.url)


@pytest.fixture
def name(registry: RegistryAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of everything that the test declares in cluster.toml."""
    found = f"applied-{os.getpid()}-{next(_numbers)}"
    monkeypatch.setenv("OTTLA_REGISTRY", registry.url)
    monkeypatch.setenv("APPLIED_PASSWORD", SECRET)
    tmp_path.joinpath("order.avsc").write_text(json.dumps(ORDER))
    tmp_path.joinpath("cluster.toml").write_text(WHOLE.format(name=found))
    return found


def is_as_declared(ottla: Run) -> bool:
    return ottla("apply", "plan", "cluster.toml", "--exit-code").exit_code == 0


def test_everything_is_planned_applied_and_exported(
    ottla: Run, admin: Admin, registry: RegistryAdmin, name: str
) -> None:
    planned = ottla("apply", "plan", "cluster.toml", "--exit-code", "-o", "plan.json", "--format", "json")
    assert planned.exit_code == 1, planned.output
    assert [each["kind"] for each in document(planned, "ottla.apply.plan/1")["items"]] == KINDS
    assert name not in {topic.name for topic in admin.list_topics()}
    assert registry.versions(f"{name}-value") == []
    applied = ottla("apply", "plan.json", "--yes")
    assert (applied.exit_code, "9 changes made" in applied.stderr) == (0, True), applied.output
    wait_until(lambda: is_as_declared(ottla), 60)
    assert (registry.versions(f"{name}-value"), registry.level(f"{name}-value")) == ([1], "FULL")
    again = ottla("apply", "cluster.toml", "--yes")
    assert (again.exit_code, again.stderr) == (0, "nothing to change: the cluster is as declared\n")
    exported = ottla("apply", "export", "-o", "exported.toml")
    assert exported.exit_code == 0, exported.output
    for part in (f"[topics.{name}]", "[[acls]]", "[[quotas]]", f'name = "{name}"', f"[schemas.{name}-value]"):
        assert part in Path("exported.toml").read_text(), part
    assert rows(ottla("apply", "plan", "exported.toml")) == []
    written = [file for file in Path().iterdir() if file.is_file()]
    assert len(written) > 4
    assert not [file for file in written if SECRET in file.read_text()]


def test_what_is_changed_by_hand_is_drift_and_is_applied_away(
    ottla: Run, bootstrap_servers: str, admin: Admin, registry: RegistryAdmin, name: str
) -> None:
    assert ottla("apply", "cluster.toml", "--yes").exit_code == 0
    wait_until(lambda: is_as_declared(ottla), 60)
    admin.alter_topic_settings(name, {"retention.ms": 7, "max.message.bytes": 5000})
    admin.alter_quotas({"user": name}, {"producer_byte_rate": 5})
    registry.set_compatibility("NONE", f"{name}-value")
    drift = [
        ["topic setting", name, "retention.ms", "7", "3600000"],
        ["quota", f"user {name}", "producer_byte_rate", "5", "1000000"],
        ["compatibility level", f"{name}-value", "", "NONE", "FULL"],
    ]

    def found() -> list[list[str]]:
        seen = ottla("apply", "plan", "cluster.toml", "--exit-code")
        assert seen.exit_code in (0, 1), seen.output
        return [line.split("\t")[:5] for line in seen.stdout.splitlines()]

    wait_until(lambda: found() == drift, 60)
    doctor = ottla("doctor", "--only", "DRF01", "--declared", "cluster.toml", "--format", "json")
    assert doctor.exit_code == 1
    assert {each["subject"] for each in document(doctor, "ottla.doctor/1")["items"]} == {each[1] for each in drift}
    choices = ConsoleOptions(declared=(Path("cluster.toml"),), registry=registry.url)
    with running_console(cluster_settings(bootstrap_servers, {}, environ={}), choices) as console:
        items = console.get("declared")["items"]
    assert [[each["kind"], each["subject"], each["name"] or "", each["old"], each["new"]] for each in items] == drift
    assert ottla("apply", "cluster.toml", "--yes").exit_code == 0
    wait_until(lambda: is_as_declared(ottla), 60)
    assert admin.topic_settings(name)["max.message.bytes"].value == "5000", "it was never declared"


def test_what_is_removed_is_unset_and_an_undo_puts_it_back(
    ottla: Run, admin: Admin, registry: RegistryAdmin, name: str
) -> None:
    assert ottla("apply", "cluster.toml", "--yes").exit_code == 0
    wait_until(lambda: is_as_declared(ottla), 60)
    Path("order.avsc").write_text(json.dumps(WITH_NOTE))
    Path("cluster.toml").write_text(
        f'[topics."{name}"]\npartitions = 3\n[schemas."{name}-value"]\nfile = "order.avsc"\n'
    )
    changed = ottla("apply", "cluster.toml", "--yes", "--undo", "undo.json")
    assert [row[:3] for row in rows(changed)] == [
        ["partitions", name, ""],
        ["topic setting", name, "cleanup.policy"],
        ["topic setting", name, "retention.ms"],
        ["group setting", name, "share.auto.offset.reset"],
        ["quota", f"user {name}", "producer_byte_rate"],
        ["acl", f"User:{name}", f"describe topic {name}"],
        ["acl", f"User:{name}", f"read group {name}"],
        ["acl", f"User:{name}", f"read topic {name}"],
        ["compatibility level", f"{name}-value", ""],
        ["schema", f"{name}-value", "AVRO"],
    ]
    wait_until(lambda: is_as_declared(ottla), 60)
    assert (registry.versions(f"{name}-value"), registry.level(f"{name}-value")) == ([1, 2], None)
    undone = ottla("apply", "undo.json", "--yes")
    assert undone.exit_code == 0, undone.output
    assert f"not reverted: topic {name}: 2 partitions became 3" in undone.stderr
    assert f"not reverted: schema {name}-value: the next version was registered" in undone.stderr
    Path("cluster.toml").write_text(WHOLE.format(name=name).replace("partitions = 2", "partitions = 3"))
    wait_until(lambda: is_as_declared(ottla), 60)
    assert registry.level(f"{name}-value") == "FULL"


def test_prune_deletes_what_a_prefix_allows_with_its_records_named(ottla: Run, admin: Admin, name: str) -> None:
    admin.create_topics({f"{name}.old": None})
    wait_until(lambda: ottla("produce", f"{name}.old", "-q", input="1\n2\n").exit_code == 0, 60)
    wait_until(
        lambda: ottla("groups", "reset", name, "--to", "earliest", "--topic", f"{name}.old", "--yes").exit_code == 0, 60
    )
    Path("cluster.toml").write_text(f'[topics."{name}"]\n[prune]\nprefixes = ["{name}."]\n')
    assert ottla("apply", "cluster.toml", "--yes").exit_code == 0
    assert f"{name}.old" in {topic.name for topic in admin.list_topics()}
    planned = ottla("apply", "plan", "cluster.toml", "--prune", "--format", "json")
    (item,) = document(planned, "ottla.apply.plan/1")["items"]
    assert (item["kind"], item["subject"], item["records"], item["groups"]) == ("topic", f"{name}.old", 2, [name])
    assert ottla("apply", "cluster.toml", "--prune").exit_code == 2, "it wants the name, and there is no terminal"
    assert ottla("apply", "cluster.toml", "--prune", "--yes").exit_code == 0
    wait_until(lambda: f"{name}.old" not in {topic.name for topic in admin.list_topics()}, 60)
    assert rows(ottla("apply", "plan", "cluster.toml", "--prune")) == []


def test_what_is_refused_changes_nothing(ottla: Run, admin: Admin, registry: RegistryAdmin, name: str) -> None:
    registry.register(f"{name}-value", json.dumps(ORDER))
    Path("order.avsc").write_text(json.dumps(WITHOUT_ID))
    refused = ottla("apply", "cluster.toml", "--yes")
    assert (refused.exit_code, "at the declared level FULL: /id/: " in refused.stderr) == (2, True), refused.output
    Path("cluster.toml").write_text(f'[topics."{name}"]\nsettings.retention.ms = "soon"\n[topics."{name}-other"]\n')
    assert ottla("apply", "cluster.toml", "--yes").exit_code == 2
    Path("cluster.toml").write_text(f'[topics."{name}"]\nreplication_factor = 9\n[topics."{name}-other"]\n')
    refused = ottla("apply", "cluster.toml", "--yes")
    assert (refused.exit_code, "INVALID_REPLICATION_FACTOR" in refused.stderr) == (2, True), refused.output
    assert not [topic.name for topic in admin.list_topics() if topic.name.startswith(name)]
    assert registry.level(f"{name}-value") is None


def test_two_that_apply_one_file_at_the_same_time_make_one_cluster(
    ottla: Run, started: Callable[..., subprocess.Popen[str]], registry: RegistryAdmin, name: str, tmp_path: Path
) -> None:
    shutil.copytree(tmp_path, tmp_path / "second", ignore=lambda _, names: [each for each in names if each == "second"])
    processes = [
        started(
            "apply",
            "run",
            file,
            "--record",
            "cluster.applied.json",
            "--yes",
            OTTLA_REGISTRY=registry.url,
            APPLIED_PASSWORD=SECRET,
        )
        for file in ("cluster.toml", "second/cluster.toml")
    ]
    for process in processes:
        out, problem = process.communicate(timeout=120)
        assert SECRET not in out + problem
        if process.returncode:
            assert process.returncode in (1, 2), (out, problem)
            assert problem.count("ottla: ") == 1, "one line says what the other one did first"
            assert "Traceback" not in problem
    assert ottla("apply", "run", "cluster.toml", "--yes").exit_code == 0
    wait_until(lambda: is_as_declared(ottla), 60)
    assert registry.versions(f"{name}-value") == [1]
    ((record),) = json.loads(Path("cluster.applied.json").read_text())["clusters"].values()
    assert (list(record["topics"]), record["levels"]) == ([name], [f"{name}-value"])


def test_a_plan_that_begins_while_another_is_applied_is_refused(
    bootstrap_servers: str, admin: Admin, name: str
) -> None:
    names = [f"{name}-{number}" for number in range(2)]
    admin.create_topics(dict.fromkeys(names))
    first, second = (
        admin.plan_declared(
            DeclaredCluster(topics={each: DeclaredTopic(settings={"retention.ms": value}) for each in names})
        )
        for value in ("3600000", "7200000")
    )
    refusals: list[str] = []

    def apply_the_other(_: object) -> None:
        with Admin(bootstrap_servers, timeout_s=60) as other, pytest.raises(Exception, match="changed since") as error:
            other.apply_declared(second)
        refusals.append(str(error.value))

    admin.apply_declared(first, on_made=apply_the_other)
    assert len(refusals) == 2
    wait_until(lambda: {admin.topic_settings(each)["retention.ms"].value for each in names} == {"3600000"}, 60)


def test_a_broker_that_is_killed_half_way_leaves_what_the_same_command_goes_on_from(
    ottla: Run, cluster: EmbeddedCluster | ApacheKafka, admin: Admin, registry: RegistryAdmin, name: str
) -> None:
    """It dies when the topic is made, before the settings of the group, the rights, quotas, users and schemas."""
    assert ottla("apply", "plan", "cluster.toml", "-o", "plan.json").exit_code == 0
    plan = load_plan(Path("plan.json").read_bytes(), source="plan.json")
    start = cluster.start_broker if isinstance(cluster, EmbeddedCluster) else cluster.start
    with Admin(cluster.bootstrap_servers, timeout_s=5) as short, pytest.raises(PartlyDone) as failed:
        short.apply_declared(
            plan,
            undo_file=Path("undo.json"),
            passwords={(name, "SCRAM-SHA-512"): SECRET},
            on_made=lambda _: cluster.kill(1),
        )
    assert [each.split(":")[0] for each in failed.value.done] == [f"topic {name}"]
    down = ottla("apply", "plan.json", "--yes", "--timeout", "3")
    assert (down.exit_code, "changes made" in down.stderr) == (2, False), down.output
    start(1)
    wait_until(lambda: ottla("apply", "plan.json", "--yes").exit_code == 0, 120)
    wait_until(lambda: is_as_declared(ottla), 60)
    assert registry.versions(f"{name}-value") == [1]
