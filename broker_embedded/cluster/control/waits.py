"""Waits instead of sleeps: until a partition has a leader or an ISR, a group is stable, or a fault was hit.

The wanted state is compared with the facts, and an error names both. The deadline is real time, whatever the cluster's
clock does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from broker_embedded.cluster.facts import NO_NODE, EmbeddedClusterFacts, PartitionFacts
from broker_embedded.cluster.faults import Faults, InvalidFault
from broker_embedded.common.clock import SystemClock, client_timer

POLL_S = 0.005
DEFAULT_TIMEOUT_MS = 10_000


class NotMet(Exception):
    """The time is over. `found` is the state at the end, `wanted` the state that was waited for."""

    def __init__(self, what: str, found: Any, wanted: Any, timeout_ms: int) -> None:
        super().__init__(f"{what}: found {found} after {timeout_ms} ms, wanted {wanted}")
        self.found = found
        self.wanted = wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet:
    """One condition that does not hold."""

    what: str
    found: Any
    wanted: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedState:
    """Conditions that must hold at the same moment; None fields are ignored."""

    topic: str | None = None
    partition: int | None = None
    """None: every partition of the topic."""
    leader: int | str | None = None
    """A node; "any" for some leader that runs; "none"."""
    isr: frozenset[int] | None = None
    high_watermark: int | None = None
    """At least this."""
    controller: int | str | None = None
    """A node, or "any"."""
    group: str | None = None
    members: int | None = None
    state: str | None = None
    """Wanted state of the group; Stable if only the group is named."""
    fault: int | None = None
    hits: int | None = None

    def __post_init__(self) -> None:
        of_partition = [name for name in ("leader", "isr", "high_watermark") if getattr(self, name) is not None]
        if of_partition and self.topic is None:
            raise InvalidFault(f"topic: found none beside {', '.join(of_partition)}, wanted one")
        if self.partition is not None and self.topic is None:
            raise InvalidFault(f"topic: found none beside partition {self.partition}, wanted one")
        if (self.members is not None or self.state is not None) and self.group is None:
            raise InvalidFault("group: found none beside members or state, wanted one")
        if (self.fault is None) != (self.hits is None):
            raise InvalidFault("fault: found only one of fault and hits, wanted both")
        if self.topic is None and self.controller is None and self.group is None and self.fault is None:
            raise InvalidFault("wait: found no condition, wanted one of topic, controller, group, fault")

    def unmet(self, facts: EmbeddedClusterFacts, faults: Faults) -> Iterator[Unmet]:
        """Yield what does not hold."""
        if self.topic is not None:
            yield from self._unmet_partitions(facts)
        if self.controller is not None:
            is_met = facts.controller != NO_NODE if self.controller == "any" else facts.controller == self.controller
            if not is_met:
                yield Unmet(what="controller", found=facts.controller, wanted=self.controller)
        if self.group is not None:
            yield from self._unmet_group(facts)
        if self.fault is not None and self.hits is not None:
            hits = faults.get(self.fault).hits
            if hits < self.hits:
                yield Unmet(what=f"hits of fault {self.fault}", found=hits, wanted=self.hits)

    def _unmet_partitions(self, facts: EmbeddedClusterFacts) -> Iterator[Unmet]:
        found = [
            state
            for (topic, number), state in facts.partitions.items()
            if topic == self.topic and self.partition in (None, number)
        ]
        if not found:
            name = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
            yield Unmet(what=f"{name}", found="no such partition", wanted="one")
        for state in found:
            yield from self._unmet_partition(facts, state)

    def _unmet_partition(self, facts: EmbeddedClusterFacts, state: PartitionFacts) -> Iterator[Unmet]:
        if self.leader is not None:
            node = facts.nodes.get(state.leader)
            has_leader = node is not None and node.is_up and state.led is not None
            wanted = {"any": has_leader, "none": state.leader == NO_NODE}
            is_met = wanted[self.leader] if isinstance(self.leader, str) else has_leader and state.leader == self.leader
            if not is_met:
                yield Unmet(what=f"leader of {state.name}", found=state.leader, wanted=self.leader)
        if self.isr is not None and set(state.isr) != self.isr:
            yield Unmet(what=f"ISR of {state.name}", found=list(state.isr), wanted=sorted(self.isr))
        if self.high_watermark is not None:
            offset = None if state.led is None else state.led.high_watermark
            if offset is None or offset < self.high_watermark:
                yield Unmet(what=f"high watermark of {state.name}", found=offset, wanted=self.high_watermark)

    def _unmet_group(self, facts: EmbeddedClusterFacts) -> Iterator[Unmet]:
        assert self.group is not None
        group = facts.groups.get(self.group)
        wanted_state = self.state or "Stable"
        if group is None:
            yield Unmet(what=f"group {self.group}", found="no such group", wanted=wanted_state)
            return
        if group.state.lower() != wanted_state.lower():
            yield Unmet(what=f"state of group {self.group}", found=group.state, wanted=wanted_state)
        if self.members is not None and group.members != self.members:
            yield Unmet(what=f"members of group {self.group}", found=group.members, wanted=self.members)


async def wait_for(
    wanted: WantedState, facts: Callable[[], EmbeddedClusterFacts], faults: Faults, *, timeout_ms: int
) -> int:
    """Wait until everything holds; returns how many ms that took. NotMet says what was missing last."""
    clock = SystemClock()
    started_ms = clock.monotonic_ms()
    loop = asyncio.get_running_loop()
    while True:
        missing = next(wanted.unmet(facts(), faults), None)
        waited_ms = clock.monotonic_ms() - started_ms
        if missing is None:
            return waited_ms
        if waited_ms >= timeout_ms:
            raise NotMet(missing.what, missing.found, missing.wanted, timeout_ms)
        turn = loop.create_future()
        timer = client_timer(loop)(POLL_S, _wake, turn)
        try:
            await turn
        finally:
            timer.cancel()


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
