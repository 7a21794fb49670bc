"""The commands of ACLs and quotas do the same on Apache Kafka as on the embedded broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from apache_kafka import ApacheKafka, wanted
from command_output import Run, rows

from broker_embedded.cluster import EmbeddedCluster
from ottla.testing import wait_until

pytestmark = pytest.mark.client_contract

_numbers = count(1)
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def bootstrap_servers() -> Iterator[str]:
    """One broker with an authorizer, on which everybody may do everything."""
    if wanted() is None:
        with EmbeddedCluster(config=AUTHORIZED) as embedded:
            yield embedded.bootstrap_servers
        return
    with ApacheKafka(config=AUTHORIZED) as real:
        yield real.bootstrap_servers


@pytest.fixture
def name() -> str:
    """Of a topic, a user and a client that no other test has."""
    return f"access-{os.getpid()}-{next(_numbers)}"


def test_acls_are_created_listed_and_deleted(ottla: Run, name: str) -> None:
    who = ("--allow-principal", f"User:{name}")
    assert ottla("acls", "create", *who, "--operation", "read", "--topic", name, "--dry-run").exit_code == 0
    assert rows(ottla("acls", "list", "--topic", name)) == []
    assert ottla("acls", "create", *who, "--operation", "read", "--topic", name, "--yes").exit_code == 0
    one = ["topic", name, "literal", f"User:{name}", "*", "read", "allow"]
    wait_until(lambda: rows(ottla("acls", "list", "--topic", name)) == [one], 30)
    assert ottla("acls", "create", *who, "--consumer", "--topic", name, "--group", name, "--yes").exit_code == 0
    wait_until(lambda: len(rows(ottla("acls", "list", "--principal", f"User:{name}"))) == 3, 30)
    deleted = ottla("acls", "delete", *who, "--topic", name, "--group", name, "--yes")
    assert (deleted.exit_code, "3 ACLs deleted" in deleted.stderr) == (0, True), deleted.output
    wait_until(lambda: rows(ottla("acls", "list", "--principal", f"User:{name}")) == [], 30)
    assert ottla("acls", "delete", *who, "--topic", name, "--yes").exit_code == 0, "nothing matches"


def test_quotas_are_set_listed_and_removed(ottla: Run, name: str) -> None:
    whom = ("--client-id", name)
    changed = [["producer_byte_rate", "", "1048576"], ["request_percentage", "", "12.5"]]
    values = ("producer_byte_rate=1048576", "request_percentage=12.5")
    assert rows(ottla("quotas", "set", *values, *whom, "--dry-run")) == changed
    assert rows(ottla("quotas", "list", *whom)) == []
    assert rows(ottla("quotas", "set", *values, *whom, "--yes")) == changed
    wait_until(
        lambda: [row[-2:] for row in rows(ottla("quotas", "list", *whom))] == [each[::2] for each in changed], 30
    )
    assert ottla("quotas", "set", "producer_byte_rate=-1", *whom, "--yes").exit_code == 2
    assert ottla("quotas", "set", "no_such_rate=1", *whom, "--yes").exit_code == 2
    removed = rows(ottla("quotas", "remove", "producer_byte_rate", *whom, "--yes"))
    assert removed == [["producer_byte_rate", "1048576", ""]]
    wait_until(
        lambda: [row[-2:] for row in rows(ottla("quotas", "list", *whom))] == [["request_percentage", "12.5"]], 30
    )
    assert ottla("quotas", "remove", "request_percentage", *whom, "--yes").exit_code == 0
    wait_until(lambda: rows(ottla("quotas", "list", *whom)) == [], 30)


def test_users_are_created_rotated_and_deleted(ottla: Run, name: str) -> None:
    def own() -> list[list[str]]:
        return [row for row in rows(ottla("users", "list")) if row[0] == name]

    password = ("--password-stdin", "--yes")
    made = ottla("users", "create", name, *password, input="s3cret-one\n")
    if "found none (Kafka 3.3 or 3.4), wanted Kafka 3.5 or newer" in made.output:
        assert made.exit_code == 2
        return
    assert made.exit_code == 0, made.output
    wait_until(lambda: own() == [[name, "SCRAM-SHA-512", "8192"]], 30)
    assert ottla("users", "rotate", name, "--iterations", "4096", *password, input="s3cret-two\n").exit_code == 0
    wait_until(lambda: own() == [[name, "SCRAM-SHA-512", "4096"]], 30)
    assert ottla("users", "delete", name, "--yes").exit_code == 0
    wait_until(lambda: own() == [], 30)


def test_a_cluster_is_applied_planned_and_exported(ottla: Run, name: str) -> None:
    declared = (
        f'[topics.{name}]\npartitions = 2\nsettings.retention.ms = "1h"\nsettings.min.cleanable.dirty.ratio = 0.50\n'
        f'[[acls]]\nallow = ["User:{name}"]\ntopics = ["{name}"]\noperations = ["read"]\n'
        f'[[quotas]]\nuser = "{name}"\nproducer_byte_rate = "1MB"\n'
    )
    Path("cluster.toml").write_text(declared)
    assert ottla("apply", "plan", "cluster.toml", "--exit-code").exit_code == 1
    applied = ottla("apply", "run", "cluster.toml", "--yes")
    assert applied.exit_code == 0, applied.output
    assert rows(ottla("apply", "plan", "cluster.toml", "--exit-code")) == []
    exported = ottla("apply", "export")
    assert f"[topics.{name}]" in exported.stdout, exported.output
    Path("exported.toml").write_text(exported.stdout)
    assert rows(ottla("apply", "plan", "exported.toml")) == []
    Path("cluster.toml").write_text(f"[topics.{name}]\npartitions = 3\n[prune]\nprefixes = ['{name}.']\n")
    changed = ottla("apply", "run", "cluster.toml", "--yes")
    assert [row[:3] for row in rows(changed)] == [
        ["partitions", name, ""],
        ["topic setting", name, "min.cleanable.dirty.ratio"],
        ["topic setting", name, "retention.ms"],
        ["quota", f"user {name}", "producer_byte_rate"],
        ["acl", f"User:{name}", f"read topic {name}"],
    ]
    assert rows(ottla("apply", "plan", "cluster.toml")) == []
