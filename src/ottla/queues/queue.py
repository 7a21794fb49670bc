"""`Queue`: jobs by iterating, in threads.

with Queue("images", group="resize", bootstrap_servers="localhost:9092", value=Json(Image)) as jobs:
    for job in jobs:
        resize(job.value)
        job.accept()
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from time import monotonic
from types import TracebackType
from typing import Any, Generic, Self, Unpack, overload

from ottla.config.arguments import explained
from ottla.quantities import Span, timeout
from ottla.queues.core.effects import Effect
from ottla.queues.core.lease import Lease
from ottla.queues.job import Job
from ottla.queues.queue_base import NOT_SETTLED_S, QueueBase, QueueOptions, Value
from ottla.records import Malformed
from ottla.serdes.base import SerdeOf
from ottla.typevars import Builtin, V_co


class Queue(QueueBase, Generic[V_co]):
    """A member of a share group (KIP-932). Needs Kafka 4.2 or newer. Any thread may use it.

    At most `concurrency` jobs are in the caller's hands at a time; the next is leased when one is settled. A lease is
    renewed until its job is settled, or `max_job_s` are over; then the record is released. `start` is where a group
    that is new starts. `topics_timeout_s` bounds how long missing topics are waited for.

    Raises `ConfigError` for what cannot work, and when it starts `BrokerTooOld`, `UnknownTopic` or `BrokerUnavailable`.
    """

    @overload
    def __init__(self: Queue[bytes], *topics: str, group: str, **options: Unpack[QueueOptions]) -> None: ...

    @overload
    def __init__(
        self: Queue[Value | Malformed],
        *topics: str,
        group: str,
        value: SerdeOf[Value],
        **options: Unpack[QueueOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Queue[Builtin | Malformed],
        *topics: str,
        group: str,
        value: type[Builtin],
        **options: Unpack[QueueOptions],
    ) -> None: ...

    @explained("Queue")
    def __init__(self, *topics: str, group: str, **options: Any) -> None:
        self._leases: queue.SimpleQueue[Lease | None] = queue.SimpleQueue()
        self._has_ended = threading.Event()
        self._lock = threading.Lock()
        super().__init__(*topics, group=group, **options)

    __init__.__wrapped__ = QueueBase.__init__  # type: ignore[attr-defined]  # whose arguments `help` shows

    def take(self, timeout_s: Span = 1.0) -> Job[V_co] | None:
        """Return the next job; None when there was none for `timeout_s`, or `stop` was called."""
        self._start_once()
        return self._next(monotonic() + timeout("take", timeout_s))

    def __iter__(self) -> Iterator[Job[V_co]]:
        """Yield jobs until `stop` or `close`. Settle each: while `concurrency` are not settled no other comes."""
        while not self._is_closed:
            self._start_once()
            job = self._next(None)
            if job is not None:
                yield job
            elif self._is_stopping:
                return

    def stop(self) -> None:
        """End the iteration, from any thread, or in a signal handler. Jobs in the caller's hands stay leased."""
        self._is_stopping = True
        self._leases.put(None)

    def close(self, timeout_s: Span = 10.0) -> None:
        """Release what is not settled, send what is, and leave the group; at most `timeout_s` seconds."""
        self.stop()
        with self._lock:
            self._is_closed = True
        if self._has_started and not self._has_ended.is_set():
            self._client.abandon()
            self._has_ended.wait(timeout("close", timeout_s))

    def __enter__(self) -> Self:
        self._start_once()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    _is_stopping = False

    def _start_once(self) -> None:
        with self._lock:
            self._check_open()
            if not self._has_started:
                self._prepare()
                self._client.start()
                self._has_started = True

    def _next(self, until_s: float | None) -> Job[V_co] | None:
        say_at_s = monotonic() + NOT_SETTLED_S
        while not self._is_stopping:
            now_s = monotonic()
            if until_s is not None and now_s > until_s:
                return None
            left_s = 0.5 if until_s is None else min(0.5, until_s - now_s)  # so that signal handlers run
            try:
                lease = self._leases.get(timeout=max(0.0, left_s))
            except queue.Empty:
                if now_s > say_at_s and self._client.has_no_free_worker:
                    self._say_not_settled()
                    say_at_s = now_s + NOT_SETTLED_S * 12
                continue
            if lease is not None and (job := self._job(lease)) is not None:
                return job
            self._check_ended()
        return None

    def _check_ended(self) -> None:
        if self._error is not None:
            self._check_open()

    def _on_effects(self, effects: list[Effect]) -> None:
        for lease in self._leased(effects):
            self._leases.put(lease)

    def _on_ended(self, error: BaseException | None) -> None:
        self._error = self._error or error
        self._has_ended.set()
        self._leases.put(None)
