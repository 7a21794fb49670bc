"""`ottla plan throttle`: another rate for a run that is under way, and throttles taken away that something left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.browse.human_amounts import bytes_of, bytes_text, milliseconds
from ottla.browse.plan_files import moves_of_file, rates_of_run
from ottla.cli.operations.notes import wait
from ottla.cli.operations.plan.execution import SAMPLE
from ottla.cli.operations.plan.results import show_left, show_rates
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import Output, prints, say, warn
from ottla.errors import InputError, RetriableError

if TYPE_CHECKING:
    from ottla.admin import Admin, ClusterFacts
    from ottla.admin.placement.leftovers import LeftThrottle, RunThrottle
    from ottla.config import Settings


@click.command()
@click.argument("file", type=FILE, required=False)
@click.argument("rate", metavar="[SIZE]", required=False)
@click.option("--clear", is_flag=True, help="Without FILE: remove throttles that were left on topics and brokers.")
@SAMPLE
@reaches_a_cluster
@prints
@changes
def throttle(
    file: Path | None, rate: str | None, clear: bool, sample: str, kafka: Settings, out: Output, consent: Consent
) -> None:
    """Change the throttle of a plan that is under way to SIZE bytes per second, also while `ottla plan run` runs.

    When the run ends, the earlier settings are restored.

    --clear shows the throttles that an interrupted run or another tool left, and removes them. If a
    journal in this folder has the settings from before its run, they are restored. Throttles of a current run stay.

    \b
    Examples:
      ottla plan throttle rebalance.json 100MB --yes
      ottla plan throttle --clear --dry-run
      ottla plan throttle --clear --yes
    """
    if clear:
        if file is not None:
            raise InputError(
                f"--clear: found FILE {file}, wanted none: ottla plan run {file} --no-throttle goes on without its"
                f" throttle, ottla plan cancel {file} ends it"
            )
        with open_admin(kafka) as admin:
            _clear(admin, out, consent)
        return
    if file is None or rate is None:
        raise InputError("wanted FILE and SIZE, as in rebalance.json 100MB, or --clear")
    _change(file, rate, sample, kafka, out, consent)


def _change(file: Path, rate: str, sample: str, kafka: Settings, out: Output, consent: Consent) -> None:
    from ottla.admin.placement import move_requests as asks
    from ottla.admin.placement.executor import RunOptions
    from ottla.admin.placement.run_throttles import check_rate

    wanted = bytes_of("SIZE", rate)
    settings = rates_of_run(file, rate)
    with open_admin(kafka) as admin:
        sample_s = milliseconds("--sample", sample) / 1000
        moves = moves_of_file(admin, file, RunOptions(), is_run=False, warn=warn, sample_s=sample_s, wait=wait)
        check_rate(wanted, moves)
        brokers = sorted({int(each.resource) for each in settings})
        show_rates(out, settings)
        if not consent.agree(f"Copy with {bytes_text(wanted)}/s into and out of {len(brokers)} brokers?"):
            return
        failed = admin.carry_out(asks.set_all(settings, back=False))
    for what, error in failed.items():
        is_unknown = isinstance(error, RetriableError)
        warn(f"{'whether it was changed is not known' if is_unknown else 'not changed'}: {what}: {error}")
    if failed:
        fail()
    say(f"brokers {', '.join(map(str, brokers))} copy with at most {bytes_text(wanted)}/s")


def _clear(admin: Admin, out: Output, consent: Consent) -> None:
    from ottla.admin import Part
    from ottla.admin.placement import move_requests as asks
    from ottla.admin.placement.leftovers import left_throttles

    facts = admin.facts({Part.TOPICS, Part.MOVES, Part.TOPIC_SETTINGS, Part.BROKER_SETTINGS})
    unseen = [f"{each.subject}: {each.why}" for each in facts.not_read]
    for each in unseen:
        warn(f"not looked at: {each}")
    found = left_throttles(facts, _runs(Path(), facts.cluster_id))
    left = [each for each in found if not each.is_kept]
    show_left(out, left)
    for file in sorted({each.run for each in found if each.is_kept}):
        warn(f"the throttle of {file} stays: a command runs it now; ottla plan throttle {file} SIZE changes it")
    for file in sorted({each.run for each in left if each.run}):
        warn(f"the run of {file} is not over: what its journal tells of before returns; ottla plan run {file} goes on")
    if left and consent.agree(_question(facts, left)):
        failed = admin.carry_out(asks.set_all((each.setting for each in left), back=True))
        for what, error in failed.items():
            is_unknown = isinstance(error, RetriableError)
            warn(f"{'whether it was removed is not known' if is_unknown else 'not removed'}: {what}: {error}")
        say(f"{sum(f'{each.kind} {each.resource}' not in failed for each in left):,} settings are changed")
        if failed:
            fail()
    if unseen:
        fail()


def _question(facts: ClusterFacts, left: Sequence[LeftThrottle]) -> str:
    moving = len(facts.moves)
    plural = "1 move is" if moving == 1 else f"{moving:,} moves are"
    but = f" {plural} under way, and may copy without a limit then." if moving else ""
    return f"Change {len(left):,} settings?{but}"


def _runs(folder: Path, cluster_id: str) -> Iterator[RunThrottle]:
    """Yield what runs have set whose journals are in this folder, of plans for this cluster or for any."""
    from ottla.admin.facts.facts_file import read_bounded
    from ottla.admin.placement.journal import is_written, read_journal
    from ottla.admin.placement.leftovers import RunThrottle, throttle_of
    from ottla.admin.placement.plan_file import load_plan

    for path in sorted(folder.glob("*.journal")):
        file = path.with_suffix("")
        try:
            settings = throttle_of(read_journal(path))
            plan = load_plan(read_bounded(file), source=str(file)) if settings and file.exists() else None
        except InputError as error:
            warn(f"not looked at: {error}")
            continue
        is_of_another = plan is not None and bool(plan.cluster_id) and plan.cluster_id != cluster_id
        if settings and not is_of_another:
            yield RunThrottle(file=str(file), settings=settings, is_running=is_written(path))
