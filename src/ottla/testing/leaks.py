"""Producers and apps that are still open or running after the last test.

A producer that nobody closed has threads and connections, and what it sent last may be on its way. What is opened for
longer than a test (by a fixture of the session, or shared) is closed by the end of the run, or on purpose never.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

_SHARED = ("ottla.sync.produce.shared", "ottla.aio.produce.shared")


class Leaks:
    """Tracks open objects and the test that opened them. Costs nothing until Ottla is used."""

    def __init__(self) -> None:
        self._opened_in: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    def look(self, test: str | None) -> None:
        """Record objects opened since the last call, in `test`, or before the first test (None)."""
        for found in _open():
            if found not in self._opened_in:
                self._opened_in[found] = test or ""

    def left(self) -> list[str]:
        """Return one line for each object that a test opened and did not close."""
        return sorted(
            f"{test}: {_described(found)}" for found in _open() if (test := self._opened_in.get(found, "a fixture"))
        )


def _open() -> Iterator[Any]:
    forks = sys.modules.get("ottla.processes.forks")
    shared = [sys.modules[name]._shared for name in _SHARED if name in sys.modules]
    for producer in forks.open_clients() if forks is not None else ():
        if not any(producer in one for one in shared):
            yield producer
    running = sys.modules.get("ottla.app.running_apps")
    yield from list(running.running_apps) if running is not None else ()


def _described(found: Any) -> str:
    kind = type(found).__name__
    if hasattr(found, "group"):
        return f"the app {found.group!r} still runs: stop it, or run it with run_app or serve_app"
    return (
        f"a {kind} for {found.settings['bootstrap.servers']} is not closed ({len(found)} records are not settled): use "
        f"`with`, or make it with {'app.producer' if kind == 'Producer' else 'app.async_producer'}(...)"
    )
