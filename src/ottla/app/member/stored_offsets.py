"""Claims partitions in the stores that keep their offsets, and moves those offsets past what was settled otherwise.

One thread per member, in both shells: neither a poll nor an event loop waits for a database. While a store is away its
partitions stay closed, and it is asked again. A claim takes a partition from its last owner, so it is made only for
what the member still has; who was fenced and still has the partition claims it again, a little later, because a member
that was away for long learns only then that the group has given its partitions to others.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import getpid
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final

from ottla.app.once.once_settings import OnceSettings
from ottla.consumer.model.events import StartsFound
from ottla.failures.exceptions import described
from ottla.records import TopicPartition
from ottla.retrying import NotYet, try_again
from ottla.telemetry import log_event

_FIRST_S: Final = 0.25
_LONGEST_S: Final = 15.0
_AFTER_FENCED_S: Final = 3.0
"""Longer than a poll takes to bring the news of a rebalance."""

_END_S: Final = 2.0
"""How long the end waits for the last offsets."""


class StoredOffsets:
    """See the module. `found` is called with the results, in the thread; `epoch_of` returns the assignment epoch of a
    partition."""

    def __init__(
        self,
        stores: Mapping[str, OnceSettings],
        *,
        group: str,
        found: Callable[[StartsFound], None],
        epoch_of: Callable[[TopicPartition], int | None],
    ) -> None:
        self._stores = stores
        self._group = group
        self._found = found
        self._epoch_of = epoch_of
        self._member = f"{socket.gethostname()}/{getpid()}"
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self._sessions: dict[int, Any] = {}
        self._logged: set[int] = set()
        self._reclaims: dict[TopicPartition, float] = {}
        for settings in stores.values():
            settings.on_fenced = self._was_fenced

    def find(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Claim these partitions, and report their stored offsets."""
        by_store: dict[int, dict[TopicPartition, int]] = {}
        for name, epoch in epochs.items():
            settings = self._stores[name.topic]
            settings.epochs.pop(name, None)
            settings.saved.pop(name, None)
            by_store.setdefault(id(settings), {})[name] = epoch
        for own in by_store.values():
            self._ask(partial(self._claim, own))

    def passed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Record that everything before these offsets is settled, by a transaction or in another way."""
        for name, offset in offsets.items():
            settings = self._stores[name.topic]
            epoch = settings.epochs.get(name)
            if epoch is not None and settings.saved.get(name, -1) < offset:
                self._ask(partial(self._pass, settings, name, offset, epoch))

    def stop(self) -> None:
        """Stop the thread once its queue is empty."""
        self._is_over.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            self._asked.put(None)
            thread.join(_END_S)

    # In the thread

    def _ask(self, work: Callable[[], None]) -> None:
        self._asked.put(work)
        if self._thread is None and not self._is_over.is_set():
            self._thread = threading.Thread(target=self._work, name=f"ottla-{self._group}-starts", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            try:
                work = self._asked.get(timeout=None if not self._reclaims else 0.1)
            except Empty:
                self._reclaim_if_due()
                continue
            if work is None:
                break
            work()
        for session in self._sessions.values():
            with contextlib.suppress(Exception):
                session.close()

    def _claim(self, epochs: Mapping[TopicPartition, int]) -> None:
        settings = self._stores[next(iter(epochs)).topic]
        is_first = True

        def attempt() -> tuple[dict[TopicPartition, int], Any] | None:
            nonlocal is_first
            mine = {name: epoch for name, epoch in epochs.items() if self._epoch_of(name) == epoch}
            if not mine or (self._is_over.is_set() and not is_first):
                return None
            is_first = False
            starts = self._try(settings, lambda session: session.claim_offsets(self._group, self._member, list(mine)))
            if starts is None:
                raise NotYet(f"{settings.store!r} is away")
            return mine, starts

        claimed = try_again(
            attempt, what="stored offsets", first_s=_FIRST_S, longest_s=_LONGEST_S, sleep=self._is_over.wait
        )
        if claimed is None:
            return
        mine, starts = claimed
        for name, start in starts.items():
            settings.epochs[name] = start.epoch
        self._found(StartsFound(mine, {name: start.next_offset for name, start in starts.items()}))

    def _pass(self, settings: OnceSettings, name: TopicPartition, offset: int, epoch: int) -> None:
        if settings.saved.get(name, -1) >= offset or settings.epochs.get(name) != epoch:
            return
        done = self._try(settings, lambda s: (s.pass_offset(self._group, name, offset, epoch),))
        if done is not None:
            settings.saved[name] = max(offset, settings.saved.get(name, -1))

    def _try(self, settings: OnceSettings, call: Callable[[Any], Any]) -> Any:
        """Return the result of a call to the store, or None if the store is unavailable."""
        key = id(settings)
        try:
            if key not in self._sessions:
                self._sessions[key] = settings.store.session()
            answer = call(self._sessions[key])
        except Exception as error:
            session = self._sessions.pop(key, None)
            with contextlib.suppress(Exception):
                if session is not None:
                    session.close()
            if key not in self._logged:
                self._logged.add(key)
                fields = {"store": repr(settings.store), "error": described(error)}
                log_event("store_unavailable", "warning", {"group": self._group, "handler": settings.name, **fields})
            return None
        self._logged.discard(key)
        return answer

    # After a save was refused

    def _was_fenced(self, name: TopicPartition) -> None:
        """Handle the loss of a claim to another member. In a worker."""
        self._reclaims.setdefault(name, monotonic() + _AFTER_FENCED_S)
        self._ask(self._reclaim_if_due)

    def _reclaim_if_due(self) -> None:
        now_s = monotonic()
        due: Sequence[TopicPartition] = [name for name, at_s in list(self._reclaims.items()) if at_s <= now_s]
        for name in due:
            del self._reclaims[name]
            epoch = self._epoch_of(name)
            if epoch is not None:
                self._claim({name: epoch})
