"""The thread of a member that commits works: what handlers did, with a transaction or by writing it.

It takes all works that wait, as soon as one does. So what a commit costs is shared by what came while the one before it
was under way.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from ottla.app.member.member_transactions import END_S
from ottla.once.transaction_parts import TransactionPart
from ottla.stepping import Steps, run


class CommitThread(ABC):
    """See the module. `end` stops the member, which hands out nothing from then on."""

    def __init__(self, name: str, *, end: Callable[[BaseException], None]) -> None:
        self._is_over = threading.Event()
        self._end = end
        self._name = name
        self._queue: SimpleQueue[TransactionPart | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def _starting(self) -> Steps[None]:
        """Yield the calls before the member joins its group."""

    @abstractmethod
    def _settling(self, works: Sequence[TransactionPart]) -> Steps[None]:
        """Commit the parts. Raises errors that end the member; otherwise every part gets its result."""

    @abstractmethod
    def _unanswered(self) -> Sequence[TransactionPart]:
        """Return the transaction parts without a result, after `_settling` raised."""

    @abstractmethod
    def _closing(self) -> Steps[None]:
        """Yield the calls at the end."""

    def start(self) -> None:
        run(self._starting())
        self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        self._thread.start()

    def submit(self, work: TransactionPart) -> None:
        """Have it committed. Returns at once."""
        self._queue.put(work)

    def stop(self) -> None:
        """End. What is not committed by now is not."""
        self._is_over.set()
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join(END_S)
            self._thread = None

    def _work(self) -> None:
        try:
            while (works := self._next()) is not None:
                run(self._settling(works))
        except BaseException as error:
            self._end(error)
            self._abandon_all(self._unanswered())
        finally:
            run(self._closing())

    def _abandon_all(self, works: Sequence[TransactionPart] | None) -> None:
        """Abandon these and all later parts: the member ends, and nothing is committed any more."""
        while works is not None:
            for work in works:
                work.abandon()
            works = self._next()

    def _next(self) -> list[TransactionPart] | None:
        """Return all that waits, as soon as something does; None at the end."""
        works: list[TransactionPart] = []
        with contextlib.suppress(Empty):
            while not self._is_over.is_set():
                work = self._queue.get(block=not works)
                if work is None:
                    return None
                works.append(work)
        return None if self._is_over.is_set() else works
