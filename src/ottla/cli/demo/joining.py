"""The demo's fourth broker: it joins empty, the doctor says so, and replicas are moved to it by bytes, under load.

What it did is one line of the account: how even the disks became.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ottla.admin import Admin, ClusterFacts, Part
from ottla.admin.doctor import Evidence, Limits, examine
from ottla.admin.facts.facts_file import write_whole
from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.executor import Executor, RunOptions
from ottla.admin.placement.journal import Journal
from ottla.admin.placement.modelling import model_of
from ottla.admin.placement.placement_state import Goals
from ottla.admin.placement.plan_file import dump_plan, dump_rollback
from ottla.admin.placement.plan_judgement import plan_of
from ottla.admin.placement.planners import add_brokers
from ottla.browse.control_api import call
from ottla.browse.human_amounts import bytes_text
from ottla.cli.demo.account import Line
from ottla.cli.demo.background import Background
from ottla.cli.demo.display import DemoStage
from ottla.testing.waiting import wait_until

_PARTS = (Part.TOPICS, Part.LOG_DIRS, Part.MOVES)
_WAIT_S = 60.0
_FILL = 1.0
"""The demo's data is small beside any disk, and the disk of a laptop may be fuller than a broker's should be."""


class FourthBroker(Background):
    """Adds a broker, plans its share of the bytes, runs the plan, and reads the disks before and after."""

    def __init__(self, bootstrap_servers: str, control: str, *, folder: Path, stage: DemoStage) -> None:
        super().__init__("demo-fourth-broker", stage)
        self._bootstrap = bootstrap_servers
        self._control = control
        self._folder = folder
        self.line: Line | None = None
        """Its line of the account, when it is done."""

    def _work(self) -> None:
        with Admin(self._bootstrap, timeout_s=30) as admin:
            self._join_and_move(admin)

    def _join_and_move(self, admin: Admin) -> None:
        joined: int = call(self._control, "POST", "/brokers")["broker"]
        wait_until(lambda: _is_ready(admin.facts(_PARTS), joined), _WAIT_S, what=f"the directories of broker {joined}")
        facts = admin.facts(_PARTS)
        said = _is_said_empty(facts, joined)
        self._stage.note = f"broker {joined} joins empty, the doctor says so (BAL02)"
        plan = add_brokers(_model(facts, may_move=lambda topic: not topic.startswith("__")), [joined], goals=_GOALS)
        file = self._folder / "fourth-broker.json"
        write_whole(file, dump_plan(plan))
        write_whole(file.with_name(f"{file.name}.rollback.json"), dump_rollback(plan.moves))
        options = RunOptions(poll_s=0.2, patience_s=_WAIT_S, max_fill=_FILL)
        with Journal(file.with_name(f"{file.name}.journal")) as book:
            outcome = Executor(admin.carry_out, plan.moves, book, options).run()
        after = admin.facts(_PARTS)
        self._stage.note += f"; {bytes_text(plan.bytes_copied)} go there in {len(plan.moves):,} moves"
        self.line = Line(
            what=f"disks after broker {joined} joined",
            found=f"{_levels(facts)} → {_levels(after)} × the mean",
            holds=said and outcome.is_complete and bool(plan.moves) and not _is_said_empty(after, joined),
        )


_GOALS = Goals(max_fill=_FILL)


def _model(facts: ClusterFacts, *, may_move: Callable[[str], bool] = lambda topic: True) -> Model:
    return model_of(facts, max_fill=_FILL, may_move=may_move)


def _is_ready(facts: ClusterFacts, broker: int) -> bool:
    """Return whether the broker can receive, and every broker has reported its directories."""
    is_there = any(each.id == broker and not each.is_fenced and each.log_dirs for each in facts.brokers)
    return is_there and all(each.log_dirs is not None for each in facts.brokers)


def _is_said_empty(facts: ClusterFacts, broker: int) -> bool:
    """Return whether the doctor finds the broker empty. The demo's few megabytes count, too."""
    report = examine(Evidence(facts=facts, limits=Limits(least_bytes=1)), only=["BAL02"])
    return any(found.subject == f"broker {broker}" for found in report.findings)


def _levels(facts: ClusterFacts) -> str:
    """Return the emptiest and the fullest broker as text: `0.00 to 1.33`."""
    levels = [load.level or 0.0 for load in plan_of((), _model(facts), goals=_GOALS).before]
    return f"{min(levels):.2f} to {max(levels):.2f}"
