"""The display of a running demo: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_PLAIN_EVERY_S = 2.0


@dataclass(slots=True, kw_only=True)
class DemoStage:
    """One row: the progress of a part of the demo. `total` is None until it is known."""

    name: str
    unit: str
    total: int | None = None
    done: int = 0
    note: str = ""
    started_s: float | None = None
    ended_s: float | None = None
    _said: tuple[int, str] = field(default=(-1, ""))

    @property
    def seconds(self) -> float:
        """From the start of this stage to its end, or to now."""
        if self.started_s is None:
            return 0.0
        return (time.monotonic() if self.ended_s is None else self.ended_s) - self.started_s

    def start(self) -> None:
        if self.started_s is None:
            self.started_s = time.monotonic()

    def finish(self) -> None:
        self.start()
        if self.ended_s is None:
            self.ended_s = time.monotonic()

    def status(self) -> str:
        """`waiting`, `running` or `done`."""
        if self.started_s is None:
            return "waiting"
        return "running" if self.ended_s is None else "done"

    def count(self) -> str:
        of_total = "" if self.total is None else f" of {self.total:,}"
        return f"{self.done:,}{of_total} {self.unit}" if self.unit else ""

    def rate(self) -> str:
        if not self.unit or self.done == 0 or self.seconds < 0.05:
            return ""
        return f"{self.done / self.seconds:,.0f}/s"


class DemoDisplay:
    """Shows stages until it is closed. Use as a context manager; `refresh` may be called from any thread."""

    def __init__(self, console: Console, stages: list[DemoStage]) -> None:
        self._console = console
        self._stages = stages
        self._lock = threading.Lock()
        self._live = Live(self._table(), console=console, refresh_per_second=8) if console.is_terminal else None
        self._last_plain_s = 0.0

    def __enter__(self) -> DemoDisplay:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
            self._live.stop()
        else:
            self._say_changes(progress=False)

    def refresh(self) -> None:
        """Show the stages as they are now."""
        if self._live is not None:
            self._live.update(self._table())
            return
        now_s = time.monotonic()
        with self._lock:
            due = now_s - self._last_plain_s >= _PLAIN_EVERY_S
            if due:
                self._last_plain_s = now_s
        self._say_changes(progress=due)

    def _say_changes(self, *, progress: bool) -> None:
        with self._lock:
            for stage in self._stages:
                status = stage.status()
                news = (stage.done, status)
                changed_status = stage._said[1] != status and status != "waiting"
                if changed_status or (progress and status == "running" and news != stage._said):
                    stage._said = news
                    parts = [
                        f"{stage.name:<16} {status:<8}",
                        stage.count(),
                        stage.rate(),
                        stage.note,
                        f"{stage.seconds:.1f} s",
                    ]
                    self._console.print("  ".join(part for part in parts if part), highlight=False, soft_wrap=True)

    def _table(self) -> Group:
        table = Table(box=None, padding=(0, 1), show_header=False)
        for stage in self._stages:
            status = stage.status()
            mark = {"waiting": Text("·", "dim"), "running": Text("▶", "yellow"), "done": Text("✓", "green")}[status]
            fraction = 1.0 if status == "done" else (stage.done / stage.total if stage.total else 0.0)
            table.add_row(
                mark,
                Text(stage.name, "bold" if status == "running" else ""),
                ProgressBar(
                    total=1.0, completed=min(1.0, fraction), width=24, pulse=status == "running" and not stage.total
                ),
                Text(stage.count(), justify="right"),
                Text(stage.rate(), "cyan", justify="right"),
                Text(f"{stage.seconds:.1f} s" if stage.started_s is not None else "", "dim", justify="right"),
                Text(stage.note, "dim"),
            )
        return Group(table)
