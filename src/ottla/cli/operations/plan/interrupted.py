"""Ctrl-C while moves are under way: the first ends the tool and leaves them to the brokers, a second cancels them.

Brokers that no longer answer end it as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.browse.plan_files import journal_of
from ottla.cli.shared.outcome import complain, fail
from ottla.cli.shared.output import say, warn
from ottla.errors import OttlaError, RetriableError

if TYPE_CHECKING:
    from ottla.admin.placement.executor import RunOutcome

_AGAIN_S: Final = 1.0
"""How long the second Ctrl-C is waited for: who only wants the prompt back has it then."""


@contextmanager
def interruptible(file: Path, cancel: Callable[[], RunOutcome], *, go_on: str) -> Iterator[None]:
    """Handle Ctrl-C inside the block. `cancel` cancels the plan's moves in progress, and may be called after the block.
    The interrupted call may be in the middle of a request, so `cancel` must use connections of its own."""
    try:
        yield
    except KeyboardInterrupt:
        warn("")
        if not journal_of(file).exists():
            raise
        try:
            warn("interrupted: moves under way continue in the brokers, with their throttle")
            warn(f"  continue: {go_on}")
            warn(f"  cancel:   Ctrl-C again within {_AGAIN_S:.0f} s, or ottla plan cancel {file}")
            time.sleep(_AGAIN_S)
        except KeyboardInterrupt:
            _cancel(file, cancel)
        raise


@contextmanager
def left_to_brokers(file: Path, *, go_on: str) -> Iterator[None]:
    """End the command with exit code 1 if brokers stop responding inside the block, because sent requests may have
    taken effect. Raises the error if nothing was begun."""
    try:
        yield
    except RetriableError as error:
        if not journal_of(file).exists():
            raise
        complain(error)
        warn(f"moves under way continue in the brokers, with their throttle; continue: {go_on}")
        fail()


def _cancel(file: Path, cancel: Callable[[], RunOutcome]) -> None:
    warn("")
    warn("cancelling the moves under way")
    try:
        outcome = cancel()
    except KeyboardInterrupt:
        warn("")
        warn(f"interrupted again: moves that are not cancelled continue; ottla plan cancel {file} cancels the rest")
        return
    except OttlaError as error:
        warn(f"not cancelled: {error}; moves under way continue: ottla plan cancel {file}")
        return
    print_cancelled(file, outcome)


def print_cancelled(file: Path, outcome: RunOutcome) -> bool:
    """Say how a cancel ended; False where something of the run is left."""
    for refused in outcome.refused:
        warn(f"problem: {refused}")
    for left in outcome.throttles_left:
        warn(f"a throttle is left: {left}; the same command takes it away when the broker is back")
    if outcome.refused or outcome.throttles_left:
        return False
    done = len(outcome.statuses) - len(outcome.not_done)
    say(f"cancelled; {done:,} moves are done and stay: ottla plan cancel {file} --revert moves them back")
    return True
