"""The member of a share group, driven against a model of the broker's side."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from modelled_share_broker import LOCK_MS, ModelledBroker

from ottla.queues.core.acknowledgements import Acknowledgement, Place
from ottla.queues.core.effects import Effect, HandOut, JobTimedOut, LeaseLost, ShareAnswer
from ottla.queues.core.lease import Lease, LeaseState
from ottla.queues.core.share_member import ShareMember
from ottla.topics import TopicPartition
from ottla_wire.protocol import ErrorCode

PLACES = [Place(b"t" * 16, 0), Place(b"t" * 16, 1)]
NAMES = {place: TopicPartition("jobs", place.partition) for place in PLACES}


class Driven:
    """One member, its workers and its broker, in a time of their own."""

    def __init__(
        self,
        broker: ModelledBroker,
        *,
        name: str = "m",
        concurrency: int = 4,
        max_job_ms: int = 60_000,
        max_waiting: int = 8,
    ) -> None:
        self.broker = broker
        self.name = name
        self.now_ms = 0
        self.concurrency = concurrency
        self.member = ShareMember(concurrency=concurrency, max_job_ms=max_job_ms, max_waiting=max_waiting)
        self.member.lead({1: [(place, NAMES[place]) for place in broker.entries]})
        self.at_work: list[Lease] = []
        self.lost: list[LeaseLost] = []
        self.timed_out: list[Lease] = []
        self.handed_out: Counter[tuple[Place, int]] = Counter()

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case HandOut(leases):
                    self.at_work += leases
                    self.handed_out.update((lease.place, lease.offset) for lease in leases)
                case LeaseLost():
                    self.lost.append(effect)
                case JobTimedOut(lease):
                    self.timed_out.append(lease)
        assert len(self.at_work) <= self.concurrency, "more was handed out than there are workers"

    def exchange(self) -> bool:
        """One request and its answer. Returns whether there was anything to say."""
        request = self.member.next_request(1, self.now_ms)
        if request is None:
            return False
        assert request.max_records <= self.concurrency - len(self.at_work), "nothing is leased for busy workers"
        answer = self.broker.ask(self.name, request, self.now_ms)
        if answer.error is not ErrorCode.NONE:
            self.broker.disconnect(self.name)
        self.perform(self.member.answered(1, answer, self.now_ms))
        return True

    def settle(self) -> None:
        """Say all that is to be said, without leasing more than once."""
        for _ in range(50):
            if not self.exchange():
                return
            if not self.member.leases and not self.at_work:
                return

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.perform(self.member.tick(self.now_ms))

    def begin(self, lease: Lease) -> bool:
        return self.member.begin(lease, self.now_ms)

    def finish(self, lease: Lease, kind: Acknowledgement | None) -> None:
        self.at_work.remove(lease)
        self.perform(self.member.finished(lease, kind, self.now_ms))

    def wait(self, lease: Lease, ms: int) -> None:
        self.at_work.remove(lease)
        self.perform(self.member.waits(lease, self.now_ms + ms, self.now_ms))


def test_no_more_is_leased_than_workers_can_begin() -> None:
    driven = Driven(ModelledBroker(PLACES, records=10), concurrency=3)
    driven.exchange()
    assert len(driven.at_work) == 3
    assert driven.member.next_request(1, 0) is None
    driven.finish(driven.at_work[0], Acknowledgement.ACCEPT)
    request = driven.member.next_request(1, 0)
    assert request is not None
    assert request.max_records == 1
    assert request.acknowledgements


def test_a_lease_is_renewed_at_70_percent_of_its_lock() -> None:
    broker = ModelledBroker(PLACES[:1], records=1)
    driven = Driven(broker)
    driven.exchange()
    lease = driven.at_work[0]
    assert driven.begin(lease)
    driven.exchange()  # nothing more is there
    driven.advance(int(LOCK_MS * 0.69))
    assert not lease.is_renewing
    driven.advance(int(LOCK_MS * 0.02))
    assert lease.is_renewing
    driven.exchange()
    driven.advance(LOCK_MS // 2)
    assert lease.is_held
    assert broker.entries[PLACES[0]][0].until_ms > LOCK_MS
    assert broker.entries[PLACES[0]][0].count == 1


def test_a_renewal_does_not_go_with_the_fetch_for_an_idle_worker() -> None:
    broker = ModelledBroker(PLACES, records=1)
    driven = Driven(broker, concurrency=4)
    driven.exchange()
    for lease in driven.at_work:
        assert driven.begin(lease)
    driven.advance(int(LOCK_MS * 0.71))
    renewal = driven.member.next_request(1, driven.now_ms)
    assert renewal is not None
    assert renewal.renews
    assert not renewal.is_fetch, "a broker refuses it as INVALID_REQUEST (KIP-1222), and the member loses its leases"
    answer = broker.ask("m", renewal, driven.now_ms)
    driven.perform(driven.member.answered(1, answer, driven.now_ms))
    fetch = driven.member.next_request(1, driven.now_ms)
    assert fetch is not None
    assert fetch.max_records == 2, "the other workers lease on"
    assert not driven.lost


def test_a_lock_that_ran_out_is_a_lost_lease_and_its_result_says_nothing() -> None:
    broker = ModelledBroker(PLACES[:1], records=1)
    driven = Driven(broker)
    driven.exchange()
    lease = driven.at_work[0]
    driven.begin(lease)
    driven.advance(LOCK_MS + 1)  # the process was stopped for so long
    assert lease.is_lost
    assert [lost.lease for lost in driven.lost] == [lease]
    driven.finish(lease, Acknowledgement.ACCEPT)
    driven.exchange()
    assert broker.entries[PLACES[0]][0].state == "acquired"  # it was leased again, and not accepted
    assert driven.handed_out[PLACES[0], 0] == 2


def test_an_attempt_that_lasts_too_long_is_taken_from_its_worker() -> None:
    driven = Driven(ModelledBroker(PLACES[:1], records=1), max_job_ms=LOCK_MS * 3)
    driven.exchange()
    lease = driven.at_work[0]
    driven.begin(lease)
    for _ in range(31):
        driven.advance(LOCK_MS // 10)
        driven.exchange()
    assert driven.timed_out == [lease]
    assert lease.is_held
    driven.perform(driven.member.settle(lease, Acknowledgement.RELEASE, driven.now_ms))
    assert lease.state is LeaseState.SETTLING
    assert lease in driven.at_work


def test_an_attempt_is_taken_from_its_worker_long_before_its_lock_is_renewed() -> None:
    driven = Driven(ModelledBroker(PLACES[:1], records=1), max_job_ms=LOCK_MS // 10)
    driven.exchange()
    driven.begin(driven.at_work[0])
    due_ms = driven.member.next_timer_ms(0)
    assert due_ms is not None
    assert due_ms <= LOCK_MS // 10
    driven.advance(LOCK_MS // 10)
    assert driven.timed_out == driven.at_work


def test_a_record_waits_for_its_next_attempt_with_its_lease() -> None:
    broker = ModelledBroker(PLACES[:1], records=1)
    driven = Driven(broker)
    driven.exchange()
    lease = driven.at_work[0]
    driven.begin(lease)
    driven.wait(lease, LOCK_MS * 5)
    for _ in range(49):
        driven.advance(LOCK_MS // 10)
        driven.exchange()
    assert not driven.at_work
    assert lease.is_held
    driven.advance(LOCK_MS // 5)
    assert driven.at_work == [lease]
    driven.begin(lease)
    assert lease.attempt == 2
    assert broker.entries[PLACES[0]][0].count == 1, "no delivery was used up"


def test_nothing_is_leased_while_too_many_records_wait() -> None:
    driven = Driven(ModelledBroker(PLACES[:1], records=20), concurrency=4, max_waiting=4)
    driven.exchange()
    for lease in list(driven.at_work):
        driven.begin(lease)
        driven.wait(lease, 500)
    assert driven.member.next_request(1, 0) is None


def test_gaps_are_acknowledged_as_gaps() -> None:
    broker = ModelledBroker(PLACES[:1], records=4, gaps=frozenset({0, 2}))
    driven = Driven(broker)
    driven.exchange()
    assert [lease.offset for lease in driven.at_work] == [1, 3]
    driven.exchange()
    assert broker.entries[PLACES[0]][0].state == broker.entries[PLACES[0]][2].state == "archived"


def test_one_refused_acknowledgement_does_not_cost_the_others_theirs() -> None:
    broker = ModelledBroker(PLACES[:1], records=3)
    driven = Driven(broker, concurrency=3)
    driven.exchange()
    broker.entries[PLACES[0]][1].holder = "somebody else"
    leases = list(driven.at_work)
    for lease in leases:
        driven.begin(lease)
        driven.finish(lease, Acknowledgement.ACCEPT)
    driven.settle()
    states = [broker.entries[PLACES[0]][offset].state for offset in range(3)]
    assert states == ["acknowledged", "acquired", "acknowledged"]
    assert [lost.lease.offset for lost in driven.lost] == [1]


def test_closing_releases_at_once_what_was_not_begun_or_waits() -> None:
    broker = ModelledBroker(PLACES[:1], records=3)
    driven = Driven(broker, concurrency=3)
    driven.exchange()
    running, waiting, unbegun = driven.at_work
    driven.begin(running)
    driven.begin(waiting)
    driven.wait(waiting, 500)
    driven.perform(driven.member.close(driven.now_ms))
    assert not driven.begin(unbegun)
    driven.finish(unbegun, None)
    driven.exchange()
    assert [broker.entries[PLACES[0]][offset].state for offset in range(3)] == ["acquired", "available", "available"]
    assert not driven.member.is_closed
    driven.finish(running, Acknowledgement.ACCEPT)
    driven.exchange()
    assert driven.member.is_closed
    assert "m" not in broker.sessions
    assert broker.entries[PLACES[0]][0].state == "acknowledged"


def test_a_lost_connection_loses_its_leases() -> None:
    broker = ModelledBroker(PLACES[:1], records=2)
    driven = Driven(broker, concurrency=2)
    driven.exchange()
    broker.disconnect("m")
    driven.perform(driven.member.disconnected(1, "cut", driven.now_ms))
    assert len(driven.lost) == 2
    assert not driven.member.leases
    for lease in list(driven.at_work):
        driven.finish(lease, Acknowledgement.ACCEPT)
    driven.advance(200)
    driven.exchange()
    assert len(driven.at_work) == 2
    assert driven.at_work[0].delivery_count == 2


def test_a_broker_that_leases_more_than_was_asked_for_gets_the_rest_back() -> None:
    broker = ModelledBroker(PLACES[:1], records=5)
    driven = Driven(broker, concurrency=2)
    request = driven.member.next_request(1, 0)
    assert request is not None
    generous = type(request)(
        node=1, epoch=0, sent_ms=0, max_records=5, wait_ms=0, added=request.added, acknowledgements={}
    )
    driven.perform(driven.member.answered(1, broker.ask("m", generous, 0), 0))
    assert len(driven.at_work) == 2
    driven.exchange()
    assert [entry.state for entry in broker.entries[PLACES[0]].values()].count("available") == 3


@given(seed=st.integers(0, 2**32), concurrency=st.integers(1, 6), members=st.integers(1, 3))
def test_whatever_fails_every_record_is_settled_and_none_is_accepted_twice(
    seed: int, concurrency: int, members: int
) -> None:
    random = Random(seed)
    gaps = frozenset(random.sample(range(12), 2))
    broker = ModelledBroker(PLACES, records=12, gaps=gaps)
    driven = [Driven(broker, name=f"m{number}", concurrency=concurrency, max_waiting=3) for number in range(members)]
    now_ms = 0
    accepted: Counter[tuple[Place, int]] = Counter()

    def states() -> list[str]:
        return [entry.state for entries in broker.entries.values() for entry in entries.values()]

    for turn in range(3_000):
        if set(states()) <= {"acknowledged", "archived"}:
            break
        faulty = turn < 400
        each = random.choice(driven)
        now_ms += random.choice((0, 1, 20, 100 if faulty else 5))
        for other in driven:
            other.now_ms = now_ms
        each.perform(each.member.tick(now_ms))
        action = random.random()
        if faulty and action < 0.03:
            broker.disconnect(each.name)
            each.perform(each.member.disconnected(1, "cut", now_ms))
        elif faulty and action < 0.06 and (request := each.member.next_request(1, now_ms)) is not None:
            if random.random() < 0.5:
                broker.ask(each.name, request, now_ms)  # the answer is lost
            broker.disconnect(each.name)
            each.perform(each.member.disconnected(1, "no answer", now_ms))
        elif action < 0.5:
            each.exchange()
        elif each.at_work:
            lease = random.choice(each.at_work)
            if not lease.has_begun and each.begin(lease):
                continue
            choice = random.random()
            if choice < 0.6:
                if lease.is_held:
                    accepted[lease.place, lease.offset] += 1
                each.finish(lease, Acknowledgement.ACCEPT)
            elif choice < 0.8:
                each.wait(lease, random.choice((10, 300, 1_500)))
            else:
                each.finish(lease, Acknowledgement.RELEASE)
    assert set(states()) <= {"acknowledged", "archived"}, "every record is settled"
    assert not broker.refusals
    for place, entries in broker.entries.items():
        for offset, entry in entries.items():
            assert (entry.state == "archived") == (offset in gaps)
            assert offset in gaps or accepted[place, offset] >= 1


def test_an_answer_for_a_partition_that_moved_asks_for_its_leader() -> None:
    from ottla.queues.core.effects import FindLeaders, SharePartitionAnswer

    driven = Driven(ModelledBroker(PLACES[:1], records=1))
    assert driven.member.next_request(1, 0) is not None
    moved = SharePartitionAnswer(place=PLACES[0], error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    effects = driven.member.answered(1, ShareAnswer(lock_ms=LOCK_MS, partitions=[moved]), 0)
    assert any(isinstance(effect, FindLeaders) for effect in effects)
    assert driven.member.assignment == []
