"""The clients of a simulation and what they check by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from broker_embedded.cluster.simulation.clients.client import Client
from broker_embedded.cluster.simulation.clients.consumer import SimulatedConsumer
from broker_embedded.cluster.simulation.clients.producer import IdempotentProducer
from broker_embedded.cluster.simulation.invariants import Invariants
from broker_embedded.cluster.simulation.loop import SimulatedClock
from broker_embedded.cluster.simulation.scenario import TOPIC, Scenario
from broker_embedded.cluster.simulation.transactions import ObservedTransaction
from broker_embedded.cluster.simulation.violation import InvariantViolated
from broker_embedded.common.types import TopicPartition
from ottla_wire.facts import fact


class WorkloadProgress:
    """How much has been done, and what is to be stopped."""

    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged = 0
        self.consumed = 0
        self.commits = 0
        self.is_ending = False
        """Clients finish what they have begun, and begin nothing."""
        self.committed: dict[tuple[str, int], int] = {}
        """The highest acknowledged commit by group and partition."""
        self.asked_to_commit: dict[tuple[str, int], int] = {}
        self.read: dict[tuple[str, int], set[int]] = {}
        """The offsets that a group has read, by group and partition."""
        self.ended_transactions = 0
        self.transactions: list[ObservedTransaction] = []


@fact
class LifeContext:
    """The surroundings of a client from one start to its end. Each start of a client has its own label."""

    client: Client
    label: str
    scenario: Scenario
    random: Random
    clock: SimulatedClock
    invariants: Invariants
    progress: WorkloadProgress
    is_latest: Callable[[], bool]
    """Whether no later incarnation has begun."""
    is_read: Callable[[int, int], bool]
    """Whether a reader at this position of a partition may end."""
    coordinator_of: Callable[[str], int]


class ProducerLife:
    """One incarnation of a producer: each value is sent by one incarnation only."""

    def __init__(self, life: LifeContext) -> None:
        self._life = life
        self._number = 0

    async def run(self) -> None:
        life = self._life
        producer = IdempotentProducer(life.client, now_ms=life.clock.now_ms)
        await producer.start()
        while not life.progress.is_ending:
            partition = life.random.randrange(life.scenario.partitions)
            values = [self._value() for _ in range(life.random.randint(1, life.scenario.batch_records))]
            life.progress.sent += len(values)
            offset = await producer.send(TOPIC, partition, values)
            life.progress.acknowledged += len(values)
            life.invariants.acknowledged(TopicPartition(TOPIC, partition), offset, values, who=life.client.name)
            await asyncio.sleep(life.random.expovariate(1 / life.scenario.pause_s))
        life.client.close()

    def _value(self) -> bytes:
        self._number += 1
        return b"%s:%d" % (self._life.label.encode(), self._number)


class ConsumerLife:
    """One incarnation of a consumer: continues at its group's committed offsets."""

    def __init__(self, life: LifeContext, *, group: str, is_read_committed: bool) -> None:
        self._life = life
        self._consumer = SimulatedConsumer(
            life.client, group=group, coordinator_of=life.coordinator_of, is_read_committed=is_read_committed
        )
        self._is_read_committed = is_read_committed
        self._progress = life.progress

    async def run(self) -> None:
        await asyncio.gather(*(self._read(partition) for partition in range(self._life.scenario.partitions)))
        self._life.client.close()

    async def _read(self, partition: int) -> None:
        place = (self._consumer.group, partition)
        position = await self._start(partition)
        read = self._progress.read.setdefault(place, set())
        while not self._life.is_read(partition, position):
            records, following = await self._consumer.fetch(TOPIC, partition, position)
            for record in records:
                self._life.invariants.consumed(
                    TopicPartition(TOPIC, partition),
                    record.offset,
                    record.value,
                    who=self._life.client.name,
                    is_read_committed=self._is_read_committed,
                )
                read.add(record.offset)
            self._progress.consumed += len(records)
            position = max(position, following)
            if position > self._progress.asked_to_commit.get(place, 0):
                self._progress.asked_to_commit[place] = position
                await self._consumer.commit(TOPIC, partition, position)
                self._progress.committed[place] = max(position, self._progress.committed.get(place, 0))
                self._progress.commits += 1
            await asyncio.sleep(self._life.random.uniform(0, 0.2))

    async def _start(self, partition: int) -> int:
        place = (self._consumer.group, partition)
        acknowledged = self._progress.committed.get(place, -1)
        found = await self._consumer.committed(TOPIC, partition)
        asked = self._progress.asked_to_commit.get(place, -1)
        if not acknowledged <= found <= asked:
            raise InvariantViolated(
                "committed offsets never move back",
                f"group {self._consumer.group}, {TOPIC}-{partition}: found {found}, acknowledged was {acknowledged}, "
                f"asked for {asked} at most",
            )
        return max(found, 0)
