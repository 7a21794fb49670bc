"""The threads of synchronous handlers on an event loop. They end with the process, whatever a handler is at.

Those of `ThreadPoolExecutor` are waited for when Python ends: a handler that never returns would keep a service alive
that was stopped, until somebody kills it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from ottla.app.runtime.stop_signals import HANDLER_THREADS
from ottla.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")

_Call = tuple[Future[Any], Callable[[], Any]]


class HandlerThreads(Executor):
    """At most `most` threads, each started when there is work for it and none is idle."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0
        self._lock = threading.Lock()

    def submit(self, call: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Have it called in a thread. Raises `ConfigError` where not even the first thread can be started."""
        future: Future[T] = Future()
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._started < self._most:
                self._start()
        self._calls.put((future, lambda: call(*arguments, **named)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the idle threads, and the others once they are idle, without waiting for them."""
        while cancel_futures:
            try:
                call = self._calls.get_nowait()
            except Empty:
                break
            if call is not None:
                call[0].cancel()
        for _ in range(self._started):
            self._calls.put(None)

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{HANDLER_THREADS}_{self._started}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if self._started:
                return  # those that there are do the work
            raise ConfigError(
                f"no thread for synchronous handlers could be started ({error}); wanted a higher limit on threads or "
                "memory"
            ) from error
        self._started += 1

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, work = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del call, future, work  # what was handled is not kept until there is more
            self._idle.release()
