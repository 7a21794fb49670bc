"""How a changing command ends: 2 where nothing was begun, 1 where something was done and something failed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NoReturn

import click

from ottla.cli.shared.output import notes_for_people, say, warn
from ottla.cli.shared.visible import visible
from ottla.errors import DeliveryError, DeliveryPending, OttlaError, RetriableError

if TYPE_CHECKING:
    from pathlib import Path

SOMETHING_FAILED = 1
NOT_BEGUN = 2

_UNCONFIRMED: Final = (RetriableError, DeliveryError, DeliveryPending)


@contextlib.contextmanager
def changing() -> Iterator[None]:
    """Run the change inside the block. What is refused as a whole changed nothing, and ends with 2, also where that is
    several refusals.

    A change of which a part was made ends with 1, and so does one that a broker did not live to confirm.
    """
    from ottla.admin.errors import PartlyDone

    try:
        yield
    except PartlyDone as error:
        for name in error.done:
            say(f"done: {visible(name)}")
        for failure in {str(each): each for each in error.failed.values()}.values():
            complain(failure)
        raise click.exceptions.Exit(NOT_BEGUN if _is_refused(error) else SOMETHING_FAILED) from None
    except _UNCONFIRMED as error:
        complain(error)
        fail()


@contextlib.contextmanager
def restorable(*undo_files: Path) -> Iterator[None]:
    """Run a change of groups whose committed offsets are in these files. Prints how to restore them, unless the cluster
    refused the whole change."""
    is_refused = False
    try:
        yield
    except OttlaError as error:
        is_refused = _is_refused(error)
        raise
    finally:
        for path in undo_files:
            if path.exists() and not is_refused:
                say(f"restore the offsets of before with: ottla groups restore {visible(str(path))}")


def _is_refused(error: OttlaError) -> bool:
    """Return whether a change was refused as a whole: no part of it was made, or may have been."""
    from ottla.admin.errors import PartlyDone

    if isinstance(error, PartlyDone):
        return not error.done and not any(isinstance(each, _UNCONFIRMED) for each in error.failed.values())
    return not isinstance(error, _UNCONFIRMED)


def complain(error: OttlaError) -> None:
    """Print an error on stderr, as commands that end with it do."""
    warn("\n".join([f"ottla: {type(error).__name__}: {visible(str(error))}", *notes_for_people(error)]))


def fail() -> NoReturn:
    """Note that the command is done, but something failed or was found."""
    raise click.exceptions.Exit(SOMETHING_FAILED)
