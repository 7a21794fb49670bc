"""Methods of a cluster that the control API calls. Everything runs on the cluster's loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from broker_embedded.cluster.facts import EmbeddedClusterFacts
from broker_embedded.cluster.faults import Disks, Faults, Links
from broker_embedded.cluster.metrics import BrokerFigures


class ClusterControl(Protocol):
    """One running cluster. Methods raise `InvalidFault` for an unknown node, or for a node in the wrong state, and
    StartupError if a broker cannot be started."""

    @property
    def faults(self) -> Faults: ...

    @property
    def links(self) -> Links: ...

    @property
    def disks(self) -> Disks: ...

    def facts(self) -> EmbeddedClusterFacts:
        """Return the facts of the cluster at this moment."""
        ...

    def figures(self) -> Mapping[int, BrokerFigures]:
        """Return the counters of the running brokers."""
        ...

    async def kill_broker(self, node: int, /, *, lose_unsynced: bool = False) -> None:
        """End a node at once: nothing is closed, nothing handed over. With `lose_unsynced` as when the power goes: what
        was not fsynced is lost; without as `kill -9` does.
        """
        ...

    async def stop_broker(self, node: int, /) -> None:
        """End a node cleanly: its leaderships are handed over, its logs are closed."""
        ...

    async def start_broker(self, node: int, /) -> None:
        """Start a node that was killed or stopped, on its ports and with what its directories hold."""
        ...

    async def add_broker(self, *, rack: str | None = None) -> int:
        """Return a further node, empty; returns its number. InvalidFault for a cluster that was started with one
        broker."""
        ...

    async def pause_broker(self, node: int, /) -> None:
        """Suspend a node, as SIGSTOP does: its connections stay open and nothing happens on them."""
        ...

    async def resume_broker(self, node: int, /) -> None:
        """Let a paused node go on."""
        ...

    async def advance_clock(self, ms: float, /) -> int:
        """Move the cluster's time forward and run everything that becomes due; returns the new time in ms since the
        epoch. Raises InvalidFault if the cluster runs on the machine's clock."""
        ...
