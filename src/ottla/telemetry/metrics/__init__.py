"""Metrics: hooks that the shells call, their listeners, and OpenTelemetry's instruments."""
