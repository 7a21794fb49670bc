"""What a handler sees of a record that comes out of a retry topic: the record as it was in its own topic.

Position, timestamp and headers are those of the first delivery; only `context.attempt` tells that it is not. A handler
that remembers what it has seen by topic, partition and offset therefore works the same for retries.
"""

from __future__ import annotations

from typing import Any

from ottla.app.binding import Binding
from ottla.app.context import Context
from ottla.failures.retry_headers import original_of


def with_originals(binding: Binding, *, is_batch: bool) -> Binding:
    """The binding, called with originals."""
    call = binding.call

    def single(subject: Any, context: Context) -> Any:
        return call(original_of(subject), context)

    def batch(subject: Any, context: Context) -> Any:
        return call([original_of(record) for record in subject], context)

    return Binding(
        call=batch if is_batch else single, is_async=binding.is_async, wants_malformed=binding.wants_malformed
    )
