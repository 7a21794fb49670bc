"""The context of traces in what is sent, beside the instrumentors of OpenTelemetry for the two clients.

An instrumentor replaces or wraps the client's methods. Ottla calls the client itself instead: the wrappers end a
consumer at a `traceparent` or a key that is not UTF-8, and do not see what is sent in batches or by position. What they
would add to a record is added here: the context of the span that is current when `send` is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

from ottla.producer.encoded import header_list
from ottla.records import Header, Headers

AddContext: TypeAlias = Callable[[str, Headers], list[Header]]


def context_adder(*, is_instrumented: bool) -> AddContext | None:
    """What adds the current context to the headers for a topic; None where no instrumentor is active."""
    if not is_instrumented:
        return None
    try:
        propagate: Any = importlib.import_module("opentelemetry.propagate")
    except ImportError:  # another tool patched the client
        return None

    def add(topic: str, headers: Headers) -> list[Header]:
        context: dict[str, str] = {}
        propagate.inject(context)
        return with_context(header_list(topic, headers)[0], context)

    return add


def with_context(headers: Headers, context: dict[str, str]) -> list[Header]:
    """The headers with those of the context, of which what the caller gave stays as it is."""
    given = {name for name, _ in headers}
    return [*headers, *((name, value.encode()) for name, value in context.items() if name not in given)]
