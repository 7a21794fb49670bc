"""The demo's accident: half way through, the broker that leads the first partition is killed, and later comes back.

What it did is in the report. The account must be the same as without it.
"""

from __future__ import annotations

import time
from typing import Any

from ottla.browse.control_api import call
from ottla.cli.demo.background import Background
from ottla.cli.demo.display import DemoStage

_WAIT_MS = 30_000


class LeaderFailure(Background):
    """Kills the leader of a partition, waits until another one leads, starts it again, waits until it is in sync."""

    def __init__(self, control: str, *, topic: str, stage: DemoStage) -> None:
        super().__init__("demo-failure", stage)
        self._control = control
        self._topic = topic

    def _work(self) -> None:
        before = self._partitions()
        victim: int = before[0]["leader"]
        led = [partition for partition in before if partition["leader"] == victim]
        killed_s = time.monotonic()
        call(self._control, "POST", f"/brokers/{victim}/kill")
        self._stage.note = f"broker {victim} is killed, it led {len(led)} of {len(before)} partitions"
        while any(partition["leader"] in (victim, -1) for partition in self._partitions()):
            time.sleep(0.01)
        gone_s = time.monotonic() - killed_s
        self._stage.note = f"broker {victim} killed, others lead after {gone_s:.1f} s"
        call(self._control, "POST", f"/brokers/{victim}/start")
        replicas = ",".join(str(node) for node in sorted(before[0]["replicas"]))
        for partition in before:
            query = {"topic": self._topic, "partition": partition["partition"], "isr": replicas, "timeout_ms": _WAIT_MS}
            call(self._control, "GET", "/wait", query=query)
        self._stage.note += f", in sync again after {time.monotonic() - killed_s:.1f} s"

    def _partitions(self) -> list[dict[str, Any]]:
        everything = call(self._control, "GET", "/cluster")["partitions"]
        return [each for each in everything if each["topic"] == self._topic]
