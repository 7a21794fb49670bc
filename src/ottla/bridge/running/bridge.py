"""A bridge: roads into Kafka, one producer, health, metrics, reload and stop.

    bridge = Bridge("localhost:9092", BridgeSettings(listen=["127.0.0.1:1883"], rules=[Rule("#", "messages")]))
    bridge.run()            # until stop(), from a signal or another thread

Beside an app in one process: `with Bridge(...):` runs it in a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from ottla.bridge.forwarding.counts import BridgeCounts
from ottla.bridge.forwarding.sink import sink_settings
from ottla.bridge.running.bridge_settings import BridgeSettings
from ottla.bridge.running.roads import Roads
from ottla.config import producer_settings
from ottla.config.topic_presence import TopicWait
from ottla.consumer.readiness.health import Health
from ottla.errors import BrokerUnavailable, LifecycleError, OttlaError
from ottla.producer.record_sends import never_in_handlers
from ottla.quantities import Span, timeout
from ottla.sync.produce.producer import Producer
from ottla.telemetry import Hooks, Listeners, log_event
from ottla.wire_client.producing.writable_topics import await_writable

_MEASURE_S: Final = 1.0


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
        self._roads = Roads(settings)
        self._servers = bootstrap_servers
        self._settings = settings
        self._kafka = dict(kafka or {})
        self._hooks = hooks
        self._listeners = Listeners.of(hooks)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._is_stop_asked = False
        self._is_open = False
        self._thread: threading.Thread | None = None
        self._began = threading.Event()
        """Set once it is open, or has ended without."""
        self._error: BaseException | None = None
        self._measured: dict[str, BridgeCounts] = {}
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[None]] = set()

    # From any thread

    def run(self) -> None:
        """Serve until `stop`. Raises `ConfigError` where it cannot begin, and `LifecycleError` the second time."""
        if self._loop is not None:
            raise LifecycleError("this bridge has run: make a new one")
        asyncio.run(self._main())

    def start(self, *, timeout_s: Span = 30.0) -> None:
        """Run in a thread. Returns once it listens, or raises why it cannot.

        Raises `BrokerUnavailable` if it does not listen after `timeout_s`, and is stopped then; `LifecycleError` if it
        was started or stopped before.
        """
        limit_s = timeout("Bridge.start", timeout_s)
        if self._is_stop_asked:
            raise LifecycleError("this bridge was stopped: make a new one")
        if self._thread is not None or self._loop is not None:
            raise LifecycleError("this bridge was started already: make a new one, or leave out the second start")
        self._thread = threading.Thread(target=self._run_in_thread, name="ottla-bridge", daemon=True)
        self._thread.start()
        if not self._began.wait(limit_s):
            self.stop()
            raise BrokerUnavailable(
                f"the bridge was not ready after {limit_s:g} s, and is stopped: Kafka at {self._servers} did not answer"
                " whether its topics may be written"
            )
        if self._error is not None:
            self._thread.join()
            raise self._error
        if not self._is_open:
            raise LifecycleError("this bridge was stopped before it was ready: make a new one")

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
        """Read mapping, users and certificates again. If a file cannot be read, or the mapping names a topic that is
        missing or not writable, nothing changes and the error is logged."""
        self._call(self._begin_reload)

    @property
    def counts(self) -> dict[str, BridgeCounts]:
        """Return road → its numbers: `mqtt-listen`, `mqtt-connect`, `amqp`."""
        return self._roads.counts

    @property
    def ports(self) -> list[int]:
        """Return the ports that it listens at, in the order of the addresses."""
        return self._roads.ports

    @property
    def connections(self) -> int:
        """Return the number of publishers that are connected."""
        return self._roads.connections

    def health(self) -> Health:
        """Return whether messages get through, and why not."""
        if not self._began.is_set():
            return Health(is_alive=True, is_ready=False, problems=("the bridge has not started",))
        problems = self._roads.problems()
        is_alive = self._roads.is_alive
        if self._is_stop_asked or not self._is_open:
            problems.append("the bridge stops" if self._is_open else "the bridge has ended")
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
            self._began.set()

    def _call(self, work: Callable[[], None]) -> None:
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
        await asyncio.to_thread(self._check_topics, self._roads.mapping.topics)
        own = sink_settings({**self._kafka, **self._settings.producer_settings}, max_bytes=self._roads.most_bytes)
        producer: Producer[Any, Any] = await asyncio.to_thread(
            lambda: Producer(self._servers, settings=own, hooks=self._hooks)
        )
        never_in_handlers(producer)
        try:
            await self._roads.open(producer, loop)
            self._is_open = True
            self._began.set()
            while not self._stopping.is_set():
                try:
                    await asyncio.wait_for(self._stopping.wait(), _MEASURE_S)
                except TimeoutError:
                    self._measure()
        finally:
            await self._roads.close()
            self._measure()
            await asyncio.to_thread(self._end_producer, producer)
            self._is_open = False
            log_event("bridge_stopped", "info", {"received": sum(each.received for each in self.counts.values())})

    def _check_topics(self, topics: Sequence[str]) -> None:
        """Raise `UnknownTopic` or `ConfigError` where a topic is missing, or may not be written."""
        settings = producer_settings(self._servers, settings={**self._kafka, **self._settings.producer_settings})
        wait = TopicWait(
            topics,
            servers=str(settings["bootstrap.servers"]),
            timeout_s=None,
            now_s=time.monotonic(),
            who="bridge",
            should_give_up=lambda: self._is_stop_asked,
        )
        await_writable(settings, wait, what="message")

    def _begin_reload(self) -> None:
        task = asyncio.ensure_future(self._reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    async def _reload(self) -> None:
        async with self._reloading:  # what is read last is used in the end
            try:
                files = self._roads.read_again()
                await asyncio.to_thread(self._check_topics, files.mapping.topics)
            except OttlaError as error:
                log_event("bridge_reload_failed", "error", {"error": str(error)})
            except Exception as error:  # of a module that the mapping names
                log_event("bridge_reload_failed", "error", {"error": f"{type(error).__name__}: {error}"})
            else:
                self._roads.replace(files)
                log_event("bridge_reloaded", "info", {"rules": len(files.mapping.rules)})

    def _end_producer(self, producer: Producer[Any, Any]) -> None:
        try:
            producer.close(0)
        except OttlaError:
            pass  # those records were not acknowledged to their publishers, who send them again

    def _measure(self) -> None:
        self._listeners.refresh()
        for road, measure in self._roads.measures():
            counts = self.counts[road]
            before = self._measured.get(road, BridgeCounts())
            self._measured[road] = counts.copy()
            if self._listeners:
                self._listeners.bridge_measured(road=road, counts=counts.since(before), measure=measure)
