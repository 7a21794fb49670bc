"""Runs an `App` on an event loop: one member per group, signals on request, and a stop that drains before it ends."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from signal import Signals
from typing import Any

from ottla.aio.client.declared_topics import ensure_topics
from ottla.aio.consume.dead_letters import ProducerSink
from ottla.aio.consume.group_member import GroupMember
from ottla.aio.consume.workers import Execute
from ottla.aio.serve.handler_threads import HandlerThreads
from ottla.aio.serve.loop_watch import LoopWatch
from ottla.aio.serve.retry_topics import ensure_retry_topics
from ottla.app.app import App, declarations_of
from ottla.app.declaration.route import Route
from ottla.app.delivery.confirmed_on_loop import ConfirmedOnLoop
from ottla.app.delivery.pending_sends import AwaitingAcks
from ottla.app.once.exactly_once_invoker import AnyInvoker, InTransaction
from ottla.app.runtime.app_runner import AppRunnerBase
from ottla.app.runtime.stop_signals import (
    SIGNALS,
    StopSignals,
    say_that_signals_pass_by,
    signals_of_loop,
)
from ottla.config import Settings, TopicWait
from ottla.consumer.model.run import Run, RunResult, UnconfirmedOnLoop
from ottla.consumer.readiness.health import Health
from ottla.current_task import is_on_event_loop
from ottla.errors import ConfigError
from ottla.quantities import Span
from ottla.stepping import run_async
from ottla.wire_client.producing.writable_topics import await_writable

BLOCKED_AFTER_S = 3.0
"""How long a probe from another thread waits for the loop."""


class AppRunner(AppRunnerBase[GroupMember]):
    """Made by `App.serve`."""

    _sink_type = ProducerSink
    _queue_member = ("ottla.aio.consume.queue_member", "AsyncQueueMember")
    _ensure_topics = staticmethod(ensure_topics)
    _ensure_retry_topics = staticmethod(ensure_retry_topics)

    def __init__(self, app: App) -> None:
        for route in declarations_of(app).routes:
            if route.is_columnar:
                raise ConfigError(f"{route.name}: a columns=True handler runs in threads: app.run(), not app.serve()")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self.started = asyncio.Event()
        """Set when every member and every producer has started."""
        self._asked_s: float | None = None
        """When the first of the probes came that the loop has not answered."""
        self._threads: HandlerThreads | None = None
        super().__init__(app)

    async def serve(self, *, handle_signals: bool | None) -> None:
        """Start everything, wait for a reason to stop, stop everything. Raises what ended a member."""
        self._loop = asyncio.get_running_loop()
        signals: Sequence[Signals] = SIGNALS if handle_signals else ()
        if handle_signals is None:
            signals, why = signals_of_loop(asyncio.current_task())
            if why is not None:
                say_that_signals_pass_by(why, group=self._app.group)
        self._owns_process = bool(signals)
        # Not `loop.add_signal_handler`: a handler that blocks the loop would keep it from being called.
        with StopSignals(self.stop, self._all_health, signals=signals) if signals else nullcontext():
            await self._serve()

    async def _serve(self) -> None:
        watch = LoopWatch(app=self._app.group, run_of=self._run_of)
        try:
            await run_async(self._starting())
            self.started.set()
            while self._goes_on():
                await self._wake.wait()
                self._wake.clear()
        finally:
            watch.stop()
            # In a task of its own: when `serve` is cancelled, the drain must not be.
            closing = asyncio.ensure_future(run_async(self._stopping()))
            try:
                stop_error = await asyncio.shield(closing)
            except asyncio.CancelledError:
                await closing
                raise
        self._raise_what_ended(stop_error)

    def stop(self) -> None:
        self._is_stop_asked = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def health(self) -> Health:
        """Return the health, from any thread. It is read on the loop, where its parts change."""
        loop = self._loop
        if loop is None or (is_on_event_loop() and loop is asyncio.get_running_loop()):
            return self._all_health()
        answer: Future[Health] = Future()
        asked_s = self._asked_s = self._asked_s or time.monotonic()

        def say() -> None:
            self._asked_s = None
            answer.set_result(self._all_health())

        try:
            loop.call_soon_threadsafe(say)
        except RuntimeError:
            return self._all_health()  # the loop is closed: nothing changes any more
        try:
            return answer.result(BLOCKED_AFTER_S)
        except TimeoutError:
            blocked_s = time.monotonic() - asked_s
            problem = f"the event loop has not answered for {blocked_s:.0f} s: something blocks it"
            return Health(is_alive=True, is_ready=False, problems=(problem,), blocked_ms=round(blocked_s * 1_000))

    # Verbs at run time

    async def drain(self, timeout_s: Span) -> bool:
        return all(await asyncio.gather(*(drain() for drain in self._drains(timeout_s))))

    # Parts

    def _run_of(self, task: asyncio.Task[Any] | None) -> Run | None:
        runs = (member.run_of(task) for member in list(self.members.values()))
        return next((run for run in runs if run is not None), None)

    def _member_of(self, routes: Sequence[Route]) -> type[GroupMember]:
        return GroupMember

    def _wake_up(self) -> None:
        self._wake.set()

    async def _await_writable(self, settings: Settings, topics: TopicWait, what: str) -> None:
        await asyncio.to_thread(await_writable, settings, topics, what=what)

    async def _call(self, hook: Callable[[], Any]) -> None:
        result = hook()
        if inspect.isawaitable(result):
            await result

    def _release(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _executor(self, invoker: AnyInvoker) -> Execute:
        if invoker.binding.is_async:

            async def deliver(run: Run) -> RunResult | UnconfirmedOnLoop:
                if invoker.decoder.would_block(run):
                    # An unseen schema id is fetched in a thread; afterwards decoding finds it in the cache.
                    waits: RunResult | None = (await self._in_thread(invoker.decoder.decode, run))[1]
                    if waits is not None:
                        return waits
                return await invoker.deliver_async(run, partial(asyncio.sleep, 0))

            return deliver

        async def deliver_in_thread(run: Run) -> RunResult | UnconfirmedOnLoop:
            # A whole run of a synchronous handler goes to a thread at once: one hop per run, not per record.
            result: RunResult | AwaitingAcks | InTransaction = await self._in_thread(invoker.deliver, run)
            return result if isinstance(result, RunResult) else ConfirmedOnLoop(result)

        return deliver_in_thread

    def _in_thread(self, function: Callable[[Run], Any], run: Run) -> Any:
        if self._threads is None:
            workers = sum(route.concurrency for route in declarations_of(self._app).routes)
            self._threads = HandlerThreads(workers)
        return asyncio.get_running_loop().run_in_executor(self._threads, function, run)
