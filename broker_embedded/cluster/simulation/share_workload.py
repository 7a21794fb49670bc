"""Members of a share group in a simulation: they accept, release, renew, and hold records for longer than a lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker_embedded.cluster.simulation.clients.share_consumer import SimulatedShareConsumer
from broker_embedded.cluster.simulation.scenario import TOPIC
from broker_embedded.cluster.simulation.share_invariants import SHARE_GROUP, SHARE_LOCK_MS, ShareInvariants
from broker_embedded.cluster.simulation.workload import LifeContext
from broker_embedded.common.types import TopicPartition


class ShareLife:
    """One incarnation of a process with a member for each partition."""

    def __init__(self, life: LifeContext, *, shares: ShareInvariants, is_done: Callable[[int], bool]) -> None:
        self._life = life
        self._shares = shares
        self._is_done = is_done

    async def run(self) -> None:
        await asyncio.gather(*(self._work(partition) for partition in range(self._life.scenario.partitions)))
        self._life.client.close()

    async def _work(self, partition: int) -> None:
        random, scenario = self._life.random, self._life.scenario
        consumer = SimulatedShareConsumer(
            self._life.client,
            group=SHARE_GROUP,
            member_id=f"{self._life.label}.{partition}",
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
                self._life.invariants.consumed(
                    place, record.offset, record.value, who=self._life.client.name, is_read_committed=False
                )
                self._shares.delivered(place, record.offset)
                (released if random.random() < scenario.share_releases else accepted).append(record.offset)
            if random.random() < scenario.share_releases / 4:
                await self._hold(consumer, [*accepted, *released])
            if random.random() < 0.1:
                await consumer.heartbeat()
            await asyncio.sleep(random.uniform(0, 0.1))

    async def _hold(self, consumer: SimulatedShareConsumer, offsets: list[int]) -> None:
        """Hold leases for up to two locks. Every other time they are renewed meanwhile."""
        renews = self._life.random.random() < 0.5
        lock_s = SHARE_LOCK_MS / 1_000
        left_s = self._life.random.uniform(0, 2 * lock_s)
        while left_s > 0:
            await asyncio.sleep(min(left_s, lock_s / 2))
            left_s -= lock_s / 2
            if renews and offsets and left_s > 0:
                await consumer.renew(offsets)
