"""The outcomes of a record: a handler returns one, or raises and the exception table names one.

Returning nothing means `Ack`. There is no outcome that commits a failed record without a trace: the only way past a
record that was not handled is a dead letter, or a `Skip` that the handler asked for and that is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

from ottla.config.arguments import names_arguments
from ottla.errors import ConfigError
from ottla.quantities import MOST_S, Span, milliseconds_of, seconds, seconds_of
from ottla.records import FailureKind
from ottla.showing import shown

_KINDS: Final = get_args(FailureKind)


def _check_reason(place: str, reason: object) -> None:
    # It becomes a header of the dead letter, behind the handler: what is no text would end the service there.
    if not isinstance(reason, str):
        hint = f"; write {place}(str(error))" if isinstance(reason, BaseException) else ""
        raise ConfigError(f"{place}: reason must be text, got {shown(reason)}{hint}")


@dataclass(frozen=True, slots=True)
class Ack:
    """The record is done."""


@names_arguments
@dataclass(frozen=True, slots=True)
class Retry:
    """Deliver the record again: after `after_s` (seconds, or a timedelta), or when the retry policy says so.

    It counts as an attempt: `RetryPolicy.max_attempts` still ends it, because a record that is retried for ever stops
    everything behind it. Raises `ConfigError`, in a handler a failure of its record, for what is no span of time.
    """

    after_s: Span | None = None
    reason: str = "the handler asked for a retry"
    """Goes to logs, and to the dead letter once attempts are used up."""

    def __post_init__(self) -> None:
        if self.after_s is not None:
            seconds("Retry", "after_s", self.after_s, most=math.inf)
        _check_reason("Retry", self.reason)

    @property
    def after_ms(self) -> int | None:
        """`after_s` in milliseconds, at most the longest time of a timer."""
        return None if self.after_s is None else milliseconds_of(min(seconds_of(self.after_s), MOST_S))


@dataclass(frozen=True, slots=True)
class Dead:
    """Write the record to the dead letter topic at once; no retry would help.

    Raises `ConfigError`, in a handler a failure of its record, for a reason that is no text, and for another kind.
    """

    reason: str = "the handler refused the record"
    """Goes to logs and into the dead letter's headers."""
    kind: FailureKind = "failed"
    """How the dead letter is classified."""

    def __post_init__(self) -> None:
        _check_reason("Dead", self.reason)
        if self.kind not in _KINDS:
            raise ConfigError(f"Dead: kind must be one of {', '.join(_KINDS)}, got {shown(self.kind)}")


@dataclass(frozen=True, slots=True)
class Skip:
    """Pass over the record on purpose: it is counted, and not written anywhere."""

    reason: str = "the handler skipped the record"
    """Goes to logs."""

    def __post_init__(self) -> None:
        _check_reason("Skip", self.reason)


Outcome: TypeAlias = Ack | Retry | Dead | Skip
"""A handler's result for a record, also an entry of an app's exception table."""


class Outcomes:
    """Outcomes of single rows of a batch of columns: `Outcomes((rows, Dead("why")), ...)`. The other rows are done.

    `rows` is a mask as long as the batch (an Arrow or numpy array, a Polars or pandas series, a list of bools), or the
    numbers of rows, counted from 0. Of two that name a row the first counts. Raises `TypeError` for anything else.
    """

    __slots__ = ("parts",)

    def __init__(self, *parts: tuple[Any, Outcome]) -> None:
        for part in parts:
            if not (isinstance(part, tuple) and len(part) == 2 and isinstance(part[1], Outcome)):
                raise TypeError(
                    f"Outcomes: found {part!r}, wanted (rows, Dead(...)), (rows, Retry()) or (rows, Skip())"
                )
        self.parts = parts

    def __repr__(self) -> str:
        return f"Outcomes({', '.join(map(repr, self.parts))})"


class InvalidRecord(Exception):
    """Raise it in a handler when the record breaks a rule: it is dead-lettered as ``invalid`` at the first failure."""
