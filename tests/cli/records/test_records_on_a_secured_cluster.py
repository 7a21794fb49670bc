"""The commands of records for a user who may do half of it: what is refused is said in one line, with its topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from secured_commands import grant, login

from ottla.cli import main
from ottla.testing import SecureKafka, secure_kafka

USERS = {"admin": "admin-secret", "reader": "reader-secret", "writer": "writer-secret"}
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "false",
}


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-512", users=USERS, config=SETTINGS) as running:
        running.create_topic("orders")
        running.produce("orders", [b"one"], headers=[("ottla-dlq-topic", b"orders")])
        as_admin = login(running, "admin", USERS["admin"])
        for user, operation in (("reader", "read"), ("writer", "write")):
            grant(as_admin, user, "--topic", "orders", "--operation", operation)
        yield running


@pytest.fixture
def ottla(secured: SecureKafka, tmp_path: Path) -> Callable[..., Result]:
    def run(user: str, *arguments: str) -> Result:
        env = {"OTTLA_CLUSTERS": str(tmp_path / "none.toml")}
        given = [*arguments, *login(secured, user, USERS[user]), "--timeout", "10"]
        return CliRunner().invoke(main, given, env=env, input="x")

    return run


@pytest.mark.parametrize(
    "arguments",
    [["consume", "orders", "-n", "1", "--format", "%v"], ["dlq", "list", "orders"], ["dlq", "show", "orders", "0:0"]],
)
def test_who_may_read_needs_no_other_right(ottla, arguments: list[str]) -> None:
    allowed = ottla("reader", *arguments)
    assert allowed.exit_code == 0, allowed.output
    refused = ottla("writer", *arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr
    assert "orders" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_who_may_write_needs_no_other_right(ottla) -> None:
    allowed = ottla("writer", "produce", "orders")
    assert (allowed.exit_code, allowed.stdout.startswith("0@")) == (0, True), allowed.output
    refused = ottla("reader", "produce", "orders")  # which may write to no topic, and so gets no producer id
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
