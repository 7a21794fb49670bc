"""The group coordinator of a broker: which shard a group belongs to, and what spans shards."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import GROUP_METADATA_TOPIC
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.replication.broker_parts import BrokerParts
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.primitives import random_uuid

from ..runtime.coordinator import Coordinator

if TYPE_CHECKING:
    from ..runtime.shard import ShardContext
    from .config import GroupConfig
    from .heartbeats import HeartbeatRequest
    from .requests import ListedGroup
    from .shard import GroupShard
    from .share_offsets import ShareStates


class GroupCoordinator(Coordinator["GroupShard"]):
    """See the module."""

    topic = GROUP_METADATA_TOPIC

    def __init__(
        self,
        parts: BrokerParts,
        *,
        random: Random,
        share_states: Callable[[], ShareStates | None] = lambda: None,
    ) -> None:
        """`share_states` sends requests to the share coordinator; without it the states of share groups are neither
        begun nor deleted."""
        super().__init__(parts)
        self._random = random
        self._share_states = share_states
        self._parsed: tuple[BrokerConfig, GroupConfig] | None = None

    def start(self) -> None:
        super().start()
        self._parts.metadata.add_listener(self._on_metadata)

    def config(self) -> GroupConfig:
        """Return the settings as they are now; a dynamic change is seen by the next request."""
        broker = self._parts.config()
        if self._parsed is None or self._parsed[0] is not broker:
            from .config import GroupConfig

            self._parsed = (broker, GroupConfig.of(broker))
        return self._parsed[1]

    def _make_shard(self, partition: int, context: ShardContext) -> GroupShard:
        """Import the groups' state machines with the first shard: forty modules, a tenth of the broker's start, which a
        broker without groups does not load."""
        from .shard import GroupShard

        return GroupShard(partition, context, self.config, self._share_states)

    # -- finding

    def shard_of(self, group_id: str) -> GroupShard:
        """Return the shard of a group, or BrokerError: an unusable id, another broker's group, or still loading."""
        if not group_id:
            raise BrokerError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return self.runtime.shard(self.partition_of(group_id))

    def shard_of_any(self, group_id: str) -> GroupShard:
        """Return the shard as `shard_of` does, also for the empty group id that old clients send."""
        return self.runtime.shard(self.partition_of(group_id))

    def new_member_id(self, prefix: str) -> str:
        """Return client id (or instance id) and a random uuid, as Kafka makes member ids."""
        digits = random_uuid(self._random).hex()
        return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def with_member_id(self, request: HeartbeatRequest) -> HeartbeatRequest:
        """Return the request with a member id, which version 0 of KIP-848's heartbeat leaves to us: a uuid in Kafka's
        base64."""
        member_id = base64.urlsafe_b64encode(self._random.randbytes(16)).rstrip(b"=").decode()
        return replace(request, member_id=member_id)

    # -- transactions

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """Apply the marker of a transaction in a partition of `__consumer_offsets`. A shard that is being replayed
        finds it in the log."""
        try:
            shard = self.runtime.shard(partition)
        except BrokerError:
            return
        shard.replay_end_of_transaction(producer_id, committed=committed)

    # -- across shards

    def list_groups(self) -> list[ListedGroup]:
        """Return the groups this broker coordinates."""
        return [group for shard in self._loaded_shards("groups") for group in shard.admin.list_groups()]

    def _on_metadata(self, delta: MetadataDelta, image: ClusterImage) -> None:
        removed = set(delta.removed_topics) - {GROUP_METADATA_TOPIC}
        if removed:
            for shard in self.runtime.active_shards():
                shard.admin.forget_topics(removed)
                shard.admin.forget_topic_ids(set(delta.removed_topic_ids))
