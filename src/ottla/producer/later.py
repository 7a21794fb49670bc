"""Sends that are to be delivered later: from what `send` is given to the record that waits in a schedule topic."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from ottla.errors import ConfigError, InputError
from ottla.failures.expiry import Moment, moment_ms, span_ms
from ottla.quantities import Span
from ottla.records import Header, Headers, topic_problem
from ottla.schedule.headers import CANCEL_HEADERS, message_facts, schedule_topic, with_facts
from ottla.schedule.wheel import WHEEL, Reach

MOST_MORE_BYTES: Final = 210
"""Maximum size of a waiting record beside its own bytes, the name of its topic and its id."""

_LONGEST_ID: Final = 200
"""Characters of an id. It travels in every record that cancels it."""


class DelayedSend(NamedTuple):
    """When a record is to be delivered, and under which id."""

    due_ms: int | None
    delay_ms: int | None
    ttl_ms: int | None
    id: bytes | None
    topic: str
    """The schedule topic that it waits in."""
    facts: tuple[str, bytes]
    """Fact header of the waiting record, for a message without a partition of its own."""
    reach: Reach | None
    """For a delay: its slot in the wheel."""
    most_more_bytes: int
    """Maximum size of the waiting record beside the message's own bytes."""


def later_of(
    topic: str,
    deliver_after: Span | None,
    deliver_at: Moment | None,
    schedule_id: str | None,
    expires_after: Span | None,
    schedule: str,
) -> DelayedSend:
    """Return what the arguments of a send say. Raises `InputError` with the argument that cannot be."""
    if deliver_at is None:  # nearly all: a delay, or a few, for all messages
        try:
            later = _after(topic, deliver_after, expires_after, schedule)
        except TypeError:
            pass  # not hashable, so no duration: the error says what is wanted
        else:
            return later if schedule_id is None else _with_id(later, checked_id(schedule_id))
    return _later(topic, deliver_after, deliver_at, schedule_id, expires_after, schedule)


def _later(
    topic: str,
    deliver_after: Span | None,
    deliver_at: Moment | None,
    schedule_id: str | None,
    expires_after: Span | None,
    schedule: str,
) -> DelayedSend:
    if (deliver_after is None) == (deliver_at is None):
        found = "neither deliver_after nor deliver_at" if deliver_after is None else "deliver_after and deliver_at"
        raise InputError(f"{topic}: found {found}, wanted one of them")
    due_ms = None if deliver_at is None else moment_ms(topic, "deliver_at", deliver_at)
    delay_ms = None if deliver_after is None else span_ms(topic, "deliver_after", deliver_after)
    ttl_ms = None if expires_after is None else span_ms(topic, "expires_after", expires_after)
    id = None if schedule_id is None else checked_id(schedule_id)
    facts = message_facts(topic=topic, partition=None, due_ms=due_ms, delay_ms=delay_ms, ttl_ms=ttl_ms)
    reach = None if delay_ms is None else WHEEL.reach_of(delay_ms)
    target, more = schedule_topic(schedule), MOST_MORE_BYTES + len(topic)
    later = DelayedSend(due_ms, delay_ms, ttl_ms, None, target, facts, reach, more)
    return later if id is None else _with_id(later, id)


def _with_id(later: DelayedSend, id: bytes) -> DelayedSend:
    # Terse: it is called for each send with an id, and `_replace` takes three times as long.
    due_ms, delay_ms, ttl_ms, _, schedule, facts, reach, most_more_bytes = later
    return DelayedSend(due_ms, delay_ms, ttl_ms, id, schedule, facts, reach, most_more_bytes + len(id))


@lru_cache(maxsize=1_024, typed=True)  # True is no number of seconds, although it equals 1
def _after(topic: str, deliver_after: Span | None, expires_after: Span | None, schedule: str) -> DelayedSend:
    return _later(topic, deliver_after, None, None, expires_after, schedule)


def scheduled(
    later: DelayedSend, topic: str, partition: int | None, key: bytes | None, headers: Headers, now_ms: int
) -> tuple[int, bytes, list[Header]]:
    """Return (slot, key, headers) of the delayed record. Its value is the message's value."""
    # Terse: it is called for each send.
    due_ms, delay_ms, ttl_ms, id, _, facts, reach, _ = later
    if partition is not None:
        facts = message_facts(topic=topic, partition=partition, due_ms=due_ms, delay_ms=delay_ms, ttl_ms=ttl_ms)
    if reach is not None:
        first, slots, width_ms, ahead_ms = reach
        slot = first + (now_ms + ahead_ms) // width_ms % slots
    else:
        assert due_ms is not None
        slot = WHEEL.slot_for(due_ms, now_ms)
    if id is None:
        return slot, facts[1], with_facts(headers, None, key)
    return slot, id, with_facts(headers, facts, key)


def cancel_records(schedule_id: str) -> list[tuple[None, bytes, list[Header], int]]:
    """Return (value, key, headers, partition) of the cancel in each slot: which one holds the message is not known."""
    key = checked_id(schedule_id)
    return [(None, key, list(CANCEL_HEADERS), partition) for partition in range(WHEEL.partitions)]


def checked_schedule(name: str) -> str:
    """Return the name of a schedule. Raises `ConfigError`."""
    problem = topic_problem(schedule_topic(name)) if isinstance(name, str) else f"found {name!r}"
    if problem is not None:
        raise ConfigError(f"schedule: the name of a schedule is part of its topic's: {problem}")
    return name


def checked_id(schedule_id: object) -> bytes:
    """Return the id as a record's key. Raises `InputError`."""
    if not isinstance(schedule_id, str) or not 0 < len(schedule_id) <= _LONGEST_ID:
        raise InputError(f"schedule_id: found {schedule_id!r:.300}, wanted text of 1 to {_LONGEST_ID} characters")
    try:
        return schedule_id.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"schedule_id: found {schedule_id!r}, wanted text that is valid Unicode: {error}") from None
