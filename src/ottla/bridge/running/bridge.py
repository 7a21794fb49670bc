"""A bridge: roads into Kafka, one producer, health, metrics, reload and stop.

    bridge = Bridge("localhost:9092", BridgeSettings(listen=["127.0.0.1:1883"], rules=[Rule("#", "messages")]))
    bridge.run()            # until stop(), from a signal or another thread

Beside an app in one process: `with Bridge(...):` runs it in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from ottla.bridge.amqp.amqp_road import AmqpRoad
from ottla.bridge.forwarding.counts import BridgeCounts
from ottla.bridge.forwarding.forwarder import Forwarder
from ottla.bridge.forwarding.sink import Sink, sink_settings
from ottla.bridge.listener.logins import Logins
from ottla.bridge.listener.mqtt_listener import MqttListener
from ottla.bridge.mapping.rules import TopicMapping
from ottla.bridge.running.bridge_settings import BridgeSettings
from ottla.bridge.subscriber.mqtt_subscriber import MqttSubscriber
from ottla.bridge.users import Users, read_users
from ottla.config import producer_settings
from ottla.config.topic_presence import TopicWait
from ottla.consumer.readiness.health import Health
from ottla.errors import LifecycleError, OttlaError
from ottla.producer.record_sends import never_in_handlers
from ottla.sync.produce.producer import Producer
from ottla.telemetry import Hooks, Listeners, log_event
from ottla.telemetry.metrics.measurements import BridgeMeasure
from ottla.wire_client.producing.writable_topics import await_writable

_MEASURE_S: Final = 1.0
_START_S: Final = 30.0


class Bridge:
    """Runs once. `settings` say where messages come from and what becomes of them."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None,
        settings: BridgeSettings,
        *,
        kafka: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self._mapping = settings.checked_mapping()
        self._servers = bootstrap_servers
        self._settings = settings
        self._kafka = dict(kafka or {})
        self._hooks = hooks
        self._listeners = Listeners.of(hooks)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._is_stop_asked = False
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._listener: MqttListener | None = None
        self._subscribers: list[MqttSubscriber] = []
        self._queues: list[AmqpRoad] = []
        self._measured: dict[str, BridgeCounts] = {}
        self._tls = None if settings.tls is None else settings.tls.context()
        self.counts: dict[str, BridgeCounts] = {}
        """Road → its numbers: `mqtt-listen`, `mqtt-connect`, `amqp`."""

    # From any thread

    def run(self) -> None:
        """Serve until `stop`. Raises `ConfigError` where it cannot begin."""
        if self._loop is not None:
            raise LifecycleError("this bridge has run: make a new one")
        asyncio.run(self._main())

    def start(self) -> None:
        """Run in a thread. Returns once it listens, or raises why it cannot."""
        self._thread = threading.Thread(target=self._run_in_thread, name="ottla-bridge", daemon=True)
        self._thread.start()
        self._ready.wait(_START_S)
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self) -> None:
        """Ask the bridge to end: no new messages, what is in flight acknowledged, clients sent away."""
        self._is_stop_asked = True
        self._call(lambda: None if self._stopping is None else self._stopping.set())

    def close(self) -> None:
        """Stop, and wait for the end of the thread that `start` made."""
        self.stop()
        if self._thread is not None:
            self._thread.join(self._settings.drain_s + 30)

    def reload(self) -> None:
        """Read mapping, users and certificates again. What cannot be read leaves all as it was, and is logged."""
        self._call(self._reload)

    @property
    def ports(self) -> list[int]:
        """Return the ports that it listens at, in the order of the addresses."""
        return [] if self._listener is None else self._listener.ports

    @property
    def connections(self) -> int:
        """Return the number of publishers that are connected."""
        return 0 if self._listener is None else self._listener.connections

    def health(self) -> Health:
        """Return whether messages get through, and why not."""
        if not self._ready.is_set():
            return Health(is_alive=True, is_ready=False, problems=("the bridge has not started",))
        sources: list[Any] = [*self._subscribers, *self._queues]
        problems = [each.problem for each in sources if each.problem is not None]
        for road, each in self._roads():
            sink: Sink = each.sink
            late_s = sink.oldest_ms / 1000
            if late_s > self._settings.unready_after_s:
                why = "; ".join(sink.problems)
                problems.append(
                    f"{road}: Kafka has not acknowledged a record for {late_s:.0f} s,"
                    f" {sink.in_flight:,} wait{': ' if why else ''}{why}"
                )
        is_alive = all(road.is_alive for road in self._queues)
        is_stopping = self._is_stop_asked
        if is_stopping:
            problems.append("the bridge stops")
        return Health(is_alive=is_alive, is_ready=is_alive and not problems, problems=tuple(problems))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # In the event loop

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error
        finally:
            self._ready.set()

    def _call(self, work: Any) -> None:
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(work)
            except RuntimeError:
                pass  # it has ended

    async def _main(self) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        if self._is_stop_asked:
            return
        await asyncio.to_thread(self._check_topics)
        own = sink_settings({**self._kafka, **self._settings.producer_settings}, max_bytes=self._most_bytes())
        producer: Producer[Any, Any] = await asyncio.to_thread(
            lambda: Producer(self._servers, settings=own, hooks=self._hooks)
        )
        never_in_handlers(producer)
        try:
            await self._open(producer, loop)
            self._ready.set()
            while not self._stopping.is_set():
                try:
                    await asyncio.wait_for(self._stopping.wait(), _MEASURE_S)
                except TimeoutError:
                    self._measure()
        finally:
            await self._close()
            self._measure()
            await asyncio.to_thread(self._end_producer, producer)
            log_event("bridge_stopped", "info", {"received": sum(each.received for each in self.counts.values())})

    def _check_topics(self) -> None:
        """Raise `UnknownTopic` or `ConfigError` where a topic is missing, or may not be written."""
        settings = producer_settings(self._servers, settings={**self._kafka, **self._settings.producer_settings})
        servers = str(settings["bootstrap.servers"])
        wait = TopicWait(self._mapping.topics, servers=servers, timeout_s=None, now_s=time.monotonic())
        await_writable(settings, wait, what="message", should_give_up=lambda: self._is_stop_asked)

    async def _open(self, producer: Producer[Any, Any], loop: asyncio.AbstractEventLoop) -> None:
        settings = self._settings
        if settings.listen:
            sink, forwarder, counts = self._parts(producer, loop.call_soon_threadsafe, "mqtt-listen")
            self._listener = MqttListener(
                settings.addresses(),
                sink=sink,
                forwarder=forwarder,
                counts=counts,
                logins=Logins(self._users(), settings.authenticate),
                limits=settings.limits,
                max_connections=settings.max_connections,
                tls=self._tls,
            )
            await self._listener.start_listening()
        for source in settings.sources:
            sink, forwarder, counts = self._parts(producer, loop.call_soon_threadsafe, "mqtt-connect")
            subscriber = MqttSubscriber(
                source.url,
                source.subscriptions,
                client_id=source.client_id,
                sink=sink,
                forwarder=forwarder,
                counts=counts,
                qos=source.qos,
                version=source.version,
                window=source.window,
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

    def _parts(self, producer: Producer[Any, Any], wake: Any, road: str) -> tuple[Sink, Forwarder, BridgeCounts]:
        settings = self._settings
        counts = self.counts.setdefault(road, BridgeCounts())
        sink = Sink(producer, wake, max_records=settings.max_in_flight, max_bytes=settings.max_in_flight_bytes)
        forwarder = Forwarder(
            self._topic_mapping(road),
            sink,
            dead_letter_topic=self._mapping.dead_letter_topic,
            road=road,
            counts=counts,
        )
        return sink, forwarder, counts

    def _topic_mapping(self, road: str) -> TopicMapping:
        header = "amqp-routing-key" if road == "amqp" else "mqtt-topic"
        return TopicMapping(self._mapping.rules, topic_header=header)

    def _users(self) -> Users | None:
        return None if self._settings.users_file is None else read_users(self._settings.users_file)

    def _most_bytes(self) -> int:
        roads = bool(self._settings.listen) + len(self._settings.sources) + len(self._settings.queues)
        return roads * self._settings.max_in_flight_bytes

    def _reload(self) -> None:
        try:
            mapping = self._settings.checked_mapping()
            users = self._users()
            if self._settings.tls is not None and self._tls is not None:
                self._settings.tls.context()  # all of it, before anything is replaced
                self._settings.tls.load_into(self._tls)
        except OttlaError as error:
            log_event("bridge_reload_failed", "error", {"error": str(error)})
            return
        except Exception as error:  # of a module that the mapping names
            log_event("bridge_reload_failed", "error", {"error": f"{type(error).__name__}: {error}"})
            return
        self._mapping = mapping
        for road, each in self._roads():
            each.forwarder.mapping = self._topic_mapping(road)
            each.forwarder.dead_letter_topic = mapping.dead_letter_topic
        if self._listener is not None:
            self._listener.logins.users = users
        log_event("bridge_reloaded", "info", {"rules": len(mapping.rules)})

    async def _close(self) -> None:
        drain_s = self._settings.drain_s
        work = [each.close(drain_s) for each in self._subscribers]
        work += [asyncio.to_thread(each.close, drain_s) for each in self._queues]
        if self._listener is not None:
            work.append(self._listener.stop(drain_s))
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, Exception):
                log_event("bridge_stop_failed", "error", {"error": f"{type(outcome).__name__}: {outcome}"})

    def _end_producer(self, producer: Producer[Any, Any]) -> None:
        try:
            producer.close(0)
        except OttlaError:
            pass  # those records were not acknowledged to their publishers, who send them again

    # Health and metrics

    def _roads(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = [] if self._listener is None else [("mqtt-listen", self._listener)]
        found += [("mqtt-connect", each) for each in self._subscribers]
        return found + [("amqp", each) for each in self._queues]

    def _measure(self) -> None:
        self._listeners.refresh()
        for road, counts in self.counts.items():
            sinks = [each.sink for name, each in self._roads() if name == road]
            before = self._measured.get(road, BridgeCounts())
            self._measured[road] = counts.copy()
            if not self._listeners:
                continue
            self._listeners.bridge_measured(
                road=road,
                counts=counts.since(before),
                measure=BridgeMeasure(
                    connections=self.connections if road == "mqtt-listen" else self._connected(road),
                    in_flight=sum(sink.in_flight for sink in sinks),
                    oldest_s=max((sink.oldest_ms for sink in sinks), default=0) / 1000,
                ),
            )

    def _connected(self, road: str) -> int:
        return sum(name == road and each.problem is None for name, each in self._roads())
