"""What can go wrong between bytes and values, sorted by who has to act."""

from __future__ import annotations


class ProtocolError(Exception):
    """The peer sent bytes that are not a valid message. Close the connection; a retry sends the same bytes."""

    def __init__(self, problem: str, *, message: str = "", field: str = "", position: int | None = None) -> None:
        self.problem = problem
        self.message = message
        self.field = field
        self.position = position
        place = message
        if field:
            place += f", field {field}"
        if position is not None:
            place += f", at byte {position}"
        super().__init__(f"{place}: {problem}" if place else problem)


class FrameTooLarge(ProtocolError):
    """A frame announces more bytes than the reader is willing to hold. Close the connection."""


class SchemaError(ValueError):
    """The caller's values do not fit the message (unknown key, wrong type, out of range). Fix the caller."""


class UnsupportedVersion(SchemaError):
    """There is no such API or version in the tables. A server answers UNSUPPORTED_VERSION."""
