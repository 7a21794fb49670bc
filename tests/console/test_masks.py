"""What of a record is masked, and of what was made of it."""

from __future__ import annotations

import json

import pytest

from ottla.console.masks import Masks
from ottla.failures.foreign import FAMILIES, may_quote_the_record
from ottla.failures.retry_headers import RetryState
from ottla_wire.records import Row

SECRET = b'{"card": "4711"}'


def headers_of(masks: Masks, *headers: tuple[str, bytes | None], key: bytes | None = None) -> dict[str, bytes | None]:
    row: Row = (0, 0, key, SECRET, headers)
    return dict(masks.row(row)[4])


def test_messages_and_stack_traces_of_every_family_are_masked_and_nothing_else_of_them() -> None:
    for family in FAMILIES.values():
        for name, (field, _) in family.items():
            is_masked = headers_of(Masks(["value.card"]), (name, b"4711"))[name] == b"(masked)"
            assert is_masked is (field in ("message", "stack_trace")), name


@pytest.mark.parametrize(
    "name",
    [
        "Ottla-DLQ-Error-Message",
        "kafka_exception-message",
        "kafka_exception-stacktrace",
        "springDeserializerExceptionValue",
        "NServiceBus.ExceptionInfo.Message",
        "x-error",
        "failure_reason",
    ],
)
def test_what_is_named_as_an_error_is_masked_too(name: str) -> None:
    assert headers_of(Masks(["key"]), (name, b"4711")) == {name: b"(masked)"}


@pytest.mark.parametrize("name", ["traceparent", "message-id", "ce_type", "ottla-id", "ottla-retry-first-failure"])
def test_what_says_nothing_about_the_record_is_shown(name: str) -> None:
    assert headers_of(Masks(["key"]), (name, b"4711")) == {name: b"4711"}
    assert not may_quote_the_record(name)


def test_without_a_mask_nothing_is_hidden() -> None:
    assert headers_of(Masks(), ("ottla-dlq-error-message", b"4711")) == {"ottla-dlq-error-message": b"4711"}


def test_the_error_of_a_retry_is_masked() -> None:
    state = RetryState(
        topic="t",
        partition=0,
        offset=1,
        timestamp_ms=1,
        attempts=1,
        not_before_ms=0,
        first_failure_ms=1,
        error_type="ValueError",
        message="4711 was refused",
    )
    shown = headers_of(Masks(["value.card"]), *state.to_headers(()))
    assert shown["ottla-retry-error-message"] == b"(masked)"
    assert (shown["ottla-retry-error-type"], shown["ottla-retry-first-failure"]) == (b"ValueError", b"1")


def test_the_key_of_a_delayed_message_is_masked_in_its_header() -> None:
    header = ("ottla-schedule-key", b'{"id": 1, "card": "4711"}')
    assert headers_of(Masks(["key"]), header)["ottla-schedule-key"] == b"(masked)"
    assert json.loads(headers_of(Masks(["key.card"]), header)["ottla-schedule-key"] or b"") == {
        "id": 1,
        "card": "(masked)",
    }
    assert headers_of(Masks(["value.card"]), header) == dict([header])
