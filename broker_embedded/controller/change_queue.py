"""Metadata changes in order: each is decided on the image after all earlier ones.

One append is under way at a time. Changes that come meanwhile wait, and are then decided together: each on the image
that the ones before it will make, all of them in one append, so that a cluster that starts or loses a broker needs few
rounds of the quorum. With a quorum of one an append is committed when it returns, and nothing ever waits. When
leadership is lost all waiting callers get NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import look_at, settle
from broker_embedded.controller.quorum import MetadataQuorum
from broker_embedded.metadata.delta import image_after
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import MetadataRecord
from ottla_wire.protocol import ErrorCode

MAX_RECORDS = 5_000
"""A change more is not put into an append that has this many."""

T = TypeVar("T")

Decision = tuple[Sequence[MetadataRecord], T]
"""The records to append, and the response once they are committed."""


class _Change(NamedTuple):
    decide: Callable[[], Decision[Any]]
    future: asyncio.Future[Any]


def not_controller() -> BrokerError:
    return BrokerError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")


class ChangeQueue:
    """The changes of one controller. Everything runs on the loop's thread."""

    def __init__(
        self, *, quorum: MetadataQuorum, committed: Callable[[], ClusterImage], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._quorum = quorum
        self._committed = committed
        self._loop = loop
        self._waiting: deque[_Change] = deque()
        self._ahead: ClusterImage | None = None
        self._is_under_way = False
        self._is_running = False

    @property
    def image(self) -> ClusterImage:
        """Return the image for a decision: the committed image with the earlier changes of the same append."""
        return self._committed() if self._ahead is None else self._ahead

    def submit(self, decide: Callable[[], Decision[T]]) -> asyncio.Future[T]:
        """Decide and append when it is this change's turn. Errors of `decide` go to the caller."""
        future: asyncio.Future[T] = self._loop.create_future()
        future.add_done_callback(look_at)
        if not self._quorum.is_leader:
            future.set_exception(not_controller())
            return future
        self._waiting.append(_Change(decide, future))
        self._run()
        return future

    def fail_all(self) -> None:
        """Fail all changes that wait: leadership was lost."""
        waiting, self._waiting = self._waiting, deque()
        for change in waiting:
            _settle(change.future, not_controller())

    def _run(self) -> None:
        if self._is_running:  # called from within an append: the loop below goes on
            return
        self._is_running = True
        try:
            while self._waiting and not self._is_under_way:
                if self._quorum.is_leader:
                    self._append_waiting()
                else:
                    self.fail_all()
        finally:
            self._is_running = False

    def _append_waiting(self) -> None:
        """Decide all waiting changes in order, and append them together."""
        records: list[MetadataRecord] = []
        answers: list[tuple[asyncio.Future[Any], Any]] = []
        try:
            while self._waiting and len(records) < MAX_RECORDS:
                change = self._waiting.popleft()
                if change.future.done():  # who asked has gone
                    continue
                try:
                    made, answer = change.decide()
                except Exception as error:
                    _settle(change.future, error)
                    continue
                answers.append((change.future, answer))
                if made:
                    records += made
                    if self._waiting:  # no other caller runs it
                        image = self.image
                        self._ahead = image_after(image, made, offset=image.offset + len(made))
        finally:
            self._ahead = None

        def done(error: BrokerError | None) -> None:
            self._is_under_way = False
            for future, answer in answers:
                if error is not None:
                    _settle(future, error)
                else:
                    settle(future, answer)
            self._run()

        if not records:
            done(None)
            return
        self._is_under_way = True
        self._quorum.append(records, done)


def _settle(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
