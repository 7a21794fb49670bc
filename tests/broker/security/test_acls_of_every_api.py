"""Which ACLs each API needs: bob is refused without them, and served with them and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from acl_client import (
    ALTER,
    ALTER_CONFIGS,
    CLUSTER_ACTION,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    IDEMPOTENT_WRITE,
    READ,
    SETTINGS,
    TOPIC,
    TRANSACTIONAL_ID,
    USERS,
    WRITE,
    Grant,
    UserClient,
    denials_in,
)

from broker_embedded.server import apis as apis  # fills the table
from broker_embedded.server.authorization.guards import anybody
from broker_embedded.server.authorization.table import GUARDS
from broker_embedded.server.requests.registry import TABLE
from ottla.testing import SecureKafka, secure_kafka
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message
from ottla_wire.records.record import RecordData, encode_batch

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ID_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", users=USERS, config=SETTINGS) as running:
        running.create_topic("orders")
        yield running


@pytest.fixture
def client_of(kafka: SecureKafka) -> Iterator[Callable[[str], UserClient]]:
    opened: list[UserClient] = []

    def connect(user: str) -> UserClient:
        opened.append(UserClient(kafka.bootstrap_servers, user))
        return opened[-1]

    yield connect
    for client in opened:
        client.close()


@pytest.fixture
def admin(client_of: Callable[[str], UserClient]) -> Iterator[UserClient]:
    client = client_of("admin")
    yield client
    client.delete_acls()


@pytest.fixture
def bob(client_of: Callable[[str], UserClient]) -> UserClient:
    return client_of("bob")


def batch(*, transactional: bool = False) -> bytes:
    record = RecordData(offset=0, timestamp_ms=1_700_000_000_000, key=None, value=b"x", headers=())
    more: dict[str, Any] = {}
    if transactional:
        more = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    return bytes(encode_batch([record], **more))


def on_topic(operation: int, name: str = "orders") -> Grant:
    return Grant(operation, TOPIC, name)


def on_group(operation: int) -> Grant:
    return Grant(operation, GROUP, "billing")


def on_id(operation: int) -> Grant:
    return Grant(operation, TRANSACTIONAL_ID, "tx")


def partitions(**fields: Any) -> list[dict[str, Any]]:
    return [{"name": "orders", "partitions": [fields]}]


ORDERS = [{"name": "orders", "partition_indexes": [0]}]
PRODUCER = {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0}
VOTER = {"cluster_id": None, "voter_id": 77, "voter_directory_id": bytes(16)}
OF_BROKER = {"broker_id": 77, "broker_epoch": 1}
EPOCH: dict[str, Any] = {"cluster_id": None, "topics": []}
REGISTRATION = {
    "broker_id": 77,
    "cluster_id": "x",
    "incarnation_id": bytes(16),
    "listeners": [],
    "features": [],
    "rack": None,
    "is_migrating_zk_broker": False,
    "log_dirs": [],
}
FILTER = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": "User:nobody",
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
FETCHED = {
    "partition": 0,
    "current_leader_epoch": -1,
    "fetch_offset": 0,
    "log_start_offset": -1,
    "partition_max_bytes": 1_000,
}


def produced(**more: Any) -> dict[str, Any]:
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": batch(**more)}]}]
    return {
        "transactional_id": "tx" if more else None,
        "acks": -1,
        "timeout_ms": 5_000,
        "topic_data": data,
    }


def fetched(**more: Any) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "orders", "partitions": [FETCHED]}],
        "forgotten_topics_data": [],
        "rack_id": "",
        **more,
    }


def metadata(**more: Any) -> dict[str, Any]:
    return {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False, **more}


def creation(name: str) -> dict[str, Any]:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [topic], "timeout_ms": 5_000, "validate_only": True}


def settings(kind: int, name: str) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": []}], "validate_only": True}


def described_settings(kind: int, name: str) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    return {"resources": [resource], "include_synonyms": False, "include_documentation": False}


JOIN = {
    "group_id": "billing",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "member_id": "",
    "protocol_type": "consumer",
    "protocols": [{"name": "range", "metadata": b""}],
}
OF_MEMBER = {"group_id": "billing", "generation_id": 1, "member_id": "m"}
COMMITTED = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
COMMIT = {
    "group_id": "billing",
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "topics": partitions(**COMMITTED),
}
TXN_COMMIT = {
    **PRODUCER,
    "group_id": "billing",
    "generation_id": -1,
    "member_id": "",
    "topics": partitions(**COMMITTED),
}
HEARTBEAT = {
    "group_id": "billing-848",
    "member_id": "3Y4AZUQSTi2oZ6nlnUjQqg",
    "member_epoch": 0,
    "rebalance_timeout_ms": 10_000,
    "topic_partitions": [],
    "subscribed_topic_names": ["orders"],
}
MARKERS = {
    "markers": [
        {
            "producer_id": 1,
            "producer_epoch": 0,
            "transaction_result": False,
            "topics": [{"name": "nonexistent", "partition_indexes": [0]}],
            "coordinator_epoch": 0,
        }
    ]
}
QUOTA = {
    "entries": [
        {
            "entity": [{"entity_type": "user", "entity_name": "eve"}],
            "ops": [{"key": "producer_byte_rate", "value": 1_000.0, "remove": False}],
        }
    ],
    "validate_only": True,
}
SHARING = {"group_id": "sharing", "member_id": "m"}
SHARE_HEARTBEAT = {**SHARING, "member_epoch": 0, "rack_id": None, "subscribed_topic_names": ["orders"]}
SHARE_FETCH = {
    **SHARING,
    "share_session_epoch": 0,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1,
    "max_records": 1,
    "batch_size": 1,
    "topics": [],
    "forgotten_topics_data": [],
}
SHARE_ACKNOWLEDGE = {**SHARING, "share_session_epoch": 1, "topics": []}
STATE = {"group_id": "sharing", "topics": [{"topic_id": bytes(16), "partitions": [{"partition": 0}]}]}
HEARTBEAT_GROUP = Grant(READ, GROUP, "billing-848")
A = ApiKey

Case = tuple[ApiKey, int, dict[str, Any], ErrorCode, list[Grant]]
CASES: list[Case] = [
    # --- topics
    (A.PRODUCE, 9, produced(), TOPIC_DENIED, [on_topic(WRITE)]),
    (A.PRODUCE, 9, produced(transactional=True), ID_DENIED, [on_topic(WRITE), on_id(WRITE)]),
    (A.FETCH, 11, fetched(), TOPIC_DENIED, [on_topic(READ)]),
    (A.FETCH, 11, fetched(replica_id=77), TOPIC_DENIED, [Grant(CLUSTER_ACTION)]),
    (
        A.LIST_OFFSETS,
        7,
        {"replica_id": -1, "isolation_level": 0, "topics": partitions(partition_index=0, timestamp=-1)},
        TOPIC_DENIED,
        [on_topic(DESCRIBE)],
    ),
    (A.METADATA, 9, metadata(), TOPIC_DENIED, [on_topic(DESCRIBE)]),
    (A.METADATA, 0, metadata(), TOPIC_DENIED, [on_topic(DESCRIBE)]),
    (
        A.METADATA,
        9,
        metadata(topics=[{"name": "bobs-own"}], allow_auto_topic_creation=True),
        TOPIC_DENIED,
        [on_topic(DESCRIBE, "bobs-own"), on_topic(CREATE, "bobs-own")],
    ),
    (
        A.METADATA,
        9,
        metadata(topics=[{"name": "bobs-second"}], allow_auto_topic_creation=True),
        TOPIC_DENIED,
        [on_topic(DESCRIBE, "bobs-second"), Grant(CREATE)],
    ),
    (
        A.DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": [{"name": "orders"}], "response_partition_limit": 10, "cursor": None},
        TOPIC_DENIED,
        [on_topic(DESCRIBE)],
    ),
    (
        A.OFFSET_FOR_LEADER_EPOCH,
        3,
        {
            "replica_id": -1,
            "topics": [
                {"topic": "orders", "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}
            ],
        },
        TOPIC_DENIED,
        [on_topic(DESCRIBE)],
    ),
    (
        A.OFFSET_FOR_LEADER_EPOCH,
        3,
        {
            "replica_id": -1,
            "topics": [
                {"topic": "orders", "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]}
            ],
        },
        TOPIC_DENIED,
        [Grant(CLUSTER_ACTION)],
    ),
    (
        A.DELETE_RECORDS,
        2,
        {"topics": partitions(partition_index=0, offset=0), "timeout_ms": 5_000},
        TOPIC_DENIED,
        [on_topic(DELETE)],
    ),
    (A.DESCRIBE_PRODUCERS, 0, {"topics": ORDERS}, TOPIC_DENIED, [on_topic(READ)]),
    (
        A.CREATE_PARTITIONS,
        3,
        {
            "topics": [{"name": "orders", "count": 2, "assignments": None}],
            "timeout_ms": 5_000,
            "validate_only": True,
        },
        TOPIC_DENIED,
        [on_topic(ALTER)],
    ),
    (A.CREATE_TOPICS, 4, creation("new"), TOPIC_DENIED, [on_topic(CREATE, "new")]),
    (A.CREATE_TOPICS, 4, creation("new"), TOPIC_DENIED, [Grant(CREATE)]),
    (A.CREATE_TOPICS, 7, creation("new"), TOPIC_DENIED, [Grant(CREATE), on_topic(DESCRIBE_CONFIGS, "new")]),
    (
        A.DELETE_TOPICS,
        5,
        {"topic_names": ["nonexistent"], "timeout_ms": 5_000},
        TOPIC_DENIED,
        [on_topic(DELETE, "nonexistent")],
    ),
    (
        A.DELETE_TOPICS,
        6,
        {"topics": [{"name": "nonexistent", "topic_id": bytes(16)}], "timeout_ms": 5_000},
        TOPIC_DENIED,
        [Grant(DELETE)],
    ),
    # --- groups
    (A.FIND_COORDINATOR, 3, {"key": "billing", "key_type": 0}, GROUP_DENIED, [on_group(DESCRIBE)]),
    (A.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["billing"]}, GROUP_DENIED, [on_group(READ)]),
    (A.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["tx"]}, ID_DENIED, [on_id(WRITE)]),
    (A.JOIN_GROUP, 5, JOIN, GROUP_DENIED, [on_group(READ)]),
    (A.SYNC_GROUP, 3, {**OF_MEMBER, "assignments": []}, GROUP_DENIED, [on_group(READ)]),
    (A.HEARTBEAT, 3, OF_MEMBER, GROUP_DENIED, [on_group(READ)]),
    (A.LEAVE_GROUP, 3, {"group_id": "billing", "members": []}, GROUP_DENIED, [on_group(READ)]),
    (A.LEAVE_GROUP, 2, {"group_id": "billing", "member_id": "m"}, GROUP_DENIED, [on_group(READ)]),
    (A.OFFSET_COMMIT, 8, COMMIT, GROUP_DENIED, [on_group(READ), on_topic(READ)]),
    (
        A.OFFSET_FETCH,
        7,
        {"group_id": "billing", "topics": ORDERS, "require_stable": False},
        GROUP_DENIED,
        [on_group(DESCRIBE), on_topic(DESCRIBE)],
    ),
    (
        A.OFFSET_FETCH,
        8,
        {"groups": [{"group_id": "billing", "topics": ORDERS}], "require_stable": False},
        GROUP_DENIED,
        [on_group(DESCRIBE), on_topic(DESCRIBE)],
    ),
    (
        A.OFFSET_DELETE,
        0,
        {"group_id": "billing", "topics": partitions(partition_index=0)},
        GROUP_DENIED,
        [on_group(DELETE), on_topic(READ)],
    ),
    (
        A.DESCRIBE_GROUPS,
        6,
        {"groups": ["billing"], "include_authorized_operations": True},
        GROUP_DENIED,
        [on_group(DESCRIBE)],
    ),
    (
        A.CONSUMER_GROUP_DESCRIBE,
        0,
        {"group_ids": ["billing"], "include_authorized_operations": True},
        GROUP_DENIED,
        [on_group(DESCRIBE)],
    ),
    (A.CONSUMER_GROUP_HEARTBEAT, 0, HEARTBEAT, GROUP_DENIED, [HEARTBEAT_GROUP, on_topic(DESCRIBE)]),
    (A.SHARE_GROUP_HEARTBEAT, 1, SHARE_HEARTBEAT, GROUP_DENIED, [Grant(READ, GROUP, "sharing"), on_topic(DESCRIBE)]),
    (
        A.SHARE_GROUP_DESCRIBE,
        1,
        {"group_ids": ["billing"], "include_authorized_operations": True},
        GROUP_DENIED,
        [on_group(DESCRIBE)],
    ),
    (
        A.DESCRIBE_SHARE_GROUP_OFFSETS,
        1,
        {"groups": [{"group_id": "sharing", "topics": [{"topic_name": "orders", "partitions": [0]}]}]},
        GROUP_DENIED,
        [Grant(DESCRIBE, GROUP, "sharing"), on_topic(DESCRIBE)],
    ),
    (
        A.ALTER_SHARE_GROUP_OFFSETS,
        0,
        {"group_id": "sharing", "topics": [{"topic_name": "orders", "partitions": []}]},
        GROUP_DENIED,
        [Grant(READ, GROUP, "sharing"), on_topic(READ)],
    ),
    (
        A.DELETE_SHARE_GROUP_OFFSETS,
        0,
        {"group_id": "sharing", "topics": [{"topic_name": "orders"}]},
        GROUP_DENIED,
        [Grant(DELETE, GROUP, "sharing"), on_topic(READ)],
    ),
    (A.SHARE_FETCH, 2, SHARE_FETCH, GROUP_DENIED, [Grant(READ, GROUP, "sharing")]),
    (A.SHARE_ACKNOWLEDGE, 2, SHARE_ACKNOWLEDGE, GROUP_DENIED, [Grant(READ, GROUP, "sharing")]),
    (A.DELETE_GROUPS, 2, {"groups_names": ["nonexistent"]}, GROUP_DENIED, [Grant(DELETE, GROUP, "nonexistent")]),
    # --- transactions
    (
        A.INIT_PRODUCER_ID,
        3,
        {"transactional_id": None, "transaction_timeout_ms": 5_000},
        CLUSTER_DENIED,
        [Grant(IDEMPOTENT_WRITE)],
    ),
    (
        A.INIT_PRODUCER_ID,
        3,
        {"transactional_id": None, "transaction_timeout_ms": 5_000},
        CLUSTER_DENIED,
        [on_topic(WRITE, "any topic at all")],
    ),
    (A.INIT_PRODUCER_ID, 3, {"transactional_id": "tx", "transaction_timeout_ms": 5_000}, ID_DENIED, [on_id(WRITE)]),
    (
        A.ADD_PARTITIONS_TO_TXN,
        3,
        {
            "v3_and_below_transactional_id": "tx",
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": "orders", "partitions": [0]}],
        },
        ID_DENIED,
        [on_id(WRITE), on_topic(WRITE)],
    ),
    (A.ADD_PARTITIONS_TO_TXN, 4, {"transactions": []}, CLUSTER_DENIED, [Grant(CLUSTER_ACTION)]),
    (A.ADD_OFFSETS_TO_TXN, 3, {**PRODUCER, "group_id": "billing"}, ID_DENIED, [on_id(WRITE), on_group(READ)]),
    (A.END_TXN, 3, {**PRODUCER, "committed": True}, ID_DENIED, [on_id(WRITE)]),
    (A.TXN_OFFSET_COMMIT, 3, TXN_COMMIT, ID_DENIED, [on_id(WRITE), on_group(READ), on_topic(READ)]),
    (A.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["tx"]}, ID_DENIED, [on_id(DESCRIBE)]),
    # --- settings
    (A.DESCRIBE_CONFIGS, 4, described_settings(2, "orders"), TOPIC_DENIED, [on_topic(DESCRIBE_CONFIGS)]),
    (A.DESCRIBE_CONFIGS, 4, described_settings(4, "1"), CLUSTER_DENIED, [Grant(DESCRIBE_CONFIGS)]),
    (A.DESCRIBE_CONFIGS, 4, described_settings(32, "billing"), GROUP_DENIED, [on_group(ALTER_CONFIGS)]),
    (A.ALTER_CONFIGS, 2, settings(2, "orders"), TOPIC_DENIED, [on_topic(ALTER_CONFIGS)]),
    (A.ALTER_CONFIGS, 2, settings(4, ""), CLUSTER_DENIED, [Grant(ALTER_CONFIGS)]),
    (A.INCREMENTAL_ALTER_CONFIGS, 1, settings(2, "orders"), TOPIC_DENIED, [on_topic(ALTER_CONFIGS)]),
    (A.INCREMENTAL_ALTER_CONFIGS, 1, settings(32, "billing"), GROUP_DENIED, [on_group(ALTER_CONFIGS)]),
    (A.LIST_CONFIG_RESOURCES, 1, {"resource_types": []}, CLUSTER_DENIED, [Grant(DESCRIBE_CONFIGS)]),
    # --- the cluster
    (A.ALTER_CLIENT_QUOTAS, 1, QUOTA, CLUSTER_DENIED, [Grant(ALTER_CONFIGS)]),
    (A.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False}, CLUSTER_DENIED, [Grant(DESCRIBE_CONFIGS)]),
    (A.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout_ms": 5_000, "topics": []}, CLUSTER_DENIED, [Grant(ALTER)]),
    (A.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout_ms": 5_000, "topics": []}, CLUSTER_DENIED, [Grant(DESCRIBE)]),
    (
        A.ALTER_REPLICA_LOG_DIRS,
        2,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": "orders", "partitions": [0]}]}]},
        CLUSTER_DENIED,
        [Grant(ALTER)],
    ),
    (A.DESCRIBE_LOG_DIRS, 4, {"topics": None}, CLUSTER_DENIED, [Grant(DESCRIBE)]),
    (
        A.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
        CLUSTER_DENIED,
        [Grant(ALTER)],
    ),
    (A.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}, CLUSTER_DENIED, [Grant(DESCRIBE)]),
    (
        A.CREATE_ACLS,
        3,
        {"creations": [Grant(READ, TOPIC, "x", principal="User:eve").creation()]},
        CLUSTER_DENIED,
        [Grant(ALTER)],
    ),
    (
        A.DELETE_ACLS,
        3,
        {"filters": [FILTER]},
        CLUSTER_DENIED,
        [Grant(ALTER)],
    ),
    (A.DESCRIBE_ACLS, 3, FILTER, CLUSTER_DENIED, [Grant(DESCRIBE)]),
    (A.DESCRIBE_QUORUM, 1, {"topics": []}, CLUSTER_DENIED, [Grant(DESCRIBE)]),
    (
        A.ELECT_LEADERS,
        2,
        {"election_type": 0, "topic_partitions": [], "timeout_ms": 5_000},
        CLUSTER_DENIED,
        [Grant(ALTER)],
    ),
    (
        A.ELECT_LEADERS,
        0,
        {"topic_partitions": [{"topic": "orders", "partitions": [0]}], "timeout_ms": 5_000},
        CLUSTER_DENIED,
        [Grant(ALTER)],
    ),
    (A.UNREGISTER_BROKER, 0, {"broker_id": 77}, CLUSTER_DENIED, [Grant(ALTER)]),
    (A.UNREGISTER_CONTROLLER, 0, {"controller_id": 77}, CLUSTER_DENIED, [Grant(ALTER)]),
    (A.ADD_RAFT_VOTER, 1, {**VOTER, "timeout_ms": 1, "listeners": []}, CLUSTER_DENIED, [Grant(ALTER)]),
    (A.REMOVE_RAFT_VOTER, 0, VOTER, CLUSTER_DENIED, [Grant(ALTER)]),
    (A.UPDATE_FEATURES, 1, {"timeout_ms": 1, "feature_updates": []}, CLUSTER_DENIED, [Grant(ALTER)]),
    # --- between brokers
    (A.WRITE_TXN_MARKERS, 1, MARKERS, CLUSTER_DENIED, [Grant(ALTER)]),
    (A.WRITE_TXN_MARKERS, 1, MARKERS, CLUSTER_DENIED, [Grant(CLUSTER_ACTION)]),
    *(
        (api, 0, STATE, CLUSTER_DENIED, [Grant(CLUSTER_ACTION)])
        for api in (
            A.INITIALIZE_SHARE_GROUP_STATE,
            A.READ_SHARE_GROUP_STATE,
            A.WRITE_SHARE_GROUP_STATE,
            A.DELETE_SHARE_GROUP_STATE,
            A.READ_SHARE_GROUP_STATE_SUMMARY,
        )
    ),
    (A.ALLOCATE_PRODUCER_IDS, 0, OF_BROKER, CLUSTER_DENIED, [Grant(CLUSTER_ACTION)]),
    (A.ALTER_PARTITION, 3, {**OF_BROKER, "topics": []}, CLUSTER_DENIED, [Grant(CLUSTER_ACTION)]),
    (A.ASSIGN_REPLICAS_TO_DIRS, 0, {**OF_BROKER, "directories": []}, CLUSTER_DENIED, [Grant(CLUSTER_ACTION)]),
    (
        A.BROKER_HEARTBEAT,
        1,
        {**OF_BROKER, "current_metadata_offset": 0, "want_fence": False, "want_shut_down": False},
        CLUSTER_DENIED,
        [Grant(CLUSTER_ACTION)],
    ),
    (A.BROKER_REGISTRATION, 1, REGISTRATION, CLUSTER_DENIED, [Grant(CLUSTER_ACTION)]),
    (A.VOTE, 1, EPOCH, CLUSTER_DENIED, [Grant(CLUSTER_ACTION)]),
    (A.BEGIN_QUORUM_EPOCH, 1, EPOCH, CLUSTER_DENIED, [Grant(CLUSTER_ACTION)]),
    (A.END_QUORUM_EPOCH, 1, EPOCH, CLUSTER_DENIED, [Grant(CLUSTER_ACTION)]),
]

ANSWERED_WITH_LESS = {ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
"""Nobody is refused: what may not be described is left out, which has tests of its own."""


def test_every_api_says_which_authorization_it_needs() -> None:
    """Whoever serves another one adds it to the table, and a case here."""
    assert TABLE.keys() <= GUARDS.keys()
    everybody = {key for key, guard in GUARDS.items() if guard is anybody} | {ApiKey.DESCRIBE_CLUSTER}
    tested = {case[0] for case in CASES}
    assert {ApiKey(key) for key in TABLE} == (tested | everybody | ANSWERED_WITH_LESS)
    assert everybody == {
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.SASL_HANDSHAKE,
    }


def name_of(case: Case) -> str:
    return f"{case[0].name.lower()}-v{case[1]}"


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_each_acl_is_needed_and_all_of_them_are_enough(case: Case, admin: UserClient, bob: UserClient) -> None:
    api, version, body, denial, grants = case
    assert denials_in(bob.call(api, version, body)) == {denial}
    for missing in grants:
        admin.delete_acls()
        admin.grant(*(each for each in grants if each != missing))
        assert denials_in(bob.call(api, version, body)), f"without {missing}"
    admin.delete_acls()
    admin.grant(*grants)
    assert not denials_in(bob.call(api, version, body))


def test_a_super_user_needs_none(admin: UserClient) -> None:
    denied = [name_of(case) for case in CASES if denials_in(admin.call(*case[:3]))]
    assert not denied


def test_offsets_of_topics_that_are_named_by_id_are_judged_by_their_name(
    kafka: SecureKafka, admin: UserClient, bob: UserClient
) -> None:
    kafka.create_topic("other")
    asked = {"topics": [{"name": "orders"}, {"name": "other"}], "allow_auto_topic_creation": False}
    names = {topic.topic_id: topic.name for topic in admin.call(ApiKey.METADATA, 12, asked).topics}

    def found(topics: list[Message]) -> dict[str, ErrorCode]:
        return {names[each.topic_id]: ErrorCode(each.partitions[0].error_code) for each in topics}

    committed = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topics = [{"topic_id": topic_id, "partitions": [committed]} for topic_id in names]
    commit = {"group_id": "billing", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    assert found(bob.call(ApiKey.OFFSET_COMMIT, 10, commit).topics) == dict.fromkeys(names.values(), GROUP_DENIED)
    admin.grant(on_group(READ), on_topic(READ))
    admin.call(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["billing"]})  # is there from then on
    expected = {"orders": ErrorCode.NONE, "other": TOPIC_DENIED}
    deadline = time.monotonic() + 60
    while found(bob.call(ApiKey.OFFSET_COMMIT, 10, commit).topics) != expected:  # the coordinator may be loading
        assert time.monotonic() < deadline
        time.sleep(0.02)
    named = [{"topic_id": topic_id, "partition_indexes": [0]} for topic_id in names]
    for wanted, seen in ((named, expected), (None, {"orders": ErrorCode.NONE})):
        fetch = {"groups": [{"group_id": "billing", "topics": wanted}], "require_stable": False}
        assert found(bob.call(ApiKey.OFFSET_FETCH, 10, fetch).groups[0].topics) == seen
