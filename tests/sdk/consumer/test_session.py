"""The session, event by event: what it wants done when records come, fail, and change owners."""

from __future__ import annotations

import pytest
from session_driver import BOOM, DEAD, RETRY, A, B, Driver, assigned, of, offsets_of

from ottla.consumer.commit.commits import CommitPolicy
from ottla.consumer.commit.offset_metadata import decode_finished, encode_finished
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Commit,
    Notice,
    PausePartitions,
    ResumePartitions,
    SeekPartition,
)
from ottla.consumer.model.failed_writes import WriteDeadLetter
from ottla.consumer.model.run import RunResult
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import RoutePlan, plans_by_topic
from ottla.consumer.session import _HANDLERS
from ottla.errors import ConfigError, RegistryUnavailable
from ottla.failures import DeadLetterBudget, ExceptionTable, Failure, FailurePolicy, Retry, RetryPolicy


def test_every_event_has_a_handler() -> None:
    assert set(_HANDLERS) == set(events.Event.__args__)  # type: ignore[attr-defined]


def test_fetched_records_are_dispatched_in_order() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6, 7)

    assert offsets_of(driver.runs[0]) == [5, 6, 7]
    assert driver.runs[0].attempt == 1


def test_a_worker_that_let_go_of_its_run_is_free_and_the_partition_is_not() -> None:
    driver = assigned(A, B, commits=CommitPolicy(every_records=1, every_s=60))
    driver.fetch(A, 0, 1)
    run = driver.runs[0]
    driver.fetch(A, 2)
    driver.fetch(B, 0)
    assert driver.runs == [run], "one worker"
    run.reached = 2
    driver.step(events.RunHandled(run))

    assert [other.topic_partition for other in driver.runs[1:]] == [B]
    driver.finish(driver.runs[1])
    assert of(Commit, driver.effects) == [Commit({B: (1, "")})], "what is not acknowledged is not committed"
    assert not driver.session.is_quiet([A])
    driver.step(events.CommitSucceeded({B: 1}))

    assert of(Commit, driver.finish(run)) == [Commit({A: (2, "")})]
    assert offsets_of(driver.runs[-1]) == [2]


def test_the_wait_for_acknowledgements_does_not_make_turns_shorter() -> None:
    driver = assigned(max_records_per_turn=100)
    for turn in range(10):
        driver.fetch(A, *range(100 * turn, 100 * turn + 100))
        (run,) = driver.runs
        assert len(run.records) == 100
        run.reached = 100
        driver.step(events.RunHandled(run), after_ms=1)
        driver.now_ms += 1_000
        driver.finish(run)


def test_at_a_revocation_that_cannot_wait_a_run_without_acknowledgements_is_not_committed() -> None:
    driver = assigned()
    driver.fetch(A, 0, 1)
    (run,) = driver.runs
    run.reached = 2
    driver.step(events.RunHandled(run))
    driver.step(events.Revoking([A]))
    assert not driver.session.is_quiet([A])
    driver.step(events.Revoked([A]))

    assert of(Commit, driver.effects) == []
    driver.step(events.Assigned([A]))
    assert driver.finish(run) == [], "a late result"


def test_the_prefix_is_committed_when_time_is_up() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6, 7)
    driver.finish()

    assert of(Commit, driver.effects) == []
    assert of(Commit, driver.step(events.Tick(), after_ms=5_000)) == [Commit({A: (8, "")})]


def test_the_prefix_is_committed_when_enough_records_are_done() -> None:
    driver = assigned(commits=CommitPolicy(every_records=3, every_s=60))
    driver.fetch(A, 5, 6, 7)

    assert of(Commit, driver.finish()) == [Commit({A: (8, "")})]


def test_nothing_is_committed_before_something_is_done() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6, 7)

    assert of(Commit, driver.step(events.Tick(), after_ms=60_000)) == []


def test_a_long_run_is_committed_as_far_as_it_has_come() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6, 7)
    driver.runs[0].done = 2

    assert of(Commit, driver.step(events.Tick(), after_ms=5_000)) == [Commit({A: (7, "")})]


def test_a_commit_that_failed_is_sent_again_with_every_position() -> None:
    driver = assigned(A, B)
    driver.fetch(A, 5)
    driver.finish()
    driver.fetch(B, 9)
    driver.finish()
    driver.step(events.Tick(), after_ms=5_000)
    driver.step(events.CommitFailed("not coordinator", is_fenced=False))

    assert of(Commit, driver.step(events.Tick(), after_ms=500)) == [Commit({A: (6, ""), B: (10, "")})]


def test_an_unchanged_position_is_not_committed_again() -> None:
    driver = assigned()
    driver.fetch(A, 5)
    driver.finish()
    driver.step(events.Tick(), after_ms=5_000)
    driver.step(events.CommitSucceeded({A: 6}))

    assert of(Commit, driver.step(events.Tick(), after_ms=60_000)) == []


def test_a_failed_record_holds_its_partition_and_comes_again_alone() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6, 7)
    driver.fail(1, RETRY)
    assert driver.runs == []

    driver.step(events.Tick(), after_ms=999)
    assert driver.runs == []
    driver.step(events.Tick(), after_ms=1)
    assert offsets_of(driver.runs[0]) == [6]
    assert driver.runs[0].attempt == 2
    driver.finish()
    assert offsets_of(driver.runs[0]) == [7]


def test_other_partitions_go_on_while_one_waits() -> None:
    driver = assigned(A, B)
    driver.fetch(A, 5)
    driver.fail(0, RETRY)
    driver.fetch(B, 9)

    assert offsets_of(driver.runs[0]) == [9]


def test_a_record_that_keeps_failing_becomes_a_dead_letter_with_its_story() -> None:
    driver = assigned()
    driver.fetch(A, 5)
    driver.fail(0, BOOM)
    driver.step(events.Tick(), after_ms=1_000)
    driver.fail(0, BOOM)
    driver.step(events.Tick(), after_ms=2_000)
    letter = of(WriteDeadLetter, driver.fail(0, BOOM))[0]

    assert letter.dead_letter_topic == "dead"
    assert letter.record.raw_value == b"v"
    assert (letter.reason.kind, letter.reason.error_type, letter.reason.attempts) == ("failed", "RuntimeError", 3)
    assert letter.reason.group == "g"
    assert letter.reason.first_failure_ms == 1_700_000_000_000
    assert letter.reason.dead_lettered_ms == 1_700_000_003_000


def test_a_dead_letter_is_done_only_when_it_is_acknowledged() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6)
    letter = of(WriteDeadLetter, driver.fail(0, DEAD))[0]
    driver.finish()
    assert driver.session.position(A) == 5
    assert of(Commit, driver.step(events.Tick(), after_ms=5_000))[0].offsets[A][0] == 5
    driver.step(events.CommitSucceeded({A: 5}))

    driver.step(events.WriteAcknowledged(A, letter.epoch, 5))
    assert of(Commit, driver.step(events.Tick(), after_ms=5_000)) == [Commit({A: (7, "")})]


def test_a_failing_dead_letter_topic_is_tried_again_and_holds_back_new_work() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6)
    letter = of(WriteDeadLetter, driver.fail(0, DEAD))[0]
    driver.finish()
    driver.step(events.WriteFailed(A, letter.epoch, 5, "timed out"))
    driver.fetch(A, 7)

    assert driver.runs == []
    again = of(WriteDeadLetter, driver.step(events.Tick(), after_ms=1_000))
    assert again == [letter]
    driver.step(events.WriteAcknowledged(A, letter.epoch, 5))
    assert offsets_of(driver.runs[0]) == [7]


def test_a_dead_letter_topic_that_stays_away_stops_the_partition_and_loses_nothing() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6)
    letter = of(WriteDeadLetter, driver.fail(0, DEAD))[0]
    for _ in range(5):
        driver.step(events.WriteFailed(A, letter.epoch, 5, "timed out"))
        driver.step(events.Tick(), after_ms=60_000)

    health = driver.session.health(driver.now_ms)
    assert not health.is_ready
    assert health.is_alive
    assert "dead letter topic 'dead'" in health.problems[0]
    assert of(PausePartitions, driver.effects) == [PausePartitions([A])]
    assert driver.session.position(A) == 5

    effects = driver.step(events.ResumeRequested([A]))
    assert of(WriteDeadLetter, effects) == [letter]
    assert of(ResumePartitions, effects) == [ResumePartitions([A])]


def test_without_a_dead_letter_topic_the_partition_stops_at_the_record() -> None:
    driver = assigned(A, B, failures=FailurePolicy(retry=RetryPolicy(max_attempts=1)))
    driver.fetch(A, 5, 6)
    effects = driver.fail(0, BOOM)

    assert of(PausePartitions, effects) == [PausePartitions([A])]
    assert [notice.event for notice in of(Notice, effects)] == ["partition_stopped"]
    health = driver.session.health(driver.now_ms)
    assert not health.is_ready
    assert "orders-0 stopped at offset 5" in health.problems[0]
    driver.fetch(B, 9)
    assert offsets_of(driver.runs[0]) == [9], "the other partition goes on"
    assert of(Commit, driver.step(events.Tick(), after_ms=60_000)) == []


def test_resuming_a_stopped_partition_delivers_the_record_again() -> None:
    driver = assigned(failures=FailurePolicy(retry=RetryPolicy(max_attempts=1)))
    driver.fetch(A, 5, 6)
    driver.fail(0, BOOM)
    driver.step(events.ResumeRequested())

    assert offsets_of(driver.runs[0]) == [5]
    driver.finish()
    assert offsets_of(driver.runs[0]) == [6]
    assert driver.session.health(driver.now_ms).is_ready


def test_an_outage_is_retried_without_counting_attempts() -> None:
    outage = ExceptionTable().failure_of(RegistryUnavailable("503"))
    driver = assigned(failures=FailurePolicy(retry=RetryPolicy(max_attempts=1), dead_letter_topic="dead"))
    driver.fetch(A, 5)
    for _ in range(50):
        driver.fail(0, outage)
        driver.step(events.Tick(), after_ms=20_000)

    assert of(WriteDeadLetter, driver.effects) == []
    assert offsets_of(driver.runs[0]) == [5]


def test_the_dead_letter_budget_opens_the_circuit() -> None:
    driver = assigned(
        failures=FailurePolicy(retry=RetryPolicy(max_attempts=1), dead_letter_topic="dead"),
        budget=DeadLetterBudget(burst=2, per_success=0, every_s=10),
    )
    driver.fetch(A, 0, 1, 2, key=None)
    for _ in range(3):
        driver.fail(0, BOOM)

    assert len(of(WriteDeadLetter, driver.effects)) == 2
    assert driver.runs == [], "the third waits"
    driver.step(events.Tick(), after_ms=10_000)
    assert offsets_of(driver.runs[0]) == [2], "and is delivered again: the outage may be over"


def test_a_late_result_of_a_lost_partition_changes_nothing() -> None:
    driver = assigned(commits=CommitPolicy(every_records=1, every_s=1))
    driver.fetch(A, 5)
    late = driver.runs.pop()
    driver.step(events.Lost([A]))
    driver.step(events.Assigned([A]))
    driver.fetch(A, 5)
    driver.runs.append(late)
    driver.finish(late)

    assert driver.session.position(A) == 5
    assert of(Commit, driver.step(events.Tick(), after_ms=60_000)) == []


def test_a_late_dead_letter_of_a_lost_partition_changes_nothing() -> None:
    driver = assigned()
    driver.fetch(A, 5)
    letter = of(WriteDeadLetter, driver.fail(0, DEAD))[0]
    driver.step(events.Lost([A]))
    driver.step(events.Assigned([A]))
    driver.fetch(A, 5)
    driver.step(events.WriteAcknowledged(A, letter.epoch, 5))

    assert driver.session.position(A) == 5


def test_a_lost_partition_is_not_committed() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6)
    driver.finish()

    assert of(Commit, driver.step(events.Lost([A]))) == []
    assert of(Commit, driver.step(events.Tick(), after_ms=60_000)) == []
    assert driver.session.assignment == []


def test_revoking_cancels_runs_and_revoked_commits_what_is_done() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6, 7)
    run = driver.runs[0]
    driver.step(events.Revoking([A]))
    assert run.is_cancelled
    assert not driver.session.is_quiet([A])

    driver.finish(run, RunResult(done=run.records[:1], untouched=run.records[1:]))
    assert driver.session.is_quiet([A])
    assert driver.runs == [], "what was not reached is not dispatched any more"
    assert of(Commit, driver.step(events.Revoked([A]))) == [Commit({A: (6, "")}, is_final=True)]


def test_a_worker_that_outlasts_the_budget_has_its_progress_committed() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6, 7)
    driver.step(events.Revoking([A]))
    driver.runs[0].done = 1

    assert of(Commit, driver.step(events.Revoked([A]))) == [Commit({A: (6, "")}, is_final=True)]


def test_closing_drains_and_commits_like_revoking_everything() -> None:
    driver = assigned(A, B)
    driver.fetch(A, 5)
    driver.finish()
    driver.fetch(B, 9)
    driver.step(events.CloseRequested())
    assert driver.runs[0].is_cancelled
    driver.finish()
    driver.fetch(A, 6)

    assert driver.runs == []
    assert of(Commit, driver.step(events.Closed())) == [Commit({A: (6, ""), B: (10, "")}, is_final=True)]


def test_records_of_a_partition_that_is_not_owned_are_ignored() -> None:
    driver = assigned(A)
    driver.fetch(B, 1)

    assert driver.runs == []


def test_records_that_the_client_repeats_are_taken_once() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6)
    driver.finish()
    driver.fetch(A, 5, 6, 7)

    assert offsets_of(driver.runs[0]) == [7]


def test_a_full_partition_is_paused_alone_and_resumed_when_drained() -> None:
    limits = FlowLimits(high_records=4, low_records=1, hold_ms=5)
    driver = assigned(A, B, flow=limits, max_records_per_turn=2)
    driver.fetch(A, 0, 1, 2, 3)
    driver.fetch(B, 0)
    assert driver.session.should_hold(driver.now_ms)
    assert of(PausePartitions, driver.effects) == []

    effects = driver.step(events.Tick(), after_ms=49)
    assert of(PausePartitions, effects) == [], "nothing was handled yet: nobody knows its pace"
    effects = driver.step(events.Tick(), after_ms=1)
    assert of(PausePartitions, effects) == [PausePartitions([A])]
    while driver.runs:
        driver.finish(driver.runs[0])
    assert of(ResumePartitions, driver.effects) == [ResumePartitions([A])]


def test_what_the_shell_has_yet_to_tell_of_takes_room_as_what_it_told_of_does() -> None:
    driver = assigned(A, flow=FlowLimits(high_records=4, low_records=1, hold_ms=0), max_records_per_turn=9)
    effects = driver.fetch(A, 0, behind=events.Behind(3, 30))
    assert of(PausePartitions, effects) == [PausePartitions([A])]

    assert of(ResumePartitions, driver.finish(driver.runs[0])) == []
    assert of(ResumePartitions, driver.fetch(A, 1, 2, 3)) == []
    assert of(ResumePartitions, driver.finish(driver.runs[-1])) == [ResumePartitions([A])]


def test_a_partition_of_a_known_pace_is_paused_soon() -> None:
    driver = assigned(A, flow=FlowLimits(high_records=4, low_records=1, hold_ms=5), max_records_per_turn=2)
    driver.fetch(A, 0)
    driver.now_ms += 1_000
    driver.finish(driver.runs[0])
    driver.fetch(A, 1, 2, 3, 4)

    assert of(PausePartitions, driver.step(events.Tick(), after_ms=5)) == [PausePartitions([A])]


def test_a_fast_handler_is_not_paused_while_its_pace_is_not_known() -> None:
    """A pause costs up to a second at librdkafka, in which a fast handler runs dry."""
    driver = assigned(A, flow=FlowLimits(high_records=4, low_records=1, hold_ms=5), max_records_per_turn=2)
    driver.fetch(A, *range(20))
    driver.step(events.Tick(), after_ms=10)
    driver.finish(driver.runs[0])

    assert of(PausePartitions, driver.step(events.Tick(), after_ms=50)) == []
    assert not driver.session.should_hold(driver.now_ms)


def test_two_partitions_take_turns_of_a_quantum() -> None:
    driver = assigned(A, B, max_records_per_turn=2)
    driver.fetch(A, *range(6))
    driver.fetch(B, *range(6))
    order = []
    while driver.runs:
        run = driver.runs[0]
        order += [run.topic_partition.partition] * len(run.records)
        driver.finish(run)

    assert order == [0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1]


def test_a_slow_handler_gets_short_turns() -> None:
    driver = assigned(max_records_per_turn=100, turn_ms=50)
    driver.fetch(A, *range(100))
    driver.now_ms += 2_000  # 20 ms per record
    driver.finish()
    driver.fetch(A, *range(100, 200))

    assert 1 <= len(driver.runs[0].records) <= 10


def test_a_handler_gets_whole_turns_once_it_is_known_to_be_quick() -> None:
    driver = assigned(max_records_per_turn=100, at_first=10, turn_ms=50)
    driver.fetch(A, *range(200))
    assert len(driver.runs[0].records) == 10

    driver.now_ms += 1
    driver.finish()
    assert len(driver.runs[0].records) == 100


def test_a_slow_commit_does_not_make_turns_shorter() -> None:
    """Each turn has one: with fewer records it would take as long, and do less."""
    driver = assigned(max_records_per_turn=100, turn_ms=50)
    driver.fetch(A, *range(100))
    driver.now_ms += 2_010
    driver.runs[0].store_s = 2.0
    driver.finish()
    driver.fetch(A, *range(100, 200))

    assert len(driver.runs[0].records) == 100


def test_the_pause_of_a_user_is_kept_until_he_resumes() -> None:
    driver = assigned()
    driver.step(events.PauseRequested([A]))
    driver.fetch(A, 5)
    assert driver.runs == []

    driver.step(events.ResumeRequested([A]))
    assert offsets_of(driver.runs[0]) == [5]


def test_a_seek_drops_what_is_in_flight_and_tells_the_client() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6)
    late = driver.runs[0]
    effects = driver.step(events.SeekRequested(A, 0))
    assert of(SeekPartition, effects) == [SeekPartition(A, 0)]
    assert late.is_cancelled

    driver.finish(late)
    driver.fetch(A, 0, 1)
    assert offsets_of(driver.runs[0]) == [0, 1]


def test_draining_finishes_what_was_fetched() -> None:
    driver = assigned(max_records_per_turn=1)
    driver.fetch(A, 5, 6)
    effects = driver.step(events.DrainRequested())
    assert of(PausePartitions, effects) == [PausePartitions([A])]
    assert not driver.session.is_idle
    driver.finish()
    driver.finish()

    assert driver.session.is_idle


def test_a_drained_session_keeps_what_comes_late_until_someone_resumes() -> None:
    driver = assigned(A)
    driver.step(events.DrainRequested())
    driver.fetch(A, 5, 6)  # the client had them in hand before it heard of the pause
    driver.fetch(A, 7)

    assert driver.runs == []
    assert driver.session.is_idle
    assert of(Commit, driver.step(events.Tick(), after_ms=60_000)) == []
    effects = driver.step(events.ResumeRequested())
    assert of(ResumePartitions, effects) == [ResumePartitions([A])]
    assert offsets_of(driver.runs[0]) == [5, 6, 7]


def test_what_came_late_to_a_drained_partition_goes_with_the_partition() -> None:
    driver = assigned(A)
    driver.step(events.DrainRequested())
    driver.fetch(A, 5, 6)
    driver.step(events.Revoking([A]))

    assert of(Commit, driver.step(events.Revoked([A]))) == []


def test_a_partition_that_is_assigned_to_a_drained_session_waits_too() -> None:
    driver = assigned(A)
    driver.step(events.DrainRequested())
    effects = driver.step(events.Assigned([B]))
    driver.fetch(B, 5)

    assert of(PausePartitions, effects) == [PausePartitions([B])]
    assert driver.runs == []
    driver.step(events.ResumeRequested())
    assert offsets_of(driver.runs[0]) == [5]


def test_a_seek_of_a_full_partition_lets_the_client_fetch_again() -> None:
    driver = assigned(flow=FlowLimits(high_records=2, low_records=1, hold_ms=0))
    assert of(PausePartitions, driver.fetch(A, 5, 6)) == [PausePartitions([A])]

    effects = driver.step(events.SeekRequested(A, 0))
    assert of(SeekPartition, effects) == [SeekPartition(A, 0)]
    assert of(ResumePartitions, effects) == [ResumePartitions([A])]


@pytest.mark.parametrize("request_", [events.PauseRequested(), events.DrainRequested()])
def test_a_seek_does_not_end_the_pause_that_a_user_asked_for(request_: events.Event) -> None:
    driver = assigned()
    driver.step(request_)
    effects = driver.step(events.SeekRequested(A, 0))
    assert of(ResumePartitions, effects) == []
    driver.fetch(A, 0)
    assert driver.runs == []

    assert of(ResumePartitions, driver.step(events.ResumeRequested())) == [ResumePartitions([A])]
    assert offsets_of(driver.runs[0]) == [0]


def test_records_of_one_key_that_fail_together_are_retried_in_order_and_before_what_follows_them() -> None:
    driver = assigned(ordering=Ordering.KEY, concurrency=2, max_records_per_turn=2)
    driver.fetch(A, 0, 1, 2, 3)
    (run,) = driver.runs
    assert offsets_of(run) == [0, 1]
    first, second = run.records
    slowly, soon = Failure.of_outcome(Retry(after_s=5)), Failure.of_outcome(Retry(after_s=1))
    # Their deliveries failed after both were handled; an outage of the registry does the same to a whole run.
    driver.finish(run, RunResult(done=(), failures=[(first, slowly), (second, soon)]))

    driver.step(events.Tick(), after_ms=1_000)
    assert driver.runs == [], "the first one holds the key still"
    handled: list[int] = []
    driver.step(events.Tick(), after_ms=4_000)
    while driver.runs:
        (run,) = driver.runs
        handled += offsets_of(run)
        driver.finish(run)
    assert handled == [0, 1, 2, 3]


def test_the_last_commit_names_again_what_a_caller_commits_at_that_moment() -> None:
    driver = assigned()
    driver.fetch(A, 0, 1)
    driver.finish()
    assert driver.session.committable(driver.now_ms) == {A: (2, "")}

    # The answer may be that a rebalance goes on.
    (commit,) = of(Commit, driver.step(events.Revoked([A])))
    assert commit.offsets == {A: (2, "")}


def test_a_commit_is_under_way_until_both_are_answered_it_and_what_a_caller_asked_for() -> None:
    driver = assigned(commits=CommitPolicy(every_records=2, every_s=5))
    driver.fetch(A, 0, 1)
    assert of(Commit, driver.finish())
    driver.fetch(A, 2)
    driver.finish()
    assert driver.session.committable(driver.now_ms) == {A: (3, "")}
    driver.step(events.CommitSucceeded({A: 2}))

    (commit,) = of(Commit, driver.step(events.Revoked([A])))
    assert commit.offsets == {A: (3, "")}


def test_a_stopped_record_that_is_resumed_is_no_first_delivery() -> None:
    driver = assigned(failures=FailurePolicy(dead_letter_topic=None))
    driver.fetch(A, 0, 1)
    assert driver.runs[0].is_first
    driver.fail(0, DEAD)
    driver.step(events.ResumeRequested())

    (run,) = driver.runs
    assert offsets_of(run) == [0]
    assert not run.is_first, "its handler may have changed the value before it failed"


def test_what_is_done_out_of_order_is_committed_as_metadata() -> None:
    driver = assigned(ordering=Ordering.UNORDERED, concurrency=3, max_records_per_turn=1)
    driver.fetch(A, 5, 6, 7)
    driver.finish(driver.runs[1])
    driver.finish(driver.runs[1])
    commit = of(Commit, driver.step(events.Tick(), after_ms=5_000))[0]

    offset, metadata = commit.offsets[A]
    assert offset == 5
    assert decode_finished(metadata, offset) == {6, 7}


def test_a_run_whose_keys_were_freed_one_after_another_finishes_its_own_records_and_no_others() -> None:
    driver = assigned(ordering=Ordering.KEY, concurrency=4, max_records_per_turn=3)
    for offset, key in enumerate([b"a", b"b", b"a", b"c", b"b", b"a"]):
        driver.fetch(A, offset, key=key)
    of_a, of_b, of_c = driver.runs
    driver.step(events.PauseRequested((A,)))
    driver.finish(of_b)
    driver.finish(of_a)
    driver.fetch(A, *range(6, 12), key=None)
    driver.step(events.ResumeRequested((A,)))
    run = driver.runs[1]
    assert offsets_of(run) == [2, 5, 4]

    driver.finish(run)

    assert driver.session.position(A) == 3, "it is not handled yet"
    (commit,) = of(Commit, driver.step(events.Tick(), after_ms=5_000))
    offset, metadata = commit.offsets[A]
    assert (offset, decode_finished(metadata, offset)) == (3, {4, 5})
    driver.finish(of_c)
    assert driver.session.position(A) == 6


def test_records_that_are_acknowledged_in_another_order_finish_themselves_and_no_others() -> None:
    driver = assigned(max_records_per_turn=10)
    driver.fetch(A, *range(10))
    (run,) = driver.runs
    records = run.records
    done = [records[at] for at in (0, 1, 2, 3, 5, 6, 7, 9, 8)]

    driver.finish(run, RunResult(done=done, failures=[(records[4], RETRY)]))

    assert driver.session.position(A) == 4
    (commit,) = of(Commit, driver.step(events.Tick(), after_ms=5_000))
    offset, metadata = commit.offsets[A]
    assert (offset, decode_finished(metadata, offset)) == (4, {5, 6, 7, 8, 9})


def test_what_the_metadata_names_is_not_delivered_again() -> None:
    driver = Driver(ordering=Ordering.UNORDERED)
    driver.step(events.Assigned([A], {A: (5, encode_finished([6, 7, 9], 5))}))
    driver.fetch(A, 5, 6, 7)
    driver.fetch(A, 8, 9, 10)
    handled = []
    while driver.runs:
        handled += offsets_of(driver.runs[0])
        driver.finish(driver.runs[0])

    assert handled == [5, 8, 10]
    assert driver.session.position(A) == 11


def test_a_batch_that_fails_is_delivered_again_as_a_batch() -> None:
    driver = assigned(is_batch=True, max_records_per_turn=10)
    driver.fetch(A, 5, 6, 7)
    run = driver.runs[0]
    driver.finish(run, RunResult(done=(), failures=[(r, BOOM) for r in run.records], is_batch_failure=True))
    driver.step(events.Tick(), after_ms=1_000)

    assert offsets_of(driver.runs[0]) == [5, 6, 7]
    assert driver.runs[0].attempt == 2


def test_one_bad_record_does_not_condemn_its_batch() -> None:
    driver = assigned(is_batch=True, max_records_per_turn=10)
    driver.fetch(A, 5, 6, 7)
    alone: list[list[int]] = []
    for _ in range(20):
        if not driver.runs:
            driver.step(events.Tick(), after_ms=60_000)
            if not driver.runs:
                break
        run = driver.runs[0]
        if len(run.records) == 1:
            alone.append(offsets_of(run))
        if 6 in offsets_of(run):
            failures = [(record, BOOM) for record in run.records]
            driver.finish(run, RunResult(done=(), failures=failures, is_batch_failure=True))
        else:
            driver.finish(run)

    assert [letter.record.offset for letter in of(WriteDeadLetter, driver.effects)] == [6]
    assert alone == [[5], [6], [7]]


def test_a_dead_worker_stops_its_partition_and_is_unhealthy() -> None:
    driver = assigned()
    driver.fetch(A, 5, 6)
    run = driver.runs[0]
    fatal = ExceptionTable().failure_of(SystemExit(1))
    effects = driver.finish(run, RunResult(done=run.records[:1], untouched=run.records[1:], fatal=fatal))

    health = driver.session.health(driver.now_ms)
    assert not health.is_alive
    assert not health.is_ready
    assert driver.session.position(A) == 6
    assert of(PausePartitions, effects) == [PausePartitions([A])]


def test_one_topic_has_one_handler_in_a_group() -> None:
    plans = [RoutePlan(name=name, topics=frozenset({"orders"})) for name in ("one", "two")]

    with pytest.raises(ConfigError, match="'orders' has two handlers"):
        plans_by_topic(plans)


def test_the_retry_of_a_lost_partition_never_comes() -> None:
    driver = assigned()
    driver.fetch(A, 5)
    driver.fail(0, RETRY)
    driver.step(events.Lost([A]))
    driver.step(events.Tick(), after_ms=60_000)
    assert driver.runs == []

    driver.step(events.Assigned([A]))
    driver.fetch(A, 5)
    driver.step(events.Tick(), after_ms=60_000)
    assert [offsets_of(run) for run in driver.runs] == [[5]]
