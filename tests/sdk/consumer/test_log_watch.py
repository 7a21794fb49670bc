"""What a look at the logs tells a session: skipped records, another topic of the same name, standstills."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from session_driver import A, B, Driver, of, offsets_of

from ottla.consumer.model import events
from ottla.consumer.model.effects import Commit, Effect, LookAtLogs, Notice, ResumePartitions, SeekPartition
from ottla.records import TopicPartition

OLD, NEW = b"o" * 16, b"n" * 16


class Watched(Driver):
    """A session whose questions about logs are answered by the test."""

    def __init__(self, committed: int | None = None, **options: Any) -> None:
        super().__init__(**options)
        offsets = {} if committed is None else {A: (committed, "")}
        self.step(events.Assigned([A], offsets))

    def look(
        self,
        start: int,
        end: int,
        *,
        topic_id: bytes = OLD,
        position: int | None = None,
        tail: tuple[int, int] | None = None,
        after_ms: int = 5_000,
    ) -> list[Effect]:
        """Time passes, the session asks, and is answered."""
        self.step(events.Tick(), after_ms=after_ms)
        asked = of(LookAtLogs, self.effects)[-1]
        log = events.LogSeen(topic_id, start, end, position, tail)
        return self.step(events.LogsSeen(asked.epochs, {name: log for name in asked.epochs if name == A}))

    def work_off(self) -> None:
        while self.runs:
            self.finish()

    def moved(self) -> list[tuple[str, object, object]]:
        names = ("records_lost_before_read", "topic_recreated", "log_truncated")
        found = [notice for notice in of(Notice, self.effects) if notice.event in names]
        assert all(notice.fields["why"] for notice in found)
        return [(notice.event, notice.fields["from"], notice.fields["to"]) for notice in found]


def test_the_logs_are_looked_at_when_partitions_come_and_every_few_seconds() -> None:
    driver = Watched()
    assert [look.epochs for look in of(LookAtLogs, driver.effects)] == [{A: driver.session.epoch_of(A)}]
    driver.look(0, 0, after_ms=0)
    assert driver.session.next_wakeup_ms(driver.now_ms) <= 5_000
    driver.step(events.Tick(), after_ms=5_000)
    assert len(of(LookAtLogs, driver.effects)) == 2

    driver.step(events.Tick(), after_ms=10_000)
    assert len(of(LookAtLogs, driver.effects)) == 2, "one at a time"
    driver.step(events.Tick(), after_ms=5_000)
    assert len(of(LookAtLogs, driver.effects)) == 3, "an answer that does not come is not waited for for ever"


def test_records_that_retention_took_before_they_were_read_are_told_with_from_and_to() -> None:
    driver = Watched(committed=100)
    driver.fetch(A, 500, 501)
    driver.look(500, 502, after_ms=0)

    assert driver.moved() == []
    driver.look(500, 502, after_ms=500)
    assert driver.moved() == [("records_lost_before_read", 100, 500)]
    driver.look(500, 502)
    assert len(driver.moved()) == 1, "once"


def test_records_that_retention_took_in_the_middle_of_a_batch_are_told_as_well() -> None:
    driver = Watched(committed=0)
    driver.look(0, 3, after_ms=0)
    driver.fetch(A, 0, 1, 2, 90, 91)
    driver.look(90, 92)

    assert driver.moved() == [("records_lost_before_read", 3, 90)]


def test_a_gap_is_looked_at_soon_and_one_after_the_other() -> None:
    driver = Watched(committed=0)
    driver.look(0, 9, after_ms=0)
    driver.fetch(A, 5)
    driver.step(events.Tick(), after_ms=500)
    assert len(of(LookAtLogs, driver.effects)) == 2

    driver.fetch(A, 8)
    driver.fetch(A, 20)
    assert len(of(LookAtLogs, driver.effects)) == 2


@given(offsets=st.lists(st.integers(0, 40), unique=True, min_size=1).map(sorted), starts=st.integers(0, 40))
def test_gaps_inside_a_log_are_no_loss_and_those_before_its_start_are(offsets: list[int], starts: int) -> None:
    """Markers of transactions and compaction leave gaps behind the start of the log."""
    driver = Watched(committed=0)
    driver.look(0, 99, after_ms=0)
    for offset in offsets:
        driver.fetch(A, offset)
        driver.work_off()
    driver.look(starts, 99)

    lost = sum(int(str(end)) - int(str(start)) for _, start, end in driver.moved())
    missing = set(range(offsets[-1])) - set(offsets)
    assert lost == len([offset for offset in missing if offset < starts])


def test_a_new_group_skips_nothing_by_beginning_where_the_log_begins() -> None:
    driver = Watched()
    driver.fetch(A, 500)
    driver.look(500, 501, after_ms=0)
    driver.look(500, 501)

    assert driver.moved() == []


def test_a_log_that_was_emptied_before_it_was_read_is_told_without_waiting_for_a_record() -> None:
    driver = Watched(committed=100)
    driver.look(500, 500, after_ms=0)
    assert driver.moved() == [], "what the client has fetched already may still come"
    driver.look(500, 500)
    driver.look(500, 500)

    assert driver.moved() == [("records_lost_before_read", 100, 500)]
    driver.fetch(A, 500)
    driver.look(500, 501)
    assert len(driver.moved()) == 1


def test_a_topic_that_was_made_again_is_read_from_its_start() -> None:
    driver = Watched(committed=0)
    driver.look(0, 100, after_ms=0)
    driver.fetch(A, *range(100))
    driver.work_off()
    effects = driver.look(0, 300, topic_id=NEW)

    assert driver.moved() == [("topic_recreated", 100, 0)]
    assert of(SeekPartition, effects) == [SeekPartition(A, 0)]
    driver.fetch(A, *range(300))
    assert offsets_of(driver.runs[-1])[0] == 0
    driver.look(0, 300, topic_id=OLD, after_ms=0)
    driver.look(0, 300, topic_id=NEW)
    assert len(driver.moved()) == 1, "a broker that has not heard of the new one changes nothing"


def test_a_topic_that_was_made_again_while_the_partition_changed_hands_is_read_from_its_start() -> None:
    """The last commit for the old one may have been stored for the new one."""
    driver = Watched(committed=0)
    driver.look(0, 100, after_ms=0)
    driver.fetch(A, *range(100))
    driver.work_off()
    driver.step(events.Revoked([A]))
    driver.step(events.Assigned([A], {A: (100, "")}))
    driver.look(0, 300, topic_id=NEW, after_ms=0)
    assert driver.moved() == [("topic_recreated", 100, 0)]

    driver.step(events.Revoked([A]))
    driver.step(events.Assigned([A], {A: (200, "")}))
    driver.look(0, 300, topic_id=b"x" * 16, after_ms=0)
    assert len(driver.moved()) == 1, "somebody else has read of the newest one"


def test_a_truncated_log_is_read_on_from_its_end() -> None:
    driver = Watched(committed=0)
    driver.look(0, 100, after_ms=0)
    driver.fetch(A, *range(100))
    driver.work_off()
    driver.look(0, 60)
    assert driver.moved() == [], "once may be an answer that was on its way"
    effects = driver.look(0, 60)
    effects += driver.look(0, 60)

    assert driver.moved() == [("log_truncated", 100, 60)]
    assert of(SeekPartition, effects) == [SeekPartition(A, 60)]


def test_an_answer_about_an_assignment_that_is_over_says_nothing() -> None:
    driver = Watched(committed=0)
    (asked,) = of(LookAtLogs, driver.effects)
    driver.step(events.SeekRequested(A, 50))
    driver.step(events.LogsSeen(asked.epochs, {A: events.LogSeen(OLD, 90, 100)}))
    driver.step(events.LogsSeen({B: 1}, {B: events.LogSeen(OLD, 90, 100)}))

    assert driver.moved() == []


def stuck(driver: Watched, seconds: int, *, end: int = 20, position: int | None = 10) -> list[str]:
    for _ in range(seconds // 5):
        driver.look(0, end, position=position)
    return list(driver.session.health(driver.now_ms).problems)


def test_a_partition_that_does_not_get_on_although_there_is_more_makes_unready_with_the_reason() -> None:
    driver = Watched(committed=10)
    driver.step(events.ClientFailed(A, "_BAD_COMPRESSION: cannot inflate"))
    assert stuck(driver, 60) == []
    (problem,) = stuck(driver, 10)

    assert problem.startswith("orders-0: nothing comes from offset 10 on, although the log goes on to 20, for 65 s")
    assert problem.endswith("the client says: _BAD_COMPRESSION: cannot inflate")
    driver.fetch(A, *range(10, 20))
    driver.work_off()
    assert stuck(driver, 70, position=20) == []


def test_a_partition_at_its_end_is_ready_for_ever() -> None:
    driver = Watched(committed=20)

    assert stuck(driver, 600, position=None) == []


def test_a_client_that_reads_what_is_not_for_readers_gets_on() -> None:
    """Aborted transactions: no record comes, and the client's position moves all the same."""
    driver = Watched(committed=10)
    for number in range(100):
        driver.look(0, 30 + number, position=20 + number)

    assert driver.session.health(driver.now_ms).is_ready


def test_a_partition_that_the_user_paused_is_not_at_a_standstill() -> None:
    driver = Watched(committed=10)
    driver.step(events.PauseRequested([A]))
    assert stuck(driver, 600) == []

    assert of(ResumePartitions, driver.step(events.ResumeRequested([A])))
    assert stuck(driver, 60) == []
    assert len(stuck(driver, 10)) == 1


def test_while_nobody_answers_nothing_is_known_of_a_standstill() -> None:
    driver = Watched(committed=10)
    stuck(driver, 30)
    driver.now_ms += 600_000

    assert driver.session.health(driver.now_ms).is_ready


def test_a_partition_that_comes_while_logs_are_looked_at_is_looked_at_next() -> None:
    driver = Watched()
    driver.step(events.Assigned([B]))
    assert len(of(LookAtLogs, driver.effects)) == 1
    driver.step(events.LogsSeen(of(LookAtLogs, driver.effects)[0].epochs, {}))

    assert of(LookAtLogs, driver.effects)[-1].epochs.keys() == {A, B}
    assert TopicPartition("orders", 1) == B


def test_a_commit_beyond_the_end_is_said_when_the_client_begins_before_it() -> None:
    driver = Watched(committed=100)
    driver.fetch(A, *range(40))
    driver.fetch(A, *range(40, 60))
    assert driver.moved() == [("log_truncated", 100, 0)], "once"

    driver = Watched(committed=100)
    driver.fetch(A, 100)
    assert driver.moved() == []

    driver = Watched(committed=100)
    driver.step(events.SeekRequested(A, 50))
    driver.fetch(A, 50)
    assert driver.moved() == [], "the user wanted it"


def tails_of(driver: Watched) -> object:
    return dict(of(LookAtLogs, driver.effects)[-1].tails)


def test_a_partition_without_work_whose_log_goes_on_passes_what_is_no_record() -> None:
    driver = Watched(committed=0)
    driver.fetch(A, 0, 1)
    driver.work_off()
    driver.look(0, 3)
    assert tails_of(driver) == {A: 2}
    driver.look(0, 3, tail=(2, 3))
    driver.step(events.CommitSucceeded({A: 2}))
    driver.step(events.Tick(), after_ms=10_000)

    assert driver.session.position(A) == 3
    assert of(Commit, driver.effects)[-1].offsets == {A: (3, "")}
    driver.look(0, 3)
    driver.step(events.Tick(), after_ms=5_000)
    assert tails_of(driver) == {}
    driver.fetch(A, 3)
    driver.work_off()
    assert driver.session.position(A) == 4
    assert driver.moved() == []


def test_what_came_while_the_tail_was_looked_at_is_not_passed() -> None:
    driver = Watched(committed=0)
    driver.look(0, 1)
    driver.step(events.Tick(), after_ms=5_000)
    asked = of(LookAtLogs, driver.effects)[-1]
    assert tails_of(driver) == {A: 0}
    driver.fetch(A, 0)
    log = events.LogSeen(OLD, 0, 5, None, (0, 5))
    driver.step(events.LogsSeen(asked.epochs, {A: log}))
    assert driver.session.position(A) == 0
    driver.work_off()
    assert driver.session.position(A) == 1
