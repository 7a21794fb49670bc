"""Carries out the session's client calls on the poll thread, between two polls, and handles commit responses.

Only that thread may call the client; see `ottla.sync.consume.group_member`. What is decided elsewhere waits in a queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar, Unpack

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from ottla.app.member.client_commands import ClientCommands, CommandParts
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Commit,
    Effect,
    FindRetryPositions,
    LookAtLogs,
    PausePartitions,
    ResumePartitions,
    SeekPartition,
)
from ottla.records import TopicPartition
from ottla.sync.client.client_errors import is_fenced, is_of_another_generation
from ottla.sync.consume.group_metadata import generation_of
from ottla.sync.consume.lookups import client_offsets, client_partitions, retry_positions
from ottla.telemetry import log_event


class ClientWork(ClientCommands):
    """The queue in front of one client. `client` is set before anything is served."""

    def __init__(self, **parts: Unpack[CommandParts]) -> None:
        super().__init__(**parts)
        self.is_over: Callable[[], bool] = lambda: False
        """Whether the member has ended, and its client was left to itself."""
        self.commits_sent = 0
        self.commits_answered = 0
        self._waiting: deque[Effect] = deque()
        self._sent_ms: deque[int] = deque()
        """When the commits were sent that are not answered. The client answers them in order."""
        self._commit_error: KafkaError | None = None
        self._last: Mapping[TopicPartition, tuple[int, str]] = {}

    def add(self, effect: Effect) -> None:
        """Queue an effect, in the order it was decided: under the session's lock."""
        self._waiting.append(effect)
        if isinstance(effect, Commit):
            self.commits_sent += 1

    def sought(self) -> set[TopicPartition]:
        """Return the partitions for which a seek waits. Under the session's lock."""
        return {effect.topic_partition for effect in self._waiting if isinstance(effect, SeekPartition)}

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop the calls that wait for these partitions, under the session's lock: they would reach the next assignment
        (a pause that nothing ends) or the next owner (a commit behind its own). The last commit of a partition names
        what is dropped here."""
        gone = set(partitions)
        waiting = [_without(effect, gone) for effect in self._waiting]
        self._waiting.clear()
        self._waiting.extend(effect for effect in waiting if effect is not None)

    def serve(self) -> None:
        """Call the client for what was decided since the last time: on the poll thread, between two polls."""
        waiting = self._waiting
        refused: dict[TopicPartition, SeekPartition] = {}
        while waiting:
            match effect := waiting.popleft():
                case PausePartitions(partitions):
                    self.call(self.client.pause, client_partitions(partitions))
                case ResumePartitions(partitions):
                    if self.call(self.client.resume, client_partitions(partitions)):
                        self._fetch_now(partitions)
                case SeekPartition(name, offset):
                    refused.pop(name, None)
                    if not self.call(self.client.seek, ClientPartition(name.topic, name.partition, offset)):
                        refused[name] = effect
                case FindRetryPositions(partitions):
                    found = retry_positions(self.client, partitions, on_error=self.log_lookup_error)
                    self._step(events.RetryPositionsFound(partitions, found))
                case LookAtLogs(epochs, tails):
                    self._look(events.LookedAt(epochs, self._positions(epochs), tails))
                case Commit(offsets):
                    self._commit(offsets)
        # What the client gives of these meanwhile is not what was asked for, and would be committed over what was.
        waiting.extendleft(refused.values())

    def call(self, call: Callable[[Any], Any], argument: Any) -> bool:
        """Return a call that may arrive too late. Its result says whether the client executed it."""
        try:
            call(argument)
        except KafkaException as error:
            # The partition may be leaving at this moment; the rebalance callback settles it.
            self._error_log.write("info", call.__name__, str(error))
            return False
        return True

    def _fetch_now(self, resumed: Sequence[TopicPartition]) -> None:
        """Have resumed partitions fetched at once.

        A broker's thread of librdkafka that has nothing to fetch looks again after a second. A resume does not wake it
        (rd_kafka_toppar_pause_resume), a seek does. A seek makes the client forget the leader epoch of its position
        until the next record (KIP-320), and is made only where the last fetch has shown that there is one.
        """
        for name, offset in self._positions(resumed).items():
            place = ClientPartition(name.topic, name.partition, offset)
            if self._has_more(place):
                self.call(self.client.seek, place)

    def _has_more(self, place: ClientPartition) -> bool:
        try:
            found = self.client.get_watermark_offsets(place, cached=True)
        except KafkaException:
            return False
        return found is not None and bool(found[1] > place.offset)

    def commit_and_wait(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commit inside a rebalance callback. It is logged when it fails, and nothing else can be done."""
        sent_ms = self._clock.monotonic_ms()
        fenced: bool | None = None
        try:
            self.client.commit(offsets=client_offsets(offsets), asynchronous=False)
        except KafkaException as error:
            if self.is_over():
                return
            problem: KafkaError = error.args[0]
            fenced = is_fenced(problem)
            fields = {"group": self._group, "error": problem.str(), "is_fenced": fenced}
            log_event("final_commit_failed", "warning", fields)
        now_ms = self._clock.monotonic_ms()
        self._watch.committed(partitions=len(offsets), sent_ms=sent_ms, now_ms=now_ms, is_fenced=fenced)

    def commit_last(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Queue the last commit of a closing member. `commit_last_again` is called with the response."""
        self._last = offsets
        self.add(Commit(offsets))

    def commit_last_again(self) -> bool:
        """Commit it once more, if it was refused only because the member was joining again meanwhile.

        Its request waits behind a JoinGroup on the coordinator's connection, and names the generation before it. What a
        cooperative member keeps over the rebalance is its own all the same; `commit_leaving` has committed the rest.
        """
        if self._commit_error is None or not is_of_another_generation(self._commit_error):
            return False
        try:
            mine = {TopicPartition(p.topic, p.partition) for p in self.client.assignment()}
            is_member = generation_of(self.client.consumer_group_metadata()) >= 0
        except KafkaException:
            return False
        kept = {name: offset for name, offset in self._last.items() if name in mine}
        if not kept or not is_member:
            return False
        self.commit_last(kept)
        self.serve()
        return True

    def commit_leaving(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit what a closing member has left to commit of these partitions, in its rebalance callback."""
        if self.commits_answered == self.commits_sent and self._commit_error is None:
            return
        leaving = {name: self._last[name] for name in partitions if name in self._last}
        if leaving:
            self.commit_and_wait(leaving)

    def on_commit(self, error: KafkaError | None, partitions: list[ClientPartition]) -> None:
        """Handle the client's callback of a commit: the coordinator has answered."""
        failed = error or next((p.error for p in partitions if p.error is not None), None)
        self._answered(failed, partitions, sent_ms=self._sent_ms.popleft() if self._sent_ms else None)

    def take_commit_error(self) -> KafkaError | None:
        """Return why the last commit failed, if it did, and forget it."""
        error, self._commit_error = self._commit_error, None
        return error

    def _commit(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        if not offsets:  # its partitions were revoked meanwhile
            self._answered(None, [], sent_ms=None)
            return
        sent_ms = self._clock.monotonic_ms()
        try:
            self.client.commit(offsets=client_offsets(offsets), asynchronous=True)
        except KafkaException as error:
            self._answered(error.args[0], [], sent_ms=sent_ms)
        else:
            self._sent_ms.append(sent_ms)

    def _answered(self, failed: KafkaError | None, partitions: list[ClientPartition], *, sent_ms: int | None) -> None:
        """Handle the response to a commit. `sent_ms` is None for one that was not sent; it is not counted."""
        self.commits_answered += 1
        self._commit_error = failed
        now_ms = self._clock.monotonic_ms()
        fenced = None if failed is None else is_fenced(failed)
        if sent_ms is not None:
            self._watch.committed(partitions=len(partitions), sent_ms=sent_ms, now_ms=now_ms, is_fenced=fenced)
        if failed is not None:
            self._step(events.CommitFailed(failed.str(), is_fenced(failed)))
            return
        self._step(events.CommitSucceeded({TopicPartition(p.topic, p.partition): p.offset for p in partitions}))

    def _positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the client reads on, as far as it has read: no broker is asked."""
        try:
            found = self.client.position(client_partitions(list(partitions)))
        except KafkaException:
            return {}
        return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def log_lookup_error(self, error: Exception) -> None:
        """Log that offsets could not be looked up."""
        self._error_log.write("warning", "retry_positions_unread", str(error))  # the session asks again


def _without(effect: Effect, gone: Set[TopicPartition]) -> Effect | None:
    """Return the part of an effect that concerns the other partitions, None if there is none. A commit stays: its
    response is awaited."""
    match effect:
        case SeekPartition(name, _):
            return None if name in gone else effect
        case PausePartitions(partitions) | ResumePartitions(partitions):
            left = [name for name in partitions if name not in gone]
            return type(effect)(left) if left else None
        case Commit(offsets):
            return Commit({name: offset for name, offset in offsets.items() if name not in gone})
        case _:
            return effect


T = TypeVar("T")

_LOOK_EVERY_S: Final = 0.05
"""Delay until a caller learns that polling has ended."""


class PollCalls:
    """A queue of calls. Only the poll thread may call the client, and `run` is called by that thread alone."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()

    def ask(self, call: Callable[[], T], *, is_over: Callable[[], bool], closed: Callable[[], Exception]) -> T:
        """Queue a call and return its result, or raise its error; raise the error of `closed` after the last poll."""
        result: Future[T] = Future()
        self._calls.put((call, result))
        while True:
            was_over = is_over()
            try:
                return result.result(_LOOK_EVERY_S)
            except TimeoutError:
                if result.done():  # it was the call's own, or it came at this moment
                    return result.result()
                if was_over:
                    raise closed() from None

    @property
    def are_waiting(self) -> bool:
        return not self._calls.empty()

    def run(self) -> None:
        """Make all calls that wait."""
        while self.are_waiting:
            call, result = self._calls.get_nowait()
            try:
                result.set_result(call())
            except BaseException as error:
                result.set_exception(error)
