"""A span that is open: what Ottla does with it. Imported only where a tracer provider is: see `tracing`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode

from ottla.telemetry.traces.active_tracing import failed
from ottla.telemetry.traces.conventions import ERROR_TYPE, OFFSET, PARTITION, with_old_names

Attributes = dict[str, str | int | bool]


class OpenSpan:
    """A span that is recorded. Its methods never raise."""

    __slots__ = ("_has_both", "span")

    def __init__(self, span: Span, *, has_both: bool = False) -> None:
        """`has_both`: whether it has attributes under the names of 1.44 too."""
        self.span = span
        self._has_both = has_both

    @property
    def context(self) -> Context:
        """For children of the span."""
        return trace.set_span_in_context(self.span, Context())

    @property
    def ids(self) -> dict[str, str]:
        """For log lines that are written after it."""
        own = self.span.get_span_context()
        return {"trace_id": f"{own.trace_id:032x}", "span_id": f"{own.span_id:016x}"}

    def set(self, attributes: Mapping[str, str | int | bool]) -> None:
        try:
            self.span.set_attributes(attributes)
        except Exception as error:
            failed("span", error)

    def event(self, name: str, attributes: Mapping[str, str | int | float | bool]) -> None:
        try:
            self.span.add_event(name, attributes)
        except Exception as error:
            failed("span", error)

    def link(self, linked: Iterable[Context]) -> None:
        try:
            for context in linked:
                other = trace.get_current_span(context).get_span_context()
                if other.is_valid:
                    self.span.add_link(other)
        except Exception as error:
            failed("span", error)

    def failed(self, error_type: str, error: BaseException | None = None) -> None:
        """Mark the operation as failed with an error. It does not end the span."""
        try:
            self.span.set_attribute(ERROR_TYPE, error_type)
            self.span.set_status(Status(StatusCode.ERROR, error_type))
            if error is not None:
                self.span.record_exception(error)
        except Exception as raised:
            failed("span", raised)

    def end(self, at_ns: int | None = None) -> None:
        """End the span; `at_ns` is the time of day at which the operation ended, if that was earlier."""
        try:
            if self.span.is_recording():
                self.span.end(at_ns)
        except Exception as error:
            failed("span processor", error)

    def delivered(self, partition: int, offset: int | None) -> None:
        """Mark a send as acknowledged."""
        attributes: Attributes = {PARTITION: str(partition)}
        if offset is not None and offset >= 0:
            attributes[OFFSET] = offset
        try:
            self.span.set_attributes(with_old_names(attributes) if self._has_both else attributes)
            self.span.end()
        except Exception as error:
            failed("span processor", error)

    def not_delivered(self, error: BaseException) -> None:
        """Mark a send as failed."""
        self.failed(type(error).__name__)
        self.end()
