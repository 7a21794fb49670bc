"""The options of a send that make its record a CloudEvent."""

from __future__ import annotations

from typing import Any

from ottla.errors import InputError
from ottla.producer.encoded import bad_headers
from ottla.records import Headers
from ottla.serdes.base import type_name


def with_event(
    topic: str, headers: Headers, serde: Any, event_type: str | None, subject: str | None, event_id: str | None
) -> Headers:
    """Return the headers with those of an event. `serde` is that of the values, which knows source and content type.

    Raises `InputError` for a serde that makes no events, without a type, and for headers that have attributes already.
    """
    from ottla.event_attributes import CONTENT_TYPE, PREFIX  # only what sends events loads them
    from ottla.serdes.cloud_events import CloudEvents

    if event_type is None:
        found = "event_id" if subject is None else "subject"
        raise InputError(f"{topic}: found {found}= without event_type=, wanted the type of the event too")
    if not isinstance(serde, CloudEvents):
        given = "no value=" if serde is None else f"value={type_name(serde)}"
        raise InputError(f"{topic}: event_type=: found {given}, wanted value=CloudEvents(..., source=...)")
    try:
        names = [name for name, _ in headers or ()]
    except (TypeError, ValueError) as error:
        raise bad_headers(topic, headers, error) from None
    for name in names:
        if name == CONTENT_TYPE or str(name).startswith(PREFIX):
            raise InputError(f"{topic}: found event_type= and the header {name!r}, wanted one of them")
    try:
        made = serde.headers(type=event_type, subject=subject, id=event_id)
    except InputError as error:
        raise InputError(f"{topic}: {error}") from None
    return [*(headers or ()), *made]
