"""`ottla acls` on a broker with an authorizer: what a person sees, and what is granted by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from acl_client import ALL, ALTER, DENY, DESCRIBE, GROUP, PREFIXED, READ, SETTINGS, TOPIC, USERS, Grant, UserClient
from click.testing import CliRunner, Result
from command_output import document, rows

from ottla import Consumer, Producer
from ottla.browse.acl_options import Options, what_to_create, what_to_find
from ottla.cli import main
from ottla.errors import InputError
from ottla.testing import Kafka, SecureKafka, secure_kafka

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", users=USERS, config=SETTINGS) as running:
        running.create_topic("orders")
        yield running


@pytest.fixture
def admin(secured: SecureKafka) -> Iterator[UserClient]:
    client = UserClient(secured.bootstrap_servers, "admin")
    yield client
    client.delete_acls()
    client.close()


def run_as(user: str, secured: SecureKafka) -> Run:
    def run(command: str, *arguments: str, answer: str | None = None) -> Result:
        settings = [f"--set={name}={value}" for name, value in secured.settings_of(user, USERS[user]).items()]
        whole = ["acls", command, "--bootstrap-servers", secured.bootstrap_servers, *settings, *arguments]
        return CliRunner().invoke(main, whole, input=answer)

    return run


@pytest.fixture
def acls(secured: SecureKafka, admin: UserClient) -> Run:
    return run_as("admin", secured)


def test_a_producer_and_a_consumer_work_with_what_the_command_grants(acls: Run, secured: SecureKafka) -> None:
    bob = ("--allow-principal", "User:bob")
    assert acls("create", "--yes", *bob, "--producer", "--topic", "orders").exit_code == 0
    assert acls("create", "--yes", *bob, "--consumer", "--topic", "orders", "--group", "billing").exit_code == 0
    settings = dict(secured.settings_of("bob", USERS["bob"]))
    with Producer(secured.bootstrap_servers, settings=settings) as producer:
        producer.send("orders", b"x").result(60)
    with Consumer(
        "orders", group="billing", bootstrap_servers=secured.bootstrap_servers, settings=settings
    ) as consumer:
        assert next(iter(consumer)).raw_value == b"x"


def test_what_is_created_is_said_and_listed(acls: Run, admin: UserClient) -> None:
    done = acls(
        "create", "--yes", "--allow-principal", "User:bob", "--operation", "read", "--topic", "orders", "--group", "g"
    )
    granted = [["topic", "orders"], ["group", "g"]]
    assert rows(done) == [[*each, "literal", "User:bob", "*", "read", "allow"] for each in granted]
    assert done.stderr == "2 ACLs created\n"
    assert admin.describe_acls() == {Grant(READ, TOPIC, "orders"), Grant(READ, GROUP, "g")}
    acls(
        "create",
        "--yes",
        "--deny-principal",
        "User:eve",
        "--deny-host",
        "10.0.0.1",
        "--kafka-cluster",
        "--operation",
        "Alter",
    )
    listed = acls("list", "-H").output
    assert [line.split() for line in listed.splitlines()] == [
        ["resource", "name", "pattern", "principal", "host", "operation", "permission"],
        ["cluster", "kafka-cluster", "literal", "User:eve", "10.0.0.1", "alter", "deny"],
        ["group", "g", "literal", "User:bob", "*", "read", "allow"],
        ["topic", "orders", "literal", "User:bob", "*", "read", "allow"],
    ]
    assert len(acls("list", "--principal", "User:eve").output.splitlines()) == 1
    assert len(acls("list", "--topic", "orders").output.splitlines()) == 1
    assert acls("list", "--topic", "payments").output == "no ACLs\n"


def test_all_that_concerns_a_topic_is_shown_by_match(acls: Run) -> None:
    acls("create", "--yes", "--allow-principal", "User:bob", "--topic", "ord", "--resource-pattern-type", "prefixed")
    acls("create", "--yes", "--allow-principal", "User:bob", "--topic", "*")
    assert acls("list", "--topic", "orders").output == "no ACLs\n"
    matching = acls("list", "--topic", "orders", "--resource-pattern-type", "match").output
    assert len(matching.splitlines()) == 2


def test_a_dry_run_changes_nothing(acls: Run, admin: UserClient) -> None:
    shown = acls("create", "--allow-principal", "User:bob", "--topic", "orders", "--dry-run")
    assert rows(shown) == [["topic", "orders", "literal", "User:bob", "*", "all", "allow"]]
    assert shown.stderr == "dry run: nothing was changed\n"
    assert admin.describe_acls() == set()
    admin.grant(Grant(READ, TOPIC, "orders"))
    shown = acls("delete", "--topic", "orders", "--dry-run", "--format", "json")
    (item,) = document(shown, "ottla.acls.delete/1")["items"]
    assert (item["principal"], item["operation"], item["name"]) == ("User:bob", "read", "orders")
    assert admin.describe_acls() == {Grant(READ, TOPIC, "orders")}


def test_acls_are_created_after_a_yes(acls: Run, admin: UserClient) -> None:
    refused = acls("create", "--allow-principal", "User:bob", "--topic", "orders")
    assert refused.exit_code == 2
    assert len(refused.stdout.splitlines()) == 1, "what would be created is shown"
    assert "--yes agrees" in refused.output, "nobody is asked where there is no terminal"
    assert admin.describe_acls() == set()


def test_what_matches_is_deleted_after_a_yes(acls: Run, admin: UserClient) -> None:
    kept = {
        Grant(READ, TOPIC, "payments"),
        Grant(READ, TOPIC, "orders", pattern=PREFIXED),
        Grant(READ, TOPIC, "orders", principal="User:alice"),
    }
    admin.grant(Grant(READ, TOPIC, "orders"), Grant(ALL, TOPIC, "orders", permission=DENY), *kept)
    refused = acls("delete", "--allow-principal", "User:bob", "--topic", "orders", answer="n\n")
    assert refused.exit_code == 2
    assert len(refused.stdout.splitlines()) == 2, "what would be deleted is shown"
    assert "--yes agrees" in refused.output, "nobody is asked where there is no terminal"
    assert len(admin.describe_acls()) == 5
    done = acls("delete", "--allow-principal", "User:bob", "--topic", "orders", "--operation", "read", "--yes")
    assert done.stderr == "1 ACL deleted\n"
    assert acls("delete", "--deny-principal", "User:bob", "--topic", "orders", "--yes").stderr == "1 ACL deleted\n"
    assert admin.describe_acls() == kept
    assert acls("delete", "--topic", "nothing", "--yes").output == "no ACLs match\n"


def test_a_role_is_taken_away_as_it_was_given(acls: Run, admin: UserClient) -> None:
    role = ("--allow-principal", "User:bob", "--producer", "--topic", "orders", "--transactional-id", "tx")
    acls("create", "--yes", *role, "--idempotent")
    assert len(admin.describe_acls()) == 6
    assert acls("delete", *role, "--idempotent", "--yes").stderr == "6 ACLs deleted\n"
    assert admin.describe_acls() == set()


def test_who_may_not_is_told_what_it_takes(acls: Run, admin: UserClient, secured: SecureKafka) -> None:
    bob = run_as("bob", secured)
    listing = bob("list")
    assert listing.exit_code == 2
    assert "refused User:bob" in listing.output
    assert "DESCRIBE on the cluster" in listing.output
    admin.grant(Grant(DESCRIBE))
    assert bob("list").exit_code == 0
    creating = bob("create", "--yes", "--allow-principal", "User:bob", "--topic", "orders")
    assert "ALTER on the cluster is needed to create ACLs" in creating.output
    admin.grant(Grant(ALTER))
    assert bob("create", "--yes", "--allow-principal", "User:bob", "--topic", "orders").exit_code == 0


def test_a_cluster_without_an_authorizer_says_so(kafka: Kafka) -> None:
    done = CliRunner().invoke(main, ["acls", "list", "--bootstrap-servers", kafka.bootstrap_servers])
    assert done.exit_code == 2
    assert "authorizer.class.name is not set" in " ".join(done.output.split())


def test_a_broker_that_is_not_there_is_named() -> None:
    done = CliRunner().invoke(main, ["acls", "list", "--bootstrap-servers", "127.0.0.1:1"])
    assert done.exit_code == 2
    assert "127.0.0.1:1" in done.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(topics=["orders"]), "say for whom"),
        (Options(allowed=["User:bob"]), "say for what"),
        (Options(allowed=["bob"], topics=["orders"]), "wanted KIND:NAME"),
        (Options(allowed=["User:bob"], groups=["g"], producer=True), "to which topic"),
        (Options(allowed=["User:bob"], topics=["orders"], consumer=True), "in which group"),
        (Options(allowed=["User:bob"], topics=["orders"], producer=True, operations=["read"]), "give no operations"),
        (Options(denied=["User:bob"], topics=["orders"], producer=True), "is allowed, not denied"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_makes_no_acl_is_said(options: Options, said: str) -> None:
    with pytest.raises(InputError, match=said):
        what_to_create(options)


def test_every_principal_from_every_host_has_every_operation_on_everything() -> None:
    options = Options(
        topics=["a", "b"],
        kafka_cluster=True,
        allowed=["User:x", "User:y"],
        allowed_hosts=["1", "2"],
        operations=["read", "all"],
    )
    made = what_to_create(options)
    assert len(made) == len(set(made)) == 3 * 2 * 2 * 2
    assert {acl.permission for acl in made} == {"allow"}


def test_nothing_named_is_everything() -> None:
    (everything,) = what_to_find(Options(), by_name_only=True)
    assert (everything.resource, everything.name, everything.principal, everything.permission) == (
        "any",
        None,
        None,
        "any",
    )
