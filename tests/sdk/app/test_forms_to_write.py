"""Which form of a failed record is sent next, and what is reported: pure, the same for threads and asyncio."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.consumer.model.failed_writes import FormsToWrite
from ottla.errors import InputError, RecordTooLarge
from ottla.failures.dead_letter import DeadLetterRecord, Form

TOO_LARGE = RecordTooLarge(topic="dead", size_bytes=2_000, limit_bytes=1_000, setting="max.message.bytes")


Report = tuple[str | None, Form, bool]
"""The error, the form that was acknowledged, and whether any form fits."""


class Letter:
    def __init__(self, *forms: Form, fails: bool = False) -> None:
        self._forms = forms
        self._fails = fails

    def forms(self) -> Iterator[tuple[Form, DeadLetterRecord]]:
        if self._fails:
            raise ValueError("no such key")
        for form in self._forms:
            yield form, DeadLetterRecord(key=None, value=form.name.encode(), headers=[])


def written(
    letter: Letter, *results: Exception | None
) -> tuple[list[bytes | None], list[tuple[str | None, Form, bool]]]:
    """Return (the values that were sent, what was reported) when the sends end with these results."""
    reported: list[Report] = []

    def on_written(letter: Any, error: str | None, /, *, form: Form = Form.WHOLE, fits: bool = True) -> None:
        reported.append((error, form, fits))

    forms = FormsToWrite(letter, on_written)  # type: ignore[arg-type]
    sent: list[bytes | None] = []
    left = iter(results)
    while (dead := forms.next()) is not None:
        sent.append(dead.value)
        if forms.is_settled(next(left)):
            break
    return sent, reported


FIRST, SECOND = list(Form)[:2]


def test_the_first_form_that_is_acknowledged_is_reported() -> None:
    assert written(Letter(FIRST, SECOND), None) == ([FIRST.name.encode()], [(None, FIRST, True)])


def test_a_form_that_is_too_large_is_followed_by_the_next() -> None:
    sent, reported = written(Letter(FIRST, SECOND), TOO_LARGE, None)
    assert sent == [FIRST.name.encode(), SECOND.name.encode()]
    assert reported == [(None, SECOND, True)]


def test_a_record_whose_every_form_is_too_large_does_not_fit() -> None:
    sent, reported = written(Letter(FIRST, SECOND), TOO_LARGE, TOO_LARGE)
    assert len(sent) == 2
    ((error, _, fits),) = reported
    assert not fits
    assert error == f"RecordTooLarge: {TOO_LARGE}"


def test_any_other_error_ends_the_write_at_once() -> None:
    sent, reported = written(Letter(FIRST, SECOND), InputError("no such partition"))
    assert len(sent) == 1
    assert reported == [("InputError: no such partition", Form.WHOLE, True)]


def test_a_record_that_cannot_be_made_is_reported_and_not_sent() -> None:
    assert written(Letter(fails=True)) == ([], [("ValueError: no such key", Form.WHOLE, True)])
