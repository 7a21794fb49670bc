"""Sets up OpenTelemetry's SDK for `ottla run`: exporters by the `OTEL_*` variables, and Prometheus' text format.

A provider that the application set stays as it is. What the exporters do, they do in threads of the SDK: one that is
away or slow costs its own data, and nothing else.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.errors import ConfigError
from ottla.telemetry.metrics.listeners import active_metrics
from ottla.telemetry.traces.active_tracing import active_spans, failed

INSTALL: Final = "pip install 'ottla[otel]'"

_ASKS: Final = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER")
_ENDPOINTS: Final = "OTEL_EXPORTER_OTLP_"
_EXPORTERS: Final = ("otlp", "console", "prometheus", "none")
_SHUTDOWN_S: Final = 5.0


def is_asked_for(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether the environment names an exporter, or where one is to send."""
    return any(name in _ASKS or name.startswith(_ENDPOINTS) for name in environ)


class Telemetry:
    """The configured SDK. `close` exports pending data, for a few seconds at most."""

    def __init__(self) -> None:
        self._providers: list[Any] = []

    def set_up(self, *, service: str, exports: bool, scraped: bool, environ: Mapping[str, str] = os.environ) -> None:
        """Set providers where the process has none: with `exports` those that the environment asks for (OTLP unless it
        says otherwise), with `scraped` one that `prometheus_text` reads.

        Raises `ConfigError` for an exporter that is not known, or, with `exports`, where the SDK is not installed.
        """
        if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return
        traces = _chosen("OTEL_TRACES_EXPORTER", environ) if exports else set()
        metrics = _chosen("OTEL_METRICS_EXPORTER", environ) if exports else set()
        if scraped:
            metrics.add("prometheus")
        try:
            if traces and active_spans() is None:
                self._trace(traces, _resource(service, environ))
            if metrics and active_metrics() is None:
                self._meter(metrics, _resource(service, environ))
        except ImportError as error:
            if exports:
                raise ConfigError(f"telemetry: {error.name} is not installed: {INSTALL}") from error

    def close(self) -> None:
        """Export what is left. An exporter that is away does not hold up the end of the process."""

        def shut_down() -> None:
            for provider in self._providers:
                try:
                    provider.shutdown()
                except Exception as error:
                    failed("exporter", error)

        if self._providers:
            ending = threading.Thread(target=shut_down, name="ottla-telemetry-end", daemon=True)
            ending.start()
            ending.join(_SHUTDOWN_S)

    def _trace(self, exporters: set[str], resource: Any) -> None:
        sdk: Any = importlib.import_module("opentelemetry.sdk.trace")
        export: Any = importlib.import_module("opentelemetry.sdk.trace.export")
        made: list[Any] = []
        if "otlp" in exporters:
            otlp: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
            made.append(export.BatchSpanProcessor(otlp.OTLPSpanExporter()))
        if "console" in exporters:
            made.append(export.SimpleSpanProcessor(export.ConsoleSpanExporter()))
        if not made:
            return
        provider = sdk.TracerProvider(resource=resource, shutdown_on_exit=False)
        for processor in made:
            provider.add_span_processor(processor)
        api: Any = importlib.import_module("opentelemetry.trace")
        api.set_tracer_provider(provider)
        self._providers.append(provider)

    def _meter(self, exporters: set[str], resource: Any) -> None:
        sdk: Any = importlib.import_module("opentelemetry.sdk.metrics")
        export: Any = importlib.import_module("opentelemetry.sdk.metrics.export")
        readers: list[Any] = []
        if "otlp" in exporters:
            otlp: Any = importlib.import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
            readers.append(export.PeriodicExportingMetricReader(otlp.OTLPMetricExporter()))
        if "console" in exporters:
            readers.append(export.PeriodicExportingMetricReader(export.ConsoleMetricExporter()))
        if "prometheus" in exporters:
            prometheus: Any = importlib.import_module("opentelemetry.exporter.prometheus")
            readers.append(prometheus.PrometheusMetricReader())
        if not readers:
            return
        provider = sdk.MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
        api: Any = importlib.import_module("opentelemetry.metrics")
        api.set_meter_provider(provider)
        self._providers.append(provider)


def prometheus_text() -> Callable[[], tuple[str, bytes]] | None:
    """Return what gives the content type and text of a scrape: of everything in `prometheus_client`'s own registry.
    None where that library is not installed."""
    try:
        client: Any = importlib.import_module("prometheus_client")
    except ImportError:
        return None
    return lambda: (client.CONTENT_TYPE_LATEST, client.generate_latest())


def _chosen(variable: str, environ: Mapping[str, str]) -> set[str]:
    chosen = {each.strip().lower() for each in environ.get(variable, "otlp").split(",") if each.strip()}
    unknown = sorted(chosen - set(_EXPORTERS))
    if unknown:
        raise ConfigError(f"{variable}: found {', '.join(unknown)!r}, wanted of {', '.join(_EXPORTERS)}")
    return chosen - {"none"}


def _resource(service: str, environ: Mapping[str, str]) -> Any:
    resources: Any = importlib.import_module("opentelemetry.sdk.resources")
    named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return resources.Resource.create({} if named else {"service.name": service})
