"""The demo's accident: half way through, the broker that leads the first partition is killed, and later comes back.

It runs in a thread of its own, so that the display goes on. What it did is for the report; what it must not change is
the account.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ottla.cli.demo.display import Stage
from ottla.cli.embedded.control_client import call

_WAIT_MS = 30_000


class LeaderFailure:
    """Kills the leader of a partition, waits until another one leads, starts it again, waits until it is in sync."""

    def __init__(self, control: str, *, topic: str, stage: Stage) -> None:
        self._control = control
        self._topic = topic
        self._stage = stage
        self._thread = threading.Thread(target=self._run, name="demo-failure", daemon=True)
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin; once."""
        self._stage.start()
        self._thread.start()

    @property
    def is_begun(self) -> bool:
        return self._stage.started_s is not None

    def finish(self, timeout_s: float = 60.0) -> None:
        """Wait for the end of it, and raise what went wrong."""
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._fail_and_return()
        except Exception as error:
            self._error = error
        self._stage.finish()

    def _fail_and_return(self) -> None:
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
