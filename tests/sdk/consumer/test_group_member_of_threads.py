"""The threaded member and its client, turn by turn: what was decided while a poll went on reaches the client after it,
and by then a partition may be somewhere else, or somebody else's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition
from session_driver import measure_of

from ottla.app.member.member_base import MemberOptions
from ottla.app.pull.pull_plan import pull_plan
from ottla.clock import ManualClock
from ottla.config import consumer_settings
from ottla.config.priorities import Priorities
from ottla.consumer.commit.commits import CommitPolicy
from ottla.consumer.model import events
from ottla.consumer.model.failed_writes import OnWritten, Write
from ottla.consumer.model.run import Run, RunResult
from ottla.consumer.partitions.flow import FlowLimits
from ottla.failures import Dead, Failure
from ottla.records import TopicPartition
from ottla.sync.client.headers import ReadAgain
from ottla.sync.consume.group_member import GroupMember
from ottla.testing.waiting import wait_until

A = TopicPartition("orders", 0)
THERE = [ClientPartition("orders", 0)]


class ScriptedClient:
    """One partition of a hundred records. As librdkafka it keeps the pause of a partition that is not assigned."""

    def __init__(self) -> None:
        self.read_to = 0
        self.step = 10
        self.is_assigned = False
        self.is_paused = False
        self.during_poll: Any = None
        self.refused_seeks = 0
        self.commits: list[Mapping[int, int]] = []

    def poll(self, timeout_s: float) -> Message | None:
        if self.during_poll is not None:
            during, self.during_poll = self.during_poll, None
            during()
        return next(iter(self._read(1)), None)

    def consume(self, most: int, timeout_s: float) -> list[Message]:
        return self._read(self.step - 1)

    def seek(self, to: ClientPartition) -> None:
        if self.refused_seeks:
            self.refused_seeks -= 1
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.read_to = to.offset

    def pause(self, partitions: list[ClientPartition]) -> None:
        self.is_paused = True

    def resume(self, partitions: list[ClientPartition]) -> None:
        self.is_paused = False

    def commit(self, offsets: list[ClientPartition], asynchronous: bool) -> None:
        self.commits.append({each.partition: each.offset for each in offsets})

    def committed(self, partitions: list[ClientPartition], timeout: float) -> list[ClientPartition]:
        return []

    def position(self, partitions: list[ClientPartition]) -> list[ClientPartition]:
        return []

    def _read(self, most: int) -> list[Message]:
        if self.is_paused or not self.is_assigned:
            return []
        offsets = range(self.read_to, min(self.read_to + most, 100))
        self.read_to += len(offsets)
        return [Message(topic="orders", partition=0, offset=offset, value=b"v") for offset in offsets]


class NoDeadLetters:
    def write(self, letter: Write, on_written: OnWritten) -> None:
        raise AssertionError("nothing is dead-lettered")

    def close(self, timeout_s: float) -> None:
        pass


class Turns:
    """A member whose poll thread is the test's own."""

    def __init__(self) -> None:
        options = MemberOptions(
            group="g",
            topics=["orders"],
            plans=[pull_plan(["orders"], 10, None, None, None)],
            settings=consumer_settings("localhost:9", group_id="g", environ={}),
            commits=CommitPolicy(every_records=1, every_s=100),
            drain_s=0,
            clock=ManualClock(),  # a run that takes long would make the next one shorter
        )
        self.member = GroupMember(options, execute={}, dead_letters=NoDeadLetters())
        self.member._offset_poller.stop()  # there is no broker to ask
        self.client = self.member._client = self.member._work.client = ScriptedClient()
        self.assign()

    def assign(self) -> None:
        self.client.is_assigned = True
        self.member._on_assign(self.client, THERE)

    def revoke(self) -> None:
        self.member._on_revoke(self.client, THERE)
        self.client.is_assigned = False

    def turn(self) -> None:
        self.member._turn()

    def take(self) -> Run:
        run = self.member.take_run(0)
        assert run is not None
        return run

    def finish(self, run: Run, result: RunResult | None = None) -> None:
        self.member.finish(events.RunFinished(run, result or RunResult()))


def offsets_of(run: Run) -> list[int]:
    return [record.offset for record in run.records]


def test_what_was_polled_before_a_seek_reached_the_client_does_not_count_for_the_time_after_it() -> None:
    turns = Turns()
    turns.turn()
    turns.finish(turns.take())
    seeking = threading.Thread(target=turns.member.seek, args=(A, 5))
    seeking.start()
    wait_until(lambda: turns.member._calls.are_waiting, timeout_s=30)

    turns.turn()
    seeking.join(30)
    turns.turn()
    assert offsets_of(turns.take()) == list(range(5, 15))
    assert turns.member.position(A) == 5


def test_what_a_poll_gives_in_which_a_rebalance_wanted_a_seek_comes_from_before_it() -> None:
    turns = Turns()
    turns.turn()
    turns.finish(turns.take())
    turns.client.during_poll = lambda: turns.member._step(events.SeekRequested(A, 5))

    turns.turn()
    turns.turn()
    assert offsets_of(turns.take()) == list(range(5, 15))


def test_a_seek_that_the_client_refuses_is_made_again_and_nothing_counts_before_it_is() -> None:
    turns = Turns()
    turns.turn()
    turns.finish(turns.take())
    turns.client.refused_seeks = 2
    turns.member._step(events.SeekRequested(A, 5))

    for _ in range(3):
        assert turns.member.take_run(0) is None
        turns.turn()
    assert offsets_of(turns.take()) == list(range(5, 15))


def test_a_seek_that_the_client_refuses_is_forgotten_for_a_later_one_and_when_the_partition_goes_away() -> None:
    turns = Turns()
    turns.turn()
    turns.finish(turns.take())
    turns.client.refused_seeks = 1
    turns.member._step(events.SeekRequested(A, 5))
    turns.member._step(events.SeekRequested(A, 7))
    turns.turn()
    run = turns.take()
    assert offsets_of(run) == list(range(7, 17))
    turns.finish(run)

    turns.client.refused_seeks = 1
    turns.member._step(events.SeekRequested(A, 5))
    turns.turn()
    turns.revoke()
    turns.client.read_to = 50
    turns.assign()
    turns.turn()
    assert offsets_of(turns.take()) == list(range(50, 60))


def test_a_record_of_the_last_assignment_is_not_read_again_and_moves_the_next_one_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def has_none(messages: Sequence[Message], read_again: ReadAgain) -> list[None]:
        return [read_again(message) for message in messages][:0]  # no header of any can be had

    turns = Turns()
    turns.turn()
    turns.revoke()
    with monkeypatch.context() as patch:
        patch.setattr("ottla.sync.consume.messages.all_headers", has_none)
        turns.member._take_in([Message(topic="orders", partition=0, offset=50, value=b"v")], asks=False)
    turns.assign()
    turns.client.read_to = 5  # what was committed
    turns.turn()
    assert offsets_of(turns.take()) == list(range(5, 15))


def test_a_pause_of_the_last_assignment_does_not_reach_the_next_one() -> None:
    turns = Turns()
    turns.turn()
    run = turns.take()

    def rebalance() -> None:
        dead = Failure.of_outcome(Dead("bad"))  # without a dead letter topic: the partition stops
        turns.finish(run, RunResult(done=(), failures=[(run.records[0], dead)], untouched=run.records[1:]))
        turns.revoke()

    turns.client.during_poll = rebalance
    turns.turn()
    turns.assign()
    turns.client.read_to = 0
    turns.turn()

    assert not turns.client.is_paused
    assert offsets_of(turns.take()) == list(range(10))


def test_the_last_commit_of_a_partition_is_the_last() -> None:
    turns = Turns()
    turns.turn()
    run = turns.take()

    def rebalance() -> None:
        turns.finish(run)
        assert turns.client.commits == [], "it is to be sent after this poll"
        turns.revoke()

    turns.client.during_poll = rebalance
    turns.turn()
    turns.turn()
    assert turns.client.commits == [{0: 10}], "another member may have committed more since"


def test_nothing_is_committed_for_a_partition_that_was_lost() -> None:
    turns = Turns()
    turns.turn()
    run = turns.take()

    def lose() -> None:
        turns.finish(run)
        turns.client.is_assigned = False
        turns.member._on_lost(turns.client, THERE)

    turns.client.during_poll = lose
    turns.turn()
    turns.turn()
    assert turns.client.commits == []
    turns.assign()
    turns.client.read_to = 0
    turns.turn()
    turns.finish(turns.take())
    turns.turn()
    assert turns.client.commits == [{0: 10}], "the commit that was dropped holds up no other"


class Flooded:
    """A client in whose queue an urgent record stands behind many that are not."""

    def __init__(self, bulk: int) -> None:
        self.queue = [Message(topic="orders.bulk", partition=0, offset=at, value=b"v") for at in range(bulk)]
        self.queue.append(Message(topic="orders.urgent", partition=0, offset=0, value=b"u"))

    def poll(self, timeout_s: float) -> Message | None:
        return next(iter(self.consume(1, 0)), None)

    def consume(self, most: int, timeout_s: float) -> list[Message]:
        taken, self.queue = self.queue[:most], self.queue[most:]
        return taken

    def pause(self, partitions: list[ClientPartition]) -> None:
        pass

    def resume(self, partitions: list[ClientPartition]) -> None:
        pass

    def committed(self, partitions: list[ClientPartition], timeout: float) -> list[ClientPartition]:
        return []

    def position(self, partitions: list[ClientPartition]) -> list[ClientPartition]:
        return []


def flooded(client: Flooded) -> GroupMember:
    orders = Priorities("orders", ("urgent", "normal", "bulk"))
    options = MemberOptions(
        group="g",
        topics=orders.topics,
        plans=[pull_plan(orders.topics, 10, None, None, None, priorities=orders)],
        settings=consumer_settings("localhost:9", group_id="g", environ={}),
        flow=FlowLimits(hold_ms=0),  # the clock stands still
        drain_s=0,
        clock=ManualClock(),
    )
    member = GroupMember(options, execute={}, dead_letters=NoDeadLetters())
    member._offset_poller.stop()  # there is no broker to ask
    member._client = member._work.client = client
    member._on_assign(client, [ClientPartition(topic, 0) for topic in ("orders.bulk", "orders.urgent")])
    return member


def test_an_urgent_record_is_taken_in_before_all_that_the_client_hands_out_before_it() -> None:
    client = Flooded(12_000)
    member = flooded(client)

    member._turn()
    assert not client.queue
    runs = [member.take_run(0), member.take_run(0)]
    assert [run and run.topic_partition.topic for run in runs] == ["orders.urgent", "orders.bulk"]


class Counting(Flooded):
    """A client that looks, whenever it is called, whether somebody still has a message that it gave before."""

    def __init__(self, bulk: int) -> None:
        super().__init__(bulk)
        self.most_given = 0
        self.still_had: list[Message] = []
        self._given: list[Message] = []

    def consume(self, most: int, timeout_s: float) -> list[Message]:
        while self._given:
            message = self._given.pop()
            if sys.getrefcount(message) > 2:  # ours, and that of the question
                self.still_had.append(message)
        taken = super().consume(most, timeout_s)
        self._given = list(taken)
        self.most_given = max(self.most_given, len(taken))
        return taken


def test_messages_are_gone_before_the_client_is_asked_for_more_than_makes_python_look_for_garbage() -> None:
    client = Counting(12_000)
    member = flooded(client)
    while client.queue:
        member._turn()
    assert len(client.still_had) <= 1, "the one that was polled"
    assert 0 < client.most_given < 700


def test_workers_let_the_engine_go_first_while_it_takes_in_what_the_client_has() -> None:
    client = Flooded(2_000)
    member = flooded(client)
    way = member._poll_priority
    assert way is not None
    consume, had = client.consume, []

    def watched(most: int, timeout_s: float) -> list[Message]:
        had.append(way._had is not None)
        return consume(most, timeout_s)

    client.poll = lambda timeout_s: next(iter(consume(1, 0)), None)  # type: ignore[method-assign]
    client.consume = watched  # type: ignore[method-assign]
    member._turn()
    assert had
    assert all(had)
    assert way._had is None
    assert Turns().member._poll_priority is None, "where there are no priorities, nobody waits for it"


def test_an_urgent_record_does_not_wait_until_all_bulk_that_the_client_gave_is_taken_in() -> None:
    client = Flooded(12_000)
    client.queue.pop()
    member = flooded(client)
    bulk = TopicPartition("orders.bulk", 0)

    member._turn()
    client.queue.append(Message(topic="orders.urgent", partition=0, offset=0, value=b"u"))
    member._turn()
    taken_in = measure_of(member._session, 0).partitions
    assert {each.topic_partition.topic: each.buffered_records for each in taken_in}["orders.bulk"] < 12_000
    runs = [member.take_run(0), member.take_run(0)]
    assert "orders.urgent" in [run and run.topic_partition.topic for run in runs]

    for _ in range(10):
        member._turn()
    assert [
        each.buffered_records for each in measure_of(member._session, 0).partitions if each.topic_partition == bulk
    ] == [12_000]


def test_what_waits_to_be_taken_in_is_not_once_its_partition_is_gone() -> None:
    client = Flooded(12_000)
    client.queue.pop()
    member = flooded(client)
    places = [ClientPartition("orders.bulk", 0)]

    member._turn()
    member._on_revoke(client, places)
    member._on_assign(client, places)  # the client begins again at what is committed
    for _ in range(10):
        member._turn()
    buffered = [each.buffered_records for each in measure_of(member._session, 0).partitions]
    assert buffered == [0, 0]
