"""What a member leases beyond its free workers: as much as they begin within a moment, and never for long."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from modelled_share_broker import ModelledBroker

from ottla.queues.core.acknowledgements import Acknowledgement, Place
from ottla.queues.core.effects import Effect, HandOut, LeaseLost
from ottla.queues.core.lease import Lease
from ottla.queues.core.prefetch import AHEAD_MS, Prefetch
from ottla.queues.core.share_member import ShareMember
from ottla.queues.core.share_session import ShareRequest
from ottla.topics import TopicPartition

PLACE = Place(b"t" * 16, 0)


class Driven:
    """One member that leases ahead, and its broker."""

    def __init__(self, records: int, *, concurrency: int = 2, broker: ModelledBroker | None = None) -> None:
        self.broker = broker or ModelledBroker([PLACE], records=records)
        self.member = ShareMember(concurrency=concurrency, max_job_ms=60_000, max_waiting=8, most_ahead=100)
        self.member.lead({1: [(PLACE, TopicPartition("jobs", 0))]})
        self.now_ms = 1_000
        self.queued: list[Lease] = []
        self.lost: list[Effect] = []
        self.requests: list[ShareRequest] = []

    def perform(self, effects: list[Effect]) -> None:
        self.queued += [lease for effect in effects if isinstance(effect, HandOut) for lease in effect.leases]
        self.lost += [effect for effect in effects if isinstance(effect, LeaseLost)]

    def exchange(self) -> ShareRequest | None:
        look_ms = self.member.look_ms(1, self.now_ms)
        request = self.member.next_request(1, self.now_ms)
        assert (request is not None) == (look_ms is not None and look_ms <= self.now_ms), "a thread waits in time"
        if request is not None:
            self.requests.append(request)
            answer = self.broker.ask("m", request, self.now_ms)
            self.perform(self.member.answered(1, answer, self.now_ms))
        return request

    def accept_one(self) -> None:
        lease = self.queued.pop(0)
        is_accepted = self.member.begin(lease, self.now_ms)
        kind = Acknowledgement.ACCEPT if is_accepted else None
        self.perform(self.member.finished(lease, kind, self.now_ms))

    def work(self, jobs: int, *, each_ms: int) -> None:
        for _ in range(jobs):
            if not self.queued:
                self.exchange()
            self.now_ms += each_ms
            self.perform(self.member.tick(self.now_ms))
            self.accept_one()


def test_fast_jobs_are_leased_ahead_and_their_acknowledgements_go_with_the_next_fetch() -> None:
    driven = Driven(600)
    driven.work(400, each_ms=1)
    fetches = [request for request in driven.requests if request.is_fetch]
    assert max(request.max_records for request in fetches) > 50
    assert len(driven.requests) < 60, "a fetch of free workers would take 200"
    assert len(fetches) >= len(driven.requests) - 2


def test_jobs_that_take_longer_are_not_leased_ahead() -> None:
    driven = Driven(100)
    driven.work(20, each_ms=AHEAD_MS + 1)
    assert {request.max_records for request in driven.requests} <= {0, 1, 2}
    assert len(driven.queued) <= 2


def test_what_was_leased_ahead_is_released_once_when_workers_become_slow() -> None:
    driven = Driven(600)
    driven.work(400, each_ms=1)
    driven.exchange()
    slow, *ahead = driven.queued
    assert len(ahead) > 20
    assert driven.member.begin(slow, driven.now_ms)
    for _ in range(30):
        driven.now_ms += 100
        driven.perform(driven.member.tick(driven.now_ms))
        driven.exchange()
    held = [lease.offset for lease in ahead if driven.broker.entries[PLACE][lease.offset].state == "acquired"]
    assert len(held) <= 2, "but for those that a free worker was to begin"
    assert not driven.lost
    assert not any(driven.member.begin(lease, driven.now_ms) for lease in ahead if lease.offset not in held)
    driven.queued.clear()
    for lease in [slow, *ahead]:
        is_begun = lease is slow or driven.member.begin(lease, driven.now_ms)
        driven.perform(driven.member.finished(lease, Acknowledgement.ACCEPT if is_begun else None, driven.now_ms))
    for _ in range(2_000):
        driven.now_ms += 1
        driven.perform(driven.member.tick(driven.now_ms))
        driven.exchange()
        if driven.queued:
            driven.accept_one()
    entries = driven.broker.entries[PLACE].values()
    assert {entry.state for entry in entries} == {"acknowledged"}
    assert {entry.count for entry in entries} == {1, 2}


def test_a_record_that_came_again_is_not_leased_with_many_others() -> None:
    prefetch = Prefetch(concurrency=4)
    for _ in range(400):
        prefetch.finished()
    prefetch.ahead(10_000)
    for now_ms in range(10_050, 10_500, 50):
        for _ in range(50):
            prefetch.finished()
        prefetch.ahead(now_ms)
    assert prefetch.ahead(10_499) == 100
    prefetch.redelivered(10_499)
    assert prefetch.ahead(10_499) == 0
    for _ in range(1_000):
        prefetch.finished()
    assert prefetch.ahead(11_498) == 0
    for _ in range(1_000):
        prefetch.finished()
    assert prefetch.ahead(11_600) > 0


@given(seed=st.integers(0, 2**32), concurrency=st.integers(1, 4))
def test_whatever_fails_every_record_is_accepted(seed: int, concurrency: int) -> None:
    random = Random(seed)
    broker = ModelledBroker([PLACE], records=150)
    driven = Driven(0, concurrency=concurrency, broker=broker)
    accepted: Counter[int] = Counter()
    for turn in range(5_000):
        if {entry.state for entry in broker.entries[PLACE].values()} == {"acknowledged"}:
            break
        is_faulty = turn < 600
        driven.now_ms += random.choice((0, 0, 1, 2, 400 if is_faulty and turn % 50 == 0 else 3))
        driven.perform(driven.member.tick(driven.now_ms))
        action = random.random()
        if is_faulty and action < 0.01:
            broker.disconnect("m")
            driven.perform(driven.member.disconnected(1, "cut", driven.now_ms))
        elif action < 0.3:
            driven.exchange()
        elif driven.queued:
            lease = driven.queued.pop(random.randrange(min(concurrency, len(driven.queued))))
            if not driven.member.begin(lease, driven.now_ms):
                driven.perform(driven.member.finished(lease, None, driven.now_ms))
            elif random.random() < 0.1:
                driven.perform(driven.member.waits(lease, driven.now_ms + random.choice((5, 300)), driven.now_ms))
            else:
                accepted[lease.offset] += lease.is_held
                driven.perform(driven.member.finished(lease, Acknowledgement.ACCEPT, driven.now_ms))
    assert {entry.state for entry in broker.entries[PLACE].values()} == {"acknowledged"}
    assert not broker.refusals
    assert set(accepted) == set(range(150))
