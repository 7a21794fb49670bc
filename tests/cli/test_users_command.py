"""`ottla users`: the password that was set logs in, and is nowhere to be seen."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result
from command_output import rows
from help_examples import examples_of_nouns

from broker_embedded.cluster import EmbeddedCluster
from ottla.cli import main
from ottla.cli.access import users
from ottla.testing import secure_kafka
from ottla.testing.waiting import wait_until

Run = Callable[..., Result]
SECRET = "corr3ct-h0rse"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def run(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("OTTLA_USER_PASSWORD", raising=False)

    def run(*arguments: str, stdin: str = "", env: dict[str, str] | None = None) -> Result:
        line = ["users", *arguments, "--bootstrap-servers", cluster.bootstrap_servers]
        ended = CliRunner().invoke(main, line, input=stdin, env=env)
        assert SECRET not in ended.output
        return ended

    for user, mechanism, _ in rows(run("list")):
        assert run("delete", user, "--mechanism", mechanism, "--yes").exit_code == 0
    wait_until(lambda: rows(run("list")) == [], timeout_s=10)
    return run


def listed(run: Run, wanted: list[list[str]]) -> None:
    wait_until(lambda: rows(run("list")) == wanted, timeout_s=10)


def test_a_user_is_created_rotated_and_deleted(run: Run) -> None:
    created = run("create", "billing", "--password-stdin", "--yes", stdin=f"{SECRET}\n")
    assert (created.exit_code, created.stderr) == (0, "billing, SCRAM-SHA-512: created\n")
    listed(run, [["billing", "SCRAM-SHA-512", "8192"]])
    refused = run("create", "billing", "--yes", env={"OTTLA_USER_PASSWORD": SECRET})
    assert (refused.exit_code, "ottla users rotate" in refused.stderr) == (2, True)
    rotated = run("rotate", "billing", "--iterations", "4096", "--yes", env={"OTTLA_USER_PASSWORD": SECRET})
    assert rotated.stderr == "billing, SCRAM-SHA-512: changed\n"
    listed(run, [["billing", "SCRAM-SHA-512", "4096"]])
    other = run("create", "billing", "--mechanism", "scram-sha-256", "--password-stdin", "--yes", stdin=SECRET)
    assert other.exit_code == 0, other.output
    assert run("delete", "billing", "--yes").stderr == "deleted: billing, SCRAM-SHA-512\n"
    listed(run, [["billing", "SCRAM-SHA-256", "8192"]])
    for verb in ("rotate", "delete"):
        assert "found no password for SCRAM-SHA-512" in run(verb, "billing", "--yes").stderr


def test_nothing_changes_without_consent_or_a_password(run: Run) -> None:
    assert run("create", "billing", "--dry-run").exit_code == 0
    assert run("create", "billing", "--password-stdin", stdin=SECRET).exit_code == 2
    missing = run("create", "billing", "--yes")
    assert (missing.exit_code, "--password-stdin" in missing.stderr) == (2, True)
    for bad in ("\n", "x" * 2_000, "a\0b\n"):
        assert run("create", "billing", "--password-stdin", "--yes", stdin=bad).exit_code == 2
    assert run("create", "", "--password-stdin", "--yes", stdin=SECRET).exit_code == 2
    assert run("list").stderr == "no users\n"


@pytest.mark.parametrize("line", [line for _, line in examples_of_nouns("users")])
def test_the_examples_run(line: str, run: Run) -> None:
    assert run("create", "reports", "--password-stdin", "--yes", stdin=SECRET).exit_code == 0
    listed(run, [["reports", "SCRAM-SHA-512", "8192"]])
    words = shlex.split(line.partition(" < ")[0])[2:]
    if words[:2] == ["delete", "billing"]:
        words[1] = "reports"
    ended = run(*words, stdin=SECRET)
    assert ended.exit_code == 0, ended.output


def test_the_password_that_was_set_last_logs_in() -> None:
    with secure_kafka("SASL_PLAINTEXT", mechanism="SCRAM-SHA-512", users={"root": "s3cret"}) as kafka:

        def run_as(user: str, password: str, *arguments: str, stdin: str = "") -> Result:
            settings = kafka.settings_of(user, password)
            options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
            line = ["users", *arguments, *options, "-b", kafka.bootstrap_servers]
            return CliRunner().invoke(main, line, input=stdin)

        def may_log_in(password: str) -> bool:
            return run_as("billing", password, "list").exit_code == 0

        put = ("billing", "--password-stdin", "--yes")
        assert run_as("root", "s3cret", "create", *put, stdin="first-one\n").exit_code == 0
        wait_until(lambda: may_log_in("first-one"), timeout_s=10)
        assert run_as("root", "s3cret", "rotate", *put, stdin="second-one\n").exit_code == 0
        wait_until(lambda: may_log_in("second-one"), timeout_s=10)
        assert not may_log_in("first-one")
        assert run_as("root", "s3cret", "delete", "billing", "--yes").exit_code == 0
        wait_until(lambda: not may_log_in("second-one"), timeout_s=10)


def test_a_person_types_the_password_twice_and_it_is_not_shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "is_terminal", lambda stream: True)
    created = run("create", "billing", "--yes", stdin=f"{SECRET}\n{SECRET}\n")
    assert (created.exit_code, "Password of billing:" in created.stderr) == (0, True)
    differs = run("rotate", "billing", "--yes", stdin=f"{SECRET}\nanother\n")
    assert differs.exit_code == 1, "the input ends before two are the same"
    assert "billing, SCRAM-SHA-512: changed" not in differs.output


def test_who_may_not_alter_the_cluster_is_refused() -> None:
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
    }
    with EmbeddedCluster(config=config) as closed:
        for line in (["list"], ["create", "billing", "--yes"], ["delete", "billing", "--yes"]):
            ended = CliRunner().invoke(
                main, ["users", *line, "-b", closed.bootstrap_servers], env={"OTTLA_USER_PASSWORD": SECRET}
            )
            assert ended.exit_code == 2
            assert "CLUSTER_AUTHORIZATION_FAILED" in ended.stderr
            assert SECRET not in ended.output
