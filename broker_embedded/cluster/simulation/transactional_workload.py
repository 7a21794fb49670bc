"""Clients that write in transactions: a producer, and a copier that reads, transforms and writes exactly once."""

from __future__ import annotations

import asyncio

from broker_embedded.cluster.simulation.clients.consumer import SimulatedConsumer
from broker_embedded.cluster.simulation.clients.transactional import ProducerFenced, TransactionalProducer
from broker_embedded.cluster.simulation.scenario import COPIES, TOPIC
from broker_embedded.cluster.simulation.transactions import ObservedTransaction
from broker_embedded.cluster.simulation.workload import LifeContext


class TransactionalLife:
    """One incarnation of a transactional producer: fences the one before, and is fenced by the next."""

    def __init__(self, life: LifeContext, *, transactional_id: str) -> None:
        self._life = life
        self._producer = TransactionalProducer(life.client, transactional_id=transactional_id, now_ms=life.clock.now_ms)
        self._progress = life.progress
        self._number = 0

    async def run(self) -> None:
        await self._producer.start()
        while not self._progress.is_ending:
            transaction = ObservedTransaction(who=self._life.client.name)
            self._progress.transactions.append(transaction)
            try:
                await self._live_through(transaction)
            except ProducerFenced:
                # By the next incarnation, or by the coordinator because the transaction took too long.
                if not self._life.is_latest():
                    break
                await self._producer.start()
            await asyncio.sleep(self._life.random.expovariate(1 / self._life.scenario.pause_s))
        self._life.client.close()

    async def _live_through(self, transaction: ObservedTransaction) -> None:
        random = self._life.random
        for _ in range(random.randint(1, 4)):
            partition = random.randrange(self._life.scenario.partitions)
            values = [self._value() for _ in range(random.randint(1, self._life.scenario.batch_records))]
            transaction.values += [(partition, value) for value in values]
            self._progress.sent += len(values)
            await self._producer.send(TOPIC, partition, values)
            self._progress.acknowledged += len(values)
            if random.random() < 0.2:
                await asyncio.sleep(random.expovariate(1 / self._life.scenario.pause_s))
        is_commit = random.random() < 0.7
        transaction.asked = "COMMIT" if is_commit else "ABORT"
        await self._producer.end(is_commit=is_commit)
        transaction.told = transaction.asked
        self._progress.ended_transactions += 1

    def _value(self) -> bytes:
        self._number += 1
        return b"%s:%d" % (self._life.label.encode(), self._number)


class CopierLife:
    """One incarnation of a copier: each record of the orders becomes one record of the invoices, whatever happens.

    A copy is `<original>@<incarnation>:<number>`: a copy that was aborted and the one that took its place differ.
    """

    def __init__(self, life: LifeContext, *, transactional_id: str) -> None:
        self._life = life
        self._group = f"group-of-{transactional_id}"
        self._consumer = SimulatedConsumer(
            life.client, group=self._group, coordinator_of=life.coordinator_of, is_read_committed=True
        )
        self._producer = TransactionalProducer(life.client, transactional_id=transactional_id, now_ms=life.clock.now_ms)
        self._progress = life.progress
        self._number = 0

    async def run(self) -> None:
        while True:
            try:
                await self._producer.start()
                await self._copy()
                break
            except ProducerFenced:
                if not self._life.is_latest():
                    break
        self._life.client.close()

    async def _copy(self) -> None:
        partitions = range(self._life.scenario.partitions)
        positions = {number: max(0, await self._consumer.committed(TOPIC, number)) for number in partitions}
        while not all(self._life.is_read(number, position) for number, position in positions.items()):
            partition = self._life.random.choice(partitions)
            records, following = await self._consumer.fetch(TOPIC, partition, positions[partition])
            if following == positions[partition]:
                continue
            transaction = ObservedTransaction(who=self._life.client.name)
            self._progress.transactions.append(transaction)
            values = [self._copy_of(record.value or b"") for record in records]
            transaction.values = [(partition, value) for value in values]
            transaction.topic = COPIES
            if values:
                await self._producer.send(COPIES, partition, values)
            positions[partition] = following
            await self._producer.send_offsets(self._group, TOPIC, {partition: following})
            transaction.asked = "COMMIT"
            await self._producer.end(is_commit=True)
            transaction.told = "COMMIT"
            self._progress.ended_transactions += 1

    def _copy_of(self, value: bytes) -> bytes:
        self._number += 1
        return b"%s@%s:%d" % (value, self._life.label.encode(), self._number)
