"""The share coordinator of a broker: which shard keeps a share partition."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import SHARE_STATE_TOPIC
from broker_embedded.replication.broker_parts import BrokerParts
from broker_embedded.share.persister import ShareKey
from ottla_wire.protocol import ErrorCode

from ..runtime.runtime import CoordinatorRuntime

if TYPE_CHECKING:
    from ..runtime.shard import ShardContext
    from .shard import ShareShard

_UUID_CHARACTERS = 22


class ShareCoordinator:
    """Create one per broker, call `start` before clients are admitted, `stop` when the broker stops."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self.runtime: CoordinatorRuntime[ShareShard] = CoordinatorRuntime(
            SHARE_STATE_TOPIC, parts, make_shard=self._make_shard
        )

    def start(self) -> None:
        self._parts.replicas.add_leadership_listener(self.runtime)

    def stop(self) -> None:
        self.runtime.close()

    def _make_shard(self, partition: int, context: ShardContext) -> ShareShard:
        from .shard import ShareShard  # loaded with the first share group

        return ShareShard(
            partition,
            context,
            lambda: self._parts.config().share_coordinator_snapshot_update_records_per_snapshot,
            lambda: self._parts.config().share_coordinator_state_topic_prune_interval_ms,
        )

    def partition_of(self, key: str) -> int:
        """Return the partition of `__share_group_state` that keeps a share partition."""
        return self.runtime.partition_of(key)

    def shard_of(self, key: ShareKey) -> ShareShard:
        """Return the shard, or raise BrokerError: another broker owns it, or it is still loading."""
        return self.runtime.shard(self.partition_of(coordinator_key(key)))


def coordinator_key(key: ShareKey) -> str:
    """Return the key that FindCoordinator is asked for: `groupId:topicId:partition`."""
    topic_id = base64.urlsafe_b64encode(key.topic_id).rstrip(b"=").decode()
    return f"{key.group_id}:{topic_id}:{key.partition}"


def check_coordinator_key(text: str) -> None:
    """Raise INVALID_REQUEST for an invalid key of a share partition."""
    group_id, _, rest = text.partition(":") if text.count(":") == 2 else ("", "", "")
    topic_id, _, partition = rest.partition(":")
    if not group_id or len(topic_id) != _UUID_CHARACTERS or not partition.isdecimal():
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"key: found {text[:100]!r}, wanted groupId:topicId:partition")
