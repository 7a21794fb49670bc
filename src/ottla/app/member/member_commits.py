"""What commits the works of a member's handlers, over two clients: one for results, of all partitions, and one for dead
letters. The same for transactions and for rows that are written without one; a shell adds the thread or the task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypedDict

from ottla.once.committing import Committing, Transactional
from ottla.once.transaction_parts import TransactionPart
from ottla.records import TopicPartition
from ottla.stepping import Steps

END_S: Final = 15.0
"""How long the end of a member waits for the commit that is under way."""

Tell = Callable[[str, str, Mapping[str, object]], None]
"""Writes an event: its name, its level, its fields."""


class CommitParts(TypedDict):
    """What a member gives to the object that commits for it."""

    holds: Callable[[TopicPartition, int], bool]
    """Return whether a partition is the member's own since an epoch."""
    tell: Tell
    end: Callable[[BaseException], None]
    """Stop the member, which hands out nothing from then on."""


class CommitClient(Transactional, Protocol):
    """A client that can be started and closed."""

    def starting(self) -> Steps[None]: ...

    def closing(self) -> Steps[None]: ...


class MemberCommits(ABC):
    """See the module."""

    _committing: Committing
    _results: CommitClient
    _failed_writes: CommitClient
    _end: Callable[[BaseException], None]
    """Stops the member, which hands out nothing from then on."""

    @abstractmethod
    def submit(self, work: TransactionPart) -> None:
        """Have it committed. Returns at once."""

    @abstractmethod
    def _next(self) -> Any:
        """Return all parts that wait, as soon as one does; None at the end. On an event loop this is to be awaited."""

    def _starting(self) -> Steps[None]:
        """Start the clients before the member joins its group: this aborts what an earlier process of this name left
        open, and makes the group's offsets stable."""
        yield from self._results.starting()
        if self._failed_writes.has_name:
            yield from self._failed_writes.starting()

    def _working(self) -> Steps[None]:
        """Commit what waits, until the end. An error ends the member, and then nothing is committed any more: every
        part gets its result all the same."""
        try:
            while (works := (yield self._next)) is not None:
                yield from self._committing.settle_all(works, results=self._results, failed_writes=self._failed_writes)
        except CancelledError:
            raise
        except BaseException as error:
            self._end(error)
            left: Sequence[TransactionPart] | None = self._committing.unanswered
            while left is not None:
                for work in left:
                    work.abandon()
                left = yield self._next
        finally:
            yield from self._closing()

    def _closing(self) -> Steps[None]:
        yield from self._results.closing()
        yield from self._failed_writes.closing()
