"""The transactional producers of a member whose handlers have ``exactly_once=``, and the order of their calls.

One producer is for results, of all partitions: a transaction costs about the same for one run and for several
(`benchmarks/exactly_once_cost.py` has a producer for each partition beside it). The other is for dead letters, each of
which is a transaction alone. A shell adds the thread or the task that has the works, and how it waits between two
tries.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from ottla.app.once.exactly_once_invoker import TransactionOptions
from ottla.errors import OttlaError
from ottla.once.committing import Committing
from ottla.once.outputs import OutputRecord, by_topic
from ottla.once.transaction_parts import TransactionPart
from ottla.producer.record_sends import never_in_handlers
from ottla.records import TopicPartition
from ottla.stepping import Steps

END_S: Final = 15.0
"""How long the end of a member waits for the commit that is under way."""

_CALL_S: Final = 10.0
_CLOSE_S: Final = 1.0
_START_S: Final = 60.0
"""The first transactional producer of a cluster waits until its coordinators are made."""

Join = Callable[[Mapping[TopicPartition, int]], Any]
"""Returns what names the member to the coordinator. Raises `RetriableError` unless the partitions are the member's
since these epochs. On an event loop this is to be awaited."""


class TransactionalClient(ABC):
    """A transactional producer, made when it is needed: `ottla.once.committing.Transactional` for both shells.

    What its methods return is to be awaited on an event loop.
    """

    producer_type: ClassVar[Callable[..., Any]]
    run: ClassVar[Callable[..., Any]]
    """Makes the calls of a procedure in the shell's way."""

    def __init__(
        self, options: TransactionOptions, part: str, *, join: Join, is_over: Any, is_for_failed_writes: bool = False
    ) -> None:
        self.has_name = options.instance is not None
        self._options = options
        self._part = part
        self._join = join
        self._is_over = is_over
        """The shell's event: nothing more is to be tried."""
        self._is_for_failed_writes = is_for_failed_writes
        self._producer: Any = None
        self._transaction: Any = None

    @abstractmethod
    def send(self, output: OutputRecord) -> Any:
        """Send one record. Returns its delivery."""

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
        return self._transaction.send_offsets(positions, _TransactionReader(partial(self._join, epochs), self.run))

    def commit(self) -> Any:
        """Commit, or ask again for the outcome of a commit."""
        return self._transaction.commit()

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
        self._transaction = self._producer.transaction(_CALL_S)
        yield from self._transaction.beginning()

    def _sending(self, groups: Sequence[Sequence[OutputRecord]]) -> Steps[None]:
        for topic, records in by_topic(groups).items():
            yield partial(self._producer.send_many, topic, records)

    def _sent(self, output: OutputRecord) -> Any:
        """Return the delivery of one record."""
        value, key, headers, partition, timestamp_ms = output.record
        return self._producer.send(
            output.topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )

    def _aborting(self) -> Steps[None]:
        producer = self._producer
        if producer is not None and producer._transactions is not None:
            with contextlib.suppress(OttlaError):
                yield from producer._transactions.steps.abort_if_open(_CALL_S)


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


class MemberTransactions(ABC):
    """The transactions of one member. `holds` says whether a partition is its own since an epoch; `end` stops it."""

    _client_type: ClassVar[Callable[..., Any]]
    """A `TransactionalClient`, or what does the same over another client."""

    def __init__(
        self,
        options: TransactionOptions,
        *,
        holds: Callable[[TopicPartition, int], bool],
        tell: Callable[[str, str, Mapping[str, object]], None],
        end: Callable[[BaseException], None],
        join: Join,
        is_over: Any,
    ) -> None:
        self._committing = Committing(holds=holds, tell=tell)
        self._end = end
        self._group = options.group
        self._has_name = options.instance is not None
        self._is_over = is_over
        self._results = self._client_type(options, "results", join=join, is_over=is_over)
        self._failed_writes = self._client_type(
            options, "letters", join=join, is_over=is_over, is_for_failed_writes=True
        )

    @abstractmethod
    def submit(self, work: TransactionPart) -> None:
        """Have it committed. Returns at once."""

    def _starting(self) -> Steps[None]:
        """Start the producers before the member joins its group: this aborts what an earlier process of this name left
        open, and makes the group's offsets stable."""
        yield from self._results.starting()
        if self._has_name:
            yield from self._failed_writes.starting()

    def _settling(self, works: Sequence[TransactionPart]) -> Steps[None]:
        return self._committing.settle_all(works, results=self._results, failed_writes=self._failed_writes)

    def _unanswered(self) -> Sequence[TransactionPart]:
        return self._committing.unanswered

    def _closing(self) -> Steps[None]:
        yield from self._results.closing()
        yield from self._failed_writes.closing()
