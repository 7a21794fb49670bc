"""Checks the arguments of calls of a running member: assigned partitions, valid offsets and times."""

from __future__ import annotations

from collections.abc import Container, Iterable

from ottla.errors import InputError
from ottla.records import TopicPartition

_MOST = 2**63 - 1


def check_assigned(
    verb: str, partitions: Iterable[TopicPartition], assigned: Container[TopicPartition], *, group: str
) -> None:
    """Raise `InputError` for a partition that the member does not have: it never had it, or lost it in a rebalance."""
    for name in partitions:
        if name not in assigned:
            place = f"{name[0]}-{name[1]}" if isinstance(name, tuple) and len(name) == 2 else repr(name)
            raise InputError(
                f"{verb}: {place} is not assigned to this member of group {group!r}; assignment() lists what is"
            )


def check_offset(offset: object) -> None:
    """Raise `InputError` for an invalid offset."""
    _check_number("seek", "an offset", offset)


def check_timestamp(timestamp_ms: object) -> None:
    """Raise `InputError` for a value that is not a time in milliseconds since the epoch."""
    _check_number("seek_to_time", "milliseconds since the epoch", timestamp_ms)


def _check_number(verb: str, what: str, number: object) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _MOST:
        raise InputError(f"{verb}: found {number!r}, wanted {what}: a whole number, 0 or more")
