"""Sends that are to be delivered later: from what `send` is given to the record that waits in a schedule topic."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.errors import ConfigError, InputError
from ottla.failures.expiry import Moment, Span, moment_ms, span_ms
from ottla.records import Header, Headers, topic_problem
from ottla.schedule.headers import CANCEL_HEADERS, message_headers, schedule_topic
from ottla.schedule.wheel import WHEEL

__all__ = ["Later", "cancel_records", "checked_schedule", "later_of", "scheduled"]

_LONGEST_ID: Final = 200
"""Characters of an id. It travels in every record that cancels it."""


class Later(NamedTuple):
    """When a record is to be delivered, and under which id."""

    due_ms: int | None
    delay_ms: int | None
    ttl_ms: int | None
    id: bytes | None
    topic: str
    """The schedule topic that it waits in."""


def later_of(
    topic: str,
    *,
    deliver_after: Span | None,
    deliver_at: Moment | None,
    schedule_id: str | None,
    expires_after: Span | None,
    schedule: str,
) -> Later:
    """What the arguments of a send say. Raises `InputError` with the argument that cannot be."""
    if (deliver_after is None) == (deliver_at is None):
        found = "neither deliver_after nor deliver_at" if deliver_after is None else "deliver_after and deliver_at"
        raise InputError(f"{topic}: found {found}, wanted one of them")
    return Later(
        due_ms=None if deliver_at is None else moment_ms(topic, "deliver_at", deliver_at),
        delay_ms=None if deliver_after is None else span_ms(topic, "deliver_after", deliver_after),
        ttl_ms=None if expires_after is None else span_ms(topic, "expires_after", expires_after),
        id=None if schedule_id is None else checked_id(schedule_id),
        topic=schedule_topic(schedule),
    )


def scheduled(
    later: Later, topic: str, partition: int | None, key: bytes | None, headers: Headers, now_ms: int
) -> tuple[int, list[Header]]:
    """(the slot, the headers) of the record that waits. Its key is the id, its value that of the message."""
    due_ms = now_ms + (later.delay_ms or 0) if later.due_ms is None else later.due_ms
    listed = message_headers(
        headers,
        topic=topic,
        partition=partition,
        key=key,
        due_ms=later.due_ms,
        delay_ms=later.delay_ms,
        ttl_ms=later.ttl_ms,
    )
    return WHEEL.slot_for(due_ms, now_ms), listed


def cancel_records(schedule_id: str) -> list[tuple[None, bytes, list[Header], int]]:
    """(value, key, headers, partition) of the cancel in each slot: which one holds the message is not known."""
    key = checked_id(schedule_id)
    return [(None, key, list(CANCEL_HEADERS), partition) for partition in range(WHEEL.partitions)]


def checked_schedule(name: str) -> str:
    """The name of a schedule. Raises `ConfigError`."""
    problem = topic_problem(schedule_topic(name)) if isinstance(name, str) else f"found {name!r}"
    if problem is not None:
        raise ConfigError(f"schedule: the name of a schedule is part of its topic's: {problem}")
    return name


def checked_id(schedule_id: object) -> bytes:
    """The id as a record's key. Raises `InputError`."""
    if not isinstance(schedule_id, str) or not 0 < len(schedule_id) <= _LONGEST_ID:
        raise InputError(f"schedule_id: found {schedule_id!r:.300}, wanted text of 1 to {_LONGEST_ID} characters")
    return schedule_id.encode()
