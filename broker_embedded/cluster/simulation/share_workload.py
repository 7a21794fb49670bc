"""Members of a share group in a simulation: they accept, release, renew, and hold records for longer than a lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from broker_embedded.cluster.simulation.clients.client import Client
from broker_embedded.cluster.simulation.clients.share_consumer import SimulatedShareConsumer
from broker_embedded.cluster.simulation.invariants import Invariants
from broker_embedded.cluster.simulation.scenario import TOPIC, Scenario
from broker_embedded.cluster.simulation.share_invariants import SHARE_GROUP, SHARE_LOCK_MS, ShareInvariants
from broker_embedded.common.types import TopicPartition


class ShareLife:
    """One incarnation of a process with a member for each partition."""

    def __init__(
        self,
        client: Client,
        *,
        label: str,
        scenario: Scenario,
        random: Random,
        invariants: Invariants,
        shares: ShareInvariants,
        is_done: Callable[[int], bool],
    ) -> None:
        self._client = client
        self._label = label
        self._scenario = scenario
        self._random = random
        self._invariants = invariants
        self._shares = shares
        self._is_done = is_done

    async def run(self) -> None:
        await asyncio.gather(*(self._work(partition) for partition in range(self._scenario.partitions)))
        self._client.close()

    async def _work(self, partition: int) -> None:
        consumer = SimulatedShareConsumer(
            self._client,
            group=SHARE_GROUP,
            member_id=f"{self._label}.{partition}",
            topic=TOPIC,
            partition=partition,
        )
        place = TopicPartition(TOPIC, partition)
        await consumer.heartbeat()
        accepted: list[int] = []
        released: list[int] = []
        while not self._is_done(partition):
            self._shares.asked(place, accepted)
            leased, is_kept = await consumer.fetch(accepted, released)
            if is_kept:
                self._shares.accepted(place, accepted)
            accepted, released = [], []
            for each in leased:
                record = each.record
                self._invariants.consumed(
                    place, record.offset, record.value, who=self._client.name, is_read_committed=False
                )
                self._shares.delivered(place, record.offset)
                (released if self._random.random() < self._scenario.share_releases else accepted).append(record.offset)
            if self._random.random() < self._scenario.share_releases / 4:
                await self._hold(consumer, [*accepted, *released])
            if self._random.random() < 0.1:
                await consumer.heartbeat()
            await asyncio.sleep(self._random.uniform(0, 0.1))

    async def _hold(self, consumer: SimulatedShareConsumer, offsets: list[int]) -> None:
        """Hold leases for up to two locks. Every other time they are renewed meanwhile."""
        renews = self._random.random() < 0.5
        lock_s = SHARE_LOCK_MS / 1_000
        left_s = self._random.uniform(0, 2 * lock_s)
        while left_s > 0:
            await asyncio.sleep(min(left_s, lock_s / 2))
            left_s -= lock_s / 2
            if renews and offsets and left_s > 0:
                await consumer.renew(offsets)
