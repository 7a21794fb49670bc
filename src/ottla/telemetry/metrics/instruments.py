"""OpenTelemetry's instruments, which get the same calls as `Hooks`. Imported only where a meter provider is: see
`listeners`.

Counters are summed here, per batch and run, and read when somebody collects. Gauges are the last measures that were
reported: what is not reported any more is not shown any more.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as Count
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from ottla.telemetry.metrics.hooks import Hooks
from ottla.telemetry.metrics.measurements import (
    BatchMeasure,
    BridgeMeasure,
    BrokerMeasure,
    MemberMeasure,
    ScheduleMeasure,
)
from ottla.telemetry.metrics.metrics_table import METRICS, Metric
from ottla.telemetry.traces.conventions import (
    CLIENT_ID,
    ERROR_TYPE,
    GROUP,
    HANDLER,
    OPERATION,
    PARTITION,
    SCHEMA_URL,
    SCOPE,
)
from ottla.telemetry.traces.conventions import DESTINATION as TOPIC

_SCHEDULE: Final = "ottla.schedule.name"
_ROAD: Final = "ottla.bridge.road"

_OF_SCHEDULES: Final[Mapping[str, Callable[[ScheduleMeasure], float]]] = {
    "ottla.schedule.pending": lambda found: found.waiting,
    "ottla.schedule.oldest_due.age": lambda found: found.oldest_due_s,
    "ottla.schedule.slots": lambda found: found.slots,
    "ottla.schedule.slots.failing": lambda found: found.failing,
    "ottla.schedule.malformed": lambda found: found.unreadable,
}

_OF_BRIDGES: Final[Mapping[str, Callable[[BridgeMeasure], float]]] = {
    "ottla.bridge.connections": lambda found: found.connections,
    "ottla.bridge.in_flight": lambda found: found.in_flight,
    "ottla.bridge.oldest.age": lambda found: found.oldest_s,
}

_OUTBOX: Final = ("ottla.outbox.waiting", "ottla.outbox.oldest.age", "ottla.outbox.parked")

_MOST_ATTEMPTS: Final = 10

_TIMED_EVERY_S: Final = 0.005
"""Of the runs that end within this interval, one is timed."""

Labels = dict[str, str]
LabelPairs = tuple[tuple[str, str], ...]
Row = tuple[str, Labels, float]
K = TypeVar("K")
V = TypeVar("V")


class Metrics(Hooks):
    """The instruments of one meter provider. Every method may be called from any thread."""

    def __init__(self, provider: MeterProvider, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        meter = provider.get_meter(SCOPE, schema_url=SCHEMA_URL)
        self._now_s = now_s
        self._lock = threading.Lock()
        self._members: dict[tuple[str, str], MemberMeasure] = {}
        self._queued: dict[str, int] = {}
        self._schedules: dict[tuple[str, str], ScheduleMeasure] = {}
        self._brokers: dict[str, Sequence[BrokerMeasure]] = {}
        self._outboxes: dict[str, tuple[float, float, float]] = {}
        self._bridges: dict[str, BridgeMeasure] = {}
        self._batches: dict[str, Sequence[BatchMeasure]] = {}
        self._sums: dict[str, dict[LabelPairs, float]] = {}
        self._timed_s: dict[tuple[str, str], float] = {}
        self._record: dict[str, Callable[[float, Labels], None]] = {}
        for metric in METRICS.values():
            if metric.kind == "gauge":
                for name, meaning in _names_of(metric):
                    meter.create_observable_gauge(name, [self._reader(metric)], metric.unit, meaning)
            elif metric.kind == "counter":
                self._sums[metric.name] = {}
                for name, meaning in _names_of(metric):
                    meter.create_observable_counter(name, [self._counted(metric)], metric.unit, meaning)
            else:
                self._record[metric.name] = meter.create_histogram(
                    metric.name, metric.unit, metric.meaning, explicit_bucket_boundaries_advisory=metric.buckets
                ).record

    def forked(self) -> None:
        """Reset the instruments in a child process: the lock may have been held by a thread that is not there, and what
        was measured is the parent's."""
        self._lock = threading.Lock()
        self._members, self._queued, self._brokers = {}, {}, {}
        self._schedules, self._outboxes, self._bridges = {}, {}, {}
        self._batches = {}

    # What is counted

    def fetched(self, *, group: str, topic: str, records: int, size_bytes: int) -> None:
        labels = ((GROUP, group), (TOPIC, topic))
        self._add("messaging.client.consumed.messages", records, labels)
        self._add("ottla.consumer.fetched.size", size_bytes, labels)
        if self._is_due("fetched", group + topic):
            self._record["ottla.consumer.batch.records"](records, dict(labels))

    def run_finished(
        self,
        *,
        group: str,
        handler: str,
        topic: str,
        handled: int,
        failed: int,
        malformed: int,
        skipped: int,
        duration_ms: int,
    ) -> None:
        labels = ((GROUP, group), (TOPIC, topic), (HANDLER, handler))
        self._add("ottla.handler.batches", 1, labels)
        counts = (("handled", handled), ("failed", failed), ("malformed", malformed), ("skipped", skipped))
        for outcome, count in counts:
            if count:
                self._add("ottla.handler.records", count, (*labels, ("ottla.outcome", outcome)))

    def run_timed(
        self,
        *,
        group: str,
        handler: str,
        topic: str,
        records: int,
        is_batch: bool,
        duration_s: float,
        buffered_s: float,
        end_to_end_s: float | None,
    ) -> None:
        if not self._is_due(handler, group + topic):
            return
        labels = {GROUP: group, TOPIC: topic, HANDLER: handler}
        self._record["messaging.process.duration"](duration_s if is_batch else duration_s / records, labels)
        self._record["ottla.consumer.buffer.duration"](buffered_s, labels)
        if end_to_end_s is not None:
            self._record["ottla.consumer.end_to_end.duration"](end_to_end_s, labels)

    def malformed(
        self, *, group: str, handler: str, topic: str, part: str, serde: str, kind: str, records: int
    ) -> None:
        labels = ((GROUP, group), (TOPIC, topic), (HANDLER, handler), ("ottla.serde", serde))
        more = (*labels, ("ottla.record.part", part), ("ottla.failure.kind", kind))
        self._add("ottla.consumer.malformed", records, more)

    def event(self, *, group: str, event: str) -> None:
        self._add("ottla.consumer.events", 1, ((GROUP, group), ("ottla.event", event)))

    def expired(self, *, group: str, handler: str, topic: str, records: int) -> None:
        self._not_delivered("expired", group, handler, topic, records)

    def duplicates(self, *, group: str, handler: str, topic: str, records: int) -> None:
        self._not_delivered("duplicate", group, handler, topic, records)

    def _not_delivered(self, outcome: str, group: str, handler: str, topic: str, records: int) -> None:
        labels = ((GROUP, group), (TOPIC, topic), (HANDLER, handler), ("ottla.outcome", outcome))
        self._add("ottla.handler.records", records, labels)

    def decided(self, *, group: str, topic: str, event: str, kind: str, attempts: int) -> None:
        labels = ((GROUP, group), (TOPIC, topic), ("ottla.event", event), ("ottla.failure.kind", kind))
        self._add("ottla.consumer.failures", 1, (*labels, _attempt(attempts)))

    def jobs_leased(self, *, group: str, topic: str, delivery_count: int, records: int) -> None:
        labels = ((GROUP, group), (TOPIC, topic), _attempt(max(1, delivery_count)))
        self._add("ottla.queue.deliveries", records, labels)

    def jobs_settled(self, *, group: str, topic: str, outcome: str, records: int) -> None:
        self._add("ottla.queue.jobs", records, ((GROUP, group), (TOPIC, topic), ("ottla.outcome", outcome)))

    def commit_answered(self, *, group: str, duration_s: float, error: str) -> None:
        labels = ((GROUP, group), *_error(error))
        self._add("ottla.consumer.commits", 1, labels)
        self._record["messaging.client.operation.duration"](duration_s, {OPERATION: "commit", **dict(labels)})

    def rebalanced(self, *, group: str, kind: str, partitions: int, duration_s: float) -> None:
        self._record["ottla.consumer.rebalance.duration"](duration_s, {GROUP: group, "ottla.rebalance.kind": kind})

    def sent(self, *, client: str, topic: str, records: int, error: str) -> None:
        self._add("messaging.client.sent.messages", records, ((TOPIC, topic), (CLIENT_ID, client), *_error(error)))

    def send_timed(self, *, client: str, topic: str, duration_s: float) -> None:
        labels = {OPERATION: "send", TOPIC: topic, CLIENT_ID: client}
        self._record["messaging.client.operation.duration"](duration_s, labels)

    def throttled(self, *, client: str, group: str, broker: int, duration_s: float) -> None:
        labels = {CLIENT_ID: client, "ottla.broker": str(broker), **({GROUP: group} if group else {})}
        self._record["ottla.client.throttle.duration"](duration_s, labels)

    def _add(self, name: str, more: float, labels: LabelPairs) -> None:
        # Summed here and read at collection: adding to an instrument costs ten times as much.
        sums = self._sums[name]
        with self._lock:
            sums[labels] = sums.get(labels, 0) + more

    def _is_due(self, what: str, of: str) -> bool:
        """Return whether it is to be timed. Recording in a histogram costs some ten microseconds; a run of a fast
        handler is worth no more than a hundred, and there are thousands of them a second."""
        now_s = self._now_s()
        if now_s - self._timed_s.get((what, of), -1.0) < _TIMED_EVERY_S:
            return False
        self._timed_s[what, of] = now_s
        return True

    def _counted(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            with self._lock:
                return [Observation(value, dict(labels)) for labels, value in self._sums[metric.name].items()]

        return read

    # What is measured

    def measured(self, *, group: str, member: str, measure: MemberMeasure) -> None:
        is_over = not (measure.partitions or measure.runs_in_flight or measure.leases)
        self._keep(self._members, (group, member), None if is_over else measure)

    def producer_measured(self, *, client: str, queued_records: int) -> None:
        self._keep(self._queued, client, queued_records)

    def dispatched(self, *, schedule: str, messages: int, lateness_s: float) -> None:
        self._add("ottla.schedule.dispatched", messages, ((_SCHEDULE, schedule),))
        if self._is_due("dispatched", schedule):
            self._record["ottla.schedule.lateness"](lateness_s, {_SCHEDULE: schedule})

    def schedule_measured(self, *, schedule: str, scheduler: str, measure: ScheduleMeasure | None) -> None:
        self._keep(self._schedules, (schedule, scheduler), measure)

    def bridge_measured(self, *, road: str, counts: Mapping[str, int], measure: BridgeMeasure) -> None:
        for outcome, count in counts.items():
            self._add("ottla.bridge.messages", count, ((_ROAD, road), ("ottla.outcome", outcome)))
        self._keep(self._bridges, road, measure)

    def outbox_measured(self, *, relay: str, waiting: int | None, oldest_age_s: float, parked: int) -> None:
        self._keep(self._outboxes, relay, None if waiting is None else (waiting, oldest_age_s, parked))

    def brokers_measured(self, *, client: str, brokers: Sequence[BrokerMeasure]) -> None:
        self._keep(self._brokers, client, brokers or None)

    def batches_measured(self, *, client: str, batches: Sequence[BatchMeasure]) -> None:
        self._keep(self._batches, client, batches or None)

    def _keep(self, measures: dict[K, V], of: K, measure: V | None) -> None:
        with self._lock:
            if measure is None:
                measures.pop(of, None)
            else:
                measures[of] = measure

    def _reader(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            with self._lock:
                rows = list(self._rows(metric.name))
            # What several members of this process have in common adds up.
            sums: Count[tuple[tuple[str, str], ...]] = Count()
            for labels, value in rows:
                sums[tuple(labels.items())] += value  # type: ignore[assignment]
            return [Observation(value, dict(labels)) for labels, value in sums.items()]

        return read

    def _rows(self, name: str) -> Iterator[tuple[Labels, float]]:
        for (group, _), measure in self._members.items():
            for row, labels, value in _of_member(group, measure):
                if row == name:
                    yield labels, value
        for (schedule, _), found in self._schedules.items():
            if name in _OF_SCHEDULES:
                yield {_SCHEDULE: schedule}, _OF_SCHEDULES[name](found)
        for road, of_road in self._bridges.items():
            if name in _OF_BRIDGES:
                yield {_ROAD: road}, _OF_BRIDGES[name](of_road)
        for client, queued in self._queued.items():
            if name == "ottla.producer.queue":
                yield {CLIENT_ID: client}, queued
        if name in _OUTBOX:
            for measured in self._outboxes.values():
                yield {}, measured[_OUTBOX.index(name)]
        for client, batches in self._batches.items():
            for batch in batches:
                if name == "ottla.producer.batch.records":
                    yield {CLIENT_ID: client, TOPIC: batch.topic}, batch.records
                elif name == "ottla.producer.batch.size":
                    yield {CLIENT_ID: client, TOPIC: batch.topic}, batch.size_bytes
        for client, brokers in self._brokers.items():
            for row, labels, value in _of_brokers(client, brokers):
                if row == name:
                    yield labels, value


def _names_of(metric: Metric) -> Iterator[tuple[str, str]]:
    """Yield the name and description of a metric's instruments, including the one of its name before 0.2."""
    yield metric.name, metric.meaning
    if metric.before is not None:
        yield metric.before, f"The name of `{metric.name}` before 0.2; it goes with 0.3."


def _attempt(attempts: int) -> tuple[str, str]:
    """Return the label of an attempt. Attempts without end must not be labels without end."""
    return "ottla.attempt", str(attempts) if attempts < _MOST_ATTEMPTS else f"{_MOST_ATTEMPTS}+"


def _error(error: str) -> LabelPairs:
    return ((ERROR_TYPE, error),) if error else ()


def _of_member(group: str, measure: MemberMeasure) -> Iterator[Row]:
    for each in measure.partitions:
        topic, partition = each.topic_partition
        of_topic = {GROUP: group, TOPIC: topic}
        of_partition = {**of_topic, PARTITION: str(partition)}
        if each.lag_records is not None:
            yield "ottla.consumer.lag.records", of_partition, each.lag_records
        if each.lag_s is not None:
            yield "ottla.consumer.lag.age", of_partition, each.lag_s
        yield "ottla.consumer.oldest_unfinished.age", of_partition, each.oldest_unfinished_s
        yield "ottla.consumer.buffer.records", of_topic, each.buffered_records
        yield "ottla.consumer.buffer.size", of_topic, each.buffered_bytes
        yield "ottla.consumer.partitions", of_topic, 1
        yield "ottla.consumer.partitions.stopped", of_topic, each.is_stopped
        for reason in each.paused_for:
            yield "ottla.consumer.partitions.paused", {**of_topic, "ottla.pause.reason": reason}, 1
    for handler, runs in measure.runs_in_flight.items():
        yield "ottla.handler.batches.in_flight", {GROUP: group, HANDLER: handler}, runs
    for handler, tokens in measure.budget_tokens.items():
        yield "ottla.consumer.dead_letter_budget", {GROUP: group, HANDLER: handler}, tokens
    for handler, is_limited in measure.limited.items():
        yield "ottla.handler.limited", {GROUP: group, HANDLER: handler}, is_limited
    if measure.leases is not None:
        yield "ottla.queue.in_flight", {GROUP: group}, measure.leases.in_flight
        yield "ottla.queue.oldest_lease.age", {GROUP: group}, measure.leases.oldest_s


def _of_brokers(client: str, brokers: Sequence[BrokerMeasure]) -> Iterator[Row]:
    for each in brokers:
        labels: dict[str, Any] = {CLIENT_ID: client, "ottla.broker": each.broker}
        yield "ottla.client.broker.up", labels, each.is_up
        yield "ottla.client.broker.rtt", labels, each.rtt_s
        yield "ottla.client.broker.requests", {**labels, "ottla.request.state": "waiting"}, each.requests_waiting
        yield "ottla.client.broker.requests", {**labels, "ottla.request.state": "in_flight"}, each.requests_in_flight
        yield "ottla.client.broker.connections", labels, each.connects
        yield "ottla.client.broker.timeouts", labels, each.timeouts
        yield "ottla.client.broker.throttle", labels, each.throttle_s
