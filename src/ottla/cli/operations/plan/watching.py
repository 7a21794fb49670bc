"""`ottla plan watch`: monitors the disks, plans before one is full, and runs plans only with --execute."""

from __future__ import annotations

import datetime as dt
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.browse.human_amounts import bytes_of, bytes_text, milliseconds, moment
from ottla.cli.operations.plan.execution import carry_out
from ottla.cli.operations.plan.options import POLL, fills_disks
from ottla.cli.operations.plan.termination import held_back
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.consent import refuse_if_read_only
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import Column, Output, prints
from ottla.cli.shared.parameter_types import Number
from ottla.errors import InputError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.admin import Admin, ClusterFacts
    from ottla.admin.placement.cluster_model import Model
    from ottla.admin.placement.executor import RunOptions
    from ottla.admin.placement.move_progress import MoveProgress
    from ottla.admin.placement.plan_watch import Hours, Outlook, PlanWatch
    from ottla.config import Settings

_AGAIN_S = 3600.0
"""A plan that is due and was written is not written again before."""
_SCHEMA = "plan.watch/1"


class _Leaves(Exception):
    """Ends the run: moves in progress continue in the brokers, and the others stay planned."""


class _HoursAreOver(_Leaves):
    pass


class _IsTerminated(_Leaves):
    pass


@click.command()
@click.option("--every", default="1m", show_default=True, metavar="TIME", help="How often to read the cluster.")
@click.option(
    "--disk-full-within",
    default="48h",
    show_default=True,
    metavar="TIME",
    help="Plan if a disk would be full within this time.",
)
@click.option("--before", hidden=True, metavar="TIME", help="The name of --disk-full-within before 0.2.")
@click.option(
    "--skew",
    type=Number(1, min_open=True),
    default=1.3,
    show_default=True,
    help="Plan if the fullest broker exceeds the best reachable level by this factor for as long as --skew-for says.",
)
@click.option(
    "--skew-for",
    default="1h",
    show_default=True,
    metavar="TIME",
    help="How long brokers must exceed --skew before a plan is made. 0s: plan at once.",
)
@fills_disks("The share of a disk that counts as full.")
@click.option(
    "--plans",
    "folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path(),
    show_default=True,
    help="Folder of plans and their journals.",
)
@click.option(
    "--metrics",
    "metrics_file",
    type=FILE,
    help="Write the results of each check to this file, in Prometheus' text format.",
)
@click.option("--once", is_flag=True, help="Check twice, print the result, write a plan if one is due, and exit.")
@click.option("--execute", is_flag=True, help="Execute plans, one at a time. Without it they are only written.")
@click.option("--hours", metavar="FROM-TO", help="With --execute: only in these hours of the day in UTC, as 22-6.")
@click.option("--throttle", metavar="SIZE", help="With --execute: bytes per second for each broker, as 50MB.")
@click.option("--no-throttle", is_flag=True, help="With --execute: copy without a limit.")
@POLL
@reaches_a_cluster
@prints
def watch(
    every: str,
    disk_full_within: str,
    before: str | None,
    skew: float,
    skew_for: str,
    max_fill: float,
    dirs_are_disks: bool,
    folder: Path,
    metrics_file: Path | None,
    once: bool,
    execute: bool,
    hours: str | None,
    throttle: str | None,
    no_throttle: bool,
    poll_s: float,
    kafka: Settings,
    out: Output,
) -> None:
    """Watch the disks, and plan before one is full or brokers are skewed. Nothing moves without --execute.

    Runs until Ctrl-C or SIGTERM, and writes events to stderr; SIGTERM lets it finish its step; moves under
    way continue in the brokers. With --once the exit code is 1 if a plan is due. An interrupted plan is
    continued first.

    \b
    Examples:
      ottla plan watch --once --every 1s
      ottla plan watch --execute --hours 22-6 --throttle 50MB --metrics /var/lib/node_exporter/ottla.prom
    """
    from ottla.admin.placement.executor import RunOptions
    from ottla.admin.placement.plan_watch import PlanWatch, WatchLimits, parse_hours

    if execute and (throttle is None) is not no_throttle:
        raise InputError("--execute: wanted --throttle SIZE or --no-throttle")
    if not execute and (hours is not None or throttle is not None or no_throttle):
        raise InputError("--hours, --throttle and --no-throttle are for plans that are carried out: wanted --execute")
    if execute:
        refuse_if_read_only("ottla plan watch without --execute is allowed")
    limits = WatchLimits(
        before_s=milliseconds("--disk-full-within", before or disk_full_within) / 1000,
        skew=skew,
        skewed_for_s=0.0 if once else milliseconds("--skew-for", skew_for) / 1000,
        max_fill=max_fill,
    )
    options = RunOptions(
        throttle=None if throttle is None else bytes_of("--throttle", throttle),
        max_fill=max_fill,
        dirs_are_disks=dirs_are_disks,
        poll_s=poll_s,
    )
    interval_s = milliseconds("--every", every) / 1000
    never = nullcontext(lambda seconds: False)
    with never if once else held_back() as is_terminated, open_admin(kafka) as admin:
        watching = Watching(
            kafka=kafka,
            admin=admin,
            watch=PlanWatch(limits),
            options=options,
            folder=folder,
            metrics_file=metrics_file,
            executes=execute,
            hours=None if hours is None else parse_hours(hours),
            is_terminated=lambda: is_terminated(0.0),
        )
        if once:
            watching.look()
            time.sleep(interval_s)
            outlook = watching.step()
            _print(out, outlook, watching.file)
            if outlook.reasons:
                fail()
            return
        watching.loop(lambda: is_terminated(interval_s))


@dataclass(slots=True, kw_only=True)
class Watching:
    """The loop's state: what was seen, and the plan that was written last. `hour_now` is the hour of the day in UTC."""

    kafka: Settings
    admin: Admin
    watch: PlanWatch
    options: RunOptions
    folder: Path
    metrics_file: Path | None
    executes: bool
    hours: Hours | None
    is_terminated: Callable[[], bool] = lambda: False
    hour_now: Callable[[], int] = lambda: dt.datetime.now(dt.UTC).hour
    file: Path | None = None
    written_at_s: float = float("-inf")
    seen: tuple[ClusterFacts, Model, Outlook] | None = None
    first: ClusterFacts | None = None
    tried_at_s: dict[Path, float] = field(default_factory=dict)

    def loop(self, wait: Callable[[], bool]) -> None:
        """Make steps until SIGTERM. `wait` waits between two of them, and returns whether SIGTERM came."""
        from ottla.telemetry.logs.event_log import log_event

        try:
            while True:
                self.guarded_step()
                if wait():
                    break
        except _IsTerminated:
            pass
        finally:  # by Ctrl-C as well
            left = self.unfinished()
            log_event("plan_watch_ended", "info", {"file": "" if left is None else str(left)})

    def guarded_step(self) -> None:
        """Make a step. An unreachable broker, or a plan that cannot be made, is logged, and the next step tries
        again."""
        from ottla.telemetry.logs.event_log import log_event

        try:
            self.step()
        except (RetriableError, InputError) as error:
            log_event("plan_watch_failed", "warning", {"error": str(error)})

    def step(self) -> Outlook:
        """Read the cluster, continue a begun plan, write a plan if one is due, and run it if that is allowed now."""
        from ottla.telemetry.logs.event_log import log_event

        facts, model, outlook = self.look()
        begun = self.unfinished() if self.executes else None
        if begun is not None:
            if self.may_run():
                self.run(begun)
            return outlook
        if not outlook.reasons:
            self.file = None
        elif time.monotonic() - self.written_at_s >= _AGAIN_S:
            self.plan(facts, model, outlook)
        if self.file is not None and self.may_run():
            if facts.moves:
                log_event("plan_waits", "info", {"file": str(self.file), "reason": f"{len(facts.moves)} are under way"})
            else:
                self.run(self.file)
        return outlook

    def look(self) -> tuple[ClusterFacts, Model, Outlook]:
        from ottla.admin import Part
        from ottla.admin.facts.facts_file import write_whole
        from ottla.admin.facts.rates import rates_between
        from ottla.admin.placement.deciding import reachable_only
        from ottla.admin.placement.modelling import model_of
        from ottla.admin.placement.plan_watch import metrics_text

        facts = reachable_only(self.admin.facts({Part.TOPICS, Part.LOG_DIRS, Part.OFFSETS, Part.MOVES}))
        if self.first is None or self.first.cluster_id != facts.cluster_id:
            self.first = facts
        model = model_of(
            facts,
            rates=rates_between(self.first, facts) if facts.at_ms > self.first.at_ms else None,
            max_fill=self.options.max_fill,
            dirs_are_disks=self.options.dirs_are_disks,
        )
        outlook = self.watch.look(facts, model)
        if self.metrics_file is not None:
            text = metrics_text(outlook, is_due=bool(outlook.reasons), is_running=bool(facts.moves))
            write_whole(self.metrics_file, text.encode())
        return facts, model, outlook

    def plan(self, facts: ClusterFacts, model: Model, outlook: Outlook) -> None:
        """Write a plan in place of one that was never begun, and say so: once an hour."""
        from ottla.admin.facts.facts_file import write_whole
        from ottla.admin.placement.placement_state import Goals
        from ottla.admin.placement.plan_file import dump_plan
        from ottla.admin.placement.planners import rebalance
        from ottla.telemetry.logs.event_log import log_event

        plan = rebalance(model, goals=Goals(max_fill=self.options.max_fill))
        self.written_at_s = time.monotonic()
        reasons = list(outlook.reasons)
        if not any(move.adding or move.disk_moves for move in plan.moves):
            log_event("plan_has_no_effect", "warning", {"reasons": reasons, "notes": list(plan.notes)})
            return
        if self.file is not None:
            self.file.unlink(missing_ok=True)
        at = dt.datetime.fromtimestamp(facts.at_ms / 1000, dt.UTC)
        self.file = self.folder / f"watch-{at:%Y%m%dT%H%M%SZ}.json"
        write_whole(self.file, dump_plan(plan))
        log_event(
            "plan_due",
            "warning",
            {"reasons": reasons, "file": str(self.file), "moves": len(plan.moves), "bytes": plan.bytes_copied},
        )

    def may_run(self) -> bool:
        """Return whether plans are carried out now."""
        return self.executes and (self.hours is None or self.hours.has(self.hour_now()))

    def unfinished(self) -> Path | None:
        """Return a plan that was begun before, by this process or a killed one, and is unfinished. If its run ended
        with something left to do, such as removing the throttle of a broker that is down, it is tried again after an
        hour."""
        from ottla.admin.placement.journal import DONE, read_journal

        for path in sorted(self.folder.glob("watch-*.json.journal")):
            lines = read_journal(path)
            file = path.with_suffix("")
            tried_lately = time.monotonic() - self.tried_at_s.get(file, float("-inf")) < _AGAIN_S
            if lines and lines[-1]["step"] != DONE and not tried_lately:
                return file
        return None

    def run(self, file: Path) -> None:
        """Carry a plan out, or go on with one, until it is done or the hours are over."""
        from ottla.telemetry.logs.event_log import log_event

        log_event("plan_run_begins", "info", {"file": str(file)})
        try:
            outcome = carry_out(
                self.kafka,
                self.admin,
                file,
                self.options,
                may_be_unthrottled=self.options.throttle is None,
                sample_s=0.0,
                agree=lambda question: True,
                report=self._may_go_on,
            )
        except _HoursAreOver:
            log_event("plan_run_pauses", "info", {"file": str(file)})
            return
        except InputError:
            self.written_at_s = float("-inf")  # the cluster is another than when it was written
            raise
        finally:
            self.file = None  # what was begun is found by its journal; what cannot begin is planned again
        self.first = None
        self.watch.forget()
        has_lost_targets = outcome is not None and any(each.lost for each in outcome.not_done)
        if outcome is None or outcome.is_complete or has_lost_targets:
            self.written_at_s = float("-inf")  # later plans are due again
        if outcome is not None and not outcome.is_complete:
            self.tried_at_s[file] = time.monotonic()
        missing = [f"{each.move.place}: {each.why or each.state.value}" for each in outcome.not_done] if outcome else []
        left = list(outcome.throttles_left) if outcome else []
        log_event(
            "plan_run_ended",
            "warning" if missing or left else "info",
            {"file": str(file), "not_done": missing[:10], "throttles_left": left},
        )

    def _may_go_on(self, progress: MoveProgress) -> None:
        if self.is_terminated():
            raise _IsTerminated
        if not self.may_run():
            raise _HoursAreOver


_COLUMNS = (
    "broker",
    "disk",
    Column("total", text=bytes_text),
    Column("used", text=bytes_text),
    Column("bytes_per_s", "per second", text=bytes_text),
    Column("full_in_s", "full in", text=lambda s: "" if s is None else f"{s / 3600:,.1f} h"),
)


def _print(out: Output, outlook: Outlook, file: Path | None) -> None:
    items: list[dict[str, Any]] = [
        {
            "broker": disk.broker,
            "disk": disk.path,
            "total": disk.total,
            "used": disk.used,
            "bytes_per_s": disk.bytes_per_s,
            "full_in_s": disk.full_in_s,
        }
        for disk in outlook.disks
    ]
    out.items(
        _SCHEMA,
        _COLUMNS,
        items,
        empty="no broker reports the size of its disks",
        at=moment(outlook.at_ms),
        skew=outlook.skew,
        reasons=list(outlook.reasons),
        file=None if file is None else str(file),
    )
