"""Runs one stage of the demo in a thread of its own, beside the display."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from ottla.cli.demo.display import DemoStage


class Background(ABC):
    """One stage. It is finished when `_work` returns; what `_work` raises is raised by `check` and `finish`."""

    def __init__(self, name: str, stage: DemoStage) -> None:
        self._stage = stage
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def _work(self) -> None:
        """Run the work, in the thread."""

    @property
    def is_begun(self) -> bool:
        return self._stage.started_s is not None

    @property
    def is_done(self) -> bool:
        return self._stage.ended_s is not None

    def start(self) -> None:
        """Begin; once."""
        self._stage.start()
        self._thread.start()

    def check(self) -> None:
        """Raise what went wrong, if something did."""
        if self._error is not None:
            raise self._error

    def finish(self, timeout_s: float = 60.0) -> None:
        """Wait for the end of what was begun, and raise what went wrong."""
        if self.is_begun:
            self._thread.join(timeout_s)
        self.check()

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self._error = error
        self._stage.finish()
