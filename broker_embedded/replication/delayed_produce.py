"""acks=all with several in-sync replicas: the response waits until the high watermark has passed the append."""

from __future__ import annotations

from collections.abc import Callable

from broker_embedded.common.types import TopicPartition
from broker_embedded.purgatory.purgatory import DelayedOperation
from broker_embedded.replication.partition import Partition


class DelayedProduce(DelayedOperation[TopicPartition]):
    """Waits for every partition of one produce request."""

    __slots__ = ("_on_done", "_waiting")

    def __init__(self, waiting: dict[TopicPartition, tuple[Partition, int]], on_done: Callable[[bool], None]) -> None:
        """`waiting`: the end offset that each partition's high watermark has to reach. `on_done(timed_out)`."""
        super().__init__()
        self._waiting = waiting
        self._on_done = on_done

    def is_satisfied(self, key: TopicPartition, amount: int) -> bool:
        entry = self._waiting.get(key)
        if entry is not None:
            partition, end_offset = entry
            # A partition that changed its leader, or has too few in-sync replicas to get any further, is done as well:
            # the caller finds out why when it looks.
            if partition.high_watermark >= end_offset or not partition.is_leader or partition.is_under_min_isr:
                del self._waiting[key]
        return not self._waiting

    def on_complete(self) -> None:
        self._on_done(False)

    def on_expire(self) -> None:
        self._on_done(True)
