"""Headers as records keep them until they are read: `ottla.records.Packed`.

Most records of a service that samples have a `traceparent` alone, of a trace that is not recorded. Of these the value
is kept, which saves a list that the garbage collector would follow for as long as the record waits. That it is bytes
says already that no span is made: the thread that handles it need not look into memory that another one has written
long before. Other headers stay the list that the client made: packing each list as a tuple cost as much as it saved
once the app freezes what it has loaded (`gc.freeze`).
"""

from __future__ import annotations

from typing import Any

from ottla.records import TRACEPARENT
from ottla.telemetry.traces.propagation import marks_of_values


def packed(headers: list[Any]) -> list[Any]:
    """Return the headers of many records (None: it has none) as they are kept: packed if each record has a
    `traceparent` alone, as they are otherwise."""
    # Terse, for the hot path: 0.1 µs a record where each has that header, and nothing where none has any.
    if not any(headers):
        return headers
    try:
        found: list[Any] = [value for ((name, value),) in headers if name == TRACEPARENT]
        marks = marks_of_values(found) if len(found) == len(headers) else None
    except (TypeError, ValueError):  # no header, or several, or a null one
        marks = None
    if marks is None:
        return headers
    at = marks.find(1)
    while at >= 0:
        found[at] = headers[at]
        at = marks.find(1, at + 1)
    return found
