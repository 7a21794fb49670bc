"""What a producer of either shell can be given: the types that its overloads share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

from ottla.failures.expiry import Moment, Span
from ottla.producer.partitioners import CustomPartitioner, Partitioner
from ottla.records import Headers
from ottla.telemetry import Hooks

__all__ = [
    "BulkOptions",
    "Key",
    "PartitionerName",
    "ProducerOptions",
    "Profile",
    "SendOptions",
    "Servers",
    "Value",
    "named_after",
]

Servers: TypeAlias = str | Sequence[str] | None
Profile: TypeAlias = Literal["low_latency", "high_throughput"]
PartitionerName: TypeAlias = Literal[
    "murmur2",
    "murmur2_random",
    "consistent",
    "consistent_random",
    "fnv1a",
    "fnv1a_random",
    "random",
    "round_robin",
    "sticky",
    "explicit",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Key = TypeVar("Key")
Value = TypeVar("Value")


class ProducerOptions(TypedDict, total=False):
    """The arguments of a producer that its type does not depend on."""

    profile: Profile | None
    settings: Mapping[str, Any] | None
    partitioner: PartitionerName | CustomPartitioner | Partitioner | None
    topics: Sequence[str]
    message_ids: bool
    environ: Mapping[str, str] | None
    hooks: Hooks | None
    schedule: str
    start_timeout_s: Span


class BulkOptions(TypedDict, total=False):
    """What `send_many` may be asked for, the same for all its records."""

    expires_after: Span | None
    expires_at: Moment | None
    priority: str | None
    deliver_after: Span | None
    deliver_at: Moment | None
    detached: bool


class SendOptions(TypedDict, total=False):
    """The arguments of `send` that its type does not depend on."""

    headers: Headers
    partition: int | None
    timestamp_ms: int | None
    expires_after: Span | None
    expires_at: Moment | None
    priority: str | None
    message_id: str | None
    deliver_after: Span | None
    deliver_at: Moment | None
    schedule_id: str | None
    detached: bool


def named_after(marker: str) -> Callable[[Function], Function]:
    """Show the arguments after this one as what they are: given by name. The marker itself is not shown.

    CPython looks up each default behind a `*` in a dict: 0.012 µs, for ten arguments the third part of what a send
    does by itself. A marker in its place, which is given to nobody, costs nothing; the function refuses to be given it.
    """

    def shown(function: Function) -> Function:
        signature = inspect.signature(function)
        names = list(signature.parameters)
        by_name = names[names.index(marker) + 1 :]
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[
                each.replace(kind=inspect.Parameter.KEYWORD_ONLY) if name in by_name else each
                for name, each in signature.parameters.items()
                if name != marker
            ]
        )
        return function

    return shown
