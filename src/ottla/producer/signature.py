"""What a producer of either shell can be given: the types that its overloads share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

from ottla.failures.expiry import Moment, Span
from ottla.producer.partitioners import CustomPartitioner, Partitioner
from ottla.records import Headers
from ottla.telemetry import Hooks

__all__ = ["BulkOptions", "Key", "PartitionerName", "ProducerOptions", "Profile", "SendOptions", "Servers", "Value"]

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


class BulkOptions(TypedDict, total=False):
    """What `send_many` may be asked for, the same for all its records."""

    expires_after: Span | None
    expires_at: Moment | None
    priority: str | None
    deliver_after: Span | None
    deliver_at: Moment | None


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
