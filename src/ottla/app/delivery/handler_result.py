"""What a handler returned: nothing or a value of its own (done), an outcome, what it sent, or a mistake.

A mistake is a result that shows that the handler did not do its work: a generator that never ran, the class `Dead`
instead of `Dead("why")`, outcomes in a list where one record was handled. Such a record is a dead letter, with the text
that says what to change; it never counts as done.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeGuard

from ottla.app.delivery.pending_sends import is_kind_of_promise, is_promise
from ottla.failures.exceptions import Failure
from ottla.failures.outcomes import Ack, Dead, Retry, Skip

_OUTCOMES: Final = (Ack, Retry, Dead, Skip)
_COLLECTIONS: Final = (list, tuple, set, frozenset)
_DEEPEST: Final = 3
"""Lists in lists are looked through so far: deeper ones are data."""

Returned: TypeAlias = "Failure | Sequence[Any] | None"
"""A failure, or the promises that are to be confirmed, or None: the record is done."""


@dataclass(frozen=True, slots=True)
class PerRecord:
    """The results of a batch handler, one per record, in order."""

    entries: Sequence[Any]


def read_returned(value: Any, depth: int = 0) -> Returned:
    """Return what the handler of one record returned."""
    if value is None or isinstance(value, Ack):
        return None
    if is_promise(value):
        return (value,)
    if isinstance(value, Failure):
        return value
    if isinstance(value, Retry | Dead):
        return Failure.of_outcome(value)
    if isinstance(value, Skip):
        return Failure(outcome=value, kind="skipped", message=value.reason)
    if isinstance(value, _COLLECTIONS):
        return _read_many(value, depth)
    return _mistake_in(value)


def read_batch(value: Any, records: int) -> Returned | PerRecord:
    """Return the result of a batch handler for this many records: `PerRecord`, or one result for all of them."""
    if not isinstance(value, list | tuple):
        return read_returned(value)
    if len(value) == records:
        return PerRecord(value)
    if value and all(map(is_promise, value)):
        return value
    return mistake(
        f"a batch handler returns None, one outcome for the batch, or a list of one outcome per record, in order: "
        f"found a {type(value).__name__} of {len(value)} for {records} records"
    )


def is_open(found: Returned) -> TypeGuard[Sequence[Any]]:
    """Return whether there are promises to be confirmed."""
    return found is not None and not isinstance(found, Failure)


def failure_in(found: Returned) -> Failure | None:
    """Return the failure, if it is one."""
    return found if isinstance(found, Failure) else None


def promises_in(found: Returned) -> Sequence[Any]:
    """Return the promises, if there are any."""
    return found if is_open(found) else ()


def mistake(message: str) -> Failure:
    """Return the failure for a return value that has no meaning. A retry would not help."""
    return Failure(outcome=Dead(reason=message), error_type="TypeError", message=message)


def _read_many(values: Iterable[Any], depth: int) -> Returned:
    values = list(values)
    kinds = set(map(type, values))  # of ten thousand ids one is looked at
    for value in values if type in kinds or any(issubclass(kind, _OUTCOMES) for kind in kinds) else ():
        if isinstance(value, _OUTCOMES) or _is_outcome_class(value):
            return mistake(f"the handler of one record returned a list with {value!r} in it, wanted the outcome itself")
    speaking = {kind for kind in kinds if _may_speak(kind)}
    promises: list[Any] = []
    for value in values if speaking else ():
        if type(value) in speaking and not (isinstance(value, _COLLECTIONS) and depth >= _DEEPEST):
            found = read_returned(value, depth + 1)
            if isinstance(found, Failure):
                return found
            promises.extend(found or ())
    return promises or None


def _may_speak(kind: type[Any]) -> bool:
    """Return whether a value of this type may be more than data."""
    is_seen_through = issubclass(kind, (*_COLLECTIONS, Failure)) or _mistake_of_kind(kind) is not None
    return is_seen_through or is_kind_of_promise(kind)


def _mistake_in(value: Any) -> Failure | None:
    """Return None for any other value: that is the handler's own business. It returned, so the record is done."""
    if _is_outcome_class(value):
        return mistake(f"the handler returned the class {value.__name__}, wanted an instance: {value.__name__}()")
    kind = _mistake_of_kind(type(value))
    if kind is not None:
        return mistake(f"the handler returned {kind}, which nobody runs: wanted None, an outcome, or what it sent")
    return None


def _mistake_of_kind(kind: type[Any]) -> str | None:
    if issubclass(kind, Generator):
        return "a generator"
    return "an async generator" if issubclass(kind, AsyncGenerator) else None


def _is_outcome_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, _OUTCOMES)
