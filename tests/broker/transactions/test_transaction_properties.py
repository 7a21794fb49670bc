"""Any sequence of requests, failures, timeouts and failovers: the coordinator answers as a simple model expects.

The model knows who is the last producer that was let in, what it has open, and what was decided and not yet told to
everybody. It knows nothing of states and epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from transaction_driver import ID, P0, P1, P2, TransactionDriver

from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.transaction import records
from broker_embedded.coordinator.transaction.states import PREPARED, VALID_PREVIOUS, TransactionState
from broker_embedded.coordinator.transaction.transaction import LAST_EPOCH, ProducerIdentity, Transaction
from ottla_wire.protocol import ErrorCode

NONE, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
REFUSALS = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
"""What a producer is told that was replaced."""
TIMEOUT_MS = 60_000

partitions = st.sets(st.sampled_from([P0, P1, P2]), min_size=1).map(tuple)


@dataclass
class Producer:
    """A running client. `version` is the transaction.version it speaks."""

    identity: ProducerIdentity
    version: int


class TransactionsAgainstAModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = TransactionDriver().load()
        self.driver.holds_markers = True
        self.producers: list[Producer] = []
        self.given: set[ProducerIdentity] = set()
        self.current: Producer | None = None
        """Who may write. None: fenced by the coordinator itself."""
        self.recovering: Producer | None = None
        """Asked for a new epoch while its transaction was open, and was told to come again."""
        self.open: set[TopicPartition] = set()
        self.decided: bool | None = None
        """Committed or aborted, while leaders are being told."""
        self.last_end: bool | None = None
        """How the current producer's last transaction ended."""
        self.told: list[tuple[frozenset[TopicPartition], bool]] = []
        """What the leaders have to hear, in order."""

    @initialize(epoch=st.none() | st.integers(LAST_EPOCH - 3, LAST_EPOCH))
    def begin(self, epoch: int | None) -> None:
        if epoch is not None:
            known = Transaction(
                transactional_id=ID,
                producer_id=7,
                producer_epoch=epoch,
                timeout_ms=TIMEOUT_MS,
                updated_ms=TransactionDriver.WALL_START_MS,  # of 1970 it would expire, at the first look after an hour
            )
            self.driver = TransactionDriver([records.encode(known)]).load()
            self.driver.holds_markers = True

    # -- producers start and recover

    @rule(version=st.sampled_from([0, 2]))
    def a_producer_starts(self, version: int) -> None:
        answer = self.driver.init()
        if self.decided is not None:
            assert answer.error is CONCURRENT
            return
        if self.open:
            assert answer.error is CONCURRENT
            self._aborted_by_the_coordinator()
            return
        assert answer.error is NONE
        producer = Producer(answer.identity, version)
        self.producers.append(producer)
        self._let_in(producer)

    @precondition(lambda self: self.producers)
    @rule(data=st.data())
    def a_producer_recovers(self, data: st.DataObject) -> None:
        producer = data.draw(st.sampled_from(self.producers))
        answer = self.driver.init(claimed=producer.identity)
        if producer is not self.current and producer is not self.recovering:
            assert answer.error in REFUSALS | ({CONCURRENT} if self.decided is not None else set())
        elif self.decided is not None:
            assert answer.error is CONCURRENT
        elif self.open:
            assert answer.error is CONCURRENT
            self._aborted_by_the_coordinator()
            self.recovering = producer
        else:
            assert answer.error is NONE
            producer.identity = answer.identity
            self._let_in(producer)

    def _let_in(self, producer: Producer) -> None:
        assert producer.identity not in self.given, "two producers must never be taken for one"
        assert producer.identity.epoch <= LAST_EPOCH
        self.given.add(producer.identity)
        self.current, self.recovering, self.last_end = producer, None, None

    def _aborted_by_the_coordinator(self) -> None:
        self._decide(commit=False)
        self.current = None

    def _decide(self, *, commit: bool) -> None:
        if self.open:
            self.told.append((frozenset(self.open), commit))
            self.decided = commit
        self.open = set()
        self.last_end = commit

    # -- transactions

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), wanted=partitions)
    def partitions_are_added(self, data: st.DataObject, wanted: tuple[TopicPartition, ...]) -> None:
        producer = data.draw(st.sampled_from(self.producers))
        error = self.driver.add(producer.identity, *wanted, version=producer.version)
        if producer is not self.current:
            assert error in REFUSALS
        elif self.decided is not None:
            assert error is CONCURRENT
        else:
            assert error is NONE
            self.open |= set(wanted)

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), commit=st.booleans())
    def a_producer_ends(self, data: st.DataObject, commit: bool) -> None:
        producer = data.draw(st.sampled_from(self.producers))
        answer = self.driver.end(producer.identity, commit=commit, version=producer.version)
        if producer is not self.current:
            assert answer.error in REFUSALS
        elif self.decided is not None:
            same = commit is self.last_end
            # With an epoch per transaction this is the next one, which cannot end before it began.
            wanted = CONCURRENT if same or producer.version == 2 else ErrorCode.INVALID_TXN_STATE
            assert answer.error is wanted
        elif self.open:
            assert answer.error is NONE
            self._decide(commit=commit)
            self._goes_on_as(producer, answer.identity)
        elif producer.version == 2:
            assert answer.error is (ErrorCode.INVALID_TXN_STATE if commit else NONE)
            if not commit:
                self.last_end = False
                self._goes_on_as(producer, answer.identity)
        else:
            assert answer.error is (NONE if commit is self.last_end else ErrorCode.INVALID_TXN_STATE)

    def _goes_on_as(self, producer: Producer, identity: ProducerIdentity) -> None:
        if producer.version == 2:
            assert identity not in self.given
            self.given.add(identity)
            before, producer.identity = producer.identity, identity
            # A late copy of the same request, before anything else happens.
            again = self.driver.end(before, commit=bool(self.last_end), version=2)
            if self.decided is not None:
                assert again.error is CONCURRENT
            else:
                assert (again.error, again.identity) == (NONE, identity)

    @rule(data=st.data(), wanted=partitions)
    def a_leader_asks(self, data: st.DataObject, wanted: tuple[TopicPartition, ...]) -> None:
        if not self.producers:
            return
        producer = data.draw(st.sampled_from(self.producers))
        for partition, error in zip(wanted, self.driver.verify(producer.identity, *wanted), strict=True):
            may_append = producer is self.current and partition in self.open
            assert (error is NONE) is may_append

    # -- the world

    @rule()
    def leaders_have_their_markers(self) -> None:
        self.driver.release_markers()
        self.decided = None

    @rule()
    def time_passes(self) -> None:
        self.driver.pass_ms(TIMEOUT_MS + 20_000)
        if self.open:
            self._aborted_by_the_coordinator()

    @rule()
    def another_coordinator_takes_over(self) -> None:
        self.driver = self.driver.restart(holds_markers=True)
        if self.decided is not None:
            assert len(self.driver.held_markers) == 1, "what was decided is carried out"
            self.told.append(self.told[-1])
        # That somebody was told to come again under its old epoch is not written down.
        self.recovering = None

    @precondition(lambda self: self.producers and self.decided is None)
    @rule(data=st.data(), commit=st.booleans())
    def nothing_can_be_written(self, data: st.DataObject, commit: bool) -> None:
        producer = data.draw(st.sampled_from(self.producers))
        before, records_before = self.driver.shard.get(ID), len(self.driver.log)
        self.driver.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
        self.driver.init()
        self.driver.add(producer.identity, P0)
        self.driver.end(producer.identity, commit=commit, version=producer.version)
        self.driver.fail_with = NONE
        assert self.driver.shard.get(ID) is before
        assert len(self.driver.log) == records_before

    # -- what always holds

    @invariant()
    def leaders_hear_what_producers_were_told(self) -> None:
        told = [(ending.partitions, ending.committed) for ending in self.driver.endings]
        assert told == self.told[len(self.told) - len(told) :]

    @invariant()
    def memory_is_what_the_log_says(self) -> None:
        known = self.driver.shard.get(ID)
        history = self.driver.history()
        if known is None:
            assert not history or history[-1] is None, "expired, or never there"
        else:
            # By which old epoch a producer may ask once more is kept in memory only.
            assert replace(known, last_producer_epoch=-1) == history[-1]

    @invariant()
    def the_log_only_takes_steps_of_the_table(self) -> None:
        history = [each for each in self.driver.history() if each is not None]
        for before, after in pairwise(history):
            is_fence = before.state is TransactionState.ONGOING and after.state is TransactionState.PREPARE_ABORT
            assert before.state in VALID_PREVIOUS[after.state] or is_fence
            if before.producer_id == after.producer_id:
                assert after.producer_epoch >= before.producer_epoch

    @invariant()
    def only_open_and_decided_transactions_have_partitions(self) -> None:
        known = self.driver.shard.get(ID)
        if known is not None:
            has_partitions = known.state is TransactionState.ONGOING or known.state in PREPARED
            assert not known.partitions or has_partitions


TestTransactionsAgainstAModel = TransactionsAgainstAModel.TestCase
