"""In which order a transactional producer does what, and what follows when a call fails: the same for every shell.

Each procedure yields its calls (`ottla.stepping`). A call raises an `OttlaError` and has moved the state by then,
because only the shell knows the errors of its client.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NoReturn, Protocol, runtime_checkable

from ottla.errors import BrokerUnavailable, FencedError, LifecycleError, OttlaError
from ottla.producer.explain import Explain
from ottla.producer.transaction_failures import TransactionFailures
from ottla.producer.transactions import ProducerTransactionState, TransactionEvent, TransactionStates
from ottla.raising import again
from ottla.stepping import Steps
from ottla.telemetry import log_event


class TransactionClient(Protocol):
    """A shell's calls. Those that wait are awaitable on an event loop."""

    def initialize(self, timeout_s: float) -> Any:
        """Fence earlier producers with the same transactional.id, and have what they left open aborted."""

    def begin(self, timeout_s: float) -> Any: ...

    def send_offsets(self, offsets: Any, group: Any, timeout_s: float) -> Any:
        """Commit a group's offsets with the transaction."""

    def send_joined(self, positions: Mapping[Any, int], member: Any, timeout_s: float) -> Any:
        """Return the same for Ottla's own consumer: `member` names it to the coordinator."""

    def commit(self, timeout_s: float, *, is_first: bool) -> Any:
        """Commit; with `is_first` False, ask for the outcome of a commit that had no answer."""

    def abort(self, timeout_s: float) -> Any:
        """Abort, so that nothing which was sent before can slip into the next transaction."""

    def settle(self, timeout_s: float) -> Any:
        """Wait for the acknowledgements of all that was sent, and no longer once the transaction cannot be committed.

        Raises, as `commit` would, when the client says so.
        """

    def still_out(self) -> tuple[Any, ...]:
        """Return the deliveries that `settle` could not wait for, as `TransactionFailures.error` takes them."""
        ...

    def forget_failures(self) -> None:
        """Forget the failures of an aborted transaction: its records were not to be seen."""


@runtime_checkable
class ReadsInTransactions(Protocol):
    """Ottla's own consumer, as a transaction sees it. To join is awaitable on an event loop."""

    def _join_transaction(self, records: Any, owner: object) -> Any:
        """Return (positions to commit, what names the member to the coordinator)."""

    def _transaction_ended(self, owner: object, *, is_committed: bool) -> None: ...


class TransactionSteps:
    """Carries out what the table of states allows. One per transactional producer."""

    def __init__(self, client: TransactionClient, states: TransactionStates) -> None:
        self.states = states
        self.failures = TransactionFailures()
        self._client = client
        self._readers: list[ReadsInTransactions] = []
        """Ottla's own consumers whose records are in the transaction."""

    def initialize(self, timeout_s: float) -> Steps[None]:
        if self.states.state is ProducerTransactionState.NOT_INITIALIZED:
            yield lambda: self._client.initialize(timeout_s)
            self.states.on(TransactionEvent.INITIALIZED)

    def begin(self, timeout_s: float) -> Steps[None]:
        """Open a transaction, after settling the previous one if its outcome is unknown. Raises the previous one's
        error if it was not committed, or `BrokerUnavailable` while its outcome cannot be read."""
        yield from self.initialize(timeout_s)
        yield from self.settle_left_open(timeout_s)
        self.states.on(TransactionEvent.BEGIN)
        self.failures.begin()
        try:
            yield lambda: self._client.begin(timeout_s)
        except BaseException:
            yield from self.abort_if_open(timeout_s)
            raise

    def settle_left_open(self, timeout_s: float) -> Steps[None]:
        """Ask again for the commit or the abort that had no answer."""
        again = self.states.left_open
        if again is TransactionEvent.COMMIT:
            yield from self.commit(timeout_s)
        elif again is TransactionEvent.ABORT:
            yield from self.abort(timeout_s)

    def send_offsets(self, offsets: Any, group: Any, timeout_s: float) -> Steps[None]:
        """Commit a group's offsets with the transaction. Each offset is the next one to read."""
        self.states.check_can_send()
        try:
            if isinstance(group, ReadsInTransactions):
                if group not in self._readers:
                    self._readers.append(group)
                positions, member = yield lambda: group._join_transaction(offsets, self)
                if positions:
                    yield lambda: self._client.send_joined(positions, member, timeout_s)
            else:
                yield lambda: self._client.send_offsets(offsets, group, timeout_s)
        except BaseException as error:
            if self.states.is_in(ProducerTransactionState.MUST_ABORT):
                error = self.failures.refused(error)
            self.failures.call_raised(error)
            raise error

    def commit(self, timeout_s: float) -> Steps[None]:
        """Commit, or abort and raise: DeliveryError when a record was not delivered, whether or not it was raised.

        After `BrokerUnavailable` the outcome is open, and it may be called again.
        """
        if self.states.is_in(ProducerTransactionState.MUST_ABORT):
            yield from self._abort_because(self.failures.error() or self.states.refusal("commit"), timeout_s)
        is_first = self.states.is_in(ProducerTransactionState.OPEN)
        failed: OttlaError | None = None
        try:
            if is_first:
                yield lambda: self._client.settle(timeout_s)
            self.states.on(TransactionEvent.COMMIT)  # from here on no other thread sends into it
            if is_first:
                # A client knows of records that it gave up, not of those that were refused, or wait for a partition.
                failed = self.failures.error() or self.failures.error(*self._client.still_out())
                if failed is not None:
                    self.states.on(TransactionEvent.FAILED)
                    raise failed
            yield lambda: self._client.commit(timeout_s, is_first=is_first)
        except OttlaError as error:
            if self.states.is_in(ProducerTransactionState.MUST_ABORT):
                yield from self._abort_because(
                    failed or self.failures.error(cause=error) or self.failures.refused(error), timeout_s
                )
            raise
        self.states.on(TransactionEvent.COMMITTED)
        self.failures.end()
        self._notify_readers(is_committed=True)

    def abort(self, timeout_s: float) -> Steps[None]:
        """Abort: no read_committed consumer will see what was sent. A producer that was fenced ends here: it may not
        ask the coordinator for anything that a newer one would suffer from."""
        if self.failures.fenced is not None:
            self.was_fenced()
            raise again(self.failures.fenced)
        self.states.on(TransactionEvent.ABORT)
        self._notify_readers(is_committed=False)  # it never will be
        yield lambda: self._client.abort(timeout_s)
        self.states.on(TransactionEvent.ABORTED)
        self.failures.end()
        self._client.forget_failures()

    def abort_if_open(self, timeout_s: float) -> Steps[None]:
        """Leave nothing open when another error is on its way to the caller."""
        if self.states.is_in(ProducerTransactionState.OPEN, ProducerTransactionState.MUST_ABORT):
            yield from self._quietly(self.abort(timeout_s))

    def end(self, timeout_s: float = 10.0) -> Steps[None]:
        """Abort an open transaction on close: it would hold up consumers until its timeout."""
        yield from self.abort_if_open(timeout_s)
        if self.states.left_open is not None:
            yield from self._quietly(self.settle_left_open(timeout_s))

    def leave(self, error: BaseException | None, timeout_s: float) -> Steps[None]:
        """Leave the block of a transaction: commit, or abort because of `error`."""
        if self.states.state is ProducerTransactionState.READY:  # committed or aborted by hand
            return
        if error is None:
            try:
                yield from self.commit(timeout_s)
            except BaseException:
                yield from self.abort_if_open(timeout_s)  # interrupted before the commit was asked for
                raise
            return
        try:
            yield from self.abort(timeout_s)
        except FencedError:
            raise  # matters more than what ended the block, which stays its context
        except LifecycleError as also:
            error.add_note(f"the transaction was not aborted: {also}")
        except OttlaError as also:
            error.add_note(_not_settled(also))

    def was_fenced(self) -> None:
        """Record that the producer was fenced; its caller gets `FencedError`, and nothing of the transaction counts."""
        self.states.on(TransactionEvent.WAS_FENCED)
        self.failures.end()
        self._client.forget_failures()

    def timed_out(self) -> None:
        """Record that the coordinator did not answer in time. An open transaction has not changed by that."""
        if self.states.state is not ProducerTransactionState.OPEN:
            self.states.on(TransactionEvent.TIMED_OUT)

    def refused(self) -> None:
        """Record a refusal of the coordinator that is final."""
        if self.states.state is not ProducerTransactionState.READY:
            self.states.on(TransactionEvent.FAILED)

    def _quietly(self, settling: Steps[None]) -> Steps[None]:
        try:
            yield from settling
        except OttlaError as error:  # the coordinator aborts it after transaction.timeout.ms
            fields = {"transactional_id": self.states.transactional_id, "error": str(error)}
            log_event("transaction_left_open", "warning", fields)

    def _abort_because(self, error: BaseException, timeout_s: float) -> Steps[NoReturn]:
        try:
            yield from self.abort(timeout_s)
        except FencedError:
            raise
        except OttlaError as also:
            error.add_note(_not_settled(also))
        raise error

    def _notify_readers(self, *, is_committed: bool) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            reader._transaction_ended(self, is_committed=is_committed)


class TransactionCalls:
    """A transactional producer as its shell runs it: the order of calls, and what follows from a call that failed."""

    def __init__(self, client: TransactionClient, states: TransactionStates, errors: Explain) -> None:
        self.states = states
        self.steps = TransactionSteps(client, states)
        self.failures = self.steps.failures
        self._errors = errors

    def what(self, call: str) -> str:
        """Return the transaction and the call of it that failed, in an error's words."""
        return f"transaction {self.states.transactional_id}, {call}"

    def refused_with(self, error: OttlaError) -> None:
        """Record how a call failed: fenced, timed out or refused."""
        if isinstance(error, FencedError):
            self.steps.was_fenced()
        elif isinstance(error, BrokerUnavailable):
            self.steps.timed_out()
        else:
            self.steps.refused()


class TransactionInProgress(ABC):
    """One transaction of a producer. Base of the shells' `Transaction`."""

    def __init__(self, calls: TransactionCalls, *, timeout_s: float) -> None:
        self._steps = calls.steps
        self._timeout_s = timeout_s

    def beginning(self) -> Steps[None]:
        """Open it."""
        return self._steps.begin(self._timeout_s)

    @abstractmethod
    def send_offsets(self, offsets: Any, consumer: Any) -> Any:
        """Commit consumed offsets with the transaction. On an event loop this is to be awaited."""

    @abstractmethod
    def commit(self) -> Any:
        """Commit, or ask for the outcome of a commit without an answer. On an event loop this is to be awaited."""


def _not_settled(error: OttlaError) -> str:
    return f"the abort is not settled, the next transaction begins with it: {error}"
