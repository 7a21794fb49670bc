"""Conditions of a batch read that decide which offsets are fetched: `ottla.spark.read(where=...)`.

A condition compares `topic`, `partition`, `offset` or `timestamp` with values, and all of them must hold. They narrow
the ranges of the read, and Spark applies them to the rows too: a range may be too wide and is never too short.

- `topic`, `partition` and `offset` are exact, but for the offsets between those of a list.
- `timestamp` narrows only the beginning: before the first record of that time or later, none is. Behind it there may be
  records with earlier times, so an upper bound does not change the end.

The filters that Spark itself hands to a Python source (`spark.sql.python.filterPushdown.enabled`) are not taken:
PySpark 4.3 keeps the ranges of the last ones with the DataFrame, and reads no more than them where the same DataFrame
is read without a filter, or twice in one query.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ConfigError
from ottla.spark.options import timestamp_option
from ottla.wire_client import Cluster, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import Column

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_VALUE: Final = r"(?:[0-9]{1,18}|'[^']*')"
_CONDITION: Final = re.compile(
    rf"\s*(topic|partition|offset|timestamp)\s*(?:(<=|>=|<|>|=)\s*({_VALUE})|IN\s*\(([^()]*)\))\s*", re.IGNORECASE
)
_VALUES: Final = re.compile(rf"\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*")
_AND: Final = re.compile(r"AND\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Condition:
    """`column operator value`; with `=` any of the values. Times are milliseconds since 1970."""

    column: str
    operator: str
    values: tuple[int | str, ...]

    def holds(self, value: int | str) -> bool:
        if self.operator == "=":
            return value in self.values
        return bool(_COMPARISONS[self.operator](value, self.values[0]))


def parse_where(text: str) -> tuple[Condition, ...]:
    """Return the conditions of a text, which reads as in SQL: `partition = 1 AND offset >= 7`.

    A time is in quotes, or milliseconds: what `startingTimestamp` takes. Raises `ConfigError` for all other text.
    """
    found: list[Condition] = []
    at = 0
    while (matched := _CONDITION.match(text, at)) is not None:
        column, compared, value, listed = matched.groups()
        if listed is not None and not _VALUES.fullmatch(listed):
            break
        values = re.findall(_VALUE, value if listed is None else listed)
        found.append(Condition(column.lower(), compared or "=", tuple(_value(column.lower(), each) for each in values)))
        at = matched.end()
        if at == len(text):
            return tuple(found)
        joined = _AND.match(text, at)
        if joined is None:
            break
        at = joined.end()
    raise ConfigError(
        f"where: found {text[at:].strip()!r}, wanted topic, partition, offset or timestamp, compared with values by"
        " =, <, <=, >, >= or IN and joined by AND. Give other conditions to the DataFrame's where()"
    )


def to_option(conditions: Sequence[Condition]) -> str:
    return json.dumps([[each.column, each.operator, each.values] for each in conditions])


def from_option(text: str | None) -> tuple[Condition, ...]:
    return tuple(Condition(column, compared, tuple(values)) for column, compared, values in json.loads(text or "[]"))


def narrowed(cluster: Cluster, ranges: list[OffsetRange], conditions: Sequence[Condition]) -> list[OffsetRange]:
    """Return the parts of the ranges for which the conditions may hold. The brokers are asked only if there is a
    condition on time."""
    wanted = [r for r in ranges if _hold(conditions, "topic", r.topic) and _hold(conditions, "partition", r.partition)]
    times = [_first(each) for each in conditions if each.column == "timestamp" and each.operator[0] in "=>"]
    if times and wanted:
        since = cluster.list_offsets({each.topic_partition: max(times) for each in wanted})
        began = [(each, since[each.topic_partition][0]) for each in wanted]
        wanted = [replace(r, start=max(r.start, first)) for r, first in began if first >= 0]
    offsets = [each for each in conditions if each.column == "offset"]
    start = max((_first(each) for each in offsets if each.operator[0] in "=>"), default=0)
    end = min((_end(each) for each in offsets if each.operator[0] in "=<"), default=None)
    found = [replace(r, start=max(r.start, start), end=r.end if end is None else min(r.end, end)) for r in wanted]
    return [each for each in found if each.start < each.end]


def row_filter(conditions: Iterable[Condition]) -> Column:
    """Return the conditions as a column of Spark's."""
    from pyspark.sql.functions import col, lit, timestamp_millis

    found = lit(True)
    for each in conditions:
        values = [timestamp_millis(lit(v)) if each.column == "timestamp" else lit(v) for v in each.values]
        column = col(each.column)
        found &= column.isin(*values) if each.operator == "=" else _COMPARISONS[each.operator](column, values[0])
    return found


def _value(column: str, text: str) -> int | str:
    if column == "timestamp":
        return timestamp_option("where: timestamp", text.strip("'"))
    if text.startswith("'") == (column == "topic"):
        return text.strip("'") if column == "topic" else int(text)
    raise ConfigError(f"where: {column}: found {text}, wanted {'text in quotes' if column == 'topic' else 'a number'}")


def _hold(conditions: Iterable[Condition], column: str, value: int | str) -> bool:
    return all(each.holds(value) for each in conditions if each.column == column)


def _first(condition: Condition) -> int:
    """Return the smallest offset, or time, for which a condition with a lower bound holds."""
    return min(int(value) for value in condition.values) + (condition.operator == ">")


def _end(condition: Condition) -> int:
    """Return the smallest offset for which, and above which, a condition with an upper bound does not hold."""
    return max(int(value) for value in condition.values) + (condition.operator != "<")
