"""Errors of operations on several things at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from ottla.errors import InputError, OttlaError


class PartlyDone(OttlaError):
    """Decide about the listed ones: of several changes some were made and some were not.

    `done` are the names of those that were made, none if all failed; `failed` has the error of each other one.
    """

    def __init__(self, what: str, *, done: Sequence[str], failed: Mapping[str, OttlaError]) -> None:
        self.done = tuple(done)
        self.failed = dict(failed)
        reasons = list(dict.fromkeys(map(str, failed.values())))
        shown = "; ".join(reasons[:3])
        more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
        super().__init__(f"{what}: {len(failed)} of {len(failed) + len(done)} failed: {shown}{more}")


class UnknownGroup(InputError, LookupError):
    """Fix the name of the group: the cluster has none that is called so."""


class GroupInUse(InputError):
    """Stop the members that the message names first: Kafka sets no offsets of a group that has members."""


def raise_failed(what: str, *, names: Sequence[str], failed: Mapping[str, OttlaError]) -> None:
    """Raise what failed: the error of the only one of which nothing was done, else `PartlyDone`, which names all."""
    if not failed:
        return
    done = [name for name in names if name not in failed]
    if len(failed) == 1 and not done:
        raise next(iter(failed.values()))
    raise PartlyDone(what, done=done, failed=failed)


def raise_from_step(what: str, error: OttlaError, *, names: Sequence[str], done: Sequence[str]) -> NoReturn:
    """Raise the error of one of several steps, as it is if nothing was done, otherwise `PartlyDone`: its `failed` has
    every other name, with the error of the step where the step does not name it."""
    done = [*done, *(error.done if isinstance(error, PartlyDone) else ())]
    if not done:
        raise error
    own = error.failed if isinstance(error, PartlyDone) else {}
    rest = next(iter(own.values()), error)
    raise PartlyDone(
        what, done=done, failed={name: own.get(name, rest) for name in names if name not in done}
    ) from error
