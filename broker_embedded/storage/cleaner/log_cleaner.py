"""Chooses what to compact next and does it a little at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.storage.cleaner.cleaner import Cleaning, CleaningAbortedError
from broker_embedded.storage.cleaner.selection import filthiest
from broker_embedded.storage.log import Log
from ottla_wire.protocol import ProtocolError

logger = logging.getLogger(__name__)


class LogCleaner:
    """At most one cleaning is under way; a log that fails is left alone until the broker restarts, as in Kafka."""

    def __init__(self, *, max_keys: int = 1_000_000) -> None:
        self._max_keys = max_keys
        self._cleaning: Cleaning | None = None
        self._steps: Iterator[None] | None = None
        self.uncleanable: set[str] = set()
        """Names of logs whose cleaning failed."""

    def run(self, logs: Sequence[Log], *, now_ms: int, max_steps: int | None = None) -> list[Log]:
        """Clean until nothing is worth it or the steps are used up; returns the logs whose cleaning was completed."""
        done: list[Log] = []
        taken = 0
        while max_steps is None or taken < max_steps:
            if self._steps is None and not self._start(logs, now_ms, exclude=done):
                break
            assert self._cleaning is not None
            assert self._steps is not None
            log = self._cleaning.log
            try:
                next(self._steps)
                taken += 1
                continue
            except StopIteration:
                done.append(log)
            except CleaningAbortedError as error:
                logger.info("%s", error)
                done.append(log)  # not again in this run
            except (OSError, ValueError, BrokerError, ProtocolError) as error:
                logger.error("%s: cannot be compacted, left alone until restart: %s", log.name, error)
                self.uncleanable.add(log.name)
            self._cleaning = self._steps = None
        return done

    @property
    def is_active(self) -> bool:
        """Return whether a cleaning is unfinished."""
        return self._steps is not None

    def forget(self, log: Log) -> None:
        """Forget a log that is being deleted."""
        self.uncleanable.discard(log.name)
        if self._cleaning is not None and self._cleaning.log is log:
            self.stop()

    def stop(self) -> None:
        """Abandon the current cleaning; the log is as it was after its last swap."""
        if self._steps is not None:
            close = getattr(self._steps, "close", None)
            if close is not None:
                close()
        self._cleaning = self._steps = None

    def _start(self, logs: Sequence[Log], now_ms: int, *, exclude: Sequence[Log]) -> bool:
        candidates = [log for log in logs if log not in exclude and log.name not in self.uncleanable]
        target = filthiest(candidates, now_ms=now_ms)
        if target is None:
            return False
        self._cleaning = Cleaning(target, now_ms=now_ms, max_keys=self._max_keys)
        self._steps = self._cleaning.steps()
        return True
