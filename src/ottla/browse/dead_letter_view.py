"""Views of dead letters for `ottla dlq`: counts by cause, the newest ones, a single one in full. Pure.

A topic may hold more dead letters than fit into memory, and their headers, which any writer may set, decide the number
of causes and the length of texts: everything that is kept is bounded.
"""

from __future__ import annotations

import base64
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ottla.browse.record_times import time_text
from ottla.failures.foreign import DeadLetterView, describe_dead_letter
from ottla.failures.selection import DeadLetterFilter
from ottla.wire_client.fetching.record_rows import RecordRows
from ottla_wire.records import Row, shown_key

MOST_CAUSES: Final = 1_000
"""Causes that are counted one by one."""

LONGEST: Final = 500
"""Characters of a text in a list; a letter that is shown whole has all of them."""


class DeadLetterSummary:
    """Letters by cause, and the newest of them."""

    def __init__(self, *, last: int, wanted: DeadLetterFilter | None = None) -> None:
        self.letters = 0
        self.others = 0
        """Records that no known software has dead-lettered."""
        self.causes: Counter[tuple[str, str, str]] = Counter()
        self._last = last
        self._wanted = wanted or DeadLetterFilter()
        self._newest: list[tuple[tuple[int, int, int], dict[str, Any]]] = []  # a heap, the oldest first

    def add_block(self, block: RecordRows) -> None:
        """Count the records of a block."""
        for row in block.rows:
            view = describe_dead_letter(row[4])
            if view is None:
                self.others += 1
            elif self._wanted.matches(view):
                self.add(block.partition, row, view)

    def add(self, partition: int, row: Row, view: DeadLetterView) -> None:
        """Count a letter that is meant."""
        self.letters += 1
        cause = (short(view.topic or "?"), short(view.kind or view.family), short(view.error_type or ""))
        is_counted = cause in self.causes or len(self.causes) < MOST_CAUSES
        self.causes[cause if is_counted else ("...", "...", "other causes")] += 1
        if not self._last:
            return
        when = (row[1], partition, row[0])
        if len(self._newest) < self._last:
            heapq.heappush(self._newest, (when, _item(partition, row, view)))
        elif when > self._newest[0][0]:
            heapq.heapreplace(self._newest, (when, _item(partition, row, view)))

    def by_cause(self) -> Iterator[dict[str, Any]]:
        """Yield an item for each cause, the most frequent first."""
        for (origin, kind, error), count in self.causes.most_common():
            yield {"count": count, "origin": origin, "kind": kind, "error": error}

    def newest(self) -> list[dict[str, Any]]:
        """Return an item for each of the last letters, newest last."""
        return [item for _, item in sorted(self._newest, key=lambda each: each[0])]


def _item(partition: int, row: Row, view: DeadLetterView) -> dict[str, Any]:
    return {
        "at": f"{partition}:{row[0]}",
        "came_from": short(view.origin),
        "when": when(view.dead_lettered_ms),
        "attempts": view.attempts,
        "message": short(view.message or ""),
    }


def whole(partition: int, row: Row, view: DeadLetterView) -> dict[str, Any]:
    """Return everything about one letter, as plain values."""
    offset, _, key, value, headers = row
    return {
        "at": f"{partition}:{offset}",
        "came_from": view.origin,
        "kind": view.kind,
        "family": view.family,
        "error": view.error_type,
        "message": view.message,
        "not_in_it": view.omitted,
        "attempts": view.attempts,
        "group": view.group,
        "first_failure": when(view.first_failure_ms),
        "dead_lettered": when(view.dead_lettered_ms),
        **_part("key", key),
        **_part("value", value),
        "headers": [{"key": shown_key(name), **_part("value", content)} for name, content in headers],
        "stack_trace": view.stack_trace,
    }


def for_people(item: Mapping[str, Any], row: Row) -> dict[str, Any]:
    """Return the same as a person reads it: a header a line, the trace apart, bytes as Python writes them."""
    named = {"came_from": "came from", "first_failure": "first failure", "dead_lettered": "dead-lettered"}
    shown: dict[str, Any] = {}
    for name in ("came_from", "kind", "error", "attempts", "group", "first_failure", "dead_lettered"):
        shown[named.get(name, name)] = "?" if item[name] is None else item[name]
    shown["kind"] = f"{shown['kind']} (headers of {item['family']})"
    shown["error"] = f"{item['error'] or ''}: {item['message'] or ''}"
    if item["not_in_it"] is not None:
        shown["not in it"] = f"{item['not_in_it']}: the topic refused it; a redrive fetches it from its origin"
    shown["key"] = repr(row[2])
    shown["value"] = repr(row[3])
    return shown


def header_lines(row: Row) -> Iterator[str]:
    """`name = value` of each header that is no stack trace."""
    for name, value in row[4]:
        if "stack-trace" not in name and "stacktrace" not in name:
            yield f"{shown_key(name)} = {'null' if value is None else value.decode('utf-8', 'backslashreplace')}"


def short(text: str) -> str:
    """Return the beginning of a text that may be of any length."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def when(ms: int | None) -> str | None:
    """Return a time in a header as text. Headers may say any number."""
    return None if ms is None else time_text(ms)


def _part(name: str, data: bytes | None) -> dict[str, Any]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.standard_b64encode(data).decode()}
