"""`ottla plan run`, `status`, `throttle` and `cancel`: execute a plan, and watch it to its end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.browse.human_amounts import bytes_of, bytes_text, milliseconds
from ottla.browse.plan_files import check_throttle, journal_of, moves_of_file, opened
from ottla.cli.operations.notes import wait
from ottla.cli.operations.plan.in_progress import cancel_all, seen_under_way
from ottla.cli.operations.plan.interrupted import interruptible, left_to_brokers, print_cancelled
from ottla.cli.operations.plan.options import POLL, fills_disks
from ottla.cli.operations.plan.progress_view import ProgressView
from ottla.cli.operations.plan.replan_hint import offers
from ottla.cli.operations.plan.results import show_moves, show_staying
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import Output, prints, say, warn
from ottla.cli.shared.parameter_types import Seconds
from ottla.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.admin import Admin
    from ottla.admin.placement.deciding import Status
    from ottla.admin.placement.executor import RunOptions, RunOutcome
    from ottla.admin.placement.move_plan import Move
    from ottla.admin.placement.move_progress import MoveProgress
    from ottla.config import Settings

_FILE_OR_ALL = click.argument("file", type=FILE, required=False)
SAMPLE = click.option(
    "--sample",
    default="10s",
    show_default=True,
    metavar="TIME",
    help="With a throttle: how long to measure the write rate, which must be lower; 0s skips the check.",
)


@click.command()
@click.argument("file", type=FILE)
@click.option("--throttle", metavar="SIZE", help="Bytes per second for each broker, as 50MB. Or --no-throttle.")
@click.option("--no-throttle", is_flag=True, help="Copy without a limit. Above 1 GiB, this or --throttle is required.")
@click.option(
    "--moves-per-broker",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Most moves at once into and out of a broker.",
)
@click.option(
    "--moves-per-disk", type=click.IntRange(1), default=2, show_default=True, help="Most moves at once to a disk."
)
@click.option("--batch-bytes", default="50GiB", show_default=True, metavar="SIZE", help="Most bytes in flight at once.")
@fills_disks("How full a disk may become; a move waits for room.")
@SAMPLE
@POLL
@click.option(
    "--give-up-after",
    "patience_s",
    type=Seconds(0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for a broker that is down, or for a move that another tool began.",
)
@reaches_a_cluster
@prints
@changes
def run(
    file: Path,
    throttle: str | None,
    no_throttle: bool,
    moves_per_broker: int,
    moves_per_disk: int,
    batch_bytes: str,
    max_fill: float,
    dirs_are_disks: bool,
    sample: str,
    poll_s: float,
    patience_s: float,
    kafka: Settings,
    out: Output,
    consent: Consent,
) -> None:
    """Execute a plan. After Ctrl-C or a kill, the same command continues it.

    FILE.journal records what was begun, FILE.rollback.json is the plan that reverts it. Throttles are
    restored at the end. Ctrl-C leaves moves under way to the brokers; a second one within a second cancels
    them. The exit code is 1 if a move was not made.

    \b
    Examples:
      ottla plan run rebalance.json --throttle 50MB --yes
    """
    from ottla.admin.placement.deciding import MoveState, Status
    from ottla.admin.placement.executor import RunOptions
    from ottla.admin.placement.move_schedule import MovePace

    if throttle is not None and no_throttle:
        raise InputError("found --throttle and --no-throttle, wanted one of them")
    options = RunOptions(
        throttle=None if throttle is None else bytes_of("--throttle", throttle),
        pace=MovePace(
            per_broker=moves_per_broker, per_disk=moves_per_disk, bytes=bytes_of("--batch-bytes", batch_bytes)
        ),
        max_fill=max_fill,
        poll_s=poll_s,
        patience_s=patience_s,
        dirs_are_disks=dirs_are_disks,
    )
    planned: list[Move] = []
    with open_admin(kafka) as admin, left_to_brokers(file, go_on=f"ottla plan run {file}"):
        outcome = carry_out(
            kafka,
            admin,
            file,
            options,
            may_be_unthrottled=no_throttle,
            sample_s=milliseconds("--sample", sample) / 1000 if options.throttle is not None else 0.0,
            agree=consent.agree,
            found=planned.extend,
        )
    if outcome is None:
        waiting = [Status(move=move, state=MoveState.WAITING) for move in planned]
        show_moves(out, "plan.run/1", waiting, empty="nothing has to move", complete=not waiting)
        return
    show_moves(out, "plan.run/1", outcome.statuses, empty="nothing has to move", complete=outcome.is_complete)
    _end(outcome, file)


def carry_out(
    kafka: Settings,
    admin: Admin,
    file: Path,
    options: RunOptions,
    *,
    may_be_unthrottled: bool,
    sample_s: float,
    agree: Callable[[str], bool],
    report: Callable[[MoveProgress], None] | None = None,
    found: Callable[[Sequence[Move]], object] = lambda moves: None,
) -> RunOutcome | None:
    """Start or continue a plan from a file. Returns None if nothing moves or the user declined. `found` is called with
    the moves before the question."""
    from ottla.admin.placement.executor import Executor

    moves = moves_of_file(admin, file, options, is_run=True, warn=warn, sample_s=sample_s, wait=wait)
    found(moves)
    if not moves:
        return None
    copied = sum(move.copied for move in moves)
    check_throttle(options, moves, said=may_be_unthrottled or options.throttle is not None)
    if not agree(f"Move {bytes_text(copied)} in {len(moves):,} partitions?"):
        return None
    with (
        interruptible(file, lambda: cancelled(kafka, admin, file, moves, options), go_on=f"ottla plan run {file}"),
        opened(file, moves) as book,
    ):
        return Executor(admin.carry_out, moves, book, options, report=report or ProgressView()).run()


@click.command()
@_FILE_OR_ALL
@reaches_a_cluster
@prints
def status(file: Path | None, kafka: Settings, out: Output) -> None:
    """Show the progress of a plan, and what each move waits for. Changes nothing.

    Without FILE: of all moves in progress, also those of other tools.

    \b
    Examples:
      ottla plan status
      ottla plan status rebalance.json
    """
    from ottla.admin.placement.executor import RunOptions

    with open_admin(kafka) as admin:
        if file is None:
            show_moves(out, "plan.status/1", seen_under_way(admin), empty="nothing moves")
            return
        statuses = _seen(admin, file, moves_of_file(admin, file, RunOptions(), is_run=False, warn=warn))
    show_moves(out, "plan.status/1", statuses, empty="the cluster is as the plan wants it")


def _seen(admin: Admin, file: Path, moves: tuple[Move, ...]) -> tuple[Status, ...]:
    """Return how far each move of a plan is now."""
    from ottla.admin import Part
    from ottla.admin.placement.deciding import PlanRun, decide
    from ottla.admin.placement.journal import read_journal, submitted

    ours = submitted(read_journal(journal_of(file)))
    facts = admin.facts({Part.TOPICS, Part.LOG_DIRS, Part.MOVES})
    return decide(PlanRun(moves=moves, ours=ours, begins_nothing=True), facts).statuses


@click.command()
@_FILE_OR_ALL
@click.option("--revert", is_flag=True, help="Also move completed moves back.")
@click.option("--throttle", metavar="SIZE", help="Bytes per second for each broker while moving back.")
@POLL
@reaches_a_cluster
@prints
@changes
def cancel(
    file: Path | None, revert: bool, throttle: str | None, poll_s: float, kafka: Settings, out: Output, consent: Consent
) -> None:
    """Cancel the moves of a plan that are under way, and remove its throttles. Moves of others stay.

    Without FILE: cancel all moves in progress, also those of other tools, and keep their throttles.

    \b
    Examples:
      ottla plan cancel rebalance.json --yes
      ottla plan cancel rebalance.json --revert --yes
      ottla plan cancel --dry-run
    """
    from ottla.admin.placement.executor import Executor, RunOptions

    if file is None:
        if revert or throttle is not None:
            raise InputError("found --revert or --throttle without FILE, wanted the plan that tells what was before")
        with open_admin(kafka) as admin:
            cancel_all(admin, out, consent)
        return

    options = RunOptions(
        poll_s=poll_s, max_fill=1.0, throttle=None if throttle is None else bytes_of("--throttle", throttle)
    )
    with open_admin(kafka) as admin:
        if not journal_of(file).exists():
            raise InputError(f"{journal_of(file)}: found no journal, so no run of {file} has begun")
        moves = moves_of_file(admin, file, options, is_run=False, warn=warn)
        if consent.is_dry_run:
            show_staying(out, _seen(admin, file, moves), empty="nothing moves", complete=False)
        if not consent.agree(
            f"Cancel the moves of {file} that are under way{', and move the rest back' if revert else ''}?"
        ):
            return
        with left_to_brokers(file, go_on=f"ottla plan cancel {file}"):
            outcome = _cancelled(admin, file, moves, options)
        if outcome.refused or outcome.throttles_left or not revert:
            is_complete = not (outcome.refused or outcome.throttles_left)
            show_staying(out, outcome.statuses, empty="nothing moved", complete=is_complete)
            if not print_cancelled(file, outcome):
                fail()
            return
        back = tuple(
            replace(each.move, old=each.move.new, new=each.move.old, log_dirs=())
            for each in outcome.statuses
            if each not in outcome.not_done
        )
        aside = file.with_name(f"{file.name}.revert")
        go_on = f"ottla plan cancel {file} --revert"
        with (
            left_to_brokers(file, go_on=go_on),
            interruptible(aside, lambda: cancelled(kafka, admin, aside, back, options), go_on=go_on),
            opened(aside, back) as book,
        ):
            outcome = Executor(admin.carry_out, back, book, options, report=ProgressView()).run()
        show_staying(out, outcome.statuses, empty="nothing moved", complete=outcome.is_complete)
        _end(outcome)


def cancelled(kafka: Settings, before: Admin, file: Path, moves: tuple[Move, ...], options: RunOptions) -> RunOutcome:
    """Cancel a plan's moves in progress over new connections. Requests already sent on the connections of `before` are
    awaited first, so that nothing begins after the cancel."""
    before.close()
    with open_admin(kafka) as admin:
        return _cancelled(admin, file, moves, options)


def _cancelled(admin: Admin, file: Path, moves: tuple[Move, ...], options: RunOptions) -> RunOutcome:
    from ottla.admin.placement.executor import Executor

    with opened(file, moves) as book:
        return Executor(admin.carry_out, moves, book, replace(options, throttle=None)).cancel()


def _end(outcome: RunOutcome, file: Path | None = None) -> None:
    """Say how it ended, and fail where something is left. `file`: of the plan, where another may take its place."""
    for each in outcome.not_done:
        warn(f"not done: {each.move.place}: {each.state.value}{f': {each.why}' if each.why else ''}")
    for left in outcome.throttles_left:
        warn(f"a throttle is left: {left}; the same command takes it away when the broker is back")
    if file is not None and outcome.not_done:
        from ottla.admin.facts.facts_file import read_bounded
        from ottla.admin.placement.plan_file import load_plan

        kind = str(load_plan(read_bounded(file), source=str(file)).extra.get("kind", ""))
        for line in offers(file, kind, outcome.statuses):
            warn(line)
    if not outcome.is_complete:
        fail()
    say(f"done: {len(outcome.statuses):,} partitions are where the plan wants them")
