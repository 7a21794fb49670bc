"""What OpenTelemetry's SDK collects of Ottla's metrics, as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.metrics import _internal as api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

Labels = dict[str, Any]


class Collected:
    """A real meter provider and what is read of it.

    Members and producers that other tests of the process left behind, or that a session's fixtures have, are told to it
    as well: ask by a group, topic or client that only the test has.
    """

    def __init__(self, reader: InMemoryMetricReader) -> None:
        self._reader = reader

    def points(self, name: str, **labels: Any) -> list[tuple[Labels, Any]]:
        """Each set of labels that has these (dots are double underscores, None is for one that is absent) with its data
        point."""
        wanted = {label.replace("__", "."): value for label, value in labels.items()}
        data = self._reader.get_metrics_data()
        found = [
            metric
            for resource in (data.resource_metrics if data is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        points = [(dict(point.attributes or {}), point) for metric in found for point in metric.data.data_points]
        return [each for each in points if all(each[0].get(label) == value for label, value in wanted.items())]

    def value(self, name: str, **labels: Any) -> float | None:
        """The sum over all points with these labels; None when there is none."""
        found = [
            getattr(point, "value", None) if hasattr(point, "value") else point.count
            for _, point in self.points(name, **labels)
        ]
        return sum(value for value in found if value is not None) if found else None

    def names(self) -> dict[str, set[str]]:
        """Every metric that has points, with all labels that they have."""
        data = self._reader.get_metrics_data()
        names: dict[str, set[str]] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        names.setdefault(metric.name, set()).update(point.attributes or {})
        return names


@contextmanager
def collected_metrics() -> Iterator[Collected]:
    """A meter provider as the process's own while it lasts."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    globals_of_metrics: Any = api
    before = globals_of_metrics._METER_PROVIDER  # the API lets it be set once in a process
    globals_of_metrics._METER_PROVIDER = provider
    try:
        yield Collected(reader)
    finally:
        globals_of_metrics._METER_PROVIDER = before
        provider.shutdown()
