"""The thread that commits what handlers with ``exactly_once=`` did, with a transactional producer of the member's own.

The coordinator of the group checks each commit against the member and its generation (KIP-447). What names them is
asked for on the poll thread, after each assignment and once a second, and kept: the thread here must not wait for the
poll thread, which waits for it while partitions are revoked.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final

from confluent_kafka import KafkaException

from ottla.app.exactly_once import TransactionalClient, TransactionOptions
from ottla.errors import OttlaError, RetriableError
from ottla.once.committing import Committing, together
from ottla.once.outputs import Output
from ottla.once.works import Work
from ottla.records import TopicPartition
from ottla.stepping import run
from ottla.sync.consume.group_metadata import generation_of
from ottla.sync.produce.producer import Producer
from ottla.sync.produce.transaction import Transaction

_LOOK_S: Final = 1.0
_CALL_S: Final = 10.0
_END_S: Final = 15.0
_START_S: Final = 60.0
"""The first transactional producer of a cluster waits until its coordinators are made."""


class Transactions:
    """See the module. `check` raises unless partitions are the member's since these epochs."""

    def __init__(
        self,
        options: TransactionOptions,
        *,
        holds: Callable[[TopicPartition, int], bool],
        check: Callable[[Mapping[TopicPartition, int], int], None],
        tell: Callable[[str, str, Mapping[str, object]], None],
        end: Callable[[BaseException], None],
    ) -> None:
        self._committing = Committing(holds=holds, tell=tell)
        self._check = check
        self._end = end
        self._group = options.group
        self._has_name = options.instance is not None
        self._is_over = threading.Event()
        self._results = _Client(options, "results", join=self._join, is_over=self._is_over)
        self._letters = _Client(options, "letters", join=self._join, is_over=self._is_over, is_for_letters=True)
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._member: bytes | None = None
        self._looked_s = 0.0

    def start(self) -> None:
        """Before the member joins its group: what an earlier process of this name left open is aborted here, and the
        group's offsets are stable then."""
        self._results.start()
        if self._has_name:
            self._letters.start()
        self._thread = threading.Thread(target=self._work, name=f"ottla-{self._group}-transactions", daemon=True)
        self._thread.start()

    def submit(self, work: Work) -> None:
        """Have it committed. Returns at once."""
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
            self._thread.join(_END_S)
            self._thread = None

    def _work(self) -> None:
        try:
            while (works := self._next()) is not None:
                for group in together(works):
                    run(self._committing.settle(group, self._letters if group[0].is_alone else self._results))
        except BaseException as error:
            self._end(error)
        finally:
            self._results.close()
            self._letters.close()

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


class _Client(TransactionalClient):
    """The calls of its producer."""

    _producer: Producer[Any, Any] | None
    _transaction: Transaction | None

    def start(self) -> Producer[Any, Any]:
        producer: Producer[Any, Any] = self._new_producer(Producer)
        try:
            producer.start(_START_S)
        except BaseException:
            producer.close(0)
            raise
        self._producer = producer
        return producer

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(OttlaError):
                producer.close(1.0)

    def begin(self) -> None:
        producer = self._producer or self.start()
        self._transaction = producer.transaction(_CALL_S).__enter__()

    def send_all(self, outputs: Sequence[Output]) -> None:
        assert self._producer is not None
        for topic, records in self._by_topic(outputs).items():
            self._producer.send_many(topic, records)

    def send(self, output: Output) -> Any:
        return self._sent(output)

    def offsets(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        assert self._transaction is not None
        self._transaction.send_offsets(positions, _Reader(lambda: self._join(epochs)))

    def commit(self) -> None:
        assert self._transaction is not None
        self._transaction.commit()

    def abort(self) -> None:
        producer = self._producer
        if producer is not None and producer.transactions is not None:
            with contextlib.suppress(OttlaError):
                producer.transactions.run(producer.transactions.steps.abort_if_open(_CALL_S))

    def renew(self) -> None:
        self.close()

    def pause(self, seconds: float) -> bool:
        return not self._is_over.wait(seconds)


class _Reader:
    """The member, as a transaction sees it."""

    def __init__(self, member: Callable[[], bytes]) -> None:
        self._member = member

    def join_transaction(self, records: Any, owner: object) -> Any:
        return records, self._member()

    def transaction_ended(self, owner: object, *, is_committed: bool) -> None:
        """The works are told by whoever committed."""
