"""The thread that commits what handlers with ``exactly_once=`` did, with a transactional producer of the member's own.

The coordinator of the group checks each commit against the member and its generation (KIP-447). What names them is
asked for on the poll thread, after each assignment and once a second, and kept: the thread here must not wait for the
poll thread, which waits for it while partitions are revoked.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Unpack

from confluent_kafka import KafkaException

from ottla.app.member.commit_thread import CommitThread
from ottla.app.member.member_commits import CommitParts
from ottla.app.member.member_transactions import MemberTransactions, TransactionalClient
from ottla.app.once.exactly_once_invoker import TransactionOptions
from ottla.errors import RetriableError
from ottla.once.outputs import OutputRecord, by_topic
from ottla.records import TopicPartition
from ottla.stepping import Steps, run
from ottla.sync.consume.group_metadata import generation_of
from ottla.sync.produce.producer import Producer
from ottla.sync.produce.unreported_batches import can_send_unreported, send_unreported

_LOOK_S: Final = 1.0


class _Client(TransactionalClient):
    producer_type = Producer
    run = staticmethod(run)
    _producer: Producer[Any, Any] | None
    _is_over: threading.Event

    def _sending(self, groups: Sequence[Sequence[OutputRecord]]) -> Steps[None]:
        producer = self._producer
        assert producer is not None, "nothing is sent before `begin`"
        if not can_send_unreported(producer):
            yield from super()._sending(groups)
            return
        for topic, records in by_topic(groups).items():
            send_unreported(producer, topic, records)

    def pause(self, seconds: float) -> bool:
        return not self._is_over.wait(seconds)


class Transactions(MemberTransactions, CommitThread):
    """See the module. `check` raises if the member has lost one of the partitions since these epochs."""

    _client_type = _Client

    def __init__(
        self,
        options: TransactionOptions,
        *,
        check: Callable[[Mapping[TopicPartition, int], int], None],
        **parts: Unpack[CommitParts],
    ) -> None:
        CommitThread.__init__(self, f"ottla-{options.group}-transactions", end=parts["end"])
        MemberTransactions.__init__(self, options, join=self._join, is_over=self._is_over, **parts)
        self._check = check
        self._member: bytes | None = None
        self._looked_s = 0.0

    def look(self, client: Any, *, is_new: bool = False) -> None:
        """Remember the member's group metadata, if that is due. On the poll thread."""
        now_s = monotonic()
        if is_new or now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            with contextlib.suppress(KafkaException):
                self._member = client.consumer_group_metadata()

    def _join(self, epochs: Mapping[TopicPartition, int]) -> bytes:
        member = self._member
        if member is None:
            raise RetriableError(f"group {self._group!r}: nothing was assigned yet")
        self._check(epochs, generation_of(member))
        return member
