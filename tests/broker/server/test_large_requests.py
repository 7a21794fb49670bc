"""A request with very many elements is handled in slices: others are served in between, and the answer is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.server import apis as apis  # fills the table
from broker_embedded.server.requests import slices
from broker_embedded.server.requests.registry import TABLE
from broker_embedded.server.requests.slices import SLICE, SLICED
from ottla_wire.protocol import ApiKey, ErrorCode, codec

NAMES = [f"t{n}" for n in range(20)]
TWICE = ["a", *NAMES[:9], "a", "e", *NAMES[9:], "b"]
"""With a name that comes twice, and the topic that there is."""
ZERO = bytes(16)


def topics(field: str = "name", **each: Any) -> list[dict[str, Any]]:
    return [{field: name, **each} for name in [*NAMES[:5], "e", *NAMES[5:]]]


REQUESTS: dict[str, tuple[ApiKey, int, dict[str, Any]]] = {
    "create": (
        ApiKey.CREATE_TOPICS,
        7,
        {
            "topics": [
                {"name": n, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
                for n in TWICE
            ],
            "timeout_ms": 1000,
            "validate_only": True,
        },
    ),
    "delete": (
        ApiKey.DELETE_TOPICS,
        6,
        {"topics": [{"name": n, "topic_id": ZERO} for n in TWICE if n != "e"], "timeout_ms": 1000},
    ),
    "grow": (
        ApiKey.CREATE_PARTITIONS,
        3,
        {
            "topics": [{"name": n, "count": 90, "assignments": None} for n in TWICE],
            "timeout_ms": 1000,
            "validate_only": True,
        },
    ),
    "groups": (ApiKey.DESCRIBE_GROUPS, 5, {"groups": NAMES, "include_authorized_operations": True}),
    "groups not found": (ApiKey.DESCRIBE_GROUPS, 6, {"groups": NAMES, "include_authorized_operations": True}),
    "consumer groups": (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": NAMES, "include_authorized_operations": True}),
    "share groups": (ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": NAMES, "include_authorized_operations": True}),
    "delete groups": (ApiKey.DELETE_GROUPS, 2, {"groups_names": NAMES}),
    "coordinators": (ApiKey.FIND_COORDINATOR, 6, {"key_type": 0, "coordinator_keys": NAMES}),
    "offsets": (
        ApiKey.OFFSET_FETCH,
        9,
        {
            "groups": [
                {
                    "group_id": n,
                    "member_id": None,
                    "member_epoch": -1,
                    "topics": [{"name": "e", "partition_indexes": [0]}],
                }
                for n in NAMES
            ],
            "require_stable": False,
        },
    ),
    "list offsets": (
        ApiKey.LIST_OFFSETS,
        8,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": topics(
                partitions=[{"partition_index": n, "current_leader_epoch": -1, "timestamp": -1} for n in range(5)]
            ),
        },
    ),
    "list offsets of old clients": (
        ApiKey.LIST_OFFSETS,
        1,
        {"replica_id": -1, "topics": topics(partitions=[{"partition_index": n, "timestamp": -1} for n in range(2)])},
    ),
    "epochs": (
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        {
            "replica_id": -1,
            "topics": topics("topic", partitions=[{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]),
        },
    ),
    "delete records": (
        ApiKey.DELETE_RECORDS,
        2,
        {"topics": topics(partitions=[{"partition_index": n, "offset": 0} for n in range(9)]), "timeout_ms": 1000},
    ),
    "markers": (
        ApiKey.WRITE_TXN_MARKERS,
        1,
        {
            "markers": [
                {
                    "producer_id": n,
                    "producer_epoch": 0,
                    "transaction_result": True,
                    "topics": [{"name": "x", "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
                for n in range(20)
            ]
        },
    ),
    "producers": (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": topics(partition_indexes=[0, 1, 2, 3, 4])}),
    "transactions": (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": NAMES}),
    "settings": (
        ApiKey.DESCRIBE_CONFIGS,
        4,
        {
            "resources": [{"resource_type": 2, "resource_name": n, "configuration_keys": None} for n in TWICE],
            "include_synonyms": True,
            "include_documentation": False,
        },
    ),
    "alter settings": (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {
            "resources": [
                {
                    "resource_type": 2,
                    "resource_name": n,
                    "configs": [{"name": "retention.ms", "config_operation": 0, "value": "5"}],
                }
                for n in TWICE
            ],
            "validate_only": True,
        },
    ),
    "elections": (
        ApiKey.ELECT_LEADERS,
        2,
        {"election_type": 0, "topic_partitions": topics("topic", partitions=[0, 1, 2, 3]), "timeout_ms": 1000},
    ),
    "moves": (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        1,
        {
            "timeout_ms": 1000,
            "allow_replication_factor_change": True,
            "topics": topics(partitions=[{"partition_index": n, "replicas": [1]} for n in range(4)]),
        },
    ),
    "quotas": (
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "client-id", "entity_name": n}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                }
                for n in TWICE
            ],
            "validate_only": True,
        },
    ),
    "credentials": (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {
            "deletions": [{"name": n, "mechanism": 1} for n in TWICE],
            "upsertions": [
                {"name": n, "mechanism": 1, "iterations": 4, "salt": b"x" * 16, "salted_password": b"y" * 32}
                for n in NAMES
            ],
        },
    ),
    "users": (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": n} for n in TWICE]}),
    "dirs": (
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        {"dirs": [{"path": f"/{n}", "topics": [{"name": n, "partitions": [0]}]} for n in NAMES]},
    ),
    "acls": (
        ApiKey.CREATE_ACLS,
        3,
        {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": n,
                    "resource_pattern_type": 3,
                    "principal": "User:a",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
                for n in NAMES
            ]
        },
    ),
}


@pytest.fixture(scope="module")
def client() -> Iterator[WireClient]:
    with EmbeddedCluster() as cluster:
        made = WireClient(cluster.bootstrap_servers, timeout_s=60)
        body = {"name": "e", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        made.call(ApiKey.CREATE_TOPICS, 7, {"topics": [body], "timeout_ms": 9000, "validate_only": False})
        made.call(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
        yield made
        made.close()


def in_order(answer: Any) -> Any:
    """What is named twice may be answered in another place. The id of a topic that is only tried is drawn."""
    if isinstance(answer, dict):
        return {key: in_order(value) for key, value in answer.items() if key != "topic_id"}
    return sorted((in_order(each) for each in answer), key=repr) if isinstance(answer, list) else answer


@pytest.mark.parametrize("name", REQUESTS)
def test_an_answer_in_slices_is_the_answer_of_one_go(
    client: WireClient, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, version, body = REQUESTS[name]
    whole = client.call(api, version, body)
    for size in (1, 3, 7):
        monkeypatch.setitem(SLICED, api, SLICED[api]._replace(size=size))
        cut = client.call(api, version, body)
        assert in_order(cut.to_dict()) == in_order(whole.to_dict())


def test_every_api_that_is_cut_is_compared() -> None:
    not_here = {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ALTER_CONFIGS, ApiKey.DELETE_ACLS}  # between brokers, or as others
    assert {api for api, _, _ in REQUESTS.values()} | not_here == SLICED.keys()


async def result_of(promise: Any) -> Any:
    done = asyncio.Event()
    promise.add_done_callback(lambda _: done.set())
    await done.wait()
    return promise.result()


def test_the_loop_has_a_turn_for_others_between_two_slices() -> None:
    happened: list[str] = []

    def handle(ctx: Any, request: Any) -> dict[str, Any]:
        happened.append("slice")
        assert len(request.groups) <= SLICE
        asyncio.get_running_loop().call_soon(happened.append, "another request")
        return {"throttle_time_ms": 0, "groups": [{"group_id": each, "members": []} for each in request.groups]}

    async def run() -> Any:
        request = codec.decode_request(
            ApiKey.DESCRIBE_GROUPS, 5, codec.encode_request(ApiKey.DESCRIBE_GROUPS, 5, {"groups": NAMES * 100})
        )
        handler: Callable[..., Any] = slices.around(TABLE[ApiKey.DESCRIBE_GROUPS], handle, request)
        promise = handler(SimpleNamespace(api_version=5), request)
        return await result_of(promise)

    answer = codec.decode_response(ApiKey.DESCRIBE_GROUPS, 5, asyncio.run(run()))
    assert [each.group_id for each in answer.groups] == NAMES * 100
    assert happened == ["slice", "another request"] * (2000 // SLICE)


def test_an_error_of_a_slice_ends_the_request() -> None:
    async def run(answers: Iterator[Any]) -> Any:
        request = codec.decode_request(
            ApiKey.ELECT_LEADERS,
            2,
            codec.encode_request(
                ApiKey.ELECT_LEADERS,
                2,
                {"election_type": 0, "topic_partitions": topics("topic", partitions=list(range(50))), "timeout_ms": 1},
            ),
        )
        handler: Any = slices.around(TABLE[ApiKey.ELECT_LEADERS], lambda ctx, part: next(answers), request)
        promise = handler(SimpleNamespace(api_version=2), request)
        return await result_of(promise)

    good = {"throttle_time_ms": 0, "error_code": 0, "replica_election_results": []}
    bad = {**good, "error_code": int(ErrorCode.NOT_CONTROLLER)}
    assert asyncio.run(run(iter([good, bad, good]))) == bad


def test_ten_thousand_quotas_and_users_are_replayed_in_a_time_that_grows_with_their_number(client: WireClient) -> None:
    """Each record copied all that there were: ten thousand took ten seconds, in which nobody was served."""
    count = 3_000
    entries = [
        {
            "entity": [{"entity_type": "client-id", "entity_name": f"c{n}"}],
            "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
        }
        for n in range(count)
    ]
    answer = client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False})
    assert {each.error_code for each in answer.entries} == {0}
    found = client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": [], "strict": False})
    assert len(found.entries) == count
