"""The table of metrics: each instrument's name, kind, unit, attributes and meaning.

`docs/reference/telemetry.md` is made from it; the dashboard and the alert rules in `docs/observability` are checked
against it. The first four names are those of OpenTelemetry's conventions for messaging, which are in development.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Final, Literal

from ottla.telemetry.traces.conventions import CLIENT_ID, ERROR_TYPE, GROUP, HANDLER, OPERATION, PARTITION
from ottla.telemetry.traces.conventions import DESTINATION as TOPIC

Kind = Literal["counter", "histogram", "gauge"]

DURATION_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Those that the conventions advise."""

AGE_BUCKETS_S: Final = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0)
SIZE_BUCKETS: Final = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One row. `attributes` are the names of its labels; of Prometheus' the dots are underscores.

    `before` is the name that the metric had in 0.1. For one release more, an instrument of that name has the same
    values.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    attributes: tuple[str, ...]
    buckets: tuple[float, ...] = ()
    _: KW_ONLY
    before: str | None = None

    @property
    def prometheus_name(self) -> str:
        """The name that Prometheus has it by, without `_bucket`, `_sum` and `_count` of a histogram."""
        name = self.name.replace(".", "_")
        unit = {"s": "_seconds", "By": "_bytes"}.get(self.unit, "")
        return f"{name}{unit}{'_total' if self.kind == 'counter' else ''}"


_SCHEDULE: Final = "ottla.schedule.name"
_ROAD: Final = "ottla.bridge.road"

_ROWS: Final = (
    Metric(
        "messaging.client.sent.messages",
        "counter",
        "{message}",
        "Records whose delivery ended: acknowledged, or failed where `error.type` is set.",
        (TOPIC, CLIENT_ID, ERROR_TYPE),
    ),
    Metric(
        "messaging.client.consumed.messages",
        "counter",
        "{message}",
        "Records received from the client.",
        (GROUP, TOPIC),
    ),
    Metric(
        "messaging.client.operation.duration",
        "histogram",
        "s",
        "Time from `send` to the acknowledgement, for a sample of the records, and the duration of commits.",
        (OPERATION, TOPIC, CLIENT_ID, GROUP, ERROR_TYPE),
        DURATION_BUCKETS_S,
    ),
    Metric(
        "messaging.process.duration",
        "histogram",
        "s",
        "Time of a handler for one record: the mean of each run, or the time of a batch handler for its batch. A"
        " handler that takes more than a millisecond per record gets runs of one record. At most one run in five"
        " milliseconds is timed.",
        (GROUP, TOPIC, HANDLER),
        DURATION_BUCKETS_S,
    ),
    Metric("ottla.consumer.fetched.size", "counter", "By", "Bytes received from the client.", (GROUP, TOPIC)),
    Metric(
        "ottla.consumer.batch.records",
        "histogram",
        "{record}",
        "Records of one partition received together.",
        (GROUP, TOPIC),
        SIZE_BUCKETS,
    ),
    Metric(
        "ottla.handler.records",
        "counter",
        "{record}",
        "Deliveries by outcome: `handled`, and `skipped` among these; `failed` (retried, dead-lettered or stopped),"
        " and `malformed` among these; `expired` and `duplicate` (known to the inbox), which were not delivered.",
        (GROUP, TOPIC, HANDLER, "ottla.outcome"),
    ),
    Metric(
        "ottla.handler.batches",
        "counter",
        "{batch}",
        "Batches that workers finished: records of one partition that are handled together.",
        (GROUP, TOPIC, HANDLER),
        before="ottla.handler.runs",
    ),
    Metric(
        "ottla.handler.batches.in_flight",
        "gauge",
        "{batch}",
        "Batches that workers process, or that wait for acknowledgements.",
        (GROUP, HANDLER),
        before="ottla.handler.runs.in_flight",
    ),
    Metric(
        "ottla.consumer.buffer.duration",
        "histogram",
        "s",
        "How long the oldest record of a run had waited since its fetch.",
        (GROUP, TOPIC, HANDLER),
        AGE_BUCKETS_S,
    ),
    Metric(
        "ottla.consumer.end_to_end.duration",
        "histogram",
        "s",
        "Time from the timestamp of the first record of a run until it was handled.",
        (GROUP, TOPIC, HANDLER),
        AGE_BUCKETS_S,
    ),
    Metric(
        "ottla.consumer.failures",
        "counter",
        "{record}",
        "Decisions about records that failed, by log event, kind of failure and delivery (1 to 9, `10+`).",
        (GROUP, TOPIC, "ottla.event", "ottla.failure.kind", "ottla.attempt"),
    ),
    Metric(
        "ottla.consumer.malformed",
        "counter",
        "{record}",
        "Records whose key or value could not be decoded, by serde: `malformed` has another format, `invalid` breaks a"
        " rule of the type.",
        (GROUP, TOPIC, HANDLER, "ottla.serde", "ottla.record.part", "ottla.failure.kind"),
    ),
    Metric("ottla.consumer.events", "counter", "{event}", "Log events of a group.", (GROUP, "ottla.event")),
    Metric(
        "ottla.consumer.lag.records",
        "gauge",
        "{record}",
        "Records up to the end of the log that are not finished.",
        (GROUP, TOPIC, PARTITION),
    ),
    Metric(
        "ottla.consumer.lag.age",
        "gauge",
        "s",
        "The age of the oldest of them.",
        (GROUP, TOPIC, PARTITION),
    ),
    Metric(
        "ottla.consumer.oldest_unfinished.age",
        "gauge",
        "s",
        "How long the handler has had the oldest unfinished record.",
        (GROUP, TOPIC, PARTITION),
    ),
    Metric(
        "ottla.consumer.buffer.records",
        "gauge",
        "{record}",
        "Records that are fetched and not finished.",
        (GROUP, TOPIC),
    ),
    Metric("ottla.consumer.buffer.size", "gauge", "By", "Their bytes.", (GROUP, TOPIC)),
    Metric("ottla.consumer.partitions", "gauge", "{partition}", "Partitions assigned to this member.", (GROUP, TOPIC)),
    Metric(
        "ottla.consumer.partitions.paused",
        "gauge",
        "{partition}",
        "Of these, paused: `full`, `user`, `stopped`, `drain`, `not due` or `metadata`.",
        (GROUP, TOPIC, "ottla.pause.reason"),
    ),
    Metric(
        "ottla.consumer.partitions.stopped",
        "gauge",
        "{partition}",
        "Of these, stopped at a record that no declared outcome handles.",
        (GROUP, TOPIC),
    ),
    Metric(
        "ottla.consumer.commits",
        "counter",
        "{commit}",
        "Commits with a response; the error type is `fenced` or `refused`.",
        (GROUP, ERROR_TYPE),
    ),
    Metric(
        "ottla.consumer.rebalance.duration",
        "histogram",
        "s",
        "`assigned`: time since partitions were last revoked; `revoked` and `lost`: time to release partitions.",
        (GROUP, "ottla.rebalance.kind"),
        AGE_BUCKETS_S,
    ),
    Metric(
        "ottla.consumer.dead_letter_budget",
        "gauge",
        "{record}",
        "Dead letters that the budget allows now.",
        (GROUP, HANDLER),
    ),
    Metric(
        "ottla.handler.limited",
        "gauge",
        "1",
        "1 while records wait for the handler's `max_rate`, or did within the last second; 0 while none does.",
        (GROUP, HANDLER),
    ),
    Metric(
        "ottla.queue.deliveries",
        "counter",
        "{record}",
        "Records that were leased to a queue, by the number of the delivery in its group (`10+` from ten on). Above "
        "`1` their leases were released or lost before.",
        (GROUP, TOPIC, "ottla.attempt"),
    ),
    Metric(
        "ottla.queue.jobs",
        "counter",
        "{record}",
        "Leases of a queue that ended: `accepted`, `released` or `rejected` as its broker acknowledged, or `lost`.",
        (GROUP, TOPIC, "ottla.outcome"),
    ),
    Metric("ottla.queue.in_flight", "gauge", "{record}", "Records that a queue holds leases of.", (GROUP,)),
    Metric("ottla.queue.oldest_lease.age", "gauge", "s", "How long it has held the oldest; 0 without any.", (GROUP,)),
    Metric(
        "ottla.schedule.dispatched",
        "counter",
        "{message}",
        "Delayed messages that a scheduler delivered, and runs of recurring tasks that it dispatched.",
        (_SCHEDULE,),
    ),
    Metric(
        "ottla.schedule.lateness",
        "histogram",
        "s",
        "Delay of a delivery after its due time: the latest message of each transaction.",
        (_SCHEDULE,),
        AGE_BUCKETS_S,
    ),
    Metric(
        "ottla.schedule.pending",
        "gauge",
        "{message}",
        "Delayed messages in open slots; those in closed slots are not read.",
        (_SCHEDULE,),
    ),
    Metric(
        "ottla.schedule.oldest_due.age",
        "gauge",
        "s",
        "How long the oldest waiting message has been due; 0 if none is due.",
        (_SCHEDULE,),
    ),
    Metric(
        "ottla.schedule.slots", "gauge", "{slot}", "Slots assigned to the schedulers of this process.", (_SCHEDULE,)
    ),
    Metric(
        "ottla.schedule.slots.failing",
        "gauge",
        "{slot}",
        "Of these, those that cannot be read or written.",
        (_SCHEDULE,),
    ),
    Metric(
        "ottla.schedule.malformed",
        "gauge",
        "{record}",
        "Records in open slots that no scheduler understands: another program wrote them.",
        (_SCHEDULE,),
        before="ottla.schedule.unreadable",
    ),
    Metric(
        "ottla.producer.batch.records",
        "gauge",
        "{record}",
        "Mean number of records in the batches of the last ten seconds. Few records mean that `linger.ms` is short for"
        " the rate.",
        (CLIENT_ID, TOPIC),
    ),
    Metric(
        "ottla.producer.batch.size",
        "gauge",
        "By",
        "Mean size of those batches; before compression in threads, as sent on asyncio.",
        (CLIENT_ID, TOPIC),
    ),
    Metric(
        "ottla.producer.queue",
        "gauge",
        "{record}",
        "Records that were sent and are neither acknowledged nor failed.",
        (CLIENT_ID,),
    ),
    Metric(
        "ottla.bridge.messages",
        "counter",
        "{message}",
        "Messages of a bridge's road by what became of them: `received`, then `acknowledged` by Kafka, `refused`, "
        "`dead_lettered`, `dropped` (QoS 0) or `repeated` (QoS 2).",
        (_ROAD, "ottla.outcome"),
    ),
    Metric(
        "ottla.bridge.connections", "gauge", "{connection}", "Publishers, or brokers, that are connected.", (_ROAD,)
    ),
    Metric("ottla.bridge.in_flight", "gauge", "{message}", "Records that Kafka has not acknowledged.", (_ROAD,)),
    Metric("ottla.bridge.oldest.age", "gauge", "s", "How long the oldest of them has been on its way.", (_ROAD,)),
    Metric("ottla.outbox.waiting", "gauge", "{row}", "Rows that wait to be relayed, up to 100,000.", ()),
    Metric("ottla.outbox.oldest.age", "gauge", "s", "How long the oldest of them has waited.", ()),
    Metric("ottla.outbox.parked", "gauge", "{row}", "Rows that were refused; later rows of their keys wait.", ()),
    Metric("ottla.client.broker.up", "gauge", "1", "1 while the client is connected.", (CLIENT_ID, "ottla.broker")),
    Metric("ottla.client.broker.rtt", "gauge", "s", "Mean round trip.", (CLIENT_ID, "ottla.broker")),
    Metric(
        "ottla.client.broker.requests",
        "gauge",
        "{request}",
        "Requests that wait to be sent (`waiting`) or answered (`in_flight`).",
        (CLIENT_ID, "ottla.broker", "ottla.request.state"),
    ),
    Metric(
        "ottla.client.broker.connections",
        "gauge",
        "{connection}",
        "Connections so far.",
        (CLIENT_ID, "ottla.broker"),
        before="ottla.client.broker.connects",
    ),
    Metric(
        "ottla.client.broker.timeouts",
        "gauge",
        "{request}",
        "Requests that timed out so far.",
        (CLIENT_ID, "ottla.broker"),
    ),
    Metric(
        "ottla.client.throttle.duration",
        "histogram",
        "s",
        "How long a broker throttled the client for exceeding its quota.",
        (CLIENT_ID, GROUP, "ottla.broker"),
        AGE_BUCKETS_S,
    ),
    Metric("ottla.client.broker.throttle", "gauge", "s", "Mean throttle time.", (CLIENT_ID, "ottla.broker")),
)

METRICS: Final[Mapping[str, Metric]] = {row.name: row for row in _ROWS}
