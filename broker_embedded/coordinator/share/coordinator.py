"""The share coordinator of a broker: which shard keeps a share partition."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import SHARE_STATE_TOPIC
from broker_embedded.share.persister import ShareKey
from ottla_wire.protocol import ErrorCode

from ..runtime.coordinator import Coordinator

if TYPE_CHECKING:
    from ..runtime.shard import ShardContext
    from .shard import ShareShard

_UUID_CHARACTERS = 22


class ShareCoordinator(Coordinator["ShareShard"]):
    """See the module."""

    topic = SHARE_STATE_TOPIC

    def _make_shard(self, partition: int, context: ShardContext) -> ShareShard:
        from .shard import ShareShard

        return ShareShard(
            partition,
            context,
            lambda: self._parts.config().share_coordinator_snapshot_update_records_per_snapshot,
            lambda: self._parts.config().share_coordinator_state_topic_prune_interval_ms,
        )

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
