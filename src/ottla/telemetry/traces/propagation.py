"""Trace contexts in record headers (W3C: `traceparent`, `tracestate`, `baggage`). Knows no OpenTelemetry.

Headers come from anywhere. What cannot be read is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ottla.records import TRACEPARENT as TRACEPARENT
from ottla.records import Header, Packed, Record, packed_headers_of

W3C: Final = frozenset((TRACEPARENT, "tracestate", "baggage"))

LENGTH: Final = 55
"""`00-<32 digits>-<16 digits>-<2 digits>`; later versions may be longer."""

_SAMPLED: Final = frozenset(b"13579bdf")

_MARKS: Final = bytes(digit in _SAMPLED for digit in range(256))
"""By the last digit of a `traceparent`: 1 if the trace is recorded."""


def traceparent(trace_id: int, span_id: int, flags: int) -> bytes:
    """Return the header's value: W3C Trace Context, version 00."""
    return b"00-%032x-%016x-%02x" % (trace_id, span_id, flags)


def parent_is_sampled(headers: Packed | Sequence[Header]) -> bool | None:
    """Return whether the producer's trace is recorded, by the last digit of its `traceparent`; None without one.

    It is asked of each record that is handled while something listens: no parsing, and nothing is made.
    """
    if headers:
        if isinstance(headers, bytes):
            return False
        for name, value in headers:
            if name == TRACEPARENT:
                return None if value is None or len(value) < LENGTH else value[54] in _SAMPLED
    return None


def recorded_parents(records: Iterable[Record[Any]]) -> list[Any]:
    """Return the headers of those records whose producers' traces are recorded."""
    return [headers for headers in map(packed_headers_of, records) if parent_is_sampled(headers)]


def is_sampled(value: bytes) -> bool:
    """Return the same of a `traceparent` of version 00."""
    return value[54] in _SAMPLED


def places_of_others(headers: Sequence[Packed]) -> list[int]:
    """Return the indexes of all records but those whose producer's trace is not recorded."""
    # 0.04 µs a record where most are bytes; with a call for each it is several times as much.
    return [
        place
        for place, each in enumerate(headers)
        if each.__class__ is not bytes and parent_is_sampled(each) is not False
    ]


def marks_of_values(values: Sequence[bytes]) -> bytes | None:
    """Return a 1 for each `traceparent` whose trace is recorded, a 0 for each of the others. None if the length of one
    is not that of version 00."""
    if set(map(len, values)) != {LENGTH}:
        return None
    return b"".join(values)[LENGTH - 1 :: LENGTH].translate(_MARKS)


def with_context(headers: Sequence[Header], context: Mapping[str, str]) -> list[Header]:
    """Return the headers with a context's headers added. Headers of the caller stay unchanged and are not repeated. A
    `traceparent` of the caller is a context of its own, so nothing of another context is added to it."""
    given = {name for name, _ in headers}
    if TRACEPARENT in given:
        context = {name: value for name, value in context.items() if name not in (TRACEPARENT, "tracestate")}
    return [*headers, *((name, value.encode()) for name, value in context.items() if name not in given)]


def with_traceparent(headers: Sequence[Header], value: bytes) -> Sequence[Header]:
    """Return the headers with this one, if they have none."""
    if not headers:
        return [(TRACEPARENT, value)]
    if any(name == TRACEPARENT for name, _ in headers):
        return headers
    return [*headers, (TRACEPARENT, value)]


def header_texts(headers: Sequence[Header] | None, name: str) -> list[str] | None:
    """Return the values under a name as text, first to last; None when none can be read. Case counts, as in Kafka."""
    found: list[str] = []
    for header_name, value in headers or ():
        if header_name == name and value is not None:
            try:
                found.append(value.decode("utf-8"))
            except UnicodeDecodeError:
                continue
    return found or None
