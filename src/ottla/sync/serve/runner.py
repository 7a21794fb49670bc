"""Runs an `App` in threads: one member per group, signals, and a stop that drains before it ends."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from ottla.app.app import App
from ottla.app.declaration.route import Route
from ottla.app.delivery.confirmed_on_loop import ConfirmedOnLoop
from ottla.app.delivery.pending_sends import AwaitingAcksOnLoop
from ottla.app.member.handler_workers import CLEAN_UP_S
from ottla.app.member.member_base import MakeMember
from ottla.app.member.threaded_member import ThreadedMember
from ottla.app.once.exactly_once_invoker import AnyInvoker
from ottla.app.runtime.app_runner import AppRunnerBase
from ottla.app.runtime.stop_signals import StopSignals
from ottla.config import Settings, TopicWait
from ottla.consumer.model.run import Run, RunResult, Unconfirmed, broken_run
from ottla.consumer.readiness.health import Health
from ottla.failures.exceptions import ExceptionTable
from ottla.quantities import Span
from ottla.stepping import run
from ottla.sync.client.declared_topics import ensure_topics
from ottla.sync.consume.dead_letters import ProducerSink
from ottla.sync.consume.group_member import GroupMember
from ottla.sync.serve.retry_topics import ensure_retry_topics
from ottla.wire_client.producing.writable_topics import await_writable


class AppRunner(AppRunnerBase[ThreadedMember]):
    """Made by `App.run`."""

    _sink_type = ProducerSink
    _queue_member = ("ottla.sync.consume.queue_member", "ThreadedQueueMember")
    _ensure_topics = staticmethod(ensure_topics)
    _ensure_retry_topics = staticmethod(ensure_retry_topics)

    def __init__(self, app: App) -> None:
        self._loop = _LoopThread()
        # Not an Event: `set` in a signal handler, while the same thread is about to wait, would wait for itself.
        self._wake: SimpleQueue[None] = SimpleQueue()
        super().__init__(app)

    def run(self, *, handle_signals: bool) -> None:
        """Start everything, wait for a reason to stop, stop everything. Raises what ended a member."""
        self._owns_process = handle_signals
        with StopSignals(self.stop, self.health) if handle_signals else contextlib.nullcontext():
            self._run()

    def _run(self) -> None:
        try:
            run(self._starting())
            while self._goes_on():
                # With a timeout: a wait without one does not let Python run signal handlers on every platform.
                with contextlib.suppress(Empty):
                    self._wake.get(timeout=0.5)
        finally:
            stop_error = run(self._stopping())
        self._raise_what_ended(stop_error)

    def stop(self) -> None:
        self._is_stop_asked = True
        self._wake_up()

    def health(self) -> Health:
        return self._all_health()

    # Verbs at run time

    def drain(self, timeout_s: Span) -> bool:
        return all(drain() for drain in self._drains(timeout_s))

    # Parts

    def _member_of(self, routes: Sequence[Route]) -> MakeMember[ThreadedMember]:
        if not any(route.is_columnar for route in routes):
            return GroupMember
        # By name: only who has handlers of columns needs pyarrow.
        columns: MakeMember[ThreadedMember] = importlib.import_module(
            "ottla.columnar.serving.group_member"
        ).ColumnGroupMember
        return columns

    def _wake_up(self) -> None:
        self._wake.put(None)

    def _await_writable(self, settings: Settings, topics: TopicWait, what: str) -> None:
        await_writable(settings, topics, what=what)

    def _release(self) -> None:
        self._loop.close()

    def _executor(self, invoker: AnyInvoker) -> Callable[[Run], RunResult | Unconfirmed]:
        if not invoker.binding.is_async:
            return invoker.deliver

        # All async handlers share one loop, as they would under `serve`: what they open belongs to one loop.
        def deliver(run: Run) -> RunResult | Unconfirmed:
            result = self._loop.run(invoker.deliver_async(run, partial(asyncio.sleep, 0)))
            return result if isinstance(result, RunResult) else _ConfirmedThere(self._loop, run, result)

        return deliver

    def _call(self, hook: Callable[[], Any]) -> None:
        result = hook()
        if inspect.iscoroutine(result):
            self._loop.run(result)


class _LoopThread:
    """An event loop in a thread of its own, started when the first coroutine comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Any) -> Any:
        """Run `coroutine` on the loop and wait for its result."""
        return self.begin(coroutine).result()()

    def begin(self, coroutine: Any) -> Future[Callable[[], Any]]:
        """Run `coroutine` on the loop. The future has a function that returns its result, or raises its exit."""
        return asyncio.run_coroutine_threadsafe(_guarded(coroutine), self._started())

    def close(self) -> None:
        """End the loop as `asyncio.run` does: what is still under way on it is cancelled, and may clean up."""
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLEAN_UP_S)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
                self._loop = runner.get_loop()
                self._thread = threading.Thread(target=self._serve, args=(runner,), name="ottla-loop", daemon=True)
                self._thread.start()
            return self._loop

    @staticmethod
    def _serve(runner: asyncio.Runner) -> None:
        with runner:
            runner.get_loop().run_forever()


class _ConfirmedThere:
    """A run whose acknowledgements are awaited on the handlers' loop."""

    def __init__(self, loop: _LoopThread, run: Run, confirming: AwaitingAcksOnLoop | ConfirmedOnLoop) -> None:
        self._loop = loop
        self._run = run
        self._confirming = confirming

    def when_confirmed(self, then: Callable[[RunResult], None]) -> None:
        def settled(future: Future[Callable[[], RunResult]]) -> None:
            try:
                result = future.result()()
            except BaseException as error:  # whatever ended the wait: the run must get its result
                result = broken_run(self._run, ExceptionTable().failure_of(error))
            then(result)

        self._loop.begin(self._confirming.wait()).add_done_callback(settled)


async def _guarded(coroutine: Any) -> Callable[[], Any]:
    """Keep an exit from ending the loop under everything else that runs on it."""
    try:
        result = await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        return partial(_raise, error)
    return lambda: result


def _raise(error: BaseException) -> None:
    raise error
