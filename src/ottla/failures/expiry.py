"""Time to live: the moment after which a record is not handed to a handler any more.

A sender writes the moment into the header `ottla-expires-at`, as epoch milliseconds in decimal digits. It stays with
the record through retry topics, dead letters and redrives. A handler may declare a time to live of its own, which
counts from the timestamp of the record when it was first produced. The earlier of both counts.

A header that is not digits is ignored: whoever may write to the topic may write anything there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from ottla.errors import ConfigError, InputError
from ottla.failures.outcomes import Dead, Skip
from ottla.failures.redrive import first_timestamp_of
from ottla.failures.retry_headers import retry_state_of
from ottla.quantities import Span, milliseconds_of, seconds
from ottla.records import Header, Headers, Record, time_header, with_header
from ottla.showing import shown

EXPIRES_HEADER: Final = "ottla-expires-at"

Moment: TypeAlias = datetime
"""A point in time, with its time zone."""

_NUMBER: Final = (int, float)  # `int | float` would make a union in each call


def expires_at_of(headers: Headers) -> int | None:
    """Return when a record expires by its headers, in epoch milliseconds; None without a valid header."""
    return time_header(headers, EXPIRES_HEADER)


def with_expiry(
    topic: str, headers: Headers, *, expires_after: Span | None, expires_at: Moment | None, now_ms: int
) -> list[Header]:
    """Return the headers with the time at which the record expires, in place of an earlier one. Raises `InputError`."""
    if expires_after is not None and expires_at is not None:
        raise InputError(f"{topic}: found expires_after and expires_at, wanted one of them")
    if expires_at is not None:
        at_ms = moment_ms(topic, "expires_at", expires_at)
    else:
        at_ms = now_ms + span_ms(topic, "expires_after", expires_after)
    kept = [header for header in headers if header[0] != EXPIRES_HEADER] if headers else []
    kept.append((EXPIRES_HEADER, b"%d" % at_ms))
    return kept


def moment_ms(place: str, name: str, moment: object) -> int:
    """Return the epoch milliseconds of a datetime. Raises `InputError` for one without a time zone, or before 1970."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InputError(
            f"{place}: {name}: found {moment!r}, wanted a datetime with a time zone: datetime(2027, 1, 1, tzinfo=UTC)"
        )
    at_ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if at_ms < 0:
        raise InputError(f"{place}: {name}: found {moment!r}, wanted a time after 1970")
    return at_ms


def span_ms(place: str, name: str, span: object) -> int:
    """Return the milliseconds of a duration. Raises `InputError` for anything else, a negative or an impossible one."""
    in_seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if not isinstance(in_seconds, _NUMBER) or in_seconds.__class__ is bool or not 0 <= in_seconds < 10**14:
        raise InputError(f"{place}: {name}: found {shown(span)}, wanted seconds, 0 or more, or a timedelta")
    return round(in_seconds * 1_000)


_SKIP: Final = Skip("it expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """A handler's declaration: its time to live, the grace for clocks that differ, the outcome of expired records."""

    ttl_ms: int | None = None
    grace_ms: int = 0
    outcome: Skip | Dead = _SKIP

    @classmethod
    def declared(
        cls, place: str, *, ttl_s: Span | None, grace_s: Span, on_expired: Skip | Dead | None, has_dead_letters: bool
    ) -> Expiry:
        """Return the expiry from the arguments of a handler or consumer. Raises `ConfigError` for invalid ones."""
        if ttl_s is not None:
            seconds(place, "ttl_s", ttl_s, above=0)
        seconds(place, "expires_grace_s", grace_s)
        if on_expired is not None and not isinstance(on_expired, Skip | Dead):
            raise ConfigError(f"{place}: on_expired must be Skip() or Dead(reason), got {on_expired!r}")
        if isinstance(on_expired, Dead) and not has_dead_letters:
            raise ConfigError(f"{place}: on_expired=Dead(...) needs a dead_letter_topic, and none is declared")
        return cls(
            ttl_ms=None if ttl_s is None else milliseconds_of(ttl_s),
            grace_ms=milliseconds_of(grace_s),
            outcome=on_expired or _SKIP,
        )

    def expires_ms(self, record: Record[Any]) -> int | None:
        """Return when the record expires, in epoch milliseconds; None if it never does."""
        headers = record.headers
        found = expires_at_of(headers) if headers else None
        if self.ttl_ms is not None:
            first_ms = _first_timestamp_ms(record) if headers else record.timestamp_ms
            if first_ms >= 0:  # -1: the record has no timestamp
                found = first_ms + self.ttl_ms if found is None else min(found, first_ms + self.ttl_ms)
        return None if found is None else found + self.grace_ms

    def deadlines(self, records: Sequence[Record[Any]]) -> dict[int, int] | None:
        """Return when each record expires, by offset; None if none does, the usual case.

        Called once per run. The cost per record is a look at its headers.
        """
        candidates = records if self.ttl_ms is not None else with_header(records, EXPIRES_HEADER)
        found: dict[int, int] = {}
        for record in candidates:
            expires_ms = self.expires_ms(record)
            if expires_ms is not None:
                found[record.offset] = expires_ms
        return found or None


NEVER: Final = Expiry()
"""No time to live but what the headers of a record say."""


def _first_timestamp_ms(record: Record[Any]) -> int:
    """Return the timestamp of the record when it was first produced, before any retry topic or redrive."""
    state = retry_state_of(record.headers)
    here_ms = record.timestamp_ms if state is None else state.timestamp_ms
    redriven_ms = first_timestamp_of(record.headers)
    return here_ms if redriven_ms is None else min(here_ms, redriven_ms)
