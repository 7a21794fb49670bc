"""A transactional id from its first producer to its last: answers, records, markers, timeouts, the next coordinator."""

from __future__ import annotations

from dataclasses import replace

import pytest
from transaction_driver import ID, P0, P1, TransactionDriver, answer_of

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.transaction import records
from broker_embedded.coordinator.transaction.markers import MarkerOutcome
from broker_embedded.coordinator.transaction.states import VALID_PREVIOUS, TransactionState
from broker_embedded.coordinator.transaction.transaction import LAST_EPOCH, ProducerIdentity, Transaction
from ottla_wire.protocol import ErrorCode

NONE, FENCED, CONCURRENT = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.fixture
def driver() -> TransactionDriver:
    return TransactionDriver().load()


def at_epoch(epoch: int, **changes: object) -> TransactionDriver:
    """A coordinator that knows a producer of this epoch, with nothing open."""
    known = Transaction(
        transactional_id=ID, producer_id=7, producer_epoch=epoch, timeout_ms=60_000, updated_ms=0, **changes
    )
    return TransactionDriver([records.encode(known)]).load()


# -- InitProducerId


def test_the_first_producer_gets_a_new_id_at_epoch_0(driver: TransactionDriver):
    assert driver.start() == ProducerIdentity(1000, 0)
    assert driver.state is TransactionState.EMPTY


def test_every_further_producer_gets_the_same_id_and_a_higher_epoch(driver: TransactionDriver):
    first = driver.start()
    assert [driver.start() for _ in range(2)] == [ProducerIdentity(first.producer_id, 1), (first.producer_id, 2)]


def test_a_producer_that_was_replaced_is_fenced_from_everything(driver: TransactionDriver):
    zombie = driver.start()
    driver.start()
    assert driver.add(zombie, P0) is FENCED
    assert driver.verify(zombie, P0) == [FENCED]
    assert driver.end(zombie, commit=True).error is FENCED
    assert driver.end(zombie, commit=False, version=2).error is FENCED
    assert driver.init(claimed=zombie).error is FENCED


def test_a_producer_that_starts_aborts_what_the_one_before_left_open(driver: TransactionDriver):
    zombie = driver.start()
    assert driver.add(zombie, P0) is NONE
    driver.holds_markers = True
    assert driver.init().error is CONCURRENT
    assert driver.state is TransactionState.PREPARE_ABORT
    assert driver.init().error is CONCURRENT, "the abort is under way"
    driver.release_markers()
    assert driver.state is TransactionState.COMPLETE_ABORT
    assert driver.start().epoch == zombie.epoch + 2, "one for the abort, one for the producer"
    (ending,) = driver.endings
    assert (ending.committed, ending.producer.epoch) == (False, zombie.epoch + 1)


def test_a_producer_may_raise_its_own_epoch_and_ask_twice(driver: TransactionDriver):
    first = driver.start()
    raised = driver.start(claimed=first)
    assert raised == ProducerIdentity(first.producer_id, first.epoch + 1)
    assert driver.start(claimed=first) == raised, "its request came twice: the answer is the same"
    assert driver.start(claimed=raised).epoch == raised.epoch + 1


def test_a_producer_that_recovers_in_an_open_transaction_goes_on_when_it_is_aborted(driver: TransactionDriver):
    producer = driver.start()
    driver.add(producer, P0)
    assert driver.init(claimed=producer).error is CONCURRENT
    recovered = driver.start(claimed=producer)
    assert recovered.epoch == producer.epoch + 1
    assert driver.add(recovered, P0) is NONE


def test_a_stranger_cannot_recover(driver: TransactionDriver):
    known = driver.start()
    assert driver.init(claimed=ProducerIdentity(known.producer_id + 1, 0)).error is FENCED


def test_a_stranger_cannot_abort_an_open_transaction_by_recovering(driver: TransactionDriver):
    zombie = driver.start()
    producer = driver.start()
    driver.add(producer, P0)
    assert driver.init(claimed=zombie).error is FENCED
    assert driver.state is TransactionState.ONGOING


def test_epochs_that_run_out_are_followed_by_a_new_id():
    driver = at_epoch(LAST_EPOCH)
    assert driver.start() == ProducerIdentity(1000, 0)
    assert driver.known.previous_producer_id == 7


def test_a_producer_whose_epochs_ran_out_may_ask_twice():
    driver = at_epoch(LAST_EPOCH)
    claimed = ProducerIdentity(7, LAST_EPOCH)
    assert driver.start(claimed=claimed) == ProducerIdentity(1000, 0)
    assert driver.start(claimed=claimed) == ProducerIdentity(1000, 0)


def test_a_zombie_of_the_id_whose_epochs_ran_out_is_fenced():
    driver = at_epoch(LAST_EPOCH)
    driver.start()  # somebody else
    assert driver.init(claimed=ProducerIdentity(7, LAST_EPOCH)).error is FENCED


def test_without_a_producer_id_the_client_is_told_to_come_again(driver: TransactionDriver):
    driver.holds_ids = True
    reply = driver.init_later()
    driver.release_ids(BrokerError(ErrorCode.NOT_CONTROLLER))
    assert answer_of(reply).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.shard.get(ID) is None


def test_two_producers_that_wait_for_an_id_do_not_both_win(driver: TransactionDriver):
    driver.holds_ids = True
    replies = [driver.init_later(), driver.init_later()]
    driver.release_ids()
    identities = [answer_of(reply).identity for reply in replies]
    assert len(set(identities)) == 2
    assert driver.add(identities[0], P0) is FENCED
    assert driver.add(identities[1], P0) is NONE


# -- a transaction


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_at_every_partition_it_touched(driver: TransactionDriver, commit: bool):
    producer = driver.start()
    assert driver.add(producer, P0) is NONE
    assert driver.add(producer, P1) is NONE
    assert driver.end(producer, commit=commit).error is NONE
    (ending,) = driver.endings
    assert (ending.partitions, ending.committed, ending.producer) == ({P0, P1}, commit, producer)
    assert ending.coordinator_epoch == driver.epoch
    assert driver.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert driver.known.partitions == frozenset()


def test_adding_a_partition_again_writes_nothing(driver: TransactionDriver):
    producer = driver.start()
    driver.add(producer, P0)
    written = len(driver.log)
    assert driver.add(producer, P0) is NONE
    assert len(driver.log) == written


def test_only_partitions_of_the_open_transaction_are_confirmed(driver: TransactionDriver):
    producer = driver.start()
    assert driver.verify(producer, P0) == [ErrorCode.TRANSACTION_ABORTABLE]
    driver.add(producer, P0)
    assert driver.verify(producer, P0, P1) == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
    driver.holds_markers = True
    driver.end(producer, commit=True)
    assert driver.verify(producer, P0) == [CONCURRENT]
    driver.release_markers()
    assert driver.verify(producer, P0) == [ErrorCode.TRANSACTION_ABORTABLE]


def test_an_unknown_producer_is_told_so(driver: TransactionDriver):
    stranger = ProducerIdentity(99, 0)
    assert driver.add(stranger, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert driver.verify(stranger, P0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert driver.end(stranger, commit=True).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    driver.start()
    assert driver.end(stranger, commit=True, version=2).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_next_transaction_waits_until_the_last_one_is_everywhere(driver: TransactionDriver):
    producer = driver.start()
    driver.add(producer, P0)
    driver.holds_markers = True
    assert driver.end(producer, commit=True).error is NONE, "decided is decided: the client need not wait"
    assert driver.add(producer, P0) is CONCURRENT
    assert driver.end(producer, commit=True).error is CONCURRENT
    assert driver.end(producer, commit=False).error is ErrorCode.INVALID_TXN_STATE
    driver.release_markers()
    assert driver.add(producer, P0) is NONE


def test_a_repeated_end_is_answered_as_the_first(driver: TransactionDriver):
    producer = driver.start()
    driver.add(producer, P0)
    driver.end(producer, commit=True)
    assert driver.end(producer, commit=True).error is NONE
    assert driver.end(producer, commit=False).error is ErrorCode.INVALID_TXN_STATE
    assert len(driver.endings) == 1


def test_there_is_nothing_to_end_before_the_first_partition(driver: TransactionDriver):
    assert driver.end(driver.start(), commit=True).error is ErrorCode.INVALID_TXN_STATE


def test_nobody_gets_in_while_a_step_is_being_written(driver: TransactionDriver):
    producer = driver.start()
    driver.holds_appends = True
    first = driver.add_later(producer, P0)
    assert driver.add(producer, P1) is CONCURRENT
    assert driver.end(producer, commit=True).error is CONCURRENT
    assert driver.init().error is CONCURRENT
    assert driver.verify(producer, P0) == [ErrorCode.TRANSACTION_ABORTABLE], "not yet true"
    driver.release_appends()
    assert answer_of(first).error is NONE
    assert driver.verify(producer, P0) == [NONE]


@pytest.mark.parametrize(
    ("append_error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_could_not_be_written_did_not_happen(driver: TransactionDriver, append_error: ErrorCode, told: ErrorCode):
    producer = driver.start()
    driver.add(producer, P0)
    before = driver.known
    driver.fail_with = append_error
    assert driver.add(producer, P1) is told
    assert driver.end(producer, commit=True).error is told
    assert driver.init().error is told
    assert driver.known is before
    assert driver.endings == []
    driver.fail_with = NONE
    assert driver.end(producer, commit=True).error is NONE


# -- transaction.version 2


def test_every_end_raises_the_epoch(driver: TransactionDriver):
    producer = driver.start()
    for commit in (True, False, True):
        driver.add(producer, P0, version=2)
        after = driver.end(producer, commit=commit, version=2)
        assert after.identity == ProducerIdentity(producer.producer_id, producer.epoch + 1)
        assert driver.endings[-1].producer == after.identity, "the marker is above the batches it ends"
        assert driver.add(producer, P0, version=2) is FENCED, "a late request of the transaction before"
        producer = after.identity


def test_a_repeated_end_names_the_same_epoch(driver: TransactionDriver):
    producer = driver.start()
    driver.add(producer, P0, version=2)
    driver.holds_markers = True
    first = driver.end(producer, commit=True, version=2)
    assert driver.end(producer, commit=True, version=2).error is CONCURRENT
    assert driver.end(producer, commit=False, version=2).error is ErrorCode.INVALID_TXN_STATE
    driver.release_markers()
    assert driver.end(producer, commit=True, version=2) == first
    assert driver.end(producer, commit=False, version=2).error is ErrorCode.INVALID_TXN_STATE


def test_an_abort_needs_no_partition(driver: TransactionDriver):
    producer = driver.start()
    after = driver.end(producer, commit=False, version=2)
    assert (after.error, after.identity.epoch) == (NONE, producer.epoch + 1)
    assert driver.state is TransactionState.COMPLETE_ABORT
    assert driver.end(after.identity, commit=False, version=2).identity.epoch == producer.epoch + 2
    assert driver.endings == []


def test_a_commit_without_a_transaction_is_refused(driver: TransactionDriver):
    assert driver.end(driver.start(), commit=True, version=2).error is ErrorCode.INVALID_TXN_STATE


def test_an_end_at_the_last_epoch_goes_on_under_a_new_id():
    driver = at_epoch(LAST_EPOCH)
    producer = ProducerIdentity(7, LAST_EPOCH)
    driver.add(producer, P0, version=2)
    after = driver.end(producer, commit=True, version=2)
    assert after.identity == ProducerIdentity(1000, 0)
    assert driver.endings[0].producer == ProducerIdentity(7, LAST_EPOCH + 1), "the marker ends what the old id began"
    assert driver.end(producer, commit=True, version=2) == after
    assert driver.add(after.identity, P0, version=2) is NONE


# -- time


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(driver: TransactionDriver):
    producer = driver.start(timeout_ms=30_000)
    driver.add(producer, P0)
    driver.pass_ms(29_000)
    driver.add(producer, P1)
    assert driver.state is TransactionState.ONGOING
    driver.pass_ms(20_000)
    assert driver.state is TransactionState.COMPLETE_ABORT
    (ending,) = driver.endings
    assert (ending.committed, ending.producer.epoch) == (False, producer.epoch + 1)
    assert driver.end(producer, commit=True).error is FENCED


def test_a_timed_out_transaction_is_aborted_later_if_it_cannot_be_written_now(driver: TransactionDriver):
    producer = driver.start(timeout_ms=30_000)
    driver.add(producer, P0)
    driver.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    driver.pass_ms(60_000)
    assert driver.state is TransactionState.ONGOING
    driver.fail_with = NONE
    driver.pass_ms(10_000)
    assert driver.state is TransactionState.COMPLETE_ABORT


def test_only_open_transactions_time_out(driver: TransactionDriver):
    driver.start(timeout_ms=1_000)
    driver.pass_ms(3_600_000)
    assert driver.state is TransactionState.EMPTY
    assert len(driver.log) == 1


def test_an_idle_transactional_id_is_forgotten():
    driver = TransactionDriver(transactional_id_expiration_ms=100_000).load()
    producer = driver.start()
    driver.add(producer, P0)
    driver.end(producer, commit=True)
    driver.pass_ms(3_600_000)
    assert driver.shard.get(ID) is None
    assert driver.history()[-1] is None, "compaction may forget it too"
    assert driver.restart().shard.get(ID) is None
    assert driver.add(producer, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_open_transaction_keeps_its_id():
    driver = TransactionDriver(transactional_id_expiration_ms=1_000, transaction_max_timeout_ms=2**31 - 1).load()
    driver.add(driver.start(timeout_ms=2**31 - 1), P0)
    driver.pass_ms(3_600_000)
    assert driver.state is TransactionState.ONGOING


# -- another coordinator


@pytest.mark.parametrize("commit", [True, False])
def test_a_decided_transaction_is_finished_by_the_next_coordinator(driver: TransactionDriver, commit: bool):
    producer = driver.start()
    driver.add(producer, P0, P1)
    driver.holds_markers = True
    driver.end(producer, commit=commit)
    following = driver.restart()
    (ending,) = following.endings
    assert (ending.partitions, ending.committed, ending.producer) == ({P0, P1}, commit, producer)
    assert ending.coordinator_epoch == driver.epoch + 1, "leaders refuse the coordinator before"
    assert following.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    assert following.end(producer, commit=commit).error is NONE


def test_a_decision_that_may_still_get_lost_tells_nobody(driver: TransactionDriver):
    producer = driver.start()
    driver.add(producer, P0)
    driver.holds_markers = True
    driver.end(producer, commit=True)
    following = driver.restart(is_replicated=False)
    assert following.endings == []
    assert following.add(producer, P0) is CONCURRENT
    following.replicate()
    assert len(following.endings) == 1
    assert following.state is TransactionState.COMPLETE_COMMIT


def test_an_open_transaction_goes_on_at_the_next_coordinator(driver: TransactionDriver):
    producer = driver.start()
    driver.add(producer, P0)
    following = driver.restart()
    assert following.endings == []
    assert following.add(producer, P1) is NONE
    assert following.end(producer, commit=True).error is NONE
    assert following.endings[0].partitions == {P0, P1}


def test_an_open_transaction_times_out_at_the_next_coordinator(driver: TransactionDriver):
    driver.add(driver.start(timeout_ms=30_000), P0)
    driver.pass_ms(20_000)
    following = driver.restart()
    following.pass_ms(20_000)
    assert following.state is TransactionState.COMPLETE_ABORT


def test_a_coordinator_that_was_replaced_stops(driver: TransactionDriver):
    producer = driver.start()
    driver.add(producer, P0)
    driver.holds_markers = True
    driver.end(producer, commit=True)
    driver.release_markers(MarkerOutcome.FENCED)
    assert driver.state is TransactionState.PREPARE_COMMIT, "the newer coordinator completes it"


def test_that_a_transaction_is_complete_is_written_as_soon_as_it_can_be(driver: TransactionDriver):
    producer = driver.start()
    driver.add(producer, P0)
    driver.holds_markers = True
    driver.end(producer, commit=True)
    driver.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    driver.release_markers()
    assert driver.add(producer, P0) is CONCURRENT
    driver.pass_ms(1_000)
    driver.fail_with = NONE
    driver.pass_ms(1_000)
    assert driver.state is TransactionState.COMPLETE_COMMIT
    assert len(driver.endings) == 1, "nobody is told twice"


# -- records


@pytest.mark.parametrize("state", list(TransactionState))
def test_a_record_brings_back_what_was_written(state: TransactionState):
    partitions = frozenset({P0, P1}) if state is not TransactionState.EMPTY else frozenset()
    known = Transaction(
        transactional_id="ü",
        producer_id=2**40,
        previous_producer_id=5,
        next_producer_id=6,
        producer_epoch=LAST_EPOCH,
        timeout_ms=1,
        state=state,
        partitions=partitions,
        updated_ms=2,
        start_ms=3,
        client_version=2,
    )
    assert records.decode(records.encode(known)) == ("ü", known)


def test_a_tombstone_forgets():
    assert records.decode(records.tombstone("x")) == ("x", None)


def test_a_step_that_the_table_does_not_have_is_a_bug():
    known = Transaction(transactional_id=ID, producer_id=1, timeout_ms=1, updated_ms=0)
    for state, previous in VALID_PREVIOUS.items():
        for before in TransactionState:
            start = replace(known, state=before)
            if before in previous:
                assert start.move_to(state, now_ms=1).state is state
            else:
                with pytest.raises(AssertionError, match=f"{before.label} cannot become {state.label}"):
                    start.move_to(state, now_ms=1)
