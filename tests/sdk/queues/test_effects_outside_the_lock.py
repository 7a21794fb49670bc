"""What a settled lease brings about may wait for a producer: other threads renew and acknowledge meanwhile."""

from __future__ import annotations

import threading

from ottla.app.member.member_base import MemberOptions
from ottla.app.queue.queue_options import QueueOptions
from ottla.clock import ManualClock
from ottla.config import consumer_settings
from ottla.consumer.model import events
from ottla.consumer.model.failed_writes import OnWritten, Write
from ottla.consumer.model.run import Run, RunResult
from ottla.consumer.partitions.plan import RoutePlan
from ottla.failures.exceptions import Failure
from ottla.failures.failure import FailurePolicy
from ottla.failures.outcomes import Dead
from ottla.queues.core.acknowledgements import Acknowledgement, Place
from ottla.queues.core.effects import Effect, HandOut, ShareAnswer, SharePartitionAnswer
from ottla.queues.core.lease import Lease
from ottla.queues.io.lease_client import LeaseClient
from ottla.records import Record
from ottla.sync.consume.queue_member import ThreadedQueueMember
from ottla.topics import TopicPartition
from ottla.wire_client.client_settings import connection_settings

NODE, PLACE = 1, Place(b"t" * 16, 0)
SETTINGS = consumer_settings("localhost:9", group_id="g", environ={})  # nothing is started: there is no broker to ask


def record(offset: int) -> Record[bytes]:
    return Record(
        topic="jobs", partition=0, offset=offset, timestamp_ms=1, key=None, value=b"v", headers=[], raw_key=None,
        raw_value=b"v",
    )  # fmt: skip


def lease_one(client: LeaseClient, offset: int) -> None:
    """Bring the client a leased record, as the thread of its broker does."""
    with client.lock:
        request = client.member.next_request(NODE, client.now_ms())
        assert request is not None
        part = SharePartitionAnswer(place=PLACE, acquired=[(offset, offset, 1)], records={offset: record(offset)})
        answer = ShareAnswer(lock_ms=600_000, partitions=[part])
        effects = client.member.answered(NODE, answer, client.now_ms())
    client.perform(effects)


def is_free(lock: threading.RLock) -> bool:
    """Return whether another thread gets the lock now."""
    found: list[bool] = []

    def look() -> None:
        found.append(lock.acquire(blocking=False))
        if found[0]:
            lock.release()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]


class RefusedDeadLetters:
    """A dead letter topic that takes no record."""

    def __init__(self) -> None:
        self.member: ThreadedQueueMember | None = None
        self.was_free: list[bool] = []

    def write(self, letter: Write, on_written: OnWritten) -> None:
        assert self.member is not None
        self.was_free.append(is_free(self.member._client.lock))
        on_written(letter, "the topic takes no record")

    def close(self, timeout_s: float) -> None:
        pass


def test_a_dead_letter_is_written_again_without_the_lock_when_another_job_succeeds() -> None:
    clock, letters = ManualClock(), RefusedDeadLetters()
    plan = RoutePlan(name="job", topics=frozenset({"jobs"}), failures=FailurePolicy(dead_letter_topic="dead"))
    member = letters.member = ThreadedQueueMember(
        MemberOptions(group="g", topics=["jobs"], plans=[plan], settings=SETTINGS, clock=clock),
        queue=QueueOptions(max_attempts=3, max_job_ms=600_000, start="earliest"),
        execute={},
        dead_letters=letters,
    )
    client = member._client
    client.member.lead({NODE: [(PLACE, TopicPartition("jobs", 0))]})

    def begin(offset: int) -> Run:
        lease_one(client, offset)
        run = member._run_of(member._workers.poll())
        assert run.records[0].offset == offset
        assert client.begin(run.lease)
        return run

    dead = begin(0)
    failure = Failure(outcome=Dead("no"), error_type="ValueError", message="no")
    member._step(events.RunFinished(dead, RunResult(done=(), failures=[(dead.records[0], failure)])))
    assert letters.was_free == [True]
    succeeded = begin(1)
    clock.advance(60_000)  # the dead letter is due, and waits for the only worker
    member._step(events.RunFinished(succeeded, RunResult()), takes_run=True)
    assert letters.was_free == [True, True]


def test_settling_a_job_hands_out_the_next_one_without_the_lock() -> None:
    clock = ManualClock()
    handed_out: list[Lease] = []
    was_free: list[bool] = []

    def take(effects: list[Effect]) -> None:
        leases = [lease for effect in effects if isinstance(effect, HandOut) for lease in effect.leases]
        handed_out.extend(leases)
        was_free.extend(is_free(client.lock) for _ in leases)

    client = LeaseClient(
        connection_settings(SETTINGS),
        group="g",
        topics=["jobs"],
        concurrency=1,
        max_job_ms=600_000,
        max_waiting=4,
        on_effects=take,
        on_ended=lambda error: None,
        clock=clock,
    )
    client.member.lead({NODE: [(PLACE, TopicPartition("jobs", 0))]})
    lease_one(client, 0)
    client.waits(handed_out[0], client.now_ms() + 1_000)
    lease_one(client, 1)
    clock.advance(1_000)
    assert client.settle_once(handed_out[1], Acknowledgement.ACCEPT)
    assert [lease.offset for lease in handed_out] == [0, 1, 0]
    assert was_free == [True, True, True]
