"""One slot of a schedule in the hands of its owner: what the slot asks for, done over Kafka.

Each slot has a transactional id of its own. Claiming a slot initializes it: that aborts what an earlier owner left
open, and fences that owner, before the slot is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.errors import BrokerUnavailable, FencedError, InputError, OttlaError, RetriableError, UnknownTopic
from ottla.failures.dead_letter import DeadLetterReason, build_dead_letter
from ottla.records import TopicPartition
from ottla.schedule.headers import Outgoing, Waiting, delivered, done_record, rolled
from ottla.schedule.slot import Ask, Chunk, Claim, Delete, FindEnd, Look, Read, Release, Seen, Slot, Write
from ottla.schedule.wheel import WHEEL
from ottla.sync.produce.producer import Producer
from ottla.wire_client.cluster import EARLIEST, LATEST, Cluster
from ottla.wire_client.records import read_chunk

_TRANSACTION_TIMEOUT_MS: Final = 60_000
_COMMIT_TIMEOUT_S: Final = 30.0
_ANY_TIME: Final = 0
"""In ListOffsets: the first record of all, with its timestamp."""


class SlotWork:
    """The I/O of one slot. Not thread-safe: its scheduler's thread has it."""

    def __init__(
        self,
        place: TopicPartition,
        *,
        cluster: Cluster,
        settings: Mapping[str, Any],
        delete: Callable[[TopicPartition, int], None],
        now_ms: Callable[[], int],
        appended: Callable[[int], None],
    ) -> None:
        self._place = place
        self._cluster = cluster
        self._settings = settings
        self._delete = delete
        self._now_ms = now_ms
        self._appended = appended
        self._producer: Producer[Any, Any] | None = None
        self.slot = Slot(WHEEL, place.partition)

    def tick(self, now_ms: int) -> None:
        """Do what is to be done now. Raises what the next owner, or the next try, has to begin anew for."""
        work = self.slot.tick(now_ms)
        answer: Any = None
        while True:
            try:
                asked = work.send(answer)
            except StopIteration:
                return
            answer = self._answer(asked)

    def claim(self) -> None:
        """Become the only writer of this slot, and hear the brokers' time."""
        if self._producer is None:
            transactional_id = f"{self._place.topic}.{self._place.partition}"
            producer: Producer[Any, Any] = Producer(
                settings={
                    **self._settings,
                    "transactional.id": transactional_id,
                    "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS,
                    "linger.ms": 0,
                },
            )
            producer.sizes.leave_to_broker()
            self._producer = producer
            producer.start(_COMMIT_TIMEOUT_S)
            self.hear_the_time()

    def hear_the_time(self) -> None:
        """Write a record that says that nothing is done: its append time is the brokers' time."""
        self._commit([])

    def close(self) -> None:
        """Let go of the slot. What is open is aborted."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(0)
            except OttlaError:
                pass  # fenced, or out of reach: the next owner ends what is open

    def _answer(self, asked: Ask) -> Any:
        match asked:
            case Claim():
                self.claim()
            case Look():
                return self._look()
            case FindEnd():
                return self._cluster.list_offsets({self._place: LATEST})[self._place][0]
            case Read(offset):
                chunk = read_chunk(self._cluster, self._place, offset)
                return Chunk(chunk.records, chunk.next_offset)
            case Write():
                return self._write(asked)
            case Delete(to):
                self._delete(self._place, to)
            case Release():
                self.close()
        return None

    def _look(self) -> Seen:
        start = self._cluster.list_offsets({self._place: EARLIEST})[self._place][0]
        first, first_ms = self._cluster.list_offsets({self._place: _ANY_TIME})[self._place]
        return Seen(start, None if first < 0 else first_ms)

    def _write(self, write: Write) -> str | None:
        outgoing = [delivered(message) for message in write.deliver]
        unknown = self._unknown_topic({record.topic for record in outgoing})
        if unknown is not None:
            return unknown
        outgoing += [rolled(message, self._place.topic, slot) for message, slot in write.move]
        outgoing += [self._dead_letter(message, error) for message, error in write.give_up]
        done = done_record(self._place.topic, self._place.partition, write.offsets)
        return self._commit([*outgoing, done])

    def _commit(self, outgoing: list[Outgoing]) -> str | None:
        """Write in one transaction. Returns why not, where a record is to blame; raises where the brokers are."""
        producer = self._producer
        assert producer is not None
        if not outgoing:
            outgoing = [done_record(self._place.topic, self._place.partition, [])]
        deliveries: list[Any] = []
        now_ms = self._now_ms()
        try:
            with producer.transaction(_COMMIT_TIMEOUT_S):
                for record in outgoing:
                    deliveries.append(
                        producer.send(
                            record.topic,
                            record.value,
                            key=record.key,
                            headers=record.headers,
                            partition=record.partition,
                            timestamp_ms=now_ms,
                        )
                    )
        except (FencedError, BrokerUnavailable, RetriableError):
            raise
        except OttlaError as error:
            blamed = [
                found for each in deliveries if each.done() and isinstance(found := each.exception(0), InputError)
            ]
            if not blamed and not isinstance(error, InputError):
                raise
            cause = blamed[0] if blamed else error
            return f"{type(cause).__name__}: {cause}"
        appended_ms = deliveries[-1].result(0).timestamp_ms
        if appended_ms is not None:
            self._appended(appended_ms)
        return None

    def _unknown_topic(self, topics: set[str]) -> str | None:
        """A topic that does not exist would be waited for, and the other messages with it."""
        for topic in sorted(topics):
            try:
                self._cluster.topic(topic)
            except UnknownTopic as error:
                return f"UnknownTopic: {error}"
        return None

    def _dead_letter(self, message: Waiting, error: str) -> Outgoing:
        kind, _, text = error.partition(": ")
        now_ms = self._now_ms()
        target = delivered(message)
        letter = build_dead_letter(
            topic=message.topic,
            partition=-1 if message.partition is None else message.partition,
            offset=message.offset,
            timestamp_ms=message.at_ms,
            key=target.key,
            value=target.value,
            headers=target.headers,
            reason=DeadLetterReason(
                kind="failed",
                error_type=kind,
                message=text,
                attempts=5,
                group=self._place.topic,
                dead_lettered_ms=now_ms,
            ),
        )
        return Outgoing(f"{self._place.topic}.dead-letters", None, letter.key, letter.value, letter.headers)
