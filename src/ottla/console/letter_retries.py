"""The retries that a record went through before it was a dead letter, from the retry topics of its group.

A record that fails is written to the partition of the same number in each retry topic in turn, with its story in the
headers (`ottla.failures.retry_headers`). Between its first failure and its death only the records of that time are
looked at, and of those so many: a letter is looked at by somebody who waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from ottla.browse.dead_letter_view import short
from ottla.browse.human_amounts import moment
from ottla.browse.reading import read_blocks, size_of
from ottla.errors import ConfigError, OttlaError
from ottla.failures.foreign import DeadLetterView
from ottla.failures.retry_headers import retry_state_of
from ottla.failures.retry_topics import retry_topic_name
from ottla.records import TopicPartition
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla_wire.records import Row

MOST_LOOKED_AT: Final = 20_000
"""Records of one retry topic."""
MOST_SECONDS: Final = 3.0
_MOST_TOPICS: Final = 20
_CLOCKS_MS: Final = 60_000
"""The times are of the service's clock or of the brokers': as far apart as these may be, more is looked at."""

_LATEST_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """The retries that were found, in order; `note` says why there are none, or may be more."""

    items: tuple[dict[str, Any], ...] = ()
    note: str | None = None


def retries_of(
    cluster: Cluster,
    view: DeadLetterView,
    *,
    topics: Collection[str],
    shown: Callable[[str], str | None],
    monotonic: Callable[[], float],
) -> Retries:
    """Return the retries of a dead letter's record. `topics` are the existing names; `shown` hides messages that are
    masked.
    """
    if view.topic is None or view.partition is None or view.offset is None or view.group is None:
        return Retries(note="its headers do not say of which record and group it is")
    names = _names(view.topic, view.group, topics)
    if not names:
        return Retries(note=f"{view.group} has no retry topics for {view.topic}: its retries were made in place")
    until = monotonic() + MOST_SECONDS
    found: list[dict[str, Any]] = []
    notes: list[str] = []
    for name in names:
        place = TopicPartition(name, view.partition)
        try:
            row, is_all = _find(cluster, place, view, is_late=lambda: monotonic() >= until)
        except OttlaError as error:
            notes.append(f"{name}: {error}")
            continue
        if row is not None:
            found.append(_item(place, row, shown))
        elif not is_all:
            notes.append(f"{name}: not all of that time was looked at")
    if not found and not notes:
        notes.append("none of its retries is in the retry topics any more, or all were made in place")
    return Retries(items=tuple(found), note="; ".join(notes) or None)


def _names(topic: str, group: str, there: Collection[str]) -> list[str]:
    """Return the retry topics of a topic and a group that there are, in the order in which a record goes through
    them."""
    known = frozenset(there)
    names: list[str] = []
    for number in range(1, _MOST_TOPICS + 1):
        try:
            name = retry_topic_name(topic, group, number)
        except ConfigError:  # no topic can have this name: the headers are another program's
            break
        if name not in known:
            break
        names.append(name)
    return names


def _find(
    cluster: Cluster, place: TopicPartition, view: DeadLetterView, *, is_late: Callable[[], bool]
) -> tuple[Row | None, bool]:
    """Return the record's last visit to this partition, and whether all of the time was looked at."""
    if place.partition not in cluster.topic(place.topic).leaders:
        return None, True
    first = _offset(cluster, place, None if view.first_failure_ms is None else view.first_failure_ms - _CLOCKS_MS)
    end = cluster.list_offsets({place: LATEST})[place][0]
    if view.dead_lettered_ms is not None:
        after = _offset(cluster, place, view.dead_lettered_ms + _CLOCKS_MS)
        end = end if after < 0 else after
    if first < 0 or first >= end:
        return None, True
    span = {place: (first, min(end, first + MOST_LOOKED_AT))}
    is_all = size_of(span) == end - first
    found: Row | None = None
    with closing(read_blocks(cluster, span)) as blocks:
        for block in blocks:
            for row in () if block is None else block.rows:
                story = retry_state_of(row[4])
                if story is not None and (story.topic, story.partition, story.offset) == (
                    view.topic,
                    view.partition,
                    view.offset,
                ):
                    found = row
            if is_late():
                is_all = False
                break
    return found, is_all


def _offset(cluster: Cluster, place: TopicPartition, at_ms: int | None) -> int:
    """Return the first offset at or after a time; -1 if there is none."""
    timestamp = EARLIEST if at_ms is None else min(max(0, at_ms), _LATEST_MS)
    return cluster.list_offsets({place: timestamp})[place][0]


def _item(place: TopicPartition, row: Row, shown: Callable[[str], str | None]) -> dict[str, Any]:
    story = retry_state_of(row[4])
    assert story is not None
    return {
        "topic": place.topic,
        "partition": place.partition,
        "offset": row[0],
        "written": moment(row[1]) if row[1] >= 0 else None,
        "attempts": story.attempts,
        "not_before": moment(story.not_before_ms) if story.not_before_ms else None,
        "error": story.error_type or None,
        "message": shown(short(story.message)) if story.message else None,
    }
