"""`topics copy` and `dlq purge` over TLS and SCRAM: which rights they need, and what stays where one is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from command_output import rows
from secured_commands import grant, login

from ottla.admin import Admin, Part, TopicSpec
from ottla.cli import main
from ottla.testing import SecureKafka, secure_kafka

USERS = {"admin": "admin-secret", "half": "half-secret"}
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "false",
}
LETTER = [("ottla-dlq-topic", b"orders")]

_numbers = count(1)


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-512", users=USERS, config=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def admin(secured: SecureKafka) -> Iterator[Admin]:
    with Admin(secured.bootstrap_servers, settings=secured.settings) as made:
        yield made


@pytest.fixture
def topic(secured: SecureKafka, admin: Admin) -> str:
    """Three dead letters, and a setting of its own."""
    name = f"letters-{next(_numbers)}"
    admin.create_topics({name: TopicSpec(partitions=1, config={"retention.ms": 3_600_000_000})})
    secured.produce(name, [b"1", b"2", b"3"], headers=LETTER)
    return name


@pytest.fixture
def ottla(secured: SecureKafka, tmp_path: Path) -> Callable[..., Result]:
    """A command of the user `half`."""

    def run(*arguments: str) -> Result:
        env = {"OTTLA_CLUSTERS": str(tmp_path / "none.toml")}
        given = [*arguments, *login(secured, "half", USERS["half"]), "--timeout", "10"]
        return CliRunner().invoke(main, given, env=env)

    return run


@pytest.fixture
def allow(secured: SecureKafka) -> Callable[..., None]:
    """`allow(topic, "read", "describe-configs")` for the user `half`."""

    def give(topic: str, *operations: str) -> None:
        named = [word for operation in operations for word in ("--operation", operation)]
        grant(login(secured, "admin", USERS["admin"]), "half", "--topic", topic, *named)

    return give


def ends(admin: Admin, topic: str) -> list[tuple[int | None, int | None]]:
    """Of each partition, the first offset and the next one to come."""
    (fact,) = admin.describe_topics(topic, parts=[Part.OFFSETS])
    return [(each.log_start, each.high_watermark) for each in fact.partitions]


def refused(result: Result, *words: str) -> str:
    """Exit code 2, and one line that says what was not allowed on which topic."""
    assert result.exit_code == 2, result.output
    problems = [line for line in result.stderr.splitlines() if line.startswith("ottla: ")]
    assert len(problems) == 1, result.stderr
    assert all(word in problems[0] for word in words), result.stderr
    return problems[0]


def test_a_copy_needs_to_read_one_topic_and_to_create_and_write_the_other(ottla, admin, allow, topic: str) -> None:
    to = f"{topic}-copy"
    names = {each.name for each in admin.list_topics()}

    refused(ottla("topics", "copy", topic, to, "--yes"), topic)
    allow(topic, "describe")
    refused(ottla("topics", "copy", topic, to, "--yes"), topic, "AUTHORIZATION_FAILED")
    allow(topic, "read")
    planned = ottla("topics", "copy", topic, to, "--dry-run")
    assert [row[-1] for row in rows(planned)] == ["3"], "a look needs no right to write"
    refused(ottla("topics", "copy", topic, to, "--yes"), topic, "AUTHORIZATION_FAILED")
    allow(topic, "describe-configs")
    refused(ottla("topics", "copy", topic, to, "--yes"), to, "AUTHORIZATION_FAILED")
    assert {each.name for each in admin.list_topics()} == names, "nothing was created by those who may not write"

    allow(to, "create", "write")
    copied = ottla("topics", "copy", topic, to, "--yes")
    assert [row[-1] for row in rows(copied)] == ["3"], copied.output
    assert ends(admin, to) == [(0, 3)]
    assert admin.topic_settings(to)["retention.ms"].value == "3600000000"


def test_a_copy_to_a_topic_that_was_created_and_may_not_be_written_says_that_it_is_empty(
    ottla, admin, allow, topic: str
) -> None:
    to = f"{topic}-copy"
    allow(topic, "read", "describe-configs")
    allow(to, "create")
    ended = ottla("topics", "copy", topic, to, "--yes")
    refused(ended, to, "AUTHORIZATION_FAILED")
    assert ends(admin, to) == [(0, 0)]
    assert f"continue with: ottla topics copy {topic} {to} --append --from 0:0 --until 0:3" in ended.stderr
    allow(to, "write")
    again = ottla("topics", "copy", topic, to, "--append", "--from", "0:0", "--until", "0:3", "--yes")
    assert rows(again)
    assert ends(admin, to) == [(0, 3)]


def test_a_copy_to_a_topic_that_one_may_not_see_is_refused_and_leaves_it(ottla, admin, allow, topic: str) -> None:
    to = f"{topic}-hidden"
    admin.create_topics({to: TopicSpec(partitions=1)})
    allow(topic, "read", "describe-configs")
    refused(ottla("topics", "copy", topic, to, "--yes"), to)
    assert ends(admin, to) == [(0, 0)]


def test_a_purge_needs_to_read_and_to_delete(ottla, admin, allow, topic: str) -> None:
    refused(ottla("dlq", "purge", topic, "--yes"), topic)
    allow(topic, "delete")
    refused(ottla("dlq", "purge", topic, "--yes"), topic, "AUTHORIZATION_FAILED")
    assert ends(admin, topic) == [(0, 3)], "what could not be looked at is not deleted"
    allow(topic, "read")
    purged = ottla("dlq", "purge", topic, "--yes")
    assert rows(purged)
    assert "3 dead letters deleted" in purged.stderr
    assert ends(admin, topic) == [(3, 3)]


def test_who_may_only_read_counts_letters_and_deletes_none(ottla, admin, allow, topic: str) -> None:
    allow(topic, "read")
    looked = ottla("dlq", "purge", topic, "--dry-run")
    assert [row[0] for row in rows(looked)] == ["3"]
    ended = ottla("dlq", "purge", topic, "--yes")
    refused(ended, topic, "AUTHORIZATION_FAILED")
    assert "deleted" not in ended.stderr
    assert ends(admin, topic) == [(0, 3)]
