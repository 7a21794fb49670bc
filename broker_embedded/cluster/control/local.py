"""Carries out the control API on a cluster in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from broker_embedded.cluster.cluster import Cluster
from broker_embedded.cluster.facts import EmbeddedClusterFacts, NodeState
from broker_embedded.cluster.faults import InvalidFault
from broker_embedded.cluster.live_facts import figures_of, gather
from broker_embedded.cluster.metrics import BrokerFigures
from broker_embedded.cluster.time import VirtualClock
from broker_embedded.common.types import NO_LEADER


class LocalControl:
    """One running cluster; everything here runs on its loop. Methods raise InvalidFault for an unknown node, or for a
    node in the wrong state, and StartupError if a broker cannot be started."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.faults = cluster.faults
        self.links = cluster.links
        self.disks = cluster.disks

    def facts(self) -> EmbeddedClusterFacts:
        """Return the facts of the cluster at this moment."""
        cluster = self._cluster
        return gather(
            states={node: self._state(node) for node in cluster.node_ids},
            brokers=cluster.brokers,
            addresses=dict(zip(cluster.node_ids, cluster.bootstrap_servers.split(","), strict=True)),
            voters=cluster.voters,
            controller=NO_LEADER if cluster.controller is None else cluster.controller.leader_id,
            faults=self.faults,
            links=self.links,
            disks=self.disks,
        )

    def figures(self) -> Mapping[int, BrokerFigures]:
        """Return the counters of the running brokers."""
        return {node: figures_of(broker) for node, broker in self._cluster.brokers.items()}

    async def kill_broker(self, node: int, *, lose_unsynced: bool = False) -> None:
        """End a node at once: nothing is closed, nothing handed over. With `lose_unsynced` as when the power goes: what
        was not fsynced is lost; without as `kill -9` does.
        """
        await self._in_state(node, NodeState.RUNNING, NodeState.PAUSED, then=self._cluster.kill)
        if lose_unsynced:
            self.disks.crash(node)

    async def stop_broker(self, node: int) -> None:
        """End a node cleanly: its leaderships are handed over, its logs are closed."""
        await self._in_state(node, NodeState.RUNNING, then=self._cluster.stop_broker)

    async def start_broker(self, node: int) -> None:
        """Start a node that was killed or stopped, on its ports and with what its directories hold."""
        await self._in_state(node, NodeState.KILLED, NodeState.STOPPED, then=self._cluster.start_broker)

    async def add_broker(self, *, rack: str | None = None) -> int:
        """Add a node, empty; returns its number. InvalidFault for a cluster that was started with one broker."""
        return await self._cluster.add_broker(rack=rack)

    async def pause_broker(self, node: int) -> None:
        """Suspend a node, as SIGSTOP does: its connections stay open and nothing happens on them."""
        await self._in_state(node, NodeState.RUNNING, then=self._cluster.pause)

    async def resume_broker(self, node: int) -> None:
        """Let a paused node go on."""
        await self._in_state(node, NodeState.PAUSED, then=self._cluster.resume)

    async def advance_clock(self, ms: float) -> int:
        """Move the cluster's time forward and run everything that becomes due; returns the new time in ms since the
        epoch. Raises InvalidFault if the cluster runs on the machine's clock."""
        clock = self._cluster.clock
        if not isinstance(clock, VirtualClock):
            raise InvalidFault("clock: found the machine's, wanted a virtual one: start the cluster with one")
        # The loop cannot wait for its own time: another thread does.
        await asyncio.get_running_loop().run_in_executor(None, clock.advance, ms)
        return clock.now_ms()

    def _state(self, node: int) -> NodeState:
        running = self._cluster.nodes.get(node)
        if running is not None:
            return NodeState.PAUSED if running.is_paused else NodeState.RUNNING
        return NodeState.KILLED if node in self._cluster.killed else NodeState.STOPPED

    async def _in_state(self, node: int, *wanted: NodeState, then: Callable[[int], Awaitable[None]]) -> None:
        if node not in self._cluster.node_ids:
            known = ", ".join(map(str, self._cluster.node_ids))
            raise InvalidFault(f"broker: found {node}, wanted one of {known}")
        state = self._state(node)
        if state not in wanted:
            names = " or ".join(each.value for each in wanted)
            raise InvalidFault(f"broker {node}: found {state.value}, wanted {names}")
        await then(node)
