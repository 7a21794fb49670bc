"""The transactional producers of a member whose handlers have ``exactly_once=``, and the order of their calls.

One producer is for results, of all partitions: a transaction costs about the same for one run and for several
(`benchmarks/exactly_once_cost.py` has a producer for each partition beside it). The other is for dead letters, each of
which is a transaction alone. A shell adds the thread or the task that has the works, and how it waits between two
tries.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, Protocol, Unpack

from ottla.app.member.member_commits import CommitClient, CommitParts, MemberCommits
from ottla.app.once.exactly_once_invoker import TransactionOptions
from ottla.errors import OttlaError
from ottla.once.committing import Committing
from ottla.once.outputs import OutputRecord, by_topic
from ottla.producer.record_sends import never_in_handlers
from ottla.producer.size_policy import SizePolicy
from ottla.producer.transaction_steps import TransactionCalls, TransactionInProgress
from ottla.records import Headers, TopicPartition
from ottla.stepping import Steps
from ottla.telemetry import Hooks

_CALL_S: Final = 10.0
_CLOSE_S: Final = 1.0
_START_S: Final = 60.0
"""The first transactional producer of a cluster waits until its coordinators are made."""

Join = Callable[[Mapping[TopicPartition, int]], Any]
"""Returns what names the member to the coordinator. Raises `RetriableError` unless the partitions are the member's
since these epochs. On an event loop this is to be awaited."""


class TransactionalProducer(Protocol):
    """A shell's producer, as far as the transactions of a member use it. What waits is to be awaited on an event
    loop."""

    @property
    def _sizes(self) -> SizePolicy: ...

    @property
    def _transactions(self) -> TransactionCalls | None: ...

    def start(self, timeout_s: float, /) -> Any: ...

    def close(self, timeout_s: float, /) -> Any: ...

    def send(
        self,
        topic: str,
        value: Any,
        /,
        *,
        key: Any,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Any: ...

    def send_many(self, topic: str, records: Iterable[tuple[Any, ...]], /) -> Any: ...

    def transaction(self, timeout_s: float, /) -> TransactionInProgress: ...


class MakeProducer(Protocol):
    def __call__(
        self, *, bootstrap_servers: Any, settings: Mapping[str, Any], hooks: Hooks | None
    ) -> TransactionalProducer: ...


class MakeClient(Protocol):
    """A `TransactionalClient`, or a class that does the same over another client."""

    def __call__(
        self,
        options: TransactionOptions,
        part: str,
        *,
        join: Join,
        is_over: Any,
        is_for_failed_writes: bool = False,
    ) -> CommitClient: ...


class TransactionalClient(ABC):
    """A transactional producer, made when it is needed: `ottla.once.committing.Transactional` for both shells.

    What its methods return is to be awaited on an event loop.
    """

    producer_type: ClassVar[MakeProducer]
    run: ClassVar[Callable[..., Any]]
    """Makes the calls of a procedure in the shell's way."""

    def __init__(
        self,
        options: TransactionOptions,
        part: str,
        *,
        join: Join,
        is_over: Any,
        is_for_failed_writes: bool = False,
    ) -> None:
        self.has_name = options.instance is not None
        self._options = options
        self._part = part
        self._join = join
        self._is_over = is_over
        """The shell's event: nothing more is to be tried."""
        self._is_for_failed_writes = is_for_failed_writes
        self._producer: TransactionalProducer | None = None
        self._transaction: TransactionInProgress | None = None

    def send(self, output: OutputRecord) -> Any:
        """Send one record. Returns its delivery, and waits for nothing."""
        value, key, headers, partition, timestamp_ms = output.record
        return self._started().send(
            output.topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )

    @abstractmethod
    def pause(self, seconds: float) -> Any:
        """Wait. Returns False at the member's end, when nothing more is to be tried."""

    def begin(self) -> Any:
        """Open a transaction, with a new producer if there is none."""
        return self.run(self._beginning())

    def send_all(self, groups: Sequence[Sequence[OutputRecord]]) -> Any:
        """Send the records of these works, topic by topic."""
        return self.run(self._sending(groups))

    def offsets(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> Any:
        """Commit these offsets with the transaction. Raises `RetriableError` if a partition is another member's."""
        return self._open_transaction().send_offsets(
            positions, _TransactionReader(partial(self._join, epochs), self.run)
        )

    def commit(self) -> Any:
        """Commit, or ask again for the outcome of a commit."""
        return self._open_transaction().commit()

    def abort(self) -> Any:
        """Abort what is open. Never raises an error of Kafka."""
        return self.run(self._aborting())

    def renew(self) -> Any:
        """Close the producer: `begin` makes another."""
        return self.run(self.closing())

    def starting(self) -> Steps[None]:
        """Make and start the producer. Its start aborts what an earlier process of this name left open."""
        producer = self.producer_type(**self._options.new_producer(self._part))
        never_in_handlers(producer)
        if self._is_for_failed_writes:  # what its own topic took compressed this one takes as well
            producer._sizes.leave_to_broker()
        try:
            yield partial(producer.start, _START_S)
        except BaseException:
            yield partial(producer.close, 0)
            raise
        self._producer = producer

    def closing(self) -> Steps[None]:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(OttlaError):
                yield partial(producer.close, _CLOSE_S)

    def _beginning(self) -> Steps[None]:
        if self._producer is None:
            yield from self.starting()
        self._transaction = transaction = self._started().transaction(_CALL_S)
        yield from transaction.beginning()

    def _sending(self, groups: Sequence[Sequence[OutputRecord]]) -> Steps[None]:
        for topic, records in by_topic(groups).items():
            yield partial(self._started().send_many, topic, records)

    def _aborting(self) -> Steps[None]:
        producer = self._producer
        if producer is not None and producer._transactions is not None:
            with contextlib.suppress(OttlaError):
                yield from producer._transactions.steps.abort_if_open(_CALL_S)

    def _started(self) -> TransactionalProducer:
        assert self._producer is not None, "nothing is sent before `begin`"
        return self._producer

    def _open_transaction(self) -> TransactionInProgress:
        assert self._transaction is not None, "nothing is committed before `begin`"
        return self._transaction


class _TransactionReader:
    """The member, as a transaction sees it (`ottla.producer.transaction_steps.ReadsInTransactions`)."""

    def __init__(self, member: Callable[[], Any], run: Callable[[Steps[Any]], Any]) -> None:
        self._member = member
        self._run = run

    def _join_transaction(self, records: Any, owner: object) -> Any:
        return self._run(self._joining(records))

    def _transaction_ended(self, owner: object, *, is_committed: bool) -> None:
        """Do nothing: `Committing` reports the results to the parts of the transaction."""

    def _joining(self, records: Any) -> Steps[Any]:
        member = yield self._member
        return records, member


class MemberTransactions(MemberCommits):
    """The transactions of one member."""

    _client_type: ClassVar[MakeClient]

    def __init__(self, options: TransactionOptions, *, join: Join, is_over: Any, **parts: Unpack[CommitParts]) -> None:
        self._committing = Committing(holds=parts["holds"], tell=parts["tell"])
        self._end = parts["end"]
        self._group = options.group
        self._is_over = is_over
        self._results = self._client_type(options, "results", join=join, is_over=is_over)
        self._failed_writes = self._client_type(
            options, "letters", join=join, is_over=is_over, is_for_failed_writes=True
        )
