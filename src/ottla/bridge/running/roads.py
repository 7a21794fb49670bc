"""The roads of a bridge: its listener, its subscriptions and its queues, opened, replaced and closed together."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ottla.bridge.amqp.amqp_road import AmqpRoad
from ottla.bridge.forwarding.counts import BridgeCounts
from ottla.bridge.forwarding.forwarder import Forwarder
from ottla.bridge.forwarding.sink import Sink
from ottla.bridge.listener.listener_tls import ReplaceableContext
from ottla.bridge.listener.logins import Logins
from ottla.bridge.listener.mqtt_listener import MqttListener
from ottla.bridge.mapping.mapping_file import MappingFile
from ottla.bridge.mapping.rules import TopicMapping
from ottla.bridge.running.bridge_settings import BridgeSettings
from ottla.bridge.subscriber.mqtt_subscriber import MqttSubscriber
from ottla.bridge.users import Users, read_users
from ottla.sync.produce.producer import Producer
from ottla.telemetry import log_event
from ottla.telemetry.metrics.measurements import BridgeMeasure

LISTEN = "mqtt-listen"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFiles:
    """Mapping, users and TLS context that were read for a reload."""

    mapping: MappingFile
    users: Users | None
    tls: ssl.SSLContext | None


class Roads:
    """All roads of one bridge. Belongs to its event loop; `problems`, `counts` and `ports` may be read elsewhere."""

    def __init__(self, settings: BridgeSettings) -> None:
        self.mapping = settings.checked_mapping()
        self.counts: dict[str, BridgeCounts] = {}
        self._settings = settings
        self._tls = None if settings.tls is None else ReplaceableContext(settings.tls.context())
        self._listener: MqttListener | None = None
        self._subscribers: list[MqttSubscriber] = []
        self._queues: list[AmqpRoad] = []

    @property
    def ports(self) -> list[int]:
        """Return the ports of the listener, in the order of its addresses."""
        return [] if self._listener is None else self._listener.ports

    @property
    def connections(self) -> int:
        """Return the number of publishers that are connected."""
        return 0 if self._listener is None else self._listener.connections

    @property
    def most_bytes(self) -> int:
        """Return the bytes of records that all roads together may have in flight."""
        settings = self._settings
        roads = bool(settings.listen) + len(settings.sources) + len(settings.queues)
        return roads * settings.max_in_flight_bytes

    @property
    def is_alive(self) -> bool:
        """Return whether the thread of every road runs."""
        return all(road.is_alive for road in self._queues)

    def problems(self) -> list[str]:
        """Return why messages do not get through."""
        sources: list[Any] = [*self._subscribers, *self._queues]
        found = [each.problem for each in sources if each.problem is not None]
        for road, each in self._named():
            sink: Sink = each.sink
            late_s = sink.oldest_ms / 1000
            if late_s > self._settings.unready_after_s:
                why = "; ".join(sink.problems)
                found.append(
                    f"{road}: Kafka has not acknowledged a record for {late_s:.0f} s,"
                    f" {sink.in_flight:,} wait{': ' if why else ''}{why}"
                )
        return found

    async def open(self, producer: Producer[Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        """Begin to take messages. Raises `ConfigError` where that is not possible."""
        settings = self._settings
        if settings.listen:
            sink, forwarder, counts = self._parts(producer, loop.call_soon_threadsafe, LISTEN)
            self._listener = MqttListener(
                settings.addresses(),
                sink=sink,
                forwarder=forwarder,
                counts=counts,
                logins=Logins(
                    self._users(),
                    settings.authenticate,
                    has_client_ca=settings.tls is not None and settings.tls.client_ca is not None,
                ),
                limits=settings.limits,
                max_connections=settings.max_connections,
                tls=self._tls,
            )
            await self._listener.start_listening()
        for source in settings.sources:
            sink, forwarder, counts = self._parts(producer, loop.call_soon_threadsafe, "mqtt-connect")
            subscriber = MqttSubscriber(
                source,
                sink=sink,
                forwarder=forwarder,
                counts=counts,
                max_packet_bytes=settings.limits.max_packet_bytes,
            )
            self._subscribers.append(subscriber)
            subscriber.open()
        for queue in settings.queues:
            counts = self.counts.setdefault("amqp", BridgeCounts())
            road = AmqpRoad(queue.url, queue.queue, counts=counts, prefetch=queue.prefetch)
            road.sink, road.forwarder, _ = self._parts(producer, road.wake, "amqp")
            self._queues.append(road)
            road.open()

    def read_again(self) -> NewFiles:
        """Read mapping, users and certificates. Raises what reading them raises."""
        return NewFiles(
            mapping=self._settings.checked_mapping(),
            users=self._users(),
            tls=None if self._settings.tls is None else self._settings.tls.context(),
        )

    def replace(self, files: NewFiles) -> None:
        """Use what was read from now on."""
        if files.tls is not None and self._tls is not None:
            self._tls.current = files.tls
        self.mapping = files.mapping
        for road, each in self._named():
            each.forwarder.mapping = self._topic_mapping(road)
            each.forwarder.dead_letter_topic = files.mapping.dead_letter_topic
        if self._listener is not None:
            self._listener.logins.users = files.users

    async def close(self) -> None:
        """Take nothing more, and wait for what is in flight."""
        drain_s = self._settings.drain_s
        work = [each.close(drain_s) for each in self._subscribers]
        work += [asyncio.to_thread(each.close, drain_s) for each in self._queues]
        if self._listener is not None:
            work.append(self._listener.stop(drain_s))
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, Exception):
                log_event("bridge_stop_failed", "error", {"error": f"{type(outcome).__name__}: {outcome}"})

    def measures(self) -> Iterator[tuple[str, BridgeMeasure]]:
        """Yield each road with what it does now."""
        for road in self.counts:
            sinks = [each.sink for name, each in self._named() if name == road]
            yield (
                road,
                BridgeMeasure(
                    connections=self.connections if road == LISTEN else self._connected(road),
                    in_flight=sum(sink.in_flight for sink in sinks),
                    oldest_s=max((sink.oldest_ms for sink in sinks), default=0) / 1000,
                ),
            )

    def _connected(self, road: str) -> int:
        return sum(name == road and each.problem is None for name, each in self._named())

    def _named(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = [] if self._listener is None else [(LISTEN, self._listener)]
        found += [("mqtt-connect", each) for each in self._subscribers]
        return found + [("amqp", each) for each in self._queues]

    def _parts(self, producer: Producer[Any, Any], wake: Any, road: str) -> tuple[Sink, Forwarder, BridgeCounts]:
        settings = self._settings
        counts = self.counts.setdefault(road, BridgeCounts())
        sink = Sink(producer, wake, max_records=settings.max_in_flight, max_bytes=settings.max_in_flight_bytes)
        forwarder = Forwarder(
            self._topic_mapping(road),
            sink,
            dead_letter_topic=self.mapping.dead_letter_topic,
            road=road,
            counts=counts,
        )
        return sink, forwarder, counts

    def _topic_mapping(self, road: str) -> TopicMapping:
        header = "amqp-routing-key" if road == "amqp" else "mqtt-topic"
        return TopicMapping(self.mapping.rules, topic_header=header)

    def _users(self) -> Users | None:
        return None if self._settings.users_file is None else read_users(self._settings.users_file)
