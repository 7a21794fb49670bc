"""ACLs, quotas and users over HTTP: listed, shown before they change, written down, and no password anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from console_changes import applied, audit, planned, refused, rows
from console_kit import Running, running_console

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin
from ottla.cli import main
from ottla.cli.shared.cluster_options import cluster_settings
from ottla.console.state import ConsoleOptions
from ottla.testing import secure_kafka, wait_until

SECRET = "corr3ct-h0rse-battery"
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def authorized() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config=AUTHORIZED) as running:
        yield running


@pytest.fixture(scope="module")
def guarded_admin(authorized: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(authorized.bootstrap_servers, timeout_s=20) as made:
        yield made


@pytest.fixture
def guarding(authorized: EmbeddedCluster, tmp_path: Path) -> Iterator[Running]:
    settings = cluster_settings(authorized.bootstrap_servers, {}, environ={})
    with running_console(settings, ConsoleOptions(may_write=True, folder=tmp_path)) as running:
        yield running


def acls_of(console: Running, principal: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = console.get("access", match=principal, size=1_000)["acls"]["items"]
    return items


def test_acls_are_created_as_the_command_makes_them_and_deleted_one_by_one(
    guarding: Running, authorized: EmbeddedCluster, tmp_path: Path
) -> None:
    plan = planned(
        guarding, "acls.create", principal="User:billing", role="consumer", topics="orders payments", groups="billing"
    )
    command = ["acls", "create", "--allow-principal", "User:billing", "--consumer", "--topic", "orders"]
    command += ["--topic", "payments", "--group", "billing", "--dry-run", "--format", "json"]
    shown = CliRunner().invoke(main, [*command, "-b", authorized.bootstrap_servers])
    assert len(plan["items"]) == len(json.loads(shown.stdout)["items"]) == 5
    assert acls_of(guarding, "User:billing") == []
    applied(guarding, plan)
    found = wait_until(lambda: len(each := acls_of(guarding, "User:billing")) == 5 and each)
    again = planned(
        guarding, "acls.create", principal="User:billing", role="consumer", topics="orders payments", groups="billing"
    )
    assert (again["plan"], again["items"]) == (None, []), "they are there"

    one = next(each for each in found if each["resource"] == "group")
    removal = planned(guarding, "acls.delete", **one)
    assert len(removal["items"]) == 1
    applied(guarding, removal)
    wait_until(lambda: len(acls_of(guarding, "User:billing")) == 4)
    assert [line["what"] for line in audit(tmp_path)] == ["acls.create", "acls.delete"]


def test_a_denial_says_what_it_overrides(guarding: Running) -> None:
    plan = planned(
        guarding,
        "acls.create",
        principal="User:guest",
        permission="deny",
        topics="orders",
        operations="write",
        pattern="prefixed",
        host="10.0.0.0/8",
    )
    ((name, (_, new)),) = rows(plan).items()
    assert "deny User:guest from 10.0.0.0/8 to write topic orders" in name
    assert new == "deny"
    assert plan["notes"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kind": "acls.create", "principal": "billing", "topics": "orders"}, "wanted KIND:NAME"),
        ({"kind": "acls.create", "principal": "User:b"}, "say for what"),
        ({"kind": "acls.create", "principal": "User:b", "role": "consumer", "topics": "orders"}, "in which group"),
        ({"kind": "acls.create", "principal": "User:b", "topics": "orders", "operations": "fly"}, "fly"),
        ({"kind": "quotas.set", "set": "producer_byte_rate=1MB"}, "found no entity"),
        ({"kind": "quotas.set", "user": "web"}, "found nothing to change"),
        ({"kind": "quotas.set", "user": "web", "set": "producer_byte_rate=nan"}, "wanted a number"),
        ({"kind": "quotas.set", "user": "web", "set": "no_such_quota=1"}, "no_such_quota"),
        ({"kind": "users.set", "user": "web", "password": ""}, "found a password of 0 characters"),
        ({"kind": "users.set", "user": "", "password": SECRET}, "wanted the name of a user"),
        ({"kind": "users.set", "user": "web", "password": SECRET, "mechanism": "PLAIN"}, "wanted one of SCRAM"),
        ({"kind": "users.delete", "user": "nobody"}, "found no password"),
    ],
)
def test_what_cannot_be_is_refused_without_a_secret(
    guarding: Running, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    message = refused(guarding, "change/plan", **given)
    assert said in message
    assert "--" not in message, "an option of the command line is no field of a page"
    assert SECRET not in message
    assert audit(tmp_path) == []


def test_quotas_are_set_and_removed_together(guarding: Running, guarded_admin: Admin) -> None:
    applied(guarding, planned(guarding, "quotas.set", user="web", set="producer_byte_rate=1MB\nrequest_percentage=50"))
    plan = planned(guarding, "quotas.set", user="web", set="producer_byte_rate=2MB", remove="request_percentage")
    assert rows(plan) == {"producer_byte_rate": (1_000_000, 2_000_000), "request_percentage": (50, None)}
    assert plan["subject"] == "user web"
    applied(guarding, plan)
    found = [each for each in guarding.get("access")["quotas"] if each["user"] == "web"]
    assert found == [{"user": "web", "quota": "producer_byte_rate", "value": 2_000_000}]
    defaults = planned(guarding, "quotas.set", ip="<default>", set="connection_creation_rate=20")
    assert defaults["subject"] == "ip <default>"
    applied(guarding, defaults)
    assert any(quota.entity == {"ip": None} for quota in guarded_admin.find_quotas())


def test_a_user_gets_a_password_that_logs_in_and_is_written_nowhere(tmp_path: Path) -> None:
    with secure_kafka("SASL_PLAINTEXT", mechanism="SCRAM-SHA-512", users={"admin": "admin-secret"}) as kafka:
        login = dict(kafka.settings)
        servers = kafka.bootstrap_servers
        choices = ConsoleOptions(may_write=True, folder=tmp_path)
        with running_console(cluster_settings(servers, login, environ={}), choices) as console:
            plan = planned(console, "users.set", user="billing", password=SECRET)
            assert rows(plan) == {"billing, SCRAM-SHA-512": (None, "a new password, 8192 iterations")}
            assert SECRET not in json.dumps(plan) + repr(console.console.plans._kept)
            applied(console, plan)
            with Admin(servers, settings=kafka.settings_of("billing", SECRET)) as as_user:
                wait_until(lambda: as_user.list_topics() is not None)
            rotated = planned(console, "users.set", user="billing", password="another-secret")
            assert rotated["notes"]
            applied(console, rotated)
            removal = planned(console, "users.delete", user="billing")
            assert "to agree" in refused(console, "change/apply", plan=removal["plan"])
            applied(console, planned(console, "users.delete", user="billing"), typed="billing")
            assert [each["user"] for each in console.get("access")["users"]] == ["admin"]
        written = (tmp_path / "ottla-console-audit.jsonl").read_text()
        assert [line["what"] for line in audit(tmp_path)] == ["users.create", "users.rotate", "users.delete"]
        assert SECRET not in written
        assert "another-secret" not in written


def test_a_cluster_without_an_authorizer_says_so_and_shows_the_rest(console: Running) -> None:
    found = console.get("access")
    assert "no authorizer" in found["problems"]["acls"]
    assert set(found["problems"]) == {"acls"}
    assert console.post("change/plan", kind="acls.create", principal="User:a", topics="b").status == 403
