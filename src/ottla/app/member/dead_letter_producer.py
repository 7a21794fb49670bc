"""Base of the shells' dead letter writers: their own producer, and the choice of the next form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ottla.config import dead_letter_arguments
from ottla.consumer.model.effects import OnWritten, Write
from ottla.errors import InputError
from ottla.failures.dead_letter import DeadLetterRecord, Form
from ottla.failures.dead_letter_settings import dead_letter_settings
from ottla.producer.record_sends import never_in_handlers

P = TypeVar("P")


class DeadLetterProducer:
    """Creates the producer of dead letters with the first of them: most services never need it."""

    def __init__(self, bootstrap_servers: Any, settings: Mapping[str, Any]) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._arguments = dead_letter_arguments(dead_letter_settings(settings))
        self._producer: Any = None

    @property
    def _problems(self) -> tuple[str, ...]:
        """Topics whose records brokers do not take for now, and why."""
        return () if self._producer is None else self._producer._problems

    def _made(self, make: Callable[..., P]) -> P:
        producer: Any = make(self._bootstrap_servers, profile="low_latency", **self._arguments)
        producer._sizes.leave_to_broker()
        never_in_handlers(producer)
        made: P = producer
        return made


class FormsToWrite:
    """The forms of one failed record, largest first, until one is written or the write is given up.

    `on_written` is called exactly once: with the form that was acknowledged, or with what went wrong.
    """

    def __init__(self, failed_write: Write, on_written: OnWritten) -> None:
        self._failed_write = failed_write
        self._on_written = on_written
        self._forms = failed_write.forms()
        self._form = Form.WHOLE
        self._refusal: Exception | None = None

    def next(self) -> DeadLetterRecord | None:
        """Return the next form to send; None if none is left, which has been reported."""
        try:
            self._form, dead = next(self._forms)
        except StopIteration:
            self._on_written(self._failed_write, _said(self._refusal), fits=False)
            return None
        except Exception as error:  # it cannot be made: it is tried again, then the partition stops and says why
            self._on_written(self._failed_write, _said(error))
            return None
        return dead

    def is_settled(self, error: Exception | None) -> bool:
        """Process the result of a send. Returns False if brokers refuse this form as too large: the next one is due."""
        if isinstance(error, InputError) and error.is_too_large:
            self._refusal = error
            return False
        if error is None:
            self._on_written(self._failed_write, None, form=self._form)
        else:
            self._on_written(self._failed_write, _said(error))
        return True


def _said(error: Exception | None) -> str:
    return f"{type(error).__name__}: {error}"
