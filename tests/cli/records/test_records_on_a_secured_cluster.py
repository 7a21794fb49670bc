"""The commands of records for a user who may do half of it: what is refused is said in one line, with its topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

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
        for user, operation in (("reader", "read"), ("writer", "write")):
            allowed = ["--allow-principal", f"User:{user}", "--topic", "orders", "--operation", operation]
            login = options_of(running, "admin")
            granted = CliRunner().invoke(main, ["acls", "create", *login, *allowed])
            assert granted.exit_code == 0, granted.output
        yield running


def options_of(secured: SecureKafka, user: str) -> list[str]:
    assert secured.certificates is not None
    path = Path(secured.certificates.ca).parent / f"{user}.properties"
    settings = secured.settings_of(user, USERS[user])
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return ["-b", secured.bootstrap_servers, "--config-file", str(path), "--timeout", "10"]


@pytest.fixture
def ottla(secured: SecureKafka, tmp_path: Path) -> Callable[..., Result]:
    def run(user: str, *arguments: str) -> Result:
        env = {"OTTLA_CLUSTERS": str(tmp_path / "none.toml")}
        return CliRunner().invoke(main, [*arguments, *options_of(secured, user)], env=env, input="x")

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
