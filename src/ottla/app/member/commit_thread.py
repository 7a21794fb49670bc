"""The thread of a member that commits works: what handlers did, with a transaction or by writing it.

It takes all works that wait, as soon as one does. So what a commit costs is shared by what came while the one before it
was under way.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from ottla.app.member.member_commits import END_S, MemberCommits
from ottla.once.transaction_parts import TransactionPart
from ottla.stepping import run


class CommitThread(MemberCommits):
    """See the module. `end` stops the member, which hands out nothing from then on."""

    def __init__(self, name: str, *, end: Callable[[BaseException], None]) -> None:
        self._is_over = threading.Event()
        self._end = end
        self._name = name
        self._queue: SimpleQueue[TransactionPart | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        run(self._starting())
        self._thread = threading.Thread(target=lambda: run(self._working()), name=self._name, daemon=True)
        self._thread.start()

    def submit(self, work: TransactionPart) -> None:
        self._queue.put(work)

    def stop(self) -> None:
        """End. What is not committed by now is not."""
        self._is_over.set()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(END_S)
            self._thread = None

    def _next(self) -> list[TransactionPart] | None:
        works: list[TransactionPart] = []
        with contextlib.suppress(Empty):
            while not self._is_over.is_set():
                work = self._queue.get(block=not works)
                if work is None:
                    return None
                works.append(work)
        return None if self._is_over.is_set() else works
