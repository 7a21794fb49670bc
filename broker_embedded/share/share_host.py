"""One share partition in its place: its timer, its writes, the fetches that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.replication.partition import Partition
from ottla_wire.protocol import ErrorCode

from .events import (
    Acquired,
    Answer,
    DeadLettered,
    Event,
    MoreAvailable,
    Persist,
    Persisted,
    PersistedState,
    Tick,
    WriteDeadLetters,
)
from .partition import SharePartition
from .persister import ShareKey
from .starting import first_offset

if TYPE_CHECKING:
    from .share_partitions import SharePartitions

OnAnswer = Callable[[Answer], None]


def waiting_key(key: ShareKey) -> TopicPartition:
    """Return the key under which fetches wait for a share partition, beside the topic partition's own."""
    return TopicPartition(f"//{key.group_id}/{key.topic_id.hex()}", key.partition)


class ShareHost:
    """One share partition in its place: its timer, its writes, its members' answers."""

    def __init__(self, owner: SharePartitions, key: ShareKey, log_of: Partition) -> None:
        self._owner = owner
        self.key = key
        self.log = log_of
        self.leader_epoch = log_of.leader_epoch
        self.partition: SharePartition | None = None
        """None while it is loading."""
        self.is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._end_offset = 0
        self._open_writes = 0
        self._is_retired = False
        self._answers: dict[object, OnAnswer] = {}
        self.error: BrokerError | None = None
        """Why it could not be loaded."""

    # --- life

    def load(self) -> None:
        """Ask for the state. A new group that begins at the end begins at the end of now."""
        self._end_offset = self.log.high_watermark
        self._owner.persister.read(self.key, self.leader_epoch, self._on_read)

    def _on_read(self, found: PersistedState | BrokerError) -> None:
        if self.is_closed:
            return
        if isinstance(found, BrokerError):
            self.error = found
            self._owner.drop(self)
            return
        settings, view = self._owner.settings_of(self.key.group_id)
        if found.start_offset < 0:
            start = first_offset(
                settings.share_auto_offset_reset,
                self.log.log,
                end_offset=self._end_offset,
                now_ms=self._owner.parts.clock.now_ms(),
            )
            found = found._replace(start_offset=start)
        elif found.start_offset < self.log.log_start_offset:
            found = found._replace(start_offset=self.log.log_start_offset)
        self.partition = SharePartition(found, view)
        self.step(Tick())  # dead letters that the leader before may not have written
        self._wake()

    def is_used(self) -> None:
        """Keep it, although `retire` was called: it is used again."""
        self._is_retired = False

    def retire(self) -> None:
        """Drop it as soon as everything is written, unless it is used again before."""
        self._is_retired = True
        if self.partition is not None and self._open_writes == 0:
            self._owner.drop(self)

    def close(self) -> None:
        """Stop: another leader continues from the written state. Waiting requests get NOT_LEADER_OR_FOLLOWER."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        answers, self._answers = self._answers, {}
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if self.error is None else self.error.code
        for ticket, on_answer in answers.items():
            on_answer(Answer(ticket=ticket, error=code))
        self._wake()

    # --- events

    def acknowledge(self, event: Event, ticket: object, on_answer: OnAnswer) -> None:
        """Step with an acknowledgement; `on_answer` is called when it is written, or at once if it is refused."""
        self._answers[ticket] = on_answer
        self.step(event)

    def step(self, event: Event) -> Acquired | None:
        """Step and execute the effects. Returns the records that a fetch acquired."""
        partition = self.partition
        assert partition is not None
        partition.settings = self._owner.settings_of(self.key.group_id)[1]
        acquired: Acquired | None = None
        wakes = False
        for effect in partition.step(event, self._owner.parts.clock.monotonic_ms()):
            match effect:
                case Acquired():
                    acquired = effect
                case Persist():
                    self._write(partition, effect)
                case Answer(ticket=ticket):
                    on_answer = self._answers.pop(ticket, None)
                    if on_answer is not None:
                        on_answer(effect)
                case MoreAvailable():
                    wakes = True
                case WriteDeadLetters():
                    self._write_dead_letters(effect)
        self._arm()
        if wakes:
            self._wake()
        return acquired

    def _write(self, partition: SharePartition, write: Persist) -> None:
        self._open_writes += 1

        def written(error: ErrorCode) -> None:
            self._open_writes -= 1
            if self.is_closed:
                return
            self.step(Persisted(write_id=write.write_id, error=error))
            if error in (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.FENCED_LEADER_EPOCH):
                self._owner.drop(self)  # the offsets were altered, or another broker leads
            elif self._is_retired and self._open_writes == 0:
                self._owner.drop(self)

        self._owner.persister.write(
            self.key,
            leader_epoch=self.leader_epoch,
            state_epoch=partition.state_epoch,
            start_offset=write.start_offset,
            batches=write.batches,
            complete_count=write.complete_count,
            on_done=written,
        )

    def _write_dead_letters(self, letters: WriteDeadLetters) -> None:
        self._open_writes += 1

        def written() -> None:
            self._open_writes -= 1
            if not self.is_closed:
                self.step(DeadLettered(first=letters.first, last=letters.last))

        self._owner.dead_letters.write(
            self.log,
            letters,
            group_id=self.key.group_id,
            settings=self._owner.settings_of(self.key.group_id)[0],
            on_done=written,
        )

    def _wake(self) -> None:
        """Wake the fetches that wait, in the loop's next turn: an answer leaves first."""
        self._owner.parts.loop.call_soon(self._owner.parts.replicas.fetches.notify, waiting_key(self.key))

    # --- time

    def _arm(self) -> None:
        assert self.partition is not None
        deadline_ms = self.partition.next_deadline_ms()
        if deadline_ms is None or (self._timer_ms is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._owner.parts.clock.monotonic_ms())
        self._timer = self._owner.parts.loop.call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_ms = None
        if not self.is_closed:
            self.step(Tick())
