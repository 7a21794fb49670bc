"""The state of a group member, a producer or a scheduler at one moment: the arguments of `Hooks.measured` and the
like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ottla.records import TopicPartition
from ottla_wire.facts import fact


@fact
class WaitingRetry:
    """Records that failed and are delivered again together, not before `due_ms` (epoch milliseconds). `offset` is the
    first record's, and `attempts` its failed deliveries so far: 0 for a record that only follows an earlier record of
    its key through a retry topic."""

    offset: int
    records: int
    attempts: int
    due_ms: int


@fact
class PartitionMeasure:
    """One assigned partition.

    `lag_records` are records behind the end of the log that are not done; the log is looked at every five seconds, also
    while the partition is paused. `lag_s` is the age of the oldest of them: by its own timestamp once it is fetched,
    before that since it was seen to be there. Both are None until the log was looked at. `oldest_unfinished_s`: since
    when the handler has the oldest record that is not done, 0 when there is none. `retries` are the first of those that
    wait for their time; `retries_waiting` counts the records of all.
    """

    topic_partition: TopicPartition
    handler: str
    lag_records: int | None
    lag_s: float | None
    oldest_unfinished_s: float
    buffered_records: int
    buffered_bytes: int
    paused_for: tuple[str, ...] = ()
    is_stopped: bool = False
    retries: tuple[WaitingRetry, ...] = ()
    retries_waiting: int = 0


@fact
class ScheduleMeasure:
    """One scheduler: the slots that it has, and how many of them it cannot read or write; the messages that wait in
    open slots; since when the oldest of them is due, 0 when none is; records that no scheduler can act on."""

    slots: int
    failing: int
    waiting: int
    oldest_due_s: float
    unreadable: int


@fact
class BridgeMeasure:
    """One road of a bridge: its connections, the records that Kafka has not acknowledged, and how long the oldest of
    them has been on its way."""

    connections: int
    in_flight: int
    oldest_s: float


@fact
class LeaseMeasure:
    """The leases of a queue's member: how many it holds, and for how long it has held the oldest; 0 without any."""

    in_flight: int
    oldest_s: float


@fact
class MemberMeasure:
    """One member of a group. By handler: runs in workers, dead letters that the budget allows at once, and, for
    handlers with a `max_rate`, whether records wait for it. `leases` counts a queue's leases."""

    partitions: tuple[PartitionMeasure, ...] = ()
    runs_in_flight: Mapping[str, int] = field(default_factory=dict)
    budget_tokens: Mapping[str, float] = field(default_factory=dict)
    limited: Mapping[str, bool] = field(default_factory=dict)
    leases: LeaseMeasure | None = None


@fact
class BrokerMeasure:
    """One broker as the client sees it (librdkafka's statistics; on asyncio and for columns what its requests show).

    `rtt_s` is the mean round trip of the last ten seconds; `connects` and `timeouts` count since the client began.
    """

    broker: str
    is_up: bool
    rtt_s: float
    requests_waiting: int
    requests_in_flight: int
    connects: int
    timeouts: int
    throttle_s: float


@fact
class BatchMeasure:
    """Record batches that a producer sent to a topic: means over the last ten seconds. `size_bytes` is a batch with its
    header, as in its request. librdkafka counts it before compression."""

    topic: str
    records: float
    size_bytes: float
