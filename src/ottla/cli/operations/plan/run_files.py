"""The files beside a plan that is carried out: FILE.journal, and FILE.rollback.json that leads back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin.placement.journal import Journal
    from ottla.admin.placement.plan import Move


def journal_of(file: Path) -> Path:
    """Where it is written what a run of this plan does."""
    return file.with_name(f"{file.name}.journal")


def rollback_of(file: Path) -> Path:
    """The plan that leads back."""
    return file.with_name(f"{file.name}.rollback.json")


@contextmanager
def opened(file: Path, moves: tuple[Move, ...]) -> Iterator[Journal]:
    """The journal, and before it is written to, the file that leads back."""
    from ottla.admin.facts_file import write_whole
    from ottla.admin.placement.journal import BEGIN, Journal
    from ottla.admin.placement.plan_file import dump_rollback

    with Journal(journal_of(file)) as book:
        if not rollback_of(file).exists():
            write_whole(rollback_of(file), dump_rollback(moves))
        if not book.lines:
            book.write(BEGIN, moves=len(moves), sha256=_digest(file) if file.exists() else None)
        yield book


def has_begun(file: Path, *, is_run: bool) -> bool:
    """Whether this very plan was begun. The journal of another that had this name, and is over, is put aside."""
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
