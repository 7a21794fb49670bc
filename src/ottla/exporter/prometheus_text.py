"""Prometheus' text format, version 0.0.4. Pure.

A scrape with one bad line, or with one series twice, is refused as a whole. So each label value is escaped and bounded
in a way that keeps different values different, and each family has a bounded number of series.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ottla.exporter.cluster_metrics_table import CLUSTER_METRICS, ClusterMetric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MOST_LABEL_CHARACTERS: Final = 256
"""A topic's name has at most 249; a group's may have 32,767."""
_DIGEST_CHARACTERS: Final = 16

Series: TypeAlias = tuple[str, tuple[str, ...], float]
"""Name of the metric, its label values in the order of the table, and the value."""


class MetricFamilies:
    """The series of one reading, by metric. Each metric keeps at most `most_series`, and counts the others."""

    def __init__(self, *, most_series: int) -> None:
        self._most_series = most_series
        self._values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in CLUSTER_METRICS}
        self.dropped: dict[str, int] = {}
        """Metric → series that were left out, because there were too many."""

    def add(self, series: Iterable[Series]) -> None:
        """Take series; those above the bound of their metric are counted and left out."""
        for name, labels, value in series:
            found = self._values[name]
            if len(found) >= self._most_series and labels not in found:
                self.dropped[name] = self.dropped.get(name, 0) + 1
            else:
                found[labels] = value

    @property
    def count(self) -> int:
        """The number of series."""
        return sum(map(len, self._values.values()))

    def text(self) -> bytes:
        """Return all of them in the order of the table, and forget them: a hundred thousand series are 20 MB, which the
        text takes the place of. Metrics without series are left out."""
        parts: list[bytes] = []
        for name in CLUSTER_METRICS:
            found = self._values.pop(name)
            if found:
                parts.append(_family(CLUSTER_METRICS[name], found).encode("utf-8", "backslashreplace"))
        return b"".join(parts)

    def values(self, name: str) -> Mapping[tuple[str, ...], float]:
        """Return the series of one metric by their label values."""
        return self._values[name]


def _family(metric: ClusterMetric, found: Mapping[tuple[str, ...], float]) -> str:
    lines = [f"# HELP {metric.name} {_escaped_help(metric.meaning)}\n# TYPE {metric.name} {metric.kind}\n"]
    lines += _lines(metric.name, metric.labels, found)
    return "".join(lines)


def _lines(name: str, labels: Sequence[str], found: Mapping[tuple[str, ...], float]) -> Iterator[str]:
    begins = [f'{"," if at else ""}{label}="' for at, label in enumerate(labels)]
    for values, value in found.items():
        shown = "".join([f'{begin}{label_value(text)}"' for begin, text in zip(begins, values, strict=True)])
        yield f"{name}{{{shown}}} {_number(value)}\n" if shown else f"{name} {_number(value)}\n"


def label_value(text: str) -> str:
    """Return a label value, escaped. A long one is cut and gets a digest of the whole, so that two stay two."""
    if len(text) > MOST_LABEL_CHARACTERS:
        digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:_DIGEST_CHARACTERS]
        text = f"{text[: MOST_LABEL_CHARACTERS - _DIGEST_CHARACTERS - 1]}~{digest}"
    if text.isalnum():  # most are; `replace` three times would be a third of the time of a scrape
        return text
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    """Return a value: whole numbers without exponent, as offsets need all their digits."""
    return str(value) if isinstance(value, int) else f"{value:.15g}"
