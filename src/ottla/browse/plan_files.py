"""The files beside a plan that is carried out: FILE.journal, and FILE.rollback.json that leads back."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.browse.human_amounts import bytes_of, bytes_text
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.admin.placement.cluster_model import Model
    from ottla.admin.placement.executor import RunOptions
    from ottla.admin.placement.journal import Journal
    from ottla.admin.placement.move_plan import Move
    from ottla.admin.placement.run_throttles import ThrottleSetting


def journal_of(file: Path) -> Path:
    """Return the path of the journal of this plan's run."""
    return file.with_name(f"{file.name}.journal")


def rollback_of(file: Path) -> Path:
    """Return the plan that leads back."""
    return file.with_name(f"{file.name}.rollback.json")


@contextmanager
def opened(file: Path, moves: tuple[Move, ...]) -> Iterator[Journal]:
    """Open the journal; before it is written to, the rollback file is."""
    from ottla.admin.facts.facts_file import write_whole
    from ottla.admin.placement.journal import BEGIN, Journal
    from ottla.admin.placement.plan_file import dump_rollback

    with Journal(journal_of(file)) as book:
        if not rollback_of(file).exists():
            write_whole(rollback_of(file), dump_rollback(moves))
        if not book.lines:
            book.write(BEGIN, moves=len(moves), sha256=_digest(file) if file.exists() else None)
        yield book


def has_begun(file: Path, *, is_run: bool) -> bool:
    """Return whether this very plan was begun. The journal of another that had this name, and is over, is put aside."""
    from ottla.admin.placement import journal

    lines = journal.read_journal(journal_of(file))
    if not lines or not rollback_of(file).exists():
        return False
    if lines[0].get("sha256") == _digest(file):
        return True
    if lines[-1]["step"] != journal.DONE:
        raise InputError(f"{file}: changed after its run began, and {journal_of(file)} is not over: restore the file")
    if is_run:
        for each in (journal_of(file), rollback_of(file)):
            each.replace(each.with_name(f"{each.name}.old"))
    return False


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def moves_of_file(
    admin: Admin,
    file: Path,
    options: RunOptions,
    *,
    is_run: bool,
    warn: Callable[[str], object],
    sample_s: float = 0.0,
    wait: Callable[[float, str], object] = lambda seconds, what: time.sleep(seconds),
) -> tuple[Move, ...]:
    """Return the moves of the file: of a run that has begun, or of the plan if the cluster still allows it. `warn` is
    called with the warnings of `judge` before a run begins; `wait` lets `sample_s` pass while write rates are measured.
    """
    from ottla.admin import Part
    from ottla.admin.facts.facts_file import read_bounded
    from ottla.admin.facts.rates import rates_between
    from ottla.admin.placement.deciding import reachable_only
    from ottla.admin.placement.modelling import model_of
    from ottla.admin.placement.placement_state import Goals
    from ottla.admin.placement.plan_file import load_plan, moves_between, moves_of
    from ottla.admin.placement.plan_judgement import judge

    wanted = load_plan(read_bounded(file), source=str(file))
    parts = {Part.TOPICS, Part.LOG_DIRS, Part.MOVES, *([Part.OFFSETS] if sample_s else [])}
    facts = reachable_only(admin.facts(parts))
    if wanted.cluster_id and wanted.cluster_id != facts.cluster_id:
        raise InputError(f"{file}: found a plan for the cluster {wanted.cluster_id}, wanted one for {facts.cluster_id}")
    rates = None
    if sample_s:
        wait(sample_s, "measuring write rates")
        before, facts = facts, reachable_only(admin.facts(parts))
        rates = rates_between(before, facts)
    model: Model = model_of(facts, rates=rates, max_fill=options.max_fill, dirs_are_disks=options.dirs_are_disks)
    if has_begun(file, is_run=is_run):
        before_run = load_plan(read_bounded(rollback_of(file)), source=str(rollback_of(file)))
        return moves_between(wanted, before_run, model)
    moves = moves_of(wanted, model)
    if is_run:
        judged = judge(wanted, model, goals=Goals(max_fill=options.max_fill, pace=options.pace))
        for warning in judged.warnings:
            warn(f"warning: {warning}")
        if judged.problems:
            raise InputError(f"{file}: not begun: {'; '.join(judged.problems[:5])} (ottla plan check {file})")
    return moves


def check_throttle(options: RunOptions, moves: tuple[Move, ...], *, said: bool) -> None:
    """Raise InputError for a throttle under which the run would never end, and for much to copy without a throttle."""
    from ottla.admin.placement.run_throttles import FREE_BYTES, check_rate, suggested_rate

    copied = sum(move.copied for move in moves)
    if options.throttle is not None:
        check_rate(options.throttle, moves)
    elif copied > FREE_BYTES and not said:
        rate = suggested_rate(moves) // 1_000_000
        raise InputError(f"{bytes_text(copied)} have to move: wanted --throttle, such as {rate}MB, or --no-throttle")


def rates_of_run(file: Path, rate: str) -> list[ThrottleSetting]:
    """Return the rates that a run of the plan has set, with another size. InputError where it has set none."""
    from ottla.admin.placement.journal import read_journal
    from ottla.admin.placement.leftovers import throttle_of
    from ottla.admin.placement.run_throttles import RATES

    settings = throttle_of(read_journal(journal_of(file)))
    if not settings:
        raise InputError(f"{file}: its run has set no throttle: ottla plan run {file} --throttle {rate} sets one")
    wanted = str(bytes_of("SIZE", rate))
    return [replace(each, new=wanted) for each in settings if each.name in RATES]


def parse_ids(text: str) -> list[int]:
    """Parse `1,2,3` as broker ids."""
    found = []
    for part in text.split(","):
        if not part.strip().isascii() or not part.strip().isdigit() or len(part.strip()) > 10:
            raise InputError(f"brokers: found {part!r} in {text!r}, wanted ids as in 4,5")
        found.append(int(part))
    return found
