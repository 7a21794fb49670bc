"""How works become transactions: together first, then with an eye on each record, until every one has its answer.

    begin → send what the handlers sent → the offsets → commit

While a transaction is being committed more runs end, and the next transaction takes them all: the cost of a commit is
shared by what waited for it. The code is a generator of calls, so that threads and event loops carry out the same.

- What no record is to blame for, such as a topic that may not be written, ends the member with its error.
- A record that cannot be written fails alone: what its run did before it is committed, what it did after it comes
  again. To find it, the transaction is done once more with each record watched.
- A partition that was taken away meanwhile is left out. Its new owner begins at what is committed.
- An answer to a commit that was lost is asked for again, as long as it takes. Nothing is guessed.
- While no coordinator or leader answers, the same results are written again and again; handlers are not called again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol

from ottla.errors import (
    BrokerUnavailable,
    ConfigError,
    DeliveryError,
    FencedError,
    InputError,
    LifecycleError,
    OttlaError,
    RetriableError,
)
from ottla.once.transaction_parts import TransactionPart
from ottla.records import TopicPartition
from ottla.stepping import Steps

MOST_OUTPUTS: Final = 10_000
"""Outputs per transaction, unless a single run sends more."""

_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 5.0


class RefusedOutput(Exception):
    """An output that can never be written."""

    def __init__(self, work: TransactionPart, at: int, error: Exception) -> None:
        super().__init__(str(error))
        self.work, self.at, self.error = work, at, error


class OutcomeUnknown(BrokerUnavailable, has_page=False):
    """The response to a commit was lost and cannot be requested again. The next start reads the outcome from the
    coordinator."""


class Transactional(Protocol):
    """A shell's transactional producer. Every call may be awaitable."""

    has_name: bool
    """Its transactional.id may also be used by another process."""

    def begin(self) -> Any: ...

    def send_all(self, groups: Sequence[Sequence[Any]]) -> Any:
        """Send all outputs, grouped by run."""

    def send(self, output: Any) -> Any:
        """Send one output. Returns its delivery, and waits for nothing."""

    def offsets(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> Any:
        """Commit these offsets with the transaction. Raises `RetriableError` if another member owns a partition."""

    def commit(self) -> Any:
        """Commit the transaction, or repeat the request after a lost response."""

    def abort(self) -> Any:
        """Abort the open transaction. Never raises."""

    def renew(self) -> Any:
        """Replace the client by a new one."""

    def pause(self, seconds: float) -> Any:
        """Wait before a retry. Returns False when the member stops, so that nothing more is tried."""


class Committing:
    """Commits the transactions of one member. `holds`: has the member owned a partition since an epoch?"""

    def __init__(
        self,
        *,
        holds: Callable[[TopicPartition, int], bool],
        tell: Callable[[str, str, Mapping[str, object]], None],
    ) -> None:
        self._holds = holds
        self._event = tell
        self._passed: dict[TopicPartition, tuple[int, int]] = {}
        self.unanswered: list[TransactionPart] = []
        """Parts without a result, after an error that ends the member."""

    def settle_all(
        self, works: Sequence[TransactionPart], *, results: Transactional, failed_writes: Transactional
    ) -> Steps[None]:
        """Commit all parts in as few transactions as possible. Dead letters alone use their own client."""
        groups = deque(transactions_of(works))
        while groups:
            group = groups.popleft()
            try:
                yield from self.settle(group, failed_writes if group[0].is_alone else results)
            except BaseException:
                self.unanswered += chain.from_iterable(groups)
                raise

    def settle(self, works: Sequence[TransactionPart], client: Transactional) -> Steps[None]:
        """Commit the parts. Raises errors that end the member; otherwise every part gets its result."""
        self.unanswered = list(works)
        is_careful, wait_s = False, _FIRST_WAIT_S
        while left := self._wanted(self.unanswered):
            self.unanswered = left
            try:
                yield from self._transaction(left, client, is_careful=is_careful)
            except RefusedOutput as refusal:
                rest = refusal.work.refused(refusal.at, refusal.error)
                others = [work for work in left if work is not refusal.work]
                self.unanswered = others if rest is None else [rest, *others]
                continue
            except OutcomeUnknown:
                raise
            except FencedError as error:
                if client.has_name:
                    raise
                # The transactional.id is unique: the coordinator has aborted a transaction that took too long.
                problem: Exception = error
                yield client.renew
            except LifecycleError as error:
                problem = error
                yield client.renew
            except (RetriableError, DeliveryError) as error:
                is_careful = is_careful or isinstance(error, DeliveryError)
                problem = error
            except OttlaError:
                if is_careful:
                    raise
                is_careful = True
                continue
            else:
                for work in left:
                    self._passed[work.name] = (work.epoch, work.next_offset)
                    work.committed()
                self.unanswered = []
                return
            self._event("transaction_failed", "warning", {"error": f"{type(problem).__name__}: {problem}"})
            if not (yield partial(client.pause, wait_s)):
                return
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _transaction(self, works: Sequence[TransactionPart], client: Transactional, *, is_careful: bool) -> Steps[None]:
        sent: list[tuple[TransactionPart, int, Any]] = []
        try:
            yield client.begin
            if is_careful:
                self._send_watched(works, client, sent)
            else:
                yield partial(client.send_all, [work.outputs for work in works])
            positions: dict[TopicPartition, int] = {}
            for work in works:
                positions[work.name] = max(work.next_offset, positions.get(work.name, 0))
            yield partial(client.offsets, positions, {work.name: work.epoch for work in works})
            yield from self._commit(client)
        except Exception as error:
            yield client.abort
            if isinstance(error, DeliveryError):
                for work, at, delivery in sent:
                    reason = delivery.exception() if delivery.done() else None
                    if isinstance(reason, ConfigError):
                        raise reason from error
                    if isinstance(reason, InputError):
                        raise RefusedOutput(work, at, reason) from error
            raise

    def _send_watched(
        self, works: Sequence[TransactionPart], client: Transactional, sent: list[tuple[TransactionPart, int, Any]]
    ) -> None:
        for work in works:
            for at, output in enumerate(work.outputs):
                try:
                    delivery = client.send(output)
                except (RetriableError, FencedError, LifecycleError, ConfigError):
                    raise
                except Exception as error:
                    raise RefusedOutput(work, at, error) from error
                sent.append((work, at, delivery))

    def _commit(self, client: Transactional) -> Steps[None]:
        wait_s, is_open = _FIRST_WAIT_S, False
        while True:
            try:
                yield client.commit
                return
            except BrokerUnavailable as error:
                is_open = True
                self._event("transaction_outcome_open", "warning", {"error": str(error)})
                if not (yield partial(client.pause, wait_s)):
                    raise
            except OttlaError as error:
                if not is_open:
                    raise
                text = f"a transaction may be committed or not, and its producer ended: {error}"
                raise OutcomeUnknown(text) from error
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _wanted(self, works: Iterable[TransactionPart]) -> list[TransactionPart]:
        """Return the parts whose partitions the member still owns and whose offsets are not committed yet."""
        wanted: list[TransactionPart] = []
        for work in works:
            epoch, offset = self._passed.get(work.name, (-1, -1))
            if not self._holds(work.name, work.epoch):
                self._passed.pop(work.name, None)
                work.abandon()
            elif not work.outputs and epoch == work.epoch and work.next_offset <= offset:
                work.committed()  # a later offset is
            else:
                wanted.append(work)
        return wanted


def transactions_of(works: Sequence[TransactionPart]) -> Iterator[list[TransactionPart]]:
    """Group parts into transactions, in their order."""
    group: list[TransactionPart] = []
    outputs = 0
    for work in works:
        if group and (work.is_alone or group[-1].is_alone or outputs + work.size > MOST_OUTPUTS):
            yield group
            group, outputs = [], 0
        group.append(work)
        outputs += work.size
    if group:
        yield group
