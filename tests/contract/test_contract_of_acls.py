"""ACLs: how they are created, found and deleted, and what clients are told that may do less than they ask for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from acl_client import (
    ALL,
    ALTER,
    ALTER_CONFIGS,
    ANY,
    CLUSTER,
    CREATE,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    EVERYTHING,
    GROUP,
    LITERAL,
    MATCH,
    PREFIXED,
    READ,
    SETTINGS,
    TOPIC,
    TRANSACTIONAL_ID,
    USERS,
    WRITE,
    Grant,
    UserClient,
    denials_in,
    errors_in,
)
from apache_kafka import ApacheKafka, wanted

from broker_embedded.cluster import EmbeddedCluster, Security
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message
from ottla_wire.records.record import RecordData, encode_batch

_numbers = count(1)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
INVALID = ErrorCode.INVALID_REQUEST


@pytest.fixture(scope="module")
def bootstrap_servers() -> Iterator[str]:
    """One broker with an authorizer, whose users are admin, alice and bob. Admin may do everything."""
    if wanted() is None:
        security = Security("SASL_PLAINTEXT", mechanisms=("PLAIN",), users=USERS)
        with EmbeddedCluster(config={**SETTINGS, "auto.create.topics.enable": "true"}, security=security) as embedded:
            yield embedded.bootstrap_servers
        return
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    login = f'username="admin" password="{USERS["admin"]}"'
    settings = {
        **SETTINGS,
        "super.users": f"{SETTINGS['super.users']};User:ANONYMOUS",  # between the controllers
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {login} {users};"
        ),
    }
    client = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": USERS["admin"],
    }
    with ApacheKafka(config=settings, client=client) as real:
        yield real.bootstrap_servers


class Admin(UserClient):
    """Grants, and waits until what is granted holds: the log has to reach the broker first."""

    def grant(self, *grants: Grant) -> None:
        super().grant(*grants)
        self.until(lambda: set(grants) <= self.describe_acls())

    def revoke_all(self) -> None:
        self.delete_acls()
        self.until(lambda: not self.describe_acls())

    def create_topic(self) -> str:
        name = f"acls-{os.getpid()}-{next(_numbers)}"
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        body = {"topics": [topic], "timeout_ms": 10_000, "validate_only": False}
        assert errors_in(self.call(ApiKey.CREATE_TOPICS, 5, body)) == {ErrorCode.NONE}
        self.until(lambda: self._end_offset(name) == 0)
        return name

    def _end_offset(self, topic: str) -> int:
        answer = self.call(ApiKey.LIST_OFFSETS, 5, list_offsets(topic)).topics[0].partitions[0]
        return -1 if answer.error_code else int(answer.offset)

    @staticmethod
    def until(is_so: Callable[[], bool], timeout_s: float = 60) -> None:
        import time

        deadline = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < deadline, "the condition was not met in time"
            time.sleep(0.02)


@pytest.fixture
def connect_as(bootstrap_servers: str) -> Iterator[Callable[[str], UserClient]]:
    opened: list[UserClient] = []

    def open_one(user: str) -> UserClient:
        opened.append((Admin if user == "admin" else UserClient)(bootstrap_servers, user))
        return opened[-1]

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def admin(connect_as: Callable[[str], UserClient]) -> Iterator[Admin]:
    client = connect_as("admin")
    assert isinstance(client, Admin)
    yield client
    client.revoke_all()


@pytest.fixture
def bob(connect_as: Callable[[str], UserClient]) -> UserClient:
    return connect_as("bob")


def on_topic(operation: int, name: str, **more: Any) -> Grant:
    return Grant(operation, TOPIC, name, **more)


def list_offsets(*topics: str) -> dict[str, Any]:
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": name, "partitions": [partition]} for name in topics],
    }


def produce(*topics: str, acks: int = -1) -> dict[str, Any]:
    record = RecordData(offset=0, timestamp_ms=1_700_000_000_000, key=None, value=b"x", headers=())
    data = [{"index": 0, "records": bytes(encode_batch([record]))}]
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 10_000,
        "topic_data": [{"name": name, "partition_data": data} for name in topics],
    }


def codes(topics: Any, code: str = "error_code", partitions: str = "partitions") -> dict[str, ErrorCode]:
    return {topic.name: ErrorCode(getattr(getattr(topic, partitions)[0], code)) for topic in topics}


def metadata(*topics: str, version: int = 9, create: bool = False, **more: Any) -> dict[str, Any]:
    return {"topics": [{"name": name} for name in topics] or None, "allow_auto_topic_creation": create, **more}


# --- creating, finding, deleting


def test_what_is_created_is_found_by_each_of_its_parts_and_is_there_once(admin: Admin) -> None:
    read = on_topic(READ, "orders")
    others = [
        on_topic(WRITE, "orders"),
        on_topic(READ, "payments"),
        on_topic(READ, "orders", pattern=PREFIXED),
        on_topic(READ, "orders", principal="User:alice"),
        on_topic(READ, "orders", host="10.0.0.1"),
        on_topic(READ, "orders", permission=DENY),
        Grant(READ, GROUP, "orders"),
    ]
    admin.grant(read, *others)
    admin.grant(read)
    assert admin.describe_acls() == {read, *others}
    only_it = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "orders",
        "pattern_type_filter": LITERAL,
        "principal_filter": "User:bob",
        "host_filter": "*",
        "operation": READ,
        "permission_type": 3,
    }
    assert admin.describe_acls(**only_it) == {read}
    for part in only_it:
        without = {name: value for name, value in only_it.items() if name != part}
        assert len(admin.describe_acls(**without)) == 2, part
    assert [each.resource_name for each in admin.delete_acls(**only_it)] == ["orders"]
    admin.until(lambda: admin.describe_acls() == set(others))


def test_a_match_finds_what_concerns_a_resource(admin: Admin) -> None:
    concerned = {
        on_topic(READ, "orders-eu"),
        on_topic(READ, "orders", pattern=PREFIXED),
        on_topic(READ, "*"),
    }
    admin.grant(*concerned, on_topic(READ, "orders"), on_topic(READ, "orders-eu-2", pattern=PREFIXED))
    found = admin.describe_acls(resource_type_filter=TOPIC, resource_name_filter="orders-eu", pattern_type_filter=MATCH)
    assert found == concerned


@pytest.mark.parametrize(
    ("grant", "error"),
    [
        (on_topic(READ, ""), INVALID),
        (Grant(READ, CLUSTER, "my-cluster"), INVALID),
        (on_topic(READ, "orders", principal="bob"), INVALID),
        (Grant(99, TOPIC, "orders"), INVALID),
        (Grant(READ, TRANSACTIONAL_ID, "tx"), ErrorCode.NONE),
        (Grant(ALTER, CLUSTER, "kafka-cluster"), ErrorCode.NONE),
        (Grant(READ, GROUP, "*", pattern=PREFIXED), ErrorCode.NONE),
    ],
    ids=str,
)
def test_what_is_no_acl_is_refused_and_the_others_of_the_request_are_created(
    admin: Admin, grant: Grant, error: ErrorCode
) -> None:
    good = on_topic(WRITE, "payments")
    results = admin.create_acls(grant, good)
    assert [ErrorCode(each.error_code) for each in results] == [error, ErrorCode.NONE]
    expected = {good} if error else {good, grant}
    admin.until(lambda: admin.describe_acls() == expected)


@pytest.mark.parametrize(
    "grant",
    [
        Grant(READ, ANY, "orders"),
        on_topic(ANY, "orders"),
        on_topic(READ, "orders", pattern=ANY),
        on_topic(READ, "orders", pattern=MATCH),
        on_topic(READ, "orders", permission=ANY),
    ],
    ids=str,
)
def test_what_only_filters_may_have_fails_the_whole_request(admin: Admin, grant: Grant) -> None:
    results = admin.create_acls(grant, on_topic(WRITE, "payments"))
    assert [ErrorCode(each.error_code) for each in results] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
    assert admin.describe_acls() == set()


def test_each_filter_that_deletes_has_its_own_result(admin: Admin) -> None:
    admin.grant(on_topic(READ, "a"), on_topic(READ, "b"), on_topic(WRITE, "b"))
    filters = [
        {**EVERYTHING, "resource_name_filter": "a", "pattern_type_filter": LITERAL},
        {**EVERYTHING, "operation": 99},
        {**EVERYTHING, "resource_name_filter": "nothing of that name", "pattern_type_filter": LITERAL},
        {**EVERYTHING, "operation": READ},
    ]
    results = admin.call(ApiKey.DELETE_ACLS, 3, {"filters": filters}).filter_results
    assert [ErrorCode(each.error_code) for each in results] == [
        ErrorCode.NONE,
        INVALID,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    deleted = [sorted(acl.resource_name for acl in each.matching_acls) for each in results]
    assert deleted[:3] == [["a"], [], []]
    assert "b" in deleted[3]
    admin.until(lambda: admin.describe_acls() == {on_topic(WRITE, "b")})


def test_only_who_may_alter_the_cluster_changes_acls(admin: Admin, bob: UserClient) -> None:
    assert [each.error_code for each in bob.create_acls(on_topic(READ, "orders"))] == [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    ]
    admin.grant(Grant(ALTER))
    mine = on_topic(READ, "orders")
    assert [each.error_code for each in bob.create_acls(mine)] == [ErrorCode.NONE]
    admin.until(lambda: mine in bob.describe_acls())


# --- what is decided


def test_a_deny_wins_and_a_prefix_and_everybody_count(admin: Admin, bob: UserClient) -> None:
    topic = admin.create_topic()
    body = list_offsets(topic)
    assert denials_in(bob.call(ApiKey.LIST_OFFSETS, 5, body)) == {DENIED}
    admin.grant(on_topic(DESCRIBE, topic[:-1], pattern=PREFIXED, principal="User:*"))
    assert not denials_in(bob.call(ApiKey.LIST_OFFSETS, 5, body))
    admin.grant(on_topic(READ, topic, permission=DENY))
    assert not denials_in(bob.call(ApiKey.LIST_OFFSETS, 5, body)), "what is denied implies nothing"
    admin.grant(on_topic(ALL, "*", permission=DENY))
    assert denials_in(bob.call(ApiKey.LIST_OFFSETS, 5, body)) == {DENIED}


def test_an_acl_of_another_address_is_nobodys_here(admin: Admin, bob: UserClient) -> None:
    topic = admin.create_topic()
    admin.grant(on_topic(READ, topic, host="10.1.2.3"))
    assert denials_in(bob.call(ApiKey.LIST_OFFSETS, 5, list_offsets(topic))) == {DENIED}
    admin.grant(on_topic(READ, topic, host="127.0.0.1"))
    assert not denials_in(bob.call(ApiKey.LIST_OFFSETS, 5, list_offsets(topic)))


# --- a part of a request


@pytest.fixture
def _needs_networks() -> None:
    if (version := wanted()) is not None and version < "4.4":
        pytest.skip(f"Apache Kafka {version} has no networks in ACLs")


@pytest.mark.usefixtures("_needs_networks")
@pytest.mark.parametrize("network", ["127.0.0.0/8", "127.0.0.1/32", "127.9.9.9/8", "0.0.0.0/0"])
def test_an_acl_of_a_network_is_for_its_addresses(admin: Admin, bob: UserClient, network: str) -> None:
    topic = admin.create_topic()
    admin.grant(on_topic(READ, topic, host="10.0.0.0/8"), on_topic(READ, topic, host="::/0"))
    assert denials_in(bob.call(ApiKey.LIST_OFFSETS, 5, list_offsets(topic))) == {DENIED}
    admin.grant(on_topic(READ, topic, host=network))
    admin.until(lambda: not denials_in(bob.call(ApiKey.LIST_OFFSETS, 5, list_offsets(topic))))
    admin.grant(on_topic(DESCRIBE, topic, host="127.0.0.0/16", permission=DENY))
    admin.until(lambda: denials_in(bob.call(ApiKey.LIST_OFFSETS, 5, list_offsets(topic))) == {DENIED})


@pytest.mark.usefixtures("_needs_networks")
@pytest.mark.parametrize(
    "host", ["", "/", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0/8", "ten/8", "fd00::/129", "10.0.0.0/8/8"]
)
def test_what_is_no_network_is_refused(admin: Admin, host: str) -> None:
    body = {"creations": [on_topic(READ, "orders", host=host).creation()]}
    (result,) = admin.call(ApiKey.CREATE_ACLS, 3, body).results
    assert result.error_code == INVALID
    assert not admin.describe_acls()


def test_records_of_topics_that_may_not_be_written_to_are_refused_alone(admin: Admin, bob: UserClient) -> None:
    mine, other = admin.create_topic(), admin.create_topic()
    admin.grant(on_topic(WRITE, mine))
    answer = bob.call(ApiKey.PRODUCE, 8, produce(mine, other))
    assert codes(answer.responses, partitions="partition_responses") == {mine: ErrorCode.NONE, other: DENIED}
    offsets = admin.call(ApiKey.LIST_OFFSETS, 5, list_offsets(mine, other)).topics
    assert {topic.name: topic.partitions[0].offset for topic in offsets} == {mine: 1, other: 0}


def test_who_writes_without_acks_what_may_not_be_written_is_cut_off(admin: Admin, bob: UserClient) -> None:
    bob.send(ApiKey.PRODUCE, 8, produce(admin.create_topic(), acks=0))
    assert bob.is_closed_by_peer()


def test_offsets_are_committed_and_told_of_topics_that_may_be_read(admin: Admin, bob: UserClient) -> None:
    mine, other = admin.create_topic(), admin.create_topic()
    group = f"{mine}-group"
    admin.grant(on_topic(READ, mine), Grant(READ, GROUP, group))
    partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}

    def commit(client: UserClient) -> dict[str, ErrorCode]:
        body = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": name, "partitions": [partition]} for name in (mine, other)],
        }
        return codes(client.call(ApiKey.OFFSET_COMMIT, 8, body).topics)

    find = {"key_type": 0, "coordinator_keys": [group]}
    admin.until(lambda: errors_in(bob.call(ApiKey.FIND_COORDINATOR, 4, find)) == {ErrorCode.NONE})
    admin.until(lambda: commit(bob) == {mine: ErrorCode.NONE, other: DENIED})
    assert commit(admin) == {mine: ErrorCode.NONE, other: ErrorCode.NONE}

    def fetch(version: int, topics: Any) -> Message:
        if version < 8:
            return bob.call(ApiKey.OFFSET_FETCH, version, {"group_id": group, "topics": topics})
        body = {"groups": [{"group_id": group, "topics": topics}], "require_stable": False}
        answer: Message = bob.call(ApiKey.OFFSET_FETCH, version, body).groups[0]
        return answer

    named = [{"name": name, "partition_indexes": [0]} for name in (mine, other)]
    for version in (5, 8):
        assert codes(fetch(version, named).topics) == {mine: ErrorCode.NONE, other: DENIED}
        assert codes(fetch(version, None).topics) == {mine: ErrorCode.NONE}


def test_metadata_leaves_out_what_may_not_be_described_unless_it_is_named(admin: Admin, bob: UserClient) -> None:
    mine, other = admin.create_topic(), admin.create_topic()
    admin.grant(on_topic(READ, mine))
    everything = bob.call(ApiKey.METADATA, 9, metadata())
    assert [topic.name for topic in everything.topics] == [mine]
    named = bob.call(ApiKey.METADATA, 9, metadata(mine, other, "no such topic"))
    assert {topic.name: ErrorCode(topic.error_code) for topic in named.topics} == {
        mine: ErrorCode.NONE,
        other: DENIED,
        "no such topic": DENIED,
    }
    assert not any(topic.partitions for topic in named.topics if topic.name != mine)


def test_a_missing_topic_is_created_for_whom_may_create_it(admin: Admin, bob: UserClient) -> None:
    new = f"auto-{os.getpid()}-{next(_numbers)}"

    def error() -> ErrorCode:
        return ErrorCode(bob.call(ApiKey.METADATA, 9, metadata(new, create=True)).topics[0].error_code)

    assert error() is DENIED
    admin.grant(on_topic(WRITE, new))
    assert error() is DENIED, "it could be described, if it were there"
    admin.grant(on_topic(CREATE, new))
    assert error() is not DENIED
    admin.until(lambda: error() is ErrorCode.NONE)


def test_topics_are_created_and_deleted_one_by_one(admin: Admin, bob: UserClient) -> None:
    mine, other = (f"own-{os.getpid()}-{next(_numbers)}" for _ in range(2))
    admin.grant(on_topic(CREATE, mine))

    def create(client: UserClient, *names: str) -> dict[str, Message]:
        topics = [
            {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            for name in names
        ]
        answer = client.call(ApiKey.CREATE_TOPICS, 5, {"topics": topics, "timeout_ms": 10_000, "validate_only": False})
        return {topic.name: topic for topic in answer.topics}

    created = create(bob, mine, other)
    assert (created[mine].error_code, created[other].error_code) == (ErrorCode.NONE, DENIED)
    assert created[mine].topic_config_error_code == DENIED, "its settings are not for everybody"
    assert (created[mine].num_partitions, created[mine].configs) == (-1, [])
    create(admin, other)
    admin.grant(on_topic(DELETE, mine))
    body = {"topic_names": [mine, other], "timeout_ms": 10_000}
    answer = bob.call(ApiKey.DELETE_TOPICS, 5, body)
    assert {topic.name: ErrorCode(topic.error_code) for topic in answer.responses} == {
        mine: ErrorCode.NONE,
        other: DENIED,
    }


def test_the_name_of_a_topic_that_may_not_be_described_is_not_told_to_whom_knows_its_id(
    admin: Admin, bob: UserClient
) -> None:
    topic = admin.create_topic()
    topic_id = admin.call(ApiKey.METADATA, 12, metadata(topic)).topics[0].topic_id
    by_id = [{"name": None, "topic_id": topic_id}]
    asked = {"topics": by_id, "allow_auto_topic_creation": False}
    told = bob.call(ApiKey.METADATA, 12, asked).topics[0]
    assert (told.error_code, told.name, told.topic_id) == (DENIED, None, topic_id)
    deleted = bob.call(ApiKey.DELETE_TOPICS, 6, {"topics": by_id, "timeout_ms": 10_000}).responses[0]
    assert (deleted.error_code, deleted.name, deleted.topic_id) == (DENIED, None, topic_id)
    admin.grant(on_topic(DESCRIBE, topic))
    assert bob.call(ApiKey.METADATA, 12, asked).topics[0].name == topic
    deleted = bob.call(ApiKey.DELETE_TOPICS, 6, {"topics": by_id, "timeout_ms": 10_000}).responses[0]
    assert (deleted.error_code, deleted.name) == (DENIED, topic)


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_id_is_refused_before_version_12_whoever_asks(admin: Admin, bob: UserClient, version: int) -> None:
    topic_id = admin.call(ApiKey.METADATA, 12, metadata(admin.create_topic())).topics[0].topic_id
    asked = {"topics": [{"name": None, "topic_id": topic_id}], "allow_auto_topic_creation": False}
    for client in (admin, bob):
        told = client.call(ApiKey.METADATA, version, asked).topics[0]
        assert (told.error_code, told.name) == (INVALID, "")


def test_groups_are_listed_to_whom_may_describe_them(admin: Admin, bob: UserClient) -> None:
    topic = admin.create_topic()
    groups = {f"{topic}-one", f"{topic}-two"}
    partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
    for group in groups:
        find = {"key_type": 0, "coordinator_keys": [group]}
        admin.until(lambda body=find: errors_in(admin.call(ApiKey.FIND_COORDINATOR, 4, body)) == {ErrorCode.NONE})  # type: ignore[misc]
        body = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": topic, "partitions": [partition]}],
        }
        admin.until(
            lambda body=body: errors_in(admin.call(ApiKey.OFFSET_COMMIT, 8, body)) == {ErrorCode.NONE}  # type: ignore[misc]
        )

    def listed() -> set[str]:
        body: dict[str, Any] = {"states_filter": [], "types_filter": []}
        return {each.group_id for each in bob.call(ApiKey.LIST_GROUPS, 5, body).groups} & groups

    assert listed() == set()
    admin.grant(Grant(DESCRIBE, GROUP, f"{topic}-one"))
    assert listed() == {f"{topic}-one"}
    admin.grant(Grant(DESCRIBE))
    assert listed() == groups


def test_a_transaction_takes_all_of_its_partitions_or_none(admin: Admin, bob: UserClient) -> None:
    mine, other = admin.create_topic(), admin.create_topic()
    admin.grant(on_topic(WRITE, mine), Grant(WRITE, TRANSACTIONAL_ID, mine))
    body = {
        "v3_and_below_transactional_id": mine,
        "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [
            {"name": mine, "partitions": [0, 7]},
            {"name": other, "partitions": [0]},
        ],
    }
    answer = bob.call(ApiKey.ADD_PARTITIONS_TO_TXN, 3, body)
    found = {
        (topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }
    assert found == {
        (mine, 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        (mine, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (other, 0): DENIED,
    }


def test_settings_are_described_resource_by_resource(admin: Admin, bob: UserClient) -> None:
    mine, other = admin.create_topic(), admin.create_topic()
    admin.grant(on_topic(ALTER_CONFIGS, mine))
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((2, mine), (2, other), (4, "1"))
    ]
    body = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    results = bob.call(ApiKey.DESCRIBE_CONFIGS, 4, body).results
    assert {each.resource_name: ErrorCode(each.error_code) for each in results} == {
        mine: ErrorCode.NONE,
        other: DENIED,
        "1": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
    assert [bool(each.configs) for each in sorted(results, key=lambda each: each.error_code)] == [True, False, False]


# --- what a client may do (KIP-430)


def bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


def test_clients_are_told_what_they_may_do(admin: Admin, bob: UserClient) -> None:
    mine, other = admin.create_topic(), admin.create_topic()
    admin.grant(on_topic(READ, mine), on_topic(ALTER_CONFIGS, mine), on_topic(DESCRIBE, other))
    asked = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    told = bob.call(ApiKey.METADATA, 8, metadata(mine, other, **asked))
    assert {topic.name: topic.topic_authorized_operations for topic in told.topics} == {
        mine: bits(READ, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
        other: bits(DESCRIBE),
    }
    assert told.cluster_authorized_operations == 0
    paged = bob.call(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": [], "response_partition_limit": 100, "cursor": None},
    )
    assert {topic.name: topic.topic_authorized_operations for topic in paged.topics} == {
        mine: bits(READ, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
        other: bits(DESCRIBE),
    }
    admin.grant(Grant(ALTER))
    cluster = bob.call(ApiKey.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": True})
    assert cluster.cluster_authorized_operations == bits(ALTER, DESCRIBE)


def test_members_are_told_what_they_may_do_to_their_group(admin: Admin, bob: UserClient) -> None:
    group = f"group-{os.getpid()}-{next(_numbers)}"
    admin.grant(Grant(READ, GROUP, group))
    find = {"key_type": 0, "coordinator_keys": [group]}
    admin.until(lambda: errors_in(bob.call(ApiKey.FIND_COORDINATOR, 4, find)) == {ErrorCode.NONE})
    body = {"groups": [group], "include_authorized_operations": True}
    answer = bob.call(ApiKey.DESCRIBE_GROUPS, 5, body).groups[0]
    assert (answer.error_code, answer.authorized_operations) == (ErrorCode.NONE, bits(READ, DESCRIBE))


def test_a_consumer_group_of_the_new_protocol_needs_its_topics_described(admin: Admin, bob: UserClient) -> None:
    mine, other = admin.create_topic(), admin.create_topic()
    group = f"group-{os.getpid()}-{next(_numbers)}"
    admin.grant(Grant(READ, GROUP, group), on_topic(DESCRIBE, mine))
    find = {"key_type": 0, "coordinator_keys": [group]}
    admin.until(lambda: errors_in(bob.call(ApiKey.FIND_COORDINATOR, 4, find)) == {ErrorCode.NONE})

    def heartbeat(*topics: str) -> ErrorCode:
        body = {
            "group_id": group,
            "member_id": "3Y4AZUQSTi2oZ6nlnUjQqg",
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "topic_partitions": [],
            "subscribed_topic_names": list(topics),
        }
        return ErrorCode(bob.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, body).error_code)

    assert heartbeat(mine, other) is DENIED
    admin.until(lambda: heartbeat(mine) is ErrorCode.NONE)
    admin.grant(on_topic(DESCRIBE, mine, principal="User:alice"), Grant(DESCRIBE, GROUP, group))

    def described() -> Message:
        body = {"group_ids": [group], "include_authorized_operations": True}
        answer: Message = bob.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, body).groups[0]
        return answer

    admin.until(lambda: bool(described().members))
    assert described().authorized_operations == bits(READ, DESCRIBE)
    admin.grant(on_topic(DESCRIBE, mine, permission=DENY))
    refused = described()
    assert (ErrorCode(refused.error_code), refused.members) == (DENIED, [])


def test_a_pattern_finds_no_topic_that_the_member_may_not_describe(admin: Admin, bob: UserClient) -> None:
    mine, other = admin.create_topic(), admin.create_topic()
    group = f"group-{os.getpid()}-{next(_numbers)}"
    admin.grant(Grant(READ, GROUP, group), on_topic(DESCRIBE, mine))
    find = {"key_type": 0, "coordinator_keys": [group]}
    admin.until(lambda: errors_in(bob.call(ApiKey.FIND_COORDINATOR, 4, find)) == {ErrorCode.NONE})
    topic_id = admin.call(ApiKey.METADATA, 12, metadata(mine)).topics[0].topic_id
    epoch, assigned = 0, None

    def is_assigned() -> bool:
        """Kafka resolves patterns in the background: the assignment comes some heartbeats later."""
        nonlocal epoch, assigned
        body = {
            "group_id": group,
            "member_id": "3Y4AZUQSTi2oZ6nlnUjQqg",
            "member_epoch": epoch,
            "rebalance_timeout_ms": 60_000 if epoch == 0 else -1,
            "topic_partitions": [] if epoch == 0 else None,
            "subscribed_topic_regex": f"{mine}|{other}" if epoch == 0 else None,
        }
        answer = bob.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, body)
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), answer.error_message
        epoch = answer.member_epoch
        if answer.assignment is not None and answer.assignment.topic_partitions:
            assigned = {each.topic_id for each in answer.assignment.topic_partitions}
        return assigned is not None

    admin.until(is_assigned)
    assert assigned == {topic_id}


def test_topics_that_are_named_by_id_are_judged_by_their_name(admin: Admin, bob: UserClient) -> None:
    mine, other = admin.create_topic(), admin.create_topic()
    described = admin.call(ApiKey.METADATA, 12, metadata(mine, other)).topics
    ids = {topic.name: topic.topic_id for topic in described}
    admin.grant(on_topic(READ, mine), on_topic(WRITE, mine))

    def by_id(topics: Any, partitions: str = "partitions") -> dict[str, ErrorCode]:
        names = {topic_id: name for name, topic_id in ids.items()}
        return {names[each.topic_id]: ErrorCode(getattr(each, partitions)[0].error_code) for each in topics}

    def asked(partitions: str, content: Any) -> list[dict[str, Any]]:
        return [{"topic_id": ids[name], partitions: [content]} for name in (mine, other)]

    expected = {mine: ErrorCode.NONE, other: DENIED}
    written = produce(mine, other)
    records = written["topic_data"][0]["partition_data"][0]
    answer = bob.call(ApiKey.PRODUCE, 13, {**written, "topic_data": asked("partition_data", records)})
    assert by_id(answer.responses, "partition_responses") == expected
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    body = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": asked("partitions", partition),
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    assert by_id(bob.call(ApiKey.FETCH, 16, body).responses) == expected
