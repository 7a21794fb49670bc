"""The size limit of a topic's batches, fetched from a broker."""

from __future__ import annotations

from ottla.wire_client.cluster.cluster_client import Cluster
from ottla_wire.protocol import ApiKey, ErrorCode

_TOPIC_RESOURCE = 2


def max_message_bytes(cluster: Cluster, topic: str) -> tuple[int, str]:
    """Return (bytes a batch may have, the setting that says so): the topic's limit where it can be asked, or the
    client's.

    Raises `BrokerUnavailable` when no broker answers in time.
    """
    return cluster.until(lambda: _asked(cluster, topic), what=f"the limit of {topic}")


def _asked(cluster: Cluster, topic: str) -> tuple[int, str]:
    client = (cluster.settings.max_request_size, "max.request.size (client)")
    connection = cluster.any_broker()
    if not connection.supports(ApiKey.DESCRIBE_CONFIGS):
        return client
    answer = connection.call(
        ApiKey.DESCRIBE_CONFIGS,
        {
            "resources": [
                {"resource_type": _TOPIC_RESOURCE, "resource_name": topic, "configuration_keys": ["max.message.bytes"]}
            ]
        },
    )
    for result in answer.results:
        if result.error_code != ErrorCode.NONE:
            continue  # not allowed to look, or not created yet: the client's own limit counts
        for entry in result.configs:
            limit = _whole_number(entry.value) if entry.name == "max.message.bytes" else None
            if limit is not None and limit < client[0]:
                return limit, f"max.message.bytes (topic {topic})"
    return client


def _whole_number(text: str | None) -> int | None:
    """Return the number, or None if it is no valid size in bytes: brokers keep such a setting in 32 bits."""
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= 10
    return int(text) if is_number and text is not None else None
