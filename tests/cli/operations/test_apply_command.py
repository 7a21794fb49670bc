"""`ottla apply` on a broker with an authorizer: planned, applied, killed half way, undone, and what it never shows."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from command_output import document, rows
from dying_brokers import run_until_it_dies
from help_examples import examples_of_nouns

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli import main
from ottla.testing import Kafka, wait_until

Run = Callable[..., Result]
SECRET = "corr3ct-h0rse"
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
WHOLE = """
[topics.orders]
partitions = 2
settings.retention.ms = "1h"
settings.segment.bytes = "1MiB"

[groups.billing]
settings.share.auto.offset.reset = "earliest"

[[acls]]
allow = ["User:billing"]
topics = ["orders"]
operations = ["read"]

[[quotas]]
user = "billing"
producer_byte_rate = "1MB"

[[users]]
name = "billing"
password_env = "BILLING_PASSWORD"
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config=AUTHORIZED) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, timeout_s=20) as made:
        yield made


@pytest.fixture
def run(cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Result:
        environment = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "BILLING_PASSWORD": SECRET}
        ended = CliRunner().invoke(main, ["apply", *arguments], env=environment)
        assert SECRET not in ended.output
        for file in tmp_path.iterdir():
            assert not file.is_file() or SECRET not in file.read_text()
        return ended

    return run


@pytest.fixture
def empty(cluster: EmbeddedCluster, admin: Admin) -> None:
    """Without topics, rights, quotas and users of an earlier test."""
    for topic in admin.list_topics():
        admin.delete_topics(topic.name)
    admin.delete_acls(*admin.find_acls())
    for quota in admin.find_quotas():
        admin.alter_quotas(quota.entity, {quota.name: None})
    for user in admin.find_scram_users():
        admin.delete_scram_user(user.user, user.mechanism)
    for setting in ("share.auto.offset.reset",):
        admin.alter_group_settings("billing", {setting: None})
    wait_until(lambda: not (admin.find_acls() or admin.find_quotas() or admin.find_scram_users()), timeout_s=20)


def declare(text: str, name: str = "cluster.toml") -> None:
    Path(name).write_text(text)


def kinds(result: Result) -> list[list[str]]:
    return [row[:3] for row in rows(result)]


@pytest.mark.usefixtures("empty")
def test_a_cluster_is_planned_applied_and_then_as_declared(run: Run, admin: Admin) -> None:
    declare(WHOLE)
    drift = run("plan", "cluster.toml", "--exit-code", "--format", "json")
    assert drift.exit_code == 1
    items = document(drift, "ottla.apply.plan/1")["items"]
    assert [(each["kind"], each["subject"], each["name"], each["new"]) for each in items] == [
        ("topic", "orders", None, "2 partitions, retention.ms=3600000, segment.bytes=1048576"),
        ("group setting", "billing", "share.auto.offset.reset", "earliest"),
        ("quota", "user billing", "producer_byte_rate", "1000000"),
        ("user", "billing", "SCRAM-SHA-512", "8192 iterations"),
        ("acl", "User:billing", "read topic orders", "allow"),
    ]
    dry = run("cluster.toml", "--dry-run")
    assert (dry.exit_code, dry.stderr) == (0, "dry run: nothing was changed\n")
    assert admin.list_topics() == ()
    assert [each.name for each in Path().iterdir()] == ["cluster.toml"]
    applied = run("cluster.toml", "--yes", "--format", "json")
    assert applied.exit_code == 0, applied.output
    assert document(applied, "ottla.apply.run/1")["items"] == items
    assert applied.stderr.endswith("5 changes made\n")
    again = run("plan", "cluster.toml", "--exit-code")
    assert (again.exit_code, again.stdout) == (0, "")
    assert again.stderr == "nothing to change: the cluster is as declared\n"
    nothing = run("run", "cluster.toml")
    assert (nothing.exit_code, nothing.stderr) == (0, "nothing to change: the cluster is as declared\n")
    declare(run("export").stdout, "exported.toml")
    assert rows(run("plan", "exported.toml", "--exit-code")) == []


@pytest.mark.usefixtures("empty")
def test_what_is_removed_is_unset_and_an_undo_puts_it_back(run: Run, admin: Admin) -> None:
    declare(WHOLE)
    assert run("cluster.toml", "--yes").exit_code == 0
    admin.alter_topic_settings("orders", {"max.message.bytes": 5000})
    declare('[topics.orders]\nsettings.segment.bytes = "2MiB"\n')
    changed = run("cluster.toml", "--yes", "--undo", "undo.json")
    assert kinds(changed) == [
        ["topic setting", "orders", "retention.ms"],
        ["topic setting", "orders", "segment.bytes"],
        ["group setting", "billing", "share.auto.offset.reset"],
        ["quota", "user billing", "producer_byte_rate"],
        ["acl", "User:billing", "read topic orders"],
    ]
    assert changed.stderr == "revert it with: ottla apply undo.json\n5 changes made\n"
    assert own(admin) == {"segment.bytes": "2097152", "max.message.bytes": "5000"}
    assert [each.user for each in admin.find_scram_users()] == ["billing"], "users are deleted by --prune alone"
    refused = run("cluster.toml", "--yes", "--undo", "undo.json")
    assert refused.exit_code == 2
    assert run("undo.json", "--yes").exit_code == 0
    assert own(admin) == {"retention.ms": "3600000", "segment.bytes": "1048576", "max.message.bytes": "5000"}
    assert len(admin.find_acls()) == len(admin.find_quotas()) == 1
    declare(WHOLE)
    assert rows(run("plan", "cluster.toml")) == []
    declare("")
    (deleted,) = [row for row in kinds(run("plan", "cluster.toml", "--prune")) if row[0] == "user"]
    assert deleted == ["user", "billing", "SCRAM-SHA-512"]


@pytest.mark.usefixtures("empty")
def test_prune_shows_records_and_groups_and_asks_for_the_name(
    run: Run, admin: Admin, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    admin.create_topics({"own.a": TopicSpec(partitions=1), "other": None})
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    kafka.produce("own.a", [b"1", b"2"], partition=0)
    admin.apply_reset(admin.plan_reset("reports", to="earliest", topics={"own.a": None}))
    declare('[prune]\nprefixes = ["own."]\n')
    assert rows(run("plan", "cluster.toml")) == []
    (item,) = document(run("plan", "cluster.toml", "--prune", "--format", "json"), "ottla.apply.plan/1")["items"]
    assert (item["kind"], item["subject"], item["new"]) == ("topic", "own.a", None)
    assert (item["records"], item["groups"]) == (2, ["reports"])
    assert item["note"] == "all its records are deleted: 2 records; groups: reports"
    refused = run("cluster.toml", "--prune")
    assert refused.exit_code == 2
    assert "Make this change, and delete own.a with all records?" in refused.stderr
    assert run("cluster.toml", "--prune", "--yes").exit_code == 0
    assert [topic.name for topic in admin.list_topics()] == ["other"]


@pytest.mark.usefixtures("empty")
def test_a_saved_plan_is_refused_after_a_change_of_another(run: Run, admin: Admin) -> None:
    admin.create_topics({"orders": None})
    declare('[topics.orders]\npartitions = 2\nsettings.retention.ms = "1h"\n')
    saved = run("plan", "cluster.toml", "-o", "plan.json")
    assert saved.stderr == "written to plan.json; nothing changes until: ottla apply run plan.json\n"
    admin.alter_topic_settings("orders", {"retention.ms": 7})
    refused = run("plan.json", "--yes")
    assert refused.exit_code == 2
    assert "changed since it was planned: topic setting orders retention.ms" in refused.stderr
    assert own(admin) == {"retention.ms": "7"}
    assert sorted(each.name for each in Path().iterdir()) == ["cluster.toml", "plan.json"]
    admin.alter_topic_settings("orders", {"retention.ms": None})
    assert run("plan.json", "--yes").exit_code == 0
    assert rows(run("plan", "cluster.toml")) == []
    assert Path("cluster.applied.json").exists()


@pytest.mark.complete
@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize("is_applied", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "api",
    [
        "CREATE_TOPICS",
        "CREATE_PARTITIONS",
        "INCREMENTAL_ALTER_CONFIGS",
        "ALTER_CLIENT_QUOTAS",
        "ALTER_USER_SCRAM_CREDENTIALS",
        "CREATE_ACLS",
        pytest.param("DELETE_TOPICS", marks=pytest.mark.representative),
    ],
)
def test_a_broker_that_dies_half_way_leaves_what_the_same_command_goes_on_from(
    run: Run, admin: Admin, cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: str,
    is_applied: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("BILLING_PASSWORD", SECRET)
    admin.create_topics({"own.a": None, "grown": None})
    prune = '[topics.grown]\npartitions = 2\nsettings.retention.ms = "2h"\n[prune]\nprefixes = ["own."]\n'
    declare(WHOLE + prune)
    died = run_until_it_dies(cluster, api, "apply run cluster.toml --prune --yes", tmp_path, is_applied=is_applied)
    assert died.exit_code == 1, died.output
    assert "changes made" not in died.stderr
    assert "revert it with: ottla apply apply-undo-" in died.stderr
    assert SECRET not in died.output
    record = json.loads(Path("cluster.applied.json").read_text())["clusters"]
    assert [set(each["topics"]) for each in record.values()] == [{"orders", "grown"}]

    def goes_on() -> bool:
        return run("cluster.toml", "--prune", "--yes").exit_code == 0

    wait_until(goes_on, timeout_s=60)
    assert rows(run("plan", "cluster.toml", "--prune", "--exit-code")) == []
    assert {topic.name: len(topic.partitions) for topic in admin.list_topics()} == {"orders": 2, "grown": 2}


@pytest.mark.usefixtures("empty")
def test_two_plans_with_one_record_both_stay_in_it(run: Run, admin: Admin) -> None:
    """As of two commands that begin at the same time in one directory: both plan before either records."""
    for topic in ("one", "other"):
        admin.create_topics({topic: None})
        declare(f'[topics.{topic}]\nsettings.retention.ms = "1h"\n', f"{topic}.toml")
        assert run("plan", f"{topic}.toml", "--record", "both.json", "-o", f"{topic}-plan.json").exit_code == 0
    for topic in ("one", "other"):
        assert run(f"{topic}-plan.json", "--yes").exit_code == 0
    ((record),) = json.loads(Path("both.json").read_text())["clusters"].values()
    assert sorted(record["topics"]) == ["one", "other"]


def test_a_service_declares_its_topics(run: Run, admin: Admin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("declaring_service.py").write_text(
        "from ottla import App, Bytes\n"
        "from ottla.admin import TopicSpec\n"
        'app = App("declaring", dead_letter_topic="declared-dead", '
        'create_topics={"declared": TopicSpec(partitions=3, config={"retention.ms": 5})})\n'
        '@app.handler("declared", value=Bytes())\n'
        "def on_record(value: bytes) -> None: ...\n"
        'plain = App("plain", dead_letter_topic="declared-dead")\n'
        '@plain.handler("declared", value=Bytes())\n'
        "def on_other(value: bytes) -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "declaring_service", raising=False)
    declared = run("plan", "--app", "declaring_service:app")
    assert [row[:5] for row in rows(declared)] == [["topic", "declared", "", "", "3 partitions, retention.ms=5"]]
    used = kinds(run("plan", "--app", "declaring_service:plain"))
    assert used == [["topic", "declared", ""], ["topic", "declared-dead", ""]]
    declare("[topics.declared]\npartitions = 4\n")
    refused = run("plan", "cluster.toml", "--app", "declaring_service:app")
    assert refused.exit_code == 2
    assert "declaring_service:app: topic declared: partitions: found 3, and 4 in cluster.toml" in refused.stderr
    assert run("--app", "declaring_service:app", "--yes").exit_code == 0
    assert Path("declaring_service.applied.json").exists()
    assert rows(run("plan", "--app", "declaring_service:app")) == []


def test_mistakes_end_with_2_and_change_nothing(run: Run) -> None:
    declare("[topics.orders]\npartition = 3\n")
    for arguments, problem in (
        (["cluster.toml"], "topics.orders: found 'partition', wanted one of partitions"),
        (["absent.toml"], "absent.toml: No such file"),
        (["--yes"], "found neither a FILE nor --app"),
        (["aply"], "No such command 'aply'"),
        (["plan.json", "cluster.toml"], "found a plan beside other declarations"),
        (["plan.json"], "plan.json: No such file"),
        (["cluster.toml", "--undo", "undo.toml"], "--undo: found 'undo.toml', wanted a name that ends in .json"),
        (["plan", "cluster.toml", "-o", "plan.toml"], "--output: found 'plan.toml', wanted a name that ends in .json"),
    ):
        refused = run(*arguments)
        assert (refused.exit_code, problem in refused.stderr) == (2, True), refused.output
    Path("plan.json").write_text('{"schema": "ottla.apply-plan/1", "changes": 1}')
    assert "plan.json: " in run("plan.json").stderr
    Path("cluster.applied.json").write_text("{")
    declare("[topics.orders]\n")
    assert "cluster.applied.json" in run("cluster.toml").stderr


def test_a_password_that_is_not_there_is_named_before_anything_changes(run: Run, admin: Admin) -> None:
    declare('[topics.never-made]\n[[users]]\nname = "x"\npassword_env = "NO_SUCH_VARIABLE"\n')
    refused = run("cluster.toml", "--yes")
    assert refused.exit_code == 2
    assert "user x: password_env: NO_SUCH_VARIABLE is not set in the environment" in refused.stderr
    declare('[topics.never-made]\n[[users]]\nname = "x"\npassword_command = ["false"]\n')
    Path("cluster.toml").chmod(0o600)
    assert "user x: password_command: false ended with 1" in run("cluster.toml", "--yes").stderr
    assert "never-made" not in {topic.name for topic in admin.list_topics()}


def test_a_command_of_a_plan_does_not_run_before_the_question(run: Run) -> None:
    declare('[[users]]\nname = "x"\npassword_command = ["touch", "ran"]\n')
    Path("cluster.toml").chmod(0o600)
    refused = run("cluster.toml")
    assert "There is no terminal to ask at" in refused.stderr
    assert not Path("ran").exists()
    assert "touch printed nothing" in run("cluster.toml", "--yes").stderr
    assert Path("ran").exists()


def test_a_plan_of_a_topic_that_never_was_is_refused(run: Run, admin: Admin) -> None:
    for kind, name, new in (("topic setting", "retention.ms", "1"), ("partitions", "", "3"), ("replicas", "", "1")):
        change = {"kind": kind, "subject": "never-made", "name": name, "old": None, "new": new}
        plan = {"schema": "ottla.apply-plan/1", "cluster_id": admin.facts(()).cluster_id, "at_ms": 1}
        Path("plan.json").write_text(json.dumps({**plan, "changes": [change]}))
        refused = run("plan.json", "--yes")
        assert (refused.exit_code, "topic never-made: deleted since" in refused.stderr) == (2, True), refused.output


@pytest.mark.complete
@pytest.mark.parametrize(("command", "example"), examples_of_nouns("apply"))
def test_each_example_of_the_help_runs(run: Run, command: str, example: str) -> None:
    declare('[topics.orders]\n[prune]\nprefixes = ["x."]\n')
    declare("[topics.payments]\n", "topics.toml")
    assert run("plan", "cluster.toml", "-o", "plan.json").exit_code == 0
    line = shlex.split(example.partition(">")[0])
    assert line[:2] == ["ottla", "apply"]
    ended = run(*line[2:])
    assert ended.exit_code in ((0, 1) if "--exit-code" in line else (0,)), (command, ended.output)


def own(admin: Admin) -> dict[str, str | None]:
    found = admin.topic_settings("orders").items()
    return {name: each.value for name, each in found if each.source == "DYNAMIC_TOPIC_CONFIG"}
