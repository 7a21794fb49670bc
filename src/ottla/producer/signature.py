"""Types shared by the overloads of both shells' producers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar

from ottla.config.token_argument import TokenFunction
from ottla.failures.expiry import Moment
from ottla.producer.partitioners import CustomPartitioner, Partitioner
from ottla.quantities import Span
from ottla.records import Headers
from ottla.telemetry import Hooks

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
F = TypeVar("F", bound=Callable[..., Any])


class ProducerOptions(TypedDict, total=False):
    """The arguments of a producer that its type does not depend on."""

    profile: Profile | None
    settings: Mapping[str, Any] | None
    token: TokenFunction | None
    partitioner: PartitionerName | CustomPartitioner | Partitioner | None
    topics: Sequence[str]
    message_ids: bool
    environ: Mapping[str, str] | None
    hooks: Hooks | None
    schedule: str
    start_timeout_s: Span


class BulkOptions(TypedDict, total=False):
    """Options of `send_many`, which apply to all its records.

    `expires_after`, `expires_at`, `priority`, `deliver_after`, `deliver_at`, `event_type`, `subject` and `detached`
    mean what they mean in `SendOptions`.

    There is no `event_id`: with `event_type` each record is an event of its own, with a random id.
    """

    expires_after: Span | None
    expires_at: Moment | None
    priority: str | None
    deliver_after: Span | None
    deliver_at: Moment | None
    event_type: str | None
    subject: str | None
    detached: bool


class RecordOptions(TypedDict, total=False):
    """Options of one record that an outbox takes as well. `SendOptions` documents them."""

    headers: Headers
    partition: int | None
    timestamp_ms: int | None
    expires_after: Span | None
    expires_at: Moment | None
    message_id: str | None
    event_type: str | None
    subject: str | None
    event_id: str | None


class RareOptions(TypedDict, total=False):
    """Options that few sends have. `SendOptions` documents them."""

    expires_after: Span | None
    expires_at: Moment | None
    priority: str | None
    message_id: str | None
    event_type: str | None
    subject: str | None
    event_id: str | None
    deliver_after: Span | None
    deliver_at: Moment | None
    schedule_id: str | None


class SendOptions(RareOptions, total=False):
    """What may be said of one record that is sent, beside its topic, value and key. The same for every `send`.

    `headers`: (name, value) pairs; a value is bytes or None, and names may repeat.

    `partition`: the partition to write to. Without it the producer's partitioner chooses by the key.

    `timestamp_ms`: milliseconds since the Unix epoch. Without it, now.

    `expires_after`: seconds, or a timedelta, from now (from the due time of a delayed record). A record that is older
    is not handled any more. It travels as the header `ottla-expires-at`.

    `expires_at`: the same as a datetime with a time zone.

    `priority`: one of the names that the topic, `Priorities(...)`, declares. It chooses the topic that is written to.

    `message_id`: goes into the header `ottla-id`. Two records with the same id are one message for a consumer with an
    inbox.

    `event_type`: makes the record a CloudEvent of this type, as `order.created`. The producer's serde of values must be
    `CloudEvents(...)`, which names the source. `CloudEvents.headers` has the attributes that are no options.

    `subject`: what the event happened to, within its source.

    `event_id`: distinguishes the events of the source. Without it, a random one: an inbox cannot find a copy by that.

    `deliver_after`: seconds, or a timedelta. The record is written to the schedule topic, from where a scheduler
    delivers it when it is due. The delivery that is returned is that of the record that waits.

    `deliver_at`: the same as a datetime with a time zone.

    `schedule_id`: a name for a delayed record, for `cancel`: text of 1 to 200 characters.

    `detached`: what a handler sends belongs to the record that it handles, which is done only when the send is
    acknowledged. A detached send does not belong to it.
    """

    headers: Headers
    partition: int | None
    timestamp_ms: int | None
    detached: bool


BULK_OPTIONS: Final = frozenset(BulkOptions.__optional_keys__)
_DEFAULTS: Final[Mapping[str, Any]] = {"headers": (), "detached": False}


def refuse_unknown(method: str, names: Set[str]) -> None:
    """Raise TypeError for options that `method` (as "Producer.send") does not have, if there are any."""
    if names:
        raise TypeError(f"{method}() got an unexpected keyword argument {min(names)!r}")


def lists_options(options: Any) -> Callable[[F], F]:
    """Decorate a method: its signature, as `help` shows it, has the fields of the TypedDict in place of `**options`."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        more = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=_DEFAULTS.get(name),
                annotation=getattr(annotation, "__forward_arg__", annotation),
            )
            for name, annotation in options.__annotations__.items()
            if name not in signature.parameters
        ]
        function.__signature__ = signature.replace(parameters=own + more)  # type: ignore[attr-defined]
        return function

    return decorate
