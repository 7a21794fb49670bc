"""One record that is not done, and more done behind it than the commit metadata can name."""

from __future__ import annotations

from random import Random

from ottla.consumer.commit.commits import CommitPolicy
from ottla.consumer.commit.offset_metadata import LIMIT_BYTES, decode_finished
from ottla.consumer.model import events
from ottla.consumer.model.effects import Commit, Dispatch, Effect, Notice, PausePartitions, ResumePartitions
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.session import Session
from ottla.records import Record, TopicPartition

A = TopicPartition("orders", 0)
WIDE = FlowLimits(high_records=100_000, low_records=50_000)


class Stuck:
    """Every second record succeeds; those at even offsets never come back. So only a bitmap can name what is done."""

    def __init__(self) -> None:
        self.session = self.new_session()
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.held: list[Run] = []
        self.is_paused = False
        self.committed: tuple[int, str] = (0, "")
        self.step(events.Assigned([A]))

    def new_session(self) -> Session:
        plan = RoutePlan(
            name="handler",
            topics=frozenset({"orders"}),
            ordering=Ordering.UNORDERED,
            concurrency=100_000,
            max_records_per_turn=1,
        )
        return Session([plan], group="g", now_ms=0, random=Random(1), flow=WIDE, commits=CommitPolicy(every_s=0.1))

    def step(self, event: events.Event) -> None:
        waiting = [event]
        while waiting:
            effects = self.session.step(waiting.pop(0), self.now_ms)
            self.effects += effects
            for effect in effects:
                match effect:
                    case Dispatch(run) if run.records[0].offset % 2:
                        waiting.append(events.RunFinished(run, RunResult()))
                    case Dispatch(run):
                        self.held.append(run)
                    case Commit(offsets):
                        self.committed = offsets[A]
                        waiting.append(events.CommitSucceeded({A: offsets[A][0]}))
                    case PausePartitions():
                        self.is_paused = True
                    case ResumePartitions():
                        self.is_paused = False

    def fetch(self, start: int, end: int) -> None:
        records: list[AnyRecord] = [Record(*A, n, 0, None, b"", [], None, b"") for n in range(start, end)]
        self.step(events.Fetched(A, records, 1))

    def pass_time(self) -> None:
        self.now_ms += 100
        self.step(events.Tick())

    def notices(self) -> list[Notice]:
        wanted = "commit_metadata_nearly_full"
        return [effect for effect in self.effects if isinstance(effect, Notice) and effect.event == wanted]


def fill(stuck: Stuck) -> int:
    """Fetch until the session wants no more; returns how far that was."""
    at = 0
    while not stuck.is_paused:
        assert at < 60_000, "nothing stops the session before its metadata overflows"
        stuck.fetch(at, at + 500)
        at += 500
        stuck.pass_time()
    return at


def test_before_the_metadata_is_full_no_more_is_taken_in_and_the_record_that_holds_it_up_is_named() -> None:
    stuck = Stuck()
    at = fill(stuck)

    (notice,) = stuck.notices()
    assert notice.level == "warning"
    assert notice.fields["offset"] == 0
    assert notice.fields["finished_beyond"] == at // 2
    position, metadata = stuck.committed
    assert len(metadata) <= LIMIT_BYTES
    assert decode_finished(metadata, position) == set(range(1, at, 2)), "nothing is left out"


def test_it_goes_on_when_the_record_is_done() -> None:
    stuck = Stuck()
    at = fill(stuck)
    for run in stuck.held:
        stuck.step(events.RunFinished(run, RunResult()))
    stuck.held.clear()
    stuck.pass_time()

    assert not stuck.is_paused
    assert stuck.committed == (at, "")
    stuck.fetch(at, at + 2)
    assert [run.records[0].offset for run in stuck.held] == [at]


def test_what_was_fetched_all_the_same_and_fits_no_more_is_delivered_again_and_nothing_else() -> None:
    stuck = Stuck()
    at = fill(stuck)
    stuck.fetch(at, at + 20_000)  # the client had it in hand
    stuck.pass_time()
    position, metadata = stuck.committed
    named = decode_finished(metadata, position)

    assert len(metadata) <= LIMIT_BYTES
    assert position == 0
    assert named < set(range(1, at + 20_000, 2)), "what is named is done, and some that is done is not named"
    stuck.session, stuck.held = stuck.new_session(), []
    stuck.step(events.Assigned([A], {A: (position, metadata)}))
    before = len(stuck.effects)
    stuck.fetch(0, at + 20_000)
    again = {run.records[0].offset for run in (e.run for e in stuck.effects[before:] if isinstance(e, Dispatch))}
    assert again == set(range(at + 20_000)) - named
