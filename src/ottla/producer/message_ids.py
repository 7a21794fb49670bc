"""Ids of messages, in the header `ottla-id`: what a consumer's inbox knows a copy by.

An id is the caller's, or made here: a random prefix per producer and a counter. A made id distinguishes a copy that was
written twice from two messages; only an id of the caller's own shows that two sends mean the same.
"""

from __future__ import annotations

import itertools
from typing import Final

from ottla.errors import InputError
from ottla.records import ID_HEADER as ID_HEADER
from ottla.records import Headers

_ID: Final = ID_HEADER


class MessageIds:
    """Makes ids. `prefix` is 16 hexadecimal digits of chance: a counter alone would restart with each process."""

    __slots__ = ("_numbers", "_prefix")

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._numbers = itertools.count(1)

    def next(self) -> str:
        """Return the next id. From any thread."""
        return f"{self._prefix}-{next(self._numbers):x}"


def with_message_id(topic: str, headers: Headers, given: str | None, made: MessageIds | None) -> Headers:
    """Return the headers with the id that was given, or else with a made one unless they have one already."""
    if given is not None:
        if not isinstance(given, str) or not given:
            raise InputError(f"{topic}: message_id: found {given!r}, wanted text that is not empty")
        kept = [header for header in headers if header[0] != _ID] if headers else []
        kept.append((_ID, given.encode("utf-8", "backslashreplace")))
        return kept
    if made is None or any(header[0] == _ID for header in headers or ()):
        return headers
    return [*(headers or ()), (_ID, made.next().encode())]
