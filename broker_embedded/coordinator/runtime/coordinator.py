"""The base of a broker's coordinators: each owns the shards of one internal topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from broker_embedded.common.errors import BrokerError
from broker_embedded.replication.broker_parts import BrokerParts
from ottla_wire.protocol import ErrorCode

from .runtime import CoordinatorRuntime
from .shard import Shard, ShardContext

S = TypeVar("S", bound=Shard)


class Coordinator(ABC, Generic[S]):
    """Make one per broker, call `start` before clients are let in, `stop` when the broker stops."""

    topic: str

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self.runtime: CoordinatorRuntime[S] = CoordinatorRuntime(self.topic, parts, make_shard=self._make_shard)

    def start(self) -> None:
        self._parts.replicas.add_leadership_listener(self.runtime)

    def stop(self) -> None:
        self.runtime.close()

    @abstractmethod
    def _make_shard(self, partition: int, context: ShardContext) -> S:
        """Make a shard. What it consists of is imported with the first one, as a broker shall start quickly."""

    def partition_of(self, key: str) -> int:
        """Return the partition of the topic that keeps what has this key."""
        return self.runtime.partition_of(key)

    def _loaded_shards(self, what: str) -> list[S]:
        """Return every shard of this broker. BrokerError while one is being replayed."""
        if self.runtime.is_loading:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{what} are being replayed")
        return self.runtime.active_shards()
