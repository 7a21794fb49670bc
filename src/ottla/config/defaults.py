"""Ottla's defaults, each with its reason.

Names are Kafka's own (the Java client's documentation); a few that only librdkafka has keep librdkafka's name.
A client's own default stands wherever a setting is not listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Default:
    """A setting's value and why it is that value."""

    name: str
    value: Any
    why: str


def by_name(*defaults: Default) -> Mapping[str, Default]:
    """Return the defaults as a read-only mapping, in the order given."""
    return MappingProxyType({default.name: default for default in defaults})


COMMON_DEFAULTS = by_name(
    Default("client.id", "ottla", "brokers use it in logs, metrics and quotas"),
    Default("security.protocol", "PLAINTEXT", "Kafka's default; use SSL or SASL_SSL on a shared network"),
    Default("request.timeout.ms", 30_000, "Kafka's default: a request without a response by then is retried"),
    Default("retry.backoff.ms", 100, "Kafka's default: the first pause before a request is tried again"),
    Default(
        "metadata.max.age.ms",
        300_000,
        "Kafka's default: new partitions and changed topic limits are noticed within five minutes without any error",
    ),
    Default(
        "allow.auto.create.topics",
        False,
        "a misspelt topic is an error, not a new topic, which Kafka's brokers create when a client asks about one",
    ),
    Default(
        "socket.keepalive.enable", True, "a firewall that drops an idle connection is noticed before a request hangs"
    ),
)

PRODUCER_DEFAULTS = by_name(
    Default(
        "acks",
        "all",
        "a record counts as written only when every in-sync replica has it, so the loss of one broker loses no record",
    ),
    Default("enable.idempotence", True, "a retry after a lost acknowledgement must not append the record twice"),
    Default(
        "max.in.flight.requests.per.connection",
        5,
        "the broker remembers five batches per producer: more in flight could reorder or duplicate on a retry",
    ),
    Default(
        "retries",
        2_147_483_647,
        "tries are bounded by time (delivery.timeout.ms), which a caller can reason about",
    ),
    Default(
        "delivery.timeout.ms",
        120_000,
        "longer than a leader election or a rolling restart, short enough that a failure is still worth reporting",
    ),
    Default(
        "linger.ms",
        5,
        "Kafka 4's default (KIP-1030): five milliseconds fill batches enough to lower latency under load",
    ),
    Default(
        "batch.size",
        131_072,
        "large enough to compress well, an eighth of the smallest topic limit in common use, so no batch is refused",
    ),
    Default("compression.type", "lz4", "the cheapest codec: less network and disk for next to no processor time"),
    Default(
        "max.request.size",
        1_048_576,
        "Kafka's default for the largest record the client accepts; the topic's own limit is checked as well",
    ),
    Default("buffer.memory", 67_108_864, "64 MiB of records may wait for brokers; then send() waits (back-pressure)"),
    Default(
        "queue.buffering.max.messages",
        500_000,
        "a bound on the count as well, because small records cost more in bookkeeping than in bytes",
    ),
    Default(
        "max.block.ms",
        10_000,
        "how long send() waits for room in a full buffer before BufferFull; it never waits for metadata",
    ),
    Default(
        "topic.metadata.propagation.max.ms",
        10_000,
        "some brokers may not know a new topic yet; after ten seconds it counts as missing",
    ),
    Default(
        "partitioner",
        "murmur2",
        "the same key lands in the same partition as with the Java client; null keys are spread, batch by batch",
    ),
)

CONSUMER_DEFAULTS = by_name(
    Default("enable.auto.commit", False, "an offset is committed when its record is done, not when a timer fires"),
    Default("enable.auto.offset.store", False, "a record passed to a handler is not handled yet"),
    Default(
        "auto.offset.reset",
        "earliest",
        "a new group, or one whose offsets expired, must skip nothing: handlers can detect a repeat, but not a gap",
    ),
    Default("isolation.level", "read_committed", "records of an aborted transaction were never meant to be seen"),
    Default("group.protocol", "classic", "every broker version has it; `consumer` (KIP-848) needs Kafka 4"),
    Default(
        "session.timeout.ms", 45_000, "Kafka's default (KIP-735): rides out a garbage collection or a network blip"
    ),
    Default("heartbeat.interval.ms", 3_000, "Kafka's default: several heartbeats fit into one session"),
    Default(
        "max.poll.interval.ms",
        300_000,
        "Kafka's default; the poll loop never runs user code, so only a stuck process exceeds it",
    ),
    Default(
        "partition.assignment.strategy",
        "cooperative-sticky",
        "a rebalance stops only the partitions that move, not the whole group",
    ),
    Default("fetch.min.bytes", 1, "the broker responds as soon as there is anything to read"),
    Default("fetch.max.wait.ms", 500, "Kafka's default: how long a broker holds a fetch that has nothing to return"),
    Default("fetch.max.bytes", 52_428_800, "Kafka's default: the largest response of a broker to one fetch"),
    Default("max.partition.fetch.bytes", 1_048_576, "Kafka's default: the most bytes of one partition in a response"),
    Default(
        "fetch.queue.backoff.ms",
        10,
        "librdkafka fetches nothing for this long once 100,000 records wait; its default of one second starves a fast"
        " handler",
    ),
    Default(
        "queued.min.messages",
        1_000,
        "librdkafka fetches a partition again while fewer records than these wait: what it has fetched is taken over at"
        " once, into buffers that FlowLimits bounds, and it does not count headers in queued.max.messages.kbytes",
    ),
    Default("check.crcs", True, "a bit that flipped on disk or on the wire must not reach a handler as data"),
    Default("enable.partition.eof", False, "the end of a partition is not an event for a service"),
)

TRANSACTION_DEFAULTS = by_name(
    # with transactional.id
    Default(
        "connections.max.idle.ms",
        3_000,
        "librdkafka looks up a failed group coordinator again only when a connection opens or closes: without this,"
        " sending offsets may wait for ever",
    ),
)

PRIORITY_DEFAULTS = by_name(
    # of groups whose topics have priorities: an urgent record may stand behind all that is fetched at a time
    Default(
        "max.partition.fetch.bytes",
        16_384,
        "records of every priority come in one response, which is unpacked before the next one is asked for: 16 KiB of"
        " each partition keeps what is urgent from standing behind a megabyte of bulk",
    ),
    Default(
        "fetch.max.wait.ms",
        100,
        "bulk that was paused because enough of it is buffered comes with the next fetch: after as long as the one"
        " before it waits for what is urgent",
    ),
)

NEXT_GENERATION_GROUP_DEFAULTS = by_name(
    # group.protocol=consumer (KIP-848): the broker owns these, and a client that sets them does not start.
    Default("session.timeout.ms", None, "the broker decides under group.protocol=consumer"),
    Default("heartbeat.interval.ms", None, "the broker decides under group.protocol=consumer"),
    Default("partition.assignment.strategy", None, "the broker assigns under group.protocol=consumer"),
)
