"""What goes wrong, and when: one fault after the other, drawn from the seed.

Each fault is mended after a while; several may be open at once. A machine loses power only while nothing else is wrong
between the nodes and every committed record is on another one that is in sync: a record that is nowhere else and was
never flushed is lost in Kafka too, and that is a choice of its settings, not a fault of its protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

from broker_embedded.cluster.simulation.nodes import SimulatedNode

if TYPE_CHECKING:
    from broker_embedded.cluster.simulation.simulation import Simulation

TRANSACTIONAL = ("transact", "copier")
"""Clients of which a second instance is no mistake: they fence each other."""

Fault = Callable[[], Awaitable[None]]


class FaultPlan:
    """Runs until it is stopped, then mends everything."""

    def __init__(self, simulation: Simulation, *, random: Random, mean_gap_s: float) -> None:
        self.count = 0
        self._simulation = simulation
        self._random = random
        self._mean_gap_s = mean_gap_s
        self._open: list[asyncio.Task[None]] = []
        self._busy: dict[str, None] = {}
        """Nodes that a fault concerns now."""
        self._bad_links = 0
        """Faults of links between nodes."""
        self._mending = asyncio.Event()

    async def run(self, until_s: float) -> None:
        loop = asyncio.get_running_loop()
        while self._mean_gap_s:
            gap_s = self._random.expovariate(1 / self._mean_gap_s)
            if loop.time() + gap_s >= until_s:
                break
            await asyncio.sleep(gap_s)
            fault = self._random.choices(self._kinds(), weights=self._weights())[0]
            self.count += 1
            self._open.append(loop.create_task(self._guarded(fault)))
        await asyncio.sleep(until_s - loop.time())
        self._mending.set()
        await asyncio.gather(*self._open)

    def _kinds(self) -> list[Fault]:
        return [
            self._kill,
            self._lose_power,
            self._stop,
            self._pause,
            self._reset,
            self._cut,
            self._isolate,
            self._slow,
            self._client_dies,
            self._zombie,
        ]

    def _weights(self) -> list[int]:
        return [3, 3, 2, 2, 2, 3, 2, 2, 3, 2]

    async def _guarded(self, fault: Fault) -> None:
        try:
            await fault()
        except BaseException as error:
            self._simulation.failed(error)
            raise

    # --- nodes

    async def _kill(self) -> None:
        node = self._a_node()
        if node is None:
            return
        self._note(f"kills {node.name}")
        self._simulation.end_node(node, node.kill)
        await self._then_restart(node)

    async def _lose_power(self) -> None:
        node = self._a_node()
        if node is None:
            return
        is_calm = len(self._busy) == 1 and not self._bad_links
        if not is_calm or not self._simulation.is_dispensable(node):
            self._busy.pop(node.name)
            return
        self._note(f"cuts the power of {node.name}: what it had not flushed is lost")
        self._simulation.end_node(node, lambda: node.lose_power(self._random))
        await self._then_restart(node)

    async def _stop(self) -> None:
        node = self._a_node()
        if node is None:
            return
        self._note(f"stops {node.name} cleanly")
        await self._simulation.stop_node(node)
        await self._then_restart(node)

    async def _then_restart(self, node: SimulatedNode) -> None:
        await self._wait(self._random.choice((0.05, 1.0, 5.0, 20.0)))
        self._note(f"starts {node.name}")
        await self._simulation.start_node(node)
        self._busy.pop(node.name)

    async def _pause(self) -> None:
        node = self._a_node()
        if node is None:
            return
        self._note(f"pauses {node.name}")
        assert node.process is not None
        process = node.process
        process.pause()
        await self._wait(self._random.choice((0.1, 1.0, 4.0, 12.0)))
        self._note(f"lets {node.name} go on")
        self._simulation.loop.resume(process)
        self._busy.pop(node.name)

    def _a_node(self) -> SimulatedNode | None:
        """Return a node that no fault concerns, marked as busy; None if a majority would not be left alone."""
        nodes = self._simulation.nodes
        free = [node for node in nodes if node.name not in self._busy and node.is_running]
        if not free or len(self._busy) >= max(1, (len(nodes) - 1) // 2) + (self._random.random() < 0.1):
            return None
        node = self._random.choice(free)
        self._busy[node.name] = None
        return node

    # --- links

    async def _reset(self) -> None:
        first, second = self._two_hosts()
        count = self._simulation.network.reset_connections(first, second)
        if count:
            self._note(f"resets {count} connections between {first} and {second}")

    async def _cut(self) -> None:
        source, target = self._two_hosts()
        one_way = self._random.random() < 0.3
        pairs = [(source, target)] if one_way else [(source, target), (target, source)]
        self._note(f"cuts the link from {source} to {target}{'' if one_way else ', both ways'}")
        await self._with_cut(pairs)
        self._note(f"mends the link from {source} to {target}")

    async def _isolate(self) -> None:
        """Cut one node off from all others."""
        node = self._random.choice(self._simulation.nodes)
        others = [each.name for each in self._simulation.nodes if each is not node]
        if self._random.random() < 0.5:
            others += self._simulation.population.names()
        if not others:
            return
        self._note(f"cuts {node.name} off from {', '.join(others)}")
        await self._with_cut([pair for other in others for pair in ((node.name, other), (other, node.name))])
        self._note(f"connects {node.name} again")

    async def _with_cut(self, pairs: list[tuple[str, str]]) -> None:
        self._bad_links += 1
        for pair in pairs:
            self._simulation.network.cut(*pair)
        await self._wait(self._random.choice((0.2, 1.0, 5.0, 15.0)))
        for pair in pairs:
            self._simulation.network.mend(*pair)
        self._bad_links -= 1

    async def _slow(self) -> None:
        source, target = self._two_hosts()
        delay_ms = self._random.choice((20, 200, 1_500))
        self._note(f"slows the link from {source} to {target} by {delay_ms} ms")
        self._bad_links += 1
        self._simulation.network.slow(source, target, delay_ms)
        await self._wait(self._random.choice((1.0, 10.0)))
        self._simulation.network.slow(source, target, 0)
        self._bad_links -= 1

    def _two_hosts(self) -> tuple[str, str]:
        node = self._random.choice(self._simulation.nodes).name
        others = [
            each.name for each in self._simulation.nodes if each.name != node
        ] + self._simulation.population.names()
        return node, self._random.choice(others)

    # --- clients

    async def _client_dies(self) -> None:
        name = self._random.choice(self._simulation.population.names())
        if not self._simulation.population.is_alive(name):
            return
        self._note(f"kills {name}")
        self._simulation.population.kill(name)
        await self._wait(self._random.choice((0.1, 2.0)))
        self._simulation.population.begin_life(name)

    async def _zombie(self) -> None:
        """Suspend a transactional producer so long that another instance starts in its place, then resume it."""
        population = self._simulation.population
        names = [each for each in population.names() if each.startswith(TRANSACTIONAL) and population.is_alive(each)]
        if not names:
            return
        name = self._random.choice(names)
        sleeper = population.replace(name)
        self._note(f"puts {name} to sleep and starts another instance of it")
        await self._wait(self._random.choice((0.5, 3.0, 15.0)))
        if not sleeper.is_dead:
            self._note(f"wakes the older instance of {name}")
            self._simulation.loop.resume(sleeper)

    # ---

    async def _wait(self, mean_s: float) -> None:
        """Wait until it is time to mend; at once when the run ends."""
        try:
            await asyncio.wait_for(self._mending.wait(), mean_s * self._random.uniform(0.5, 1.5))
        except TimeoutError:
            pass

    def _note(self, event: str) -> None:
        self._simulation.transcript.note("faults", event)
