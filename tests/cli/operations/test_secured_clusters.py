"""The commands on a cluster with TLS, SCRAM and ACLs: how they log in, and what they show to those who may see half."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from command_output import document, rows
from secured_commands import grant, login

from ottla.admin import Admin, TopicSpec
from ottla.cli import main
from ottla.testing import SecureKafka, secure_kafka

USERS = {"admin": "admin-secret", "half": "half-secret"}
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "false",
    "group.initial.rebalance.delay.ms": 0,
}

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureKafka]:
    with (
        secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-512", users=USERS, config=SETTINGS) as running,
        Admin(running.bootstrap_servers, settings=running.settings) as admin,
    ):
        admin.create_topics({"seen": TopicSpec(partitions=1), "hidden": TopicSpec(partitions=1)})
        for topic in ("seen", "hidden"):
            admin.apply_reset(admin.plan_reset(f"group-{topic}", to="earliest", topics={topic: None}))
        as_admin = login(running, "admin", USERS["admin"])
        grant(as_admin, "half", "--topic", "seen", "--operation", "describe")
        grant(as_admin, "half", "--group", "group-seen", "--operation", "describe")
        yield running


@pytest.fixture(params=["admin", "half"])
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ottla(secured: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`ottla("half", "topics", "list")`: a command with the login of a user."""
    monkeypatch.chdir(tmp_path)

    def run(user: str, *arguments: str) -> Result:
        env = {"OTTLA_CLUSTERS": str(tmp_path / "none.toml")}
        given = [*arguments, *login(secured, user, USERS[user]), "--timeout", "10"]
        return CliRunner().invoke(main, given, env=env)

    return run


def test_a_user_is_shown_what_it_may_see(ottla: Run) -> None:
    assert {row[0] for row in rows(ottla("admin", "topics", "list"))} == {"seen", "hidden"}
    assert {row[0] for row in rows(ottla("half", "topics", "list"))} == {"seen"}
    assert {row[0] for row in rows(ottla("admin", "groups", "list"))} == {"group-seen", "group-hidden"}
    assert {row[0] for row in rows(ottla("half", "groups", "list"))} == {"group-seen"}
    assert {row[0] for row in rows(ottla("half", "groups", "lag"))} == {"group-seen"}


def test_what_a_user_may_not_read_is_said_and_the_rest_is_shown(ottla: Run) -> None:
    shown = ottla("half", "topics", "show", "seen", "--format", "json")
    item = document(shown, "ottla.topics.show/1")
    assert shown.exit_code == 0
    assert (item["records"], item["settings"], item["bytes"]) == (0, {}, None)
    assert "not read: log_dirs" in shown.stderr
    sizes = ottla("half", "topics", "list", "--sort", "bytes")
    assert [line.split("\t")[:1] for line in sizes.stdout.splitlines()] == [["seen"]]
    assert "not read: log_dirs" in sizes.stderr

    whole = ottla("admin", "topics", "show", "seen", "--format", "json")
    assert document(whole, "ottla.topics.show/1")["bytes"] == 0
    assert "not read" not in whole.stderr


REFUSED = [
    ["topics", "show", "hidden"],
    ["topics", "create", "new"],
    ["topics", "set", "seen", "retention.ms=1h", "--yes"],
    ["topics", "set", "hidden", "retention.ms=1h", "--yes"],
    ["topics", "unset", "seen", "retention.ms", "--yes"],
    ["topics", "add-partitions", "seen", "5", "--yes"],
    ["topics", "delete", "seen", "--yes"],
    ["topics", "delete", "hidden", "--yes"],
    ["groups", "show", "group-hidden"],
    ["groups", "lag", "group-hidden"],
    ["groups", "reset", "group-seen", "--to", "latest", "--topic", "hidden", "--yes"],
    ["groups", "delete", "group-seen", "--yes"],
    ["groups", "delete", "group-hidden", "--yes"],
    ["groups", "delete-offsets", "group-seen", "--topic", "seen", "--yes"],
    ["groups", "copy", "group-seen", "group-new", "--yes"],
    ["cluster", "settings", "1"],
    ["cluster", "set", "1", "message.max.bytes=2MiB", "--yes"],
    ["cluster", "set", "all", "message.max.bytes=2MiB", "--yes"],
]


@pytest.mark.parametrize("arguments", REFUSED, ids=[" ".join(each[:3]) for each in REFUSED])
def test_what_a_user_may_not_do_is_one_error_and_exit_code_2(ottla: Run, secured: SecureKafka, arguments) -> None:
    refused = ottla("half", *arguments)
    assert refused.exit_code == 2, refused.output
    problems = [line for line in refused.stderr.splitlines() if line.startswith("ottla: ")]
    assert len(problems) == 1, refused.stderr
    with Admin(secured.bootstrap_servers, settings=secured.settings) as admin:
        assert {each.name for each in admin.list_topics()} == {"seen", "hidden"}
        assert {each.group_id for each in admin.list_groups()} == {"group-seen", "group-hidden"}
        assert len(admin.describe_topics("seen")[0].partitions) == 1


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        ('[topics.seen]\nsettings.retention.ms = "1h"\n', "seen"),
        ("[topics.seen]\npartitions = 2\n[topics.brand-new]\n", "TOPIC_AUTHORIZATION_FAILED"),
        ("[topics.hidden]\npartitions = 2\n", "hidden"),
        ('[[acls]]\nallow = ["User:half"]\ntopics = ["seen"]\n', "ACLs"),
        ('[[quotas]]\nuser = "half"\nproducer_byte_rate = 1\n', "quotas"),
        ('[[users]]\nname = "half"\npassword_env = "PATH"\n', "users"),
    ],
)
def test_a_declaration_that_a_user_may_not_apply_changes_nothing(
    ottla: Run, secured: SecureKafka, tmp_path: Path, declared: str, named: str
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(declared)
    refused = ottla("half", "apply", str(file), "--yes")
    assert refused.exit_code == 2, refused.output
    assert named in refused.stderr
    assert "AUTHORIZATION_FAILED" in refused.stderr
    with Admin(secured.bootstrap_servers, settings=secured.settings) as admin:
        assert {each.name for each in admin.list_topics()} == {"seen", "hidden"}
        assert len(admin.describe_topics("seen")[0].partitions) == 1


def test_who_may_only_describe_finds_drift(ottla: Run, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("[topics.seen]\npartitions = 2\n")
    drift = ottla("half", "apply", "plan", str(file), "--exit-code")
    assert drift.exit_code == 1, drift.output
    assert drift.stdout.startswith("partitions\tseen\t\t1\t2\t")
    file.write_text("[topics.hidden]\n")
    unknown = ottla("half", "apply", "plan", str(file), "--exit-code")
    assert unknown.exit_code == 2, "a topic that may not be described is not one that is missing"
    assert "topic hidden: could not be read: topic hidden: TOPIC_AUTHORIZATION_FAILED" in unknown.stderr


def test_trimming_what_has_no_records_needs_no_right_to_delete(ottla: Run) -> None:
    assert ottla("half", "topics", "delete-records", "seen", "--before", "latest").exit_code == 0


def test_the_doctor_says_what_it_was_not_shown(ottla: Run) -> None:
    ended = ottla("half", "doctor", "--format", "json")
    assert ended.exit_code == 1
    refused = {each["id"] for each in document(ended, "ottla.doctor/1")["not_checked"]}
    assert {"AVL03", "STO02", "SEC01"} <= refused
    complete = ottla("admin", "doctor", "--only", "AVL03,STO02,SEC01")
    assert complete.exit_code == 0, complete.output


def test_every_looking_command_ends_well_for_both_users(ottla: Run, user: str) -> None:
    for arguments in (
        ["topics", "list", "--sort", "records"],
        ["topics", "show", "seen", "--groups", "--partitions", "--settings"],
        ["groups", "list", "--lagging"],
        ["groups", "show", "group-seen", "--members"],
        ["cluster", "show"],
        ["cluster", "brokers"],
        ["cluster", "disks"],
        ["cluster", "quorum"],
        ["cluster", "features"],
        ["cluster", "transactions"],
        ["cluster", "facts"],
        ["cluster", "elect"],
    ):
        ended = ottla(user, *arguments)
        assert ended.exit_code == 0, (arguments, ended.output)


def test_a_wrong_password_is_told_at_once(secured: SecureKafka, tmp_path: Path) -> None:
    settings = secured.settings_of("admin", "wrong")
    pairs = [f"--set={name}={value}" for name, value in settings.items()]
    for arguments in (["topics", "list"], ["groups", "list"], ["cluster", "show"], ["doctor"]):
        ended = CliRunner().invoke(main, [*arguments, "-b", secured.bootstrap_servers, *pairs])
        assert ended.exit_code == 2
        assert "Authentication" in ended.stderr
        assert ended.stderr.count("\n") == 1
        assert "wrong" not in ended.stderr


def test_a_named_cluster_with_a_password_command_is_reached(secured: SecureKafka, tmp_path: Path) -> None:
    assert secured.certificates is not None
    file = tmp_path / "clusters.toml"
    file.write_text(
        f"""[clusters.prod]
bootstrap.servers = "{secured.bootstrap_servers}"
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "admin"
sasl.password_command = ["echo", "admin-secret"]
ssl.ca.location = "{secured.certificates.ca}"
read_only = true
"""
    )
    file.chmod(0o600)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--cluster", "prod"], env={"OTTLA_CLUSTERS": str(file)})

    assert {row[0] for row in rows(run("topics", "list"))} == {"seen", "hidden"}
    for changing in (
        ["topics", "create", "new"],
        ["topics", "delete", "seen", "--yes"],
        ["topics", "set", "seen", "retention.ms=1", "--yes"],
        ["topics", "delete-records", "seen", "--before", "latest", "--yes"],
        ["topics", "add-partitions", "seen", "3", "--yes"],
        ["topics", "set-replicas", "seen", "1", "--yes"],
        ["groups", "reset", "group-seen", "--to", "latest", "--yes"],
        ["groups", "copy", "group-seen", "other", "--yes"],
        ["groups", "restore", "file.json", "--yes"],
        ["groups", "delete", "group-seen", "--yes"],
        ["groups", "delete-offsets", "group-seen", "--topic", "seen", "--yes"],
        ["cluster", "set", "all", "message.max.bytes=2MiB", "--yes"],
        ["cluster", "unset", "all", "message.max.bytes", "--yes"],
        ["cluster", "elect", "--yes"],
        ["apply", "run", "cluster.toml", "--yes"],
    ):
        ended = run(*changing)
        assert ended.exit_code == 2
        assert "cluster prod is read_only" in ended.stderr
