"""Whether anybody delivers what a producer schedules.

A schedule's topic has the name of the group that its schedulers form. Pure: time is an argument, and asking for the
group's state is the shell's work (`due` says for which).
"""

from __future__ import annotations

from typing import Final

from ottla.schedule.topics import is_schedule

FIRST_LOOK_MS: Final = 15_000
"""Delay after the first delayed message before the group is checked: a scheduler that starts together with its senders
has joined by then."""

EVERY_MS: Final = 300_000

_WITHOUT_MEMBERS: Final = frozenset({"EMPTY", "DEAD"})


class SchedulerWatch:
    """The schedules that a producer writes to. Not thread-safe."""

    def __init__(self) -> None:
        self._look_at_ms: dict[str, int] = {}
        self._logged: set[str] = set()

    def watch(self, topic: str, *, now_ms: int) -> None:
        """Watch a topic if it belongs to a schedule."""
        if is_schedule(topic) and topic not in self._look_at_ms:
            self._look_at_ms[topic] = now_ms + FIRST_LOOK_MS

    def due(self, now_ms: int) -> list[str]:
        """Return the groups to ask for now. They count as asked from here on."""
        groups = [group for group, at_ms in self._look_at_ms.items() if at_ms <= now_ms]
        for group in groups:
            self._look_at_ms[group] = now_ms + EVERY_MS
        return groups

    def next_due_ms(self) -> int | None:
        """Return when the next question is due, or None while nothing is scheduled."""
        return min(self._look_at_ms.values(), default=None)

    def on_state(self, group: str, state: str | None) -> bool:
        """Return the group's state, in capitals, or None where nobody would say. Returns whether to tell that no
        scheduler runs: once each time that they are gone."""
        if state is None:
            return False
        if state not in _WITHOUT_MEMBERS:
            self._logged.discard(group)
            return False
        is_news = group not in self._logged
        self._logged.add(group)
        return is_news
