"""Rate limit of repeated events. Pure: the caller passes the time."""

from __future__ import annotations

_MOST_KEYS = 10_000


class RateLimit:
    """Lets `burst` events per key through in each interval, and counts those it holds back. Not thread-safe.

    A client whose broker is away reports it dozens of times a second; once in a while tells the same.
    """

    __slots__ = ("_burst", "_every_ms", "_held_back", "_windows")

    def __init__(self, *, every_ms: int, burst: int = 1) -> None:
        self._every_ms = every_ms
        self._burst = burst
        self._windows: dict[str, tuple[int, int]] = {}
        """By key: when its interval ends, and how many it has let through."""
        self._held_back: dict[str, int] = {}

    def admit(self, key: str, now_ms: int) -> int | None:
        """Return None when the event is held back, else how many were since the last one that was let through."""
        end_ms, let_through = self._windows.get(key, (now_ms, 0))
        if now_ms >= end_ms:
            if len(self._windows) >= _MOST_KEYS:
                self._forget_idle(now_ms)
            end_ms, let_through = now_ms + self._every_ms, 0
        elif let_through >= self._burst:
            self._held_back[key] = self._held_back.get(key, 0) + 1
            return None
        self._windows[key] = (end_ms, let_through + 1)
        return self._held_back.pop(key, 0)

    def _forget_idle(self, now_ms: int) -> None:
        """Forget idle keys, or all if none is idle, so that memory stays bounded whatever the keys are."""
        self._windows = {key: window for key, window in self._windows.items() if window[0] > now_ms}
        if len(self._windows) >= _MOST_KEYS:
            self._windows.clear()
        self._held_back = {key: count for key, count in self._held_back.items() if key in self._windows}
