"""Services in processes of their own that are killed amid their work. A journal has a line for all they handle."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Self

from dead_members import forget_members
from warm_processes import WarmProcess


class KilledService:
    """`script` gets `arguments`, and last the path of the journal, to which it appends a line for what it handles.

    It is a member of `group`, which forgets it with each kill. Leaving the block kills it too.
    """

    def __init__(self, script: str, *arguments: str, bootstrap_servers: str, group: str, folder: Path) -> None:
        self._journal = folder / "journal"
        self._journal.touch()
        self._log = (folder / "log").open("wb")
        self._command = [script, *arguments, str(self._journal)]
        self._bootstrap_servers = bootstrap_servers
        self._group = group
        self._process: WarmProcess | None = None

    def start(self) -> None:
        """Start it, for the first time or after a kill."""
        self._process = WarmProcess(*self._command, stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone, and is no member any more."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None
            forget_members(self._bootstrap_servers, self._group)

    def state(self) -> str:
        """As the kernel names it: `S` sleeping, `R` running, `T` stopped by a signal, `Z` ended; empty if not begun."""
        if self._process is None:
            return ""
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def go_on(self) -> None:
        """SIGCONT, after something stopped it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def lines(self) -> list[str]:
        """What was handled so far, in its order; what was handled twice stands there twice."""
        return self._journal.read_text().splitlines()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.kill()
        finally:
            self._log.close()
