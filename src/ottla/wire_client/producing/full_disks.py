"""Why a partition's leader may not take records: its disk is full, or has failed (KIP-827). Blocking, and quick.

librdkafka tries such records again, silently, and finally reports only a timeout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.errors import ConfigError, OttlaError
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla_wire.protocol import ApiKey, ErrorCode

_TIMEOUT_MS: Final = 2_000
_NO_ROOM_BYTES: Final = 65_536
"""So little takes no batch of any size that is worth mentioning."""


def why_not_taken(settings: Mapping[str, Any], topic: str) -> str | None:
    """Return what the leaders of a topic's partitions report about full disks; None if they report nothing. Needs
    DESCRIBE on the cluster."""
    try:
        cluster = Cluster(connection_settings(settings, api_timeout_ms=_TIMEOUT_MS))
    except ConfigError:  # a way to log in that only the full clients have
        return None
    with cluster:
        try:
            for node_id in sorted(set(cluster.topic(topic).leaders.values()) - {-1}):
                answer = cluster.ask_broker(node_id).call(ApiKey.DESCRIBE_LOG_DIRS, {"topics": []})
                for found in answer.results:
                    code = ErrorCode.of(found.error_code)
                    if code is ErrorCode.KAFKA_STORAGE_ERROR:
                        return f"{code.name} (broker {node_id}: log directory {found.log_dir} has failed)"
                    if 0 <= getattr(found, "usable_bytes", -1) <= _NO_ROOM_BYTES:
                        name = ErrorCode.KAFKA_STORAGE_ERROR.name
                        return f"{name} (broker {node_id}: the disk of log directory {found.log_dir} is full)"
        except OttlaError:
            pass  # nobody says: the record's own error stays as it is
    return None
