"""Changes of the metadata, one after the other: each is decided on the image that all earlier ones are committed in.

With a quorum of one an append is committed when it returns, so nothing ever waits here. With several voters the next
change waits for the one that is under way. When leadership is lost everybody who waits is told NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.quorum import MetadataQuorum
from broker_embedded.metadata.records import MetadataRecord
from ottla_wire.protocol import ErrorCode

T = TypeVar("T")

Decision = tuple[Sequence[MetadataRecord], T]
"""The records to append, and what to answer when they are committed."""


class _Change(NamedTuple):
    decide: Callable[[], Decision[Any]]
    future: asyncio.Future[Any]


def not_controller() -> BrokerError:
    return BrokerError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")


class ChangeQueue:
    """The changes of one controller. Everything runs on the loop's thread."""

    def __init__(self, *, quorum: MetadataQuorum, loop: asyncio.AbstractEventLoop) -> None:
        self._quorum = quorum
        self._loop = loop
        self._waiting: deque[_Change] = deque()
        self._under_way: _Change | None = None
        self._is_running = False

    def submit(self, decide: Callable[[], Decision[T]]) -> asyncio.Future[T]:
        """Decide and append when it is this change's turn. What `decide` raises is raised to who waits."""
        future: asyncio.Future[T] = self._loop.create_future()
        future.add_done_callback(_look_at)
        if not self._quorum.is_leader:
            future.set_exception(not_controller())
            return future
        self._waiting.append(_Change(decide, future))
        self._run()
        return future

    def fail_all(self) -> None:
        """Leadership was lost: nothing that waits will happen."""
        waiting, self._waiting = self._waiting, deque()
        for change in waiting:
            _settle(change.future, not_controller())

    def _run(self) -> None:
        if self._is_running:  # called from within an append: the loop below goes on
            return
        self._is_running = True
        try:
            while self._waiting and self._under_way is None:
                self._begin(self._waiting.popleft())
        finally:
            self._is_running = False

    def _begin(self, change: _Change) -> None:
        if change.future.done():  # who asked has gone
            return
        if not self._quorum.is_leader:
            _settle(change.future, not_controller())
            return
        try:
            records, answer = change.decide()
        except Exception as error:
            _settle(change.future, error)
            return
        if not records:
            change.future.set_result(answer)
            return
        self._under_way = change

        def done(error: BrokerError | None) -> None:
            if error is not None:
                _settle(change.future, error)
            elif not change.future.done():
                change.future.set_result(answer)
            self._under_way = None
            self._run()

        self._quorum.append(records, done)


def _settle(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _look_at(future: asyncio.Future[Any]) -> None:
    """Work that the controller gives itself has nobody who asks how it went."""
    if not future.cancelled():
        future.exception()
