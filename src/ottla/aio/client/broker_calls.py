"""What the requests of an aiokafka client say of its brokers and of its batches: it keeps no statistics itself.

Requests are counted where they are sent, and reported every ten seconds, as librdkafka's statistics are. Those that
wait at the broker by design (fetches, joins) are left out of the round trip time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.errors import RequestTimedOutError

from ottla.aio.aiokafka_internals import connections_of, topics_of
from ottla.telemetry import Listeners, Throttling
from ottla.telemetry.metrics.broker_responses import FIRST_TOLD_MS, TOLD_EVERY_MS, BrokerResponses
from ottla.telemetry.metrics.measurements import BatchMeasure

_RECORDS_AT: Final = slice(57, 61)
"""Position of the number of records in the header of a record batch (magic 2)."""

_WAITING: Final = ("Fetch", "JoinGroup", "SyncGroup")


@dataclass(slots=True)
class _Batches:
    """Those sent to one topic since the last report."""

    batches: int = 0
    records: int = 0
    size_bytes: int = 0

    def add(self, batch: Any) -> None:
        self.batches += 1
        self.records += int.from_bytes(batch[_RECORDS_AT], "big")
        self.size_bytes += len(batch)


class BrokerCalls:
    """Observes the requests of one client. `client` is aiokafka's network client, which producers and consumers send
    their requests with."""

    def __init__(
        self, client: Any, throttling: Throttling, *, hooks: Listeners, name: str, now_ms: Callable[[], int]
    ) -> None:
        self._client = client
        self._send = client.send
        self._throttling = throttling
        self._hooks = hooks
        self._name = name
        self._now_ms = now_ms
        self._due_ms = now_ms() + FIRST_TOLD_MS
        self._is_over = False
        self._brokers: dict[int, BrokerResponses] = {}
        self._batches: dict[str, _Batches] = {}
        self._has_reported_batches = False
        self.on_written: Callable[[str, int], None] | None = None
        """Called with the topic and the error code of each batch that a broker answered, 0 for one that it took."""
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        client.send = self._send_and_measure

    def end(self) -> None:
        """Stop reporting."""
        self._is_over = True

    async def _send_and_measure(self, node_id: Any, request: Any, *args: Any, **more: Any) -> Any:
        if not self._hooks or not isinstance(node_id, int):  # brokers have numbers, bootstrap addresses have names
            answer = await self._send(node_id, request, *args, **more)
            self._record_throttling(node_id, answer)
            self._record_writes(answer)
            return answer
        calls = self._brokers.setdefault(node_id, BrokerResponses())
        began_ms = self._now_ms()
        calls.in_flight += 1
        if type(request).__name__.startswith("Produce"):
            self._look_at_batches(request)
        try:
            answer = await self._send(node_id, request, *args, **more)
        except RequestTimedOutError:
            calls.timeouts += 1
            raise
        finally:
            calls.in_flight -= 1
            self._look_at_connections()
            self._report_if_due()
        self._record_writes(answer)
        calls.answers += 1
        calls.throttled_ms += self._record_throttling(node_id, answer)
        if not type(request).__name__.startswith(_WAITING):
            calls.timed += 1
            calls.timed_ms += max(0, self._now_ms() - began_ms)
        return answer

    def _record_writes(self, answer: Any) -> None:
        if self.on_written is not None and type(answer).__name__.startswith("ProduceResponse"):
            for topic, partitions in answer.topics:
                for _, error_code, *_ in partitions:
                    self.on_written(topic, error_code)

    def _record_throttling(self, node_id: Any, answer: Any) -> int:
        throttle_ms: int = getattr(answer, "throttle_time_ms", 0) or 0
        if throttle_ms:
            self._throttling.on_throttled(broker=node_id, throttle_ms=throttle_ms)
        return throttle_ms

    def _look_at_batches(self, request: Any) -> None:
        for topic, partitions in topics_of(request):
            batches = self._batches.setdefault(topic, _Batches())
            for _, batch in partitions:
                batches.add(batch)

    def _look_at_connections(self) -> None:
        for (node_id, _), connection in connections_of(self._client).items():
            if isinstance(node_id, int) and connection not in self._connections:
                self._connections.add(connection)
                self._brokers.setdefault(node_id, BrokerResponses()).connects += 1

    def _report_if_due(self) -> None:
        now_ms = self._now_ms()
        if self._is_over or now_ms < self._due_ms:
            return
        self._due_ms = now_ms + TOLD_EVERY_MS
        connected = {node_id for (node_id, _), each in connections_of(self._client).items() if each.connected()}
        measured = [calls.measure(node_id, is_up=node_id in connected) for node_id, calls in self._brokers.items()]
        self._hooks.brokers_measured(client=self._name, brokers=measured)
        if self._batches or self._has_reported_batches:
            found, self._batches = self._batches, {}
            self._has_reported_batches = bool(found)
            self._hooks.batches_measured(client=self._name, batches=list(map(_batch_measure, found, found.values())))


def _batch_measure(topic: str, of: _Batches) -> BatchMeasure:
    return BatchMeasure(topic=topic, records=of.records / of.batches, size_bytes=of.size_bytes / of.batches)
