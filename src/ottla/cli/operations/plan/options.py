"""Shared options of the planning commands: facts, topics, goals."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.browse.human_amounts import milliseconds
from ottla.cli.operations.notes import wait
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.options import takes
from ottla.cli.shared.parameter_types import Number, Seconds
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin.facts.cluster_facts import ClusterFacts
    from ottla.admin.placement.cluster_model import Model
    from ottla.admin.placement.move_plan import MovePlan
    from ottla.admin.placement.placement_state import Goals
    from ottla.config import Settings

F = TypeVar("F", bound=Callable[..., Any])

_SEARCH_S = 30.0
_MAX_FILL = 0.85  # as `modelling.MAX_FILL`, which costs its imports

POLL = click.option(
    "--poll",
    "poll_s",
    type=Seconds(0.05),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to read the cluster while a plan is executed.",
)


def fills_disks(max_fill: str) -> Callable[[F], F]:
    """Add `--max-fill`, with this as its help, and `--dirs-are-disks`."""
    return takes(
        click.option(
            "--max-fill", type=Number(0, 1, min_open=True), default=_MAX_FILL, show_default=True, help=max_fill
        ),
        click.option("--dirs-are-disks", is_flag=True, help="Treat each log directory as a disk, whatever it reports."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The values of the options."""

    facts: tuple[Path, ...]
    sample: str
    topics: tuple[str, ...]
    exclude: tuple[str, ...]
    max_fill: float
    tolerance: float
    dirs_are_disks: bool
    search_s: float

    def goals(self) -> Goals:
        from ottla.admin.placement.placement_state import Goals

        return Goals(tolerance=self.tolerance, max_fill=self.max_fill)

    def may_move(self, topic: str) -> bool:
        wanted = not self.topics or any(fnmatchcase(topic, pattern) for pattern in self.topics)
        return wanted and not any(fnmatchcase(topic, pattern) for pattern in self.exclude)

    def model(self, kafka: Settings) -> Model:
        """Return the cluster, read or loaded, with rates where there are two samples."""
        from ottla.admin.facts.rates import rates_between
        from ottla.admin.placement.modelling import model_of

        seen = _loaded(self.facts) if self.facts else _read(kafka, milliseconds("--sample", self.sample) / 1000)
        return model_of(
            seen[-1],
            rates=rates_between(seen[0], seen[-1]) if len(seen) > 1 else None,
            max_fill=self.max_fill,
            may_move=self.may_move,
            dirs_are_disks=self.dirs_are_disks,
        )

    def plan(self, planner: Callable[..., MovePlan], kafka: Settings, *wanted: Any) -> MovePlan:
        """Return what a planner makes of the cluster, and of what is `wanted`, before the search time expires."""
        import time

        model = self.model(kafka)
        until = time.monotonic() + self.search_s
        return planner(model, *wanted, goals=self.goals(), expired=lambda: time.monotonic() >= until)


def plans(command: F) -> F:
    """Add the options of planning and of reaching a cluster. The command gets `plan_options` and `kafka`."""

    @functools.wraps(command)
    def with_plan_options(*args: Any, kafka: Settings, **options: Any) -> Any:
        own = {name: options.pop(name) for name in PlanOptions.__slots__}
        return command(*args, plan_options=PlanOptions(**own), kafka=kafka, **options)

    return takes(
        click.option(
            "--facts",
            multiple=True,
            type=FILE,
            help="Plan for a file of `ottla cluster facts` instead of a cluster; two of them are samples.",
        ),
        click.option(
            "--sample",
            default="10s",
            show_default=True,
            metavar="TIME",
            help="How long to measure write rates; 0s weighs leaders by size instead.",
        ),
        click.option(
            "--topics",
            multiple=True,
            metavar="PATTERN",
            shell_complete=complete_topics,
            help="Only these topics may move; repeatable.",
        ),
        click.option("--exclude", multiple=True, metavar="PATTERN", help="Topics that must not move; repeatable."),
        fills_disks("How full a disk may become, also during the move."),
        click.option(
            "--tolerance",
            type=Number(0, 1),
            default=0.05,
            show_default=True,
            help="How far the fullest broker may be above the best reachable level.",
        ),
        click.option(
            "--search-time",
            "search_s",
            type=Seconds(0, min_open=True),
            default=_SEARCH_S,
            show_default=True,
            metavar="SECONDS",
            help="Time limit of the search; the best plan found by then is used.",
        ),
        reaches_a_cluster,
    )(with_plan_options)  # type: ignore[return-value]  # a command all the same


def _loaded(files: tuple[Path, ...]) -> list[ClusterFacts]:
    from ottla.admin import read_facts_file

    return sorted((read_facts_file(file) for file in files), key=lambda facts: facts.at_ms)


def _read(kafka: Settings, seconds: float) -> list[ClusterFacts]:
    from ottla.admin import Part

    if seconds < 0:
        raise InputError(f"--sample: found {seconds:g} s, wanted 0s or more")
    parts = {Part.TOPICS, Part.LOG_DIRS, Part.OFFSETS, Part.MOVES}
    with open_admin(kafka) as admin:
        seen = [admin.facts(parts)]
        if seconds:
            wait(seconds, "measuring write rates")
            seen.append(admin.facts(parts))
    return seen
