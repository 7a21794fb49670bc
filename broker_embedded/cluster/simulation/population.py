"""The clients of a simulation: who they are, their lives and deaths."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from broker_embedded.cluster.simulation.clients.client import Client
from broker_embedded.cluster.simulation.invariants import Invariants
from broker_embedded.cluster.simulation.loop import SimulatedClock, SimulatedLoop
from broker_embedded.cluster.simulation.network import SimulatedNetwork
from broker_embedded.cluster.simulation.nodes import bootstrap_of
from broker_embedded.cluster.simulation.process import Process
from broker_embedded.cluster.simulation.scenario import TOPIC, Scenario, reads_committed
from broker_embedded.cluster.simulation.share_invariants import ShareInvariants
from broker_embedded.cluster.simulation.share_workload import ShareLife
from broker_embedded.cluster.simulation.transactional_workload import CopierLife, TransactionalLife
from broker_embedded.cluster.simulation.workload import ConsumerLife, LifeContext, ProducerLife, WorkloadProgress
from broker_embedded.common.types import TopicPartition

WRITERS = ("producer", "transact")


class Population:
    """A client is known by its name (`producer-1`); each of its lives is a process and a task."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        loop: SimulatedLoop,
        network: SimulatedNetwork,
        invariants: Invariants,
        progress: WorkloadProgress,
        shares: ShareInvariants,
        is_settled: Callable[[int], bool],
        random: Callable[[str], Random],
        coordinator_of: Callable[[str], int],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Create the clients. `coordinator_of`: the node that coordinates a group by the newest metadata; `is_settled`:
        whether the share group has settled all that is committed of a partition."""
        self._scenario = scenario
        self._loop = loop
        self._clock = SimulatedClock(loop)
        self._network = network
        self._invariants = invariants
        self._progress = progress
        self._shares = shares
        self._is_settled = is_settled
        self._random = random
        self._coordinator_of = coordinator_of
        self._on_failure = on_failure
        self._processes: dict[str, Process] = {}
        self._lives: dict[str, int] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Start all clients."""
        scenario = self._scenario
        kinds = {
            "producer": scenario.producers,
            "transact": scenario.transactional,
            "copier": scenario.copiers,
            "consumer": scenario.consumers,
            "sharer": scenario.sharers,
        }
        for kind, count in kinds.items():
            for number in range(1, count + 1):
                self.begin_life(f"{kind}-{number}")

    def names(self) -> list[str]:
        return list(self._processes)

    def is_alive(self, name: str) -> bool:
        return not self._processes[name].is_dead

    def kill(self, name: str) -> None:
        self._running.pop(name, None)
        self._processes[name].kill()
        self._network.host_died(name, is_silent=False)

    def replace(self, name: str) -> Process:
        """Pause a client and start another one under its name. Returns the one that sleeps."""
        sleeper = self._processes[name]
        sleeper.pause()
        self.begin_life(name)
        return sleeper

    def begin_life(self, name: str) -> None:
        """Begin the next life of a client."""
        life = self._lives[name] = self._lives.get(name, 0) + 1
        process = self._processes[name] = Process(name)
        task = process.spawn(self._loop, self._make(name, life).run(), name="run")
        task.add_done_callback(self._ended)
        self._running[name] = task

    async def wait(self, *, timeout_s: float) -> list[str]:
        """Wait until all clients have finished; returns the names of those that have not."""
        tasks = list(self._running.values())
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        return sorted(name for name, task in self._running.items() if not task.done())

    def _make(self, name: str, number: int) -> ProducerLife | ConsumerLife | TransactionalLife | CopierLife | ShareLife:
        random = self._random(f"{name}/{number}")
        network = self._network.host(name)
        life = LifeContext(
            client=Client(name, network=network, bootstrap=bootstrap_of(self._scenario.brokers), random=random),
            label=f"{name}.{number}",
            scenario=self._scenario,
            random=random,
            clock=self._clock,
            invariants=self._invariants,
            progress=self._progress,
            is_latest=lambda: self._lives[name] == number,
            is_read=self._is_read,
            coordinator_of=self._coordinator_of,
        )
        if name.startswith("sharer"):
            return ShareLife(
                life,
                shares=self._shares,
                is_done=lambda partition: self._is_written() and self._is_settled(partition),
            )
        if name.startswith("consumer"):
            return ConsumerLife(life, group=f"group-of-{name}", is_read_committed=reads_committed(name))
        if name.startswith("producer"):
            return ProducerLife(life)
        if name.startswith("transact"):
            return TransactionalLife(life, transactional_id=name)
        return CopierLife(life, transactional_id=name)

    def _is_read(self, partition: int, position: int) -> bool:
        """Return whether a reader may end: all writers have ended and it has read every record."""
        end_offset = self._invariants.committed(TopicPartition(TOPIC, partition)).end_offset
        return self._is_written() and position >= end_offset

    def _is_written(self) -> bool:
        """Return whether no client writes any more."""
        writers = (task for name, task in self._running.items() if name.startswith(WRITERS))
        return self._progress.is_ending and all(task.done() for task in writers)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)
