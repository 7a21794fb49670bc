"""Infers a broker's version of Apache Kafka from the API versions that it serves, and says what it is too old for.

A broker does not send its version. The table has one API version per release that the release before did not serve,
read from Apache Kafka 3.0 to 4.4. Another implementation of the protocol may match a release that it is not: the result
is for messages, and no decision depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.wire_client.errors import ApiNotServed, ApiTooOld
from ottla_wire.protocol import ApiKey

FIRST_SERVED: Final = (
    (ApiKey.METADATA, 13, "4"),
    (ApiKey.LIST_OFFSETS, 9, "3.9"),
    (ApiKey.PRODUCE, 11, "3.8"),
    (ApiKey.PRODUCE, 10, "3.7"),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 4, "3.6"),
    (ApiKey.FETCH, 15, "3.5"),
    (ApiKey.DESCRIBE_LOG_DIRS, 4, "3.3 or 3.4"),
    (ApiKey.JOIN_GROUP, 9, "3.2"),
    (ApiKey.METADATA, 12, "3.1"),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, "3.0"),
)
"""(API, version, the first Kafka that serves it), newest first."""

_SINCE: Final = {
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "4.0",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "4.0",
    ApiKey.SHARE_GROUP_DESCRIBE: "4.2",
    ApiKey.SHARE_GROUP_HEARTBEAT: "4.2",
    ApiKey.SHARE_FETCH: "4.2",
    ApiKey.SHARE_ACKNOWLEDGE: "4.2",
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "4.2",
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: "4.2",
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: "4.2",
    ApiKey.DESCRIBE_QUORUM: "3.3",
    ApiKey.DESCRIBE_CLUSTER: "2.8",
    ApiKey.DESCRIBE_TRANSACTIONS: "3.0",
    ApiKey.LIST_TRANSACTIONS: "3.0",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "2.6",
    ApiKey.ALTER_CLIENT_QUOTAS: "2.6",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "3.5",  # in KRaft mode (KIP-900); with ZooKeeper 2.7
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "3.5",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "2.4",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "2.4",
    ApiKey.OFFSET_DELETE: "2.4",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "2.3",
    ApiKey.ELECT_LEADERS: "2.2",
}
"""The first Kafka in which an API is ready for use."""


def kafka_version(served: Mapping[int, tuple[int, int]]) -> str:
    """Return the Kafka that serves these (oldest, newest) versions by API key: "Kafka 3.9", "Kafka older than 3.0"."""
    for api, version, kafka in FIRST_SERVED:
        if api in served and served[api][1] >= version:
            return f"Kafka {kafka}"
    return "Kafka older than 3.0"


def api_not_served(address: str, api: ApiKey, served: Mapping[int, tuple[int, int]], spoken: range) -> ApiNotServed:
    """Return the error for an API that the broker serves in none of the versions in `spoken`."""
    if api in served and served[api][0] > spoken[-1]:
        oldest = served[api][0]
        return ApiNotServed(
            f"{address} does not serve {api.name} in a version this client speaks: found {oldest} or newer, wanted "
            f"{spoken[-1]} or older: a newer Ottla may speak it"
        )
    found = "versions {} to {}".format(*served[api]) if api in served else "none"
    wanted = f"Kafka {_SINCE[api]} or newer" if api in _SINCE else f"version {spoken[0]} or newer"
    return ApiTooOld(
        f"{address} does not serve {api.name} in a version this client speaks: found {found} "
        f"({kafka_version(served)}), wanted {wanted}"
    )
