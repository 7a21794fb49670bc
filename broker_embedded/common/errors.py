"""Refusals of the broker, as one exception with Kafka's error code.

Handlers raise `BrokerError` at the place that knows what was found and what was wanted; the dispatcher or the
per-partition loop of an API turns it into the error code and message of the response.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla_wire.protocol import ErrorCode


class RecordError(Exception):
    """One record of a refused batch, as the Produce response lists it (KIP-467)."""

    def __init__(self, batch_index: int, message: str) -> None:
        super().__init__(message)
        self.batch_index = batch_index
        self.message = message


class BrokerError(Exception):
    """A refusal with a Kafka error code. The client reads the code; the message is for people."""

    def __init__(self, code: ErrorCode, message: str = "", *, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message
        self.record_errors = tuple(record_errors)


class StartupError(Exception):
    """The broker cannot start with its arguments. One line for the user; exit code 2."""
