"""What happened, in the order in which it happened, for a person to read.

12.345678  node-2    leads orders-0 in epoch 3 (in sync: 2, 3)
12.400000  faults    kills node-1, bytes that were not flushed are lost
"""

from __future__ import annotations

import hashlib
import logging

from broker_embedded.cluster.simulation.loop import START_NS, SimulatedLoop
from broker_embedded.cluster.simulation.process import current_process


class Transcript:
    """All lines of one run."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []
        """What the broker logged as an error: a simulation in which that happens has failed."""
        self._loop = loop

    def note(self, who: str, event: str) -> None:
        self.lines.append(f"{self.seconds():13.6f}  {who:<9} {event}")

    def seconds(self) -> float:
        """Return the seconds since the start of the simulation."""
        return (self._loop.now_ns - START_NS) / 1e9

    def digest(self) -> str:
        """Return the digest of a run: two runs with the same one had the same events."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]


class TranscriptHandler(logging.Handler):
    """Puts what the broker logs into the transcript, under the name of the node that logged it.

    Errors that asyncio reports reach the simulation by the exception handler of its loop. The logger `asyncio` is not
    read: what comes by it is of other loops of the process, whose garbage may be collected during a run.
    """

    LOGGER = "broker_embedded"

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(logging.WARNING)
        self._transcript = transcript
        self._propagated = True

    def emit(self, record: logging.LogRecord) -> None:
        process = current_process.get()
        who = "world" if process is None else process.name
        text = self.format(record)
        self._transcript.note(who, f"[{record.levelname.lower()}] {text}")
        if record.levelno >= logging.ERROR:
            self._transcript.errors.append(f"{who} logged: {text}")

    def __enter__(self) -> TranscriptHandler:
        logger = logging.getLogger(self.LOGGER)
        self._propagated, logger.propagate = logger.propagate, False
        logger.addHandler(self)
        return self

    def __exit__(self, *error: object) -> None:
        logger = logging.getLogger(self.LOGGER)
        logger.removeHandler(self)
        logger.propagate = self._propagated
