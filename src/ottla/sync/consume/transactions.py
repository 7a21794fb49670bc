"""The thread that commits what handlers with ``exactly_once=`` did, with a transactional producer of the member's own.

The coordinator of the group checks each commit against the member and its generation (KIP-447). What names them is
asked for on the poll thread, after each assignment and once a second, and kept: the thread here must not wait for the
poll thread, which waits for it while partitions are revoked.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final

from confluent_kafka import KafkaException

from ottla.app.exactly_once import TransactionOptions
from ottla.app.member_transactions import END_S, MemberTransactions, TransactionalClient
from ottla.errors import RetriableError
from ottla.once.outputs import Output
from ottla.once.works import Work
from ottla.records import TopicPartition
from ottla.stepping import run
from ottla.sync.consume.group_metadata import generation_of
from ottla.sync.produce.producer import Producer

_LOOK_S: Final = 1.0


class _Client(TransactionalClient):
    producer_type = Producer
    run = staticmethod(run)

    def send(self, output: Output) -> Any:
        return self._sent(output)

    def pause(self, seconds: float) -> bool:
        return not self._is_over.wait(seconds)


class Transactions(MemberTransactions):
    """See the module. `check` raises unless partitions are the member's since these epochs."""

    _client_type = _Client

    def __init__(
        self, options: TransactionOptions, *, check: Callable[[Mapping[TopicPartition, int], int], None], **parts: Any
    ) -> None:
        super().__init__(options, join=self._join, is_over=threading.Event(), **parts)
        self._check = check
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._member: bytes | None = None
        self._looked_s = 0.0

    def start(self) -> None:
        run(self._starting())
        self._thread = threading.Thread(target=self._work, name=f"ottla-{self._group}-transactions", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
        self._queue.put(work)

    def look(self, client: Any, *, is_new: bool = False) -> None:
        """On the poll thread: remember what names the member, if that is due."""
        now_s = monotonic()
        if is_new or now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            with contextlib.suppress(KafkaException):
                self._member = client.consumer_group_metadata()

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
        finally:
            run(self._closing())

    def _next(self) -> list[Work] | None:
        """All that waits, as soon as something does; None at the end."""
        works: list[Work] = []
        with contextlib.suppress(Empty):
            while not self._is_over.is_set():
                work = self._queue.get(block=not works)
                if work is None:
                    return None
                works.append(work)
        return None if self._is_over.is_set() else works

    def _join(self, epochs: Mapping[TopicPartition, int]) -> bytes:
        member = self._member
        if member is None:
            raise RetriableError(f"group {self._group!r}: nothing was assigned yet")
        self._check(epochs, generation_of(member))
        return member
