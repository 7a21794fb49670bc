"""Claims in the memory of this process: for tests, and to reduce duplicates where losing the marks does no harm."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence

from ottla.clock import Clock, SystemClock
from ottla.quantities import count


class Memory:
    """Remembers at most `max_ids` messages, the latest. Nothing outlives the process.

    Raises `ConfigError` for a `max_ids` below 1.
    """

    stays_in_process = True
    """No other process sees the marks: `ottla run --workers` refuses it."""

    def __init__(self, *, max_ids: int = 1_000_000, clock: Clock | None = None) -> None:
        self._claims = _MemoryClaims(count("Memory", "max_ids", max_ids), clock or SystemClock())

    def claims(self) -> _MemoryClaims:
        """Return a session for a thread; all sessions of a store share its memory."""
        return self._claims

    async def async_claims(self) -> _AsyncMemoryClaims:
        """Return a session for an event loop."""
        return _AsyncMemoryClaims(self._claims)

    def is_outage(self, error: BaseException) -> bool:
        """Return False: memory is always available."""
        return False


class _MemoryClaims:
    def __init__(self, max_ids: int, clock: Clock) -> None:
        self._max_ids = max_ids
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[str, str], tuple[str | None, int]] = OrderedDict()
        """(consumer, id) → (owner, or None if processed; expiry)."""

    def claim(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> Collection[str]:
        return self._take(consumer, ids, owner, lease_ms, are_owned=False)

    def look(self, consumer: str, ids: Sequence[str]) -> Mapping[str, int | None]:
        now_ms = self._clock.now_ms()
        states: dict[str, int | None] = {}
        with self._lock:
            for message_id in ids:
                found = self._live((consumer, message_id), now_ms)
                if found is not None:
                    states[message_id] = None if found[0] is None else found[1] - now_ms
        return states

    def renew(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> int:
        return len(self._take(consumer, ids, owner, lease_ms, are_owned=True))

    def finish(self, consumer: str, ids: Sequence[str], *, window_ms: int) -> None:
        until_ms = self._clock.now_ms() + window_ms
        with self._lock:
            for message_id in ids:
                self._put((consumer, message_id), None, until_ms)

    def release(self, consumer: str, ids: Sequence[str], *, owner: str) -> None:
        with self._lock:
            for message_id in ids:
                if self._entries.get((consumer, message_id), (None, 0))[0] == owner:
                    del self._entries[consumer, message_id]

    def clean(self, consumer: str, *, window_ms: int) -> int:
        now_ms = self._clock.now_ms()
        with self._lock:
            old = [key for key, (_, until_ms) in self._entries.items() if until_ms <= now_ms]
            for key in old:
                del self._entries[key]
        return len(old)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _take(
        self, consumer: str, ids: Sequence[str], owner: str, lease_ms: int, *, are_owned: bool
    ) -> Collection[str]:
        """Give the owner these ids for a while: those that it has, and unless `are_owned` the free ones."""
        now_ms = self._clock.now_ms()
        taken = []
        with self._lock:
            for message_id in ids:
                found = self._live((consumer, message_id), now_ms)
                is_own = found is not None and found[0] == owner
                if is_own or (found is None and not are_owned):
                    self._put((consumer, message_id), owner, now_ms + lease_ms)
                    taken.append(message_id)
        return taken

    def _live(self, key: tuple[str, str], now_ms: int) -> tuple[str | None, int] | None:
        found = self._entries.get(key)
        return found if found is not None and found[1] > now_ms else None

    def _put(self, key: tuple[str, str], owner: str | None, until_ms: int) -> None:
        self._entries[key] = (owner, until_ms)
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_ids:
            self._entries.popitem(last=False)


class _AsyncMemoryClaims:
    def __init__(self, claims: _MemoryClaims) -> None:
        self._claims = claims

    async def claim(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> Collection[str]:
        return self._claims.claim(consumer, ids, owner=owner, lease_ms=lease_ms)

    async def look(self, consumer: str, ids: Sequence[str]) -> Mapping[str, int | None]:
        return self._claims.look(consumer, ids)

    async def renew(self, consumer: str, ids: Sequence[str], *, owner: str, lease_ms: int) -> int:
        return self._claims.renew(consumer, ids, owner=owner, lease_ms=lease_ms)

    async def finish(self, consumer: str, ids: Sequence[str], *, window_ms: int) -> None:
        self._claims.finish(consumer, ids, window_ms=window_ms)

    async def release(self, consumer: str, ids: Sequence[str], *, owner: str) -> None:
        self._claims.release(consumer, ids, owner=owner)

    async def clean(self, consumer: str, *, window_ms: int) -> int:
        return self._claims.clean(consumer, window_ms=window_ms)

    async def close(self) -> None:
        """Do nothing: nothing is open."""
