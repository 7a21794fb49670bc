"""Renews the claims of messages while their handler works: one thread, or one task, for all runs of a handler."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from ottla.stepping import Steps, run, run_async


class ClaimLease:
    """The claims of one run. `on_lost` is called once, with the ids, when another process may own them.

    Time counts from before the request of a claim or renewal: the response may be late, and the process may be
    suspended before it acts on it.
    """

    __slots__ = ("_is_lost", "_lease_s", "_on_lost", "ids", "owner", "renewed_s")

    def __init__(
        self,
        ids: Sequence[str],
        owner: str,
        *,
        lease_s: float,
        claimed_s: float,
        on_lost: Callable[[Sequence[str]], None],
    ) -> None:
        self.ids = ids
        self.owner = owner
        self.renewed_s = claimed_s
        self._lease_s = lease_s
        self._is_lost = False
        self._on_lost = [on_lost]

    def is_held(self) -> bool:
        """Return whether the claim is still exclusive. A process that was suspended for longer than the lease sees
        that at once by its own clock, before the renewal fails."""
        if not self._is_lost and monotonic() - self.renewed_s >= self._lease_s:
            self._lose()
        return not self._is_lost

    def asked(self, kept: int | None, asked_s: float) -> None:
        """Take the response to a renewal; None if it failed, and the claims hold until they expire."""
        if kept == len(self.ids):
            self.renewed_s = asked_s
        elif kept is not None:
            self._lose()
        else:
            self.is_held()

    def _lose(self) -> None:
        self._is_lost = True
        try:
            on_lost = self._on_lost.pop()  # atomic: of two threads one gets it
        except IndexError:
            return
        on_lost(self.ids)


class _Leases:
    """The claims that are held. `connect` opens a session of the store."""

    def __init__(self, connect: Callable[[], Any], consumer: str, lease_ms: int) -> None:
        self._connect = connect
        self._consumer = consumer
        self._lease_ms = lease_ms
        self._held: dict[ClaimLease, None] = {}

    def release(self, lease: ClaimLease) -> None:
        self._held.pop(lease, None)

    def _renewing(self, pause: Callable[[float], Any]) -> Steps[None]:
        """Renew all claims again and again, while `pause` returns True."""
        session: Any = None
        try:
            while (yield partial(pause, self._lease_ms / 3_000)):
                for lease in list(self._held):
                    kept: int | None = None
                    asked_s = monotonic()
                    try:
                        session = session or (yield self._connect)
                        renew = partial(session.renew, self._consumer, lease.ids)
                        kept = yield partial(renew, owner=lease.owner, lease_ms=self._lease_ms)
                    except Exception:  # the store is away: the runs will say so
                        with contextlib.suppress(Exception):
                            yield session.close
                        session = None
                    if lease in self._held:  # else its handler has returned, and its claims are no more
                        lease.asked(kept, asked_s)
        finally:
            if session is not None:
                yield session.close


class ClaimLeases(_Leases):
    """Renews from a thread that starts with the first claim."""

    def __init__(self, connect: Callable[[], Any], consumer: str, lease_ms: int) -> None:
        super().__init__(connect, consumer, lease_ms)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, lease: ClaimLease) -> None:
        self._held[lease] = None
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._stop = threading.Event()
                    self._thread = threading.Thread(
                        target=self._renew, args=(self._stop,), name="ottla-inbox-leases", daemon=True
                    )
                    self._thread.start()

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            thread.join(5.0)

    def _renew(self, stop: threading.Event) -> None:
        run(self._renewing(lambda seconds: not stop.wait(seconds)))


class AsyncLeases(_Leases):
    """Renews from a task that starts with the first claim."""

    _task: asyncio.Task[None] | None = None

    def hold(self, lease: ClaimLease) -> None:
        self._held[lease] = None
        if self._task is None or self._task.done():
            renewing = run_async(self._renewing(partial(asyncio.sleep, result=True)))
            self._task = asyncio.get_running_loop().create_task(renewing, name="ottla-inbox-leases")

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
