"""One shard of the transaction coordinator with a clock, a log and leaders of its own: all by hand, no socket."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.types import TopicPartition
from broker_embedded.coordinator.runtime.reply import Reply
from broker_embedded.coordinator.runtime.shard import CoordinatorRecord
from broker_embedded.coordinator.transaction.markers import Ending, MarkerOutcome
from broker_embedded.coordinator.transaction.records import decode
from broker_embedded.coordinator.transaction.requests import (
    AddPartitions,
    EndTransaction,
    Identified,
    InitProducer,
    PartitionsChecked,
)
from broker_embedded.coordinator.transaction.shard import TransactionShard
from broker_embedded.coordinator.transaction.states import TransactionState
from broker_embedded.coordinator.transaction.transaction import ProducerIdentity, Transaction
from broker_embedded.metadata.image import ClusterImage
from ottla_wire.protocol import ErrorCode

ID = "payments"
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
OnDone = Callable[[ErrorCode], None]


class Timer:
    def __init__(self, driver: TransactionDriver, deadline_ms: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.callback = callback
        self._driver = driver

    def cancel(self) -> None:
        if self in self._driver.timers:
            self._driver.timers.remove(self)


class TransactionDriver:
    """Implements `ShardContext` and `Markers`. Appends succeed at once, and leaders take their markers at once, unless
    told not to."""

    WALL_START_MS = 1_700_000_000_000

    def __init__(
        self, records: Iterable[CoordinatorRecord] = (), *, now_ms: int = 0, next_id: int = 1000, **settings: Any
    ) -> None:
        self.settings = settings
        self.config = BrokerConfig(**settings)
        self.monotonic = now_ms
        self.timers: list[Timer] = []
        self.log = list(records)
        self.fail_with = ErrorCode.NONE
        """Of the appends from now on."""
        self.holds_appends = False
        self.held_appends: list[tuple[list[CoordinatorRecord], OnDone]] = []
        self.holds_markers = False
        self.endings: list[Ending] = []
        """All that leaders were told."""
        self.held_markers: list[tuple[Ending, Callable[[MarkerOutcome], None]]] = []
        self.is_replicated = True
        self.after_replication: list[Callable[[], None]] = []
        self.epoch = 5
        self.next_id = next_id
        self.holds_ids = False
        self.held_ids: list[Callable[[Any], None]] = []
        self.shard = TransactionShard(
            0, self, config=lambda: self.config, markers=self, new_producer_id=self._new_producer_id
        )

    def load(self) -> TransactionDriver:
        for record in list(self.log):
            self.shard.replay(record, timestamp_ms=0, producer_id=-1)
        self.shard.on_loaded()
        return self

    def restart(self, **changes: Any) -> TransactionDriver:
        """Another coordinator replays the log; whatever was under way here is forgotten."""
        self.shard.unload(ErrorCode.NOT_COORDINATOR)
        following = TransactionDriver(self.log, now_ms=self.monotonic, next_id=self.next_id, **self.settings)
        following.epoch = self.epoch + 1
        for name, value in changes.items():
            setattr(following, name, value)
        return following.load()

    # -- ShardContext

    def now_ms(self) -> int:
        return self.WALL_START_MS + self.monotonic

    def monotonic_ms(self) -> int:
        return self.monotonic

    def metadata(self) -> ClusterImage:
        return ClusterImage(cluster_id="c")

    def append(self, records: Sequence[CoordinatorRecord], on_done: OnDone) -> None:
        if self.fail_with is not ErrorCode.NONE:
            on_done(self.fail_with)
        elif self.holds_appends:
            self.held_appends.append((list(records), on_done))
        else:
            self.log += records
            on_done(ErrorCode.NONE)

    def append_in_transaction(self, *_: Any, **__: Any) -> None:
        raise AssertionError("the coordinator's own log knows no transactions")

    def when_replicated(self, callback: Callable[[], None]) -> None:
        if self.is_replicated:
            callback()
        else:
            self.after_replication.append(callback)

    def log_range(self) -> tuple[int, int]:
        raise AssertionError("the log of transactions is compacted")

    def delete_before(self, offset: int) -> None:
        raise AssertionError("the log of transactions is compacted")

    def leader_epoch(self) -> int:
        return self.epoch

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(self, deadline_ms, callback)
        self.timers.append(timer)
        return timer

    def reload(self, reason: str) -> None:
        raise AssertionError("memory is never ahead of the log here")

    # -- Markers

    def send(self, ending: Ending, on_done: Callable[[MarkerOutcome], None]) -> None:
        self.endings.append(ending)
        if self.holds_markers:
            self.held_markers.append((ending, on_done))
        else:
            on_done(MarkerOutcome.WRITTEN)

    def forget(self, state_partition: int) -> None:
        self.held_markers.clear()

    # -- the world

    def release_appends(self) -> None:
        self.holds_appends = False
        held, self.held_appends = self.held_appends, []
        for records, on_done in held:
            self.log += records
            on_done(ErrorCode.NONE)

    def release_markers(self, outcome: MarkerOutcome = MarkerOutcome.WRITTEN) -> None:
        held, self.held_markers = self.held_markers, []
        for _, on_done in held:
            on_done(outcome)

    def replicate(self) -> None:
        self.is_replicated = True
        waiting, self.after_replication = self.after_replication, []
        for callback in waiting:
            callback()

    def release_ids(self, answer: Any = None) -> None:
        held, self.held_ids = self.held_ids, []
        for tell in held:
            tell(self._next() if answer is None else answer)

    def pass_ms(self, ms: int) -> None:
        until = self.monotonic + ms
        while due := [timer for timer in self.timers if timer.deadline_ms <= until]:
            timer = min(due, key=lambda one: one.deadline_ms)
            self.timers.remove(timer)
            self.monotonic = max(self.monotonic, timer.deadline_ms)
            timer.callback()
        self.monotonic = until

    def _new_producer_id(self, tell: Callable[[Any], None]) -> None:
        if self.holds_ids:
            self.held_ids.append(tell)
        else:
            tell(self._next())

    def _next(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    # -- requests, all about one transactional id

    def init_later(self, *, timeout_ms: int = 60_000, claimed: ProducerIdentity | None = None) -> Reply[Any]:
        reply: Reply[Any] = Reply(lambda answer: {"answer": answer})
        self.shard.init_producer(InitProducer(transactional_id=ID, timeout_ms=timeout_ms, claimed=claimed), reply)
        return reply

    def init(self, **request: Any) -> Identified:
        answer: Identified = answer_of(self.init_later(**request))
        return answer

    def start(self, **request: Any) -> ProducerIdentity:
        """A producer starts and is let in."""
        answer = self.init(**request)
        assert answer.error is ErrorCode.NONE
        return answer.identity

    def add_later(self, producer: ProducerIdentity, *partitions: TopicPartition, version: int = 0) -> Reply[Any]:
        reply: Reply[Any] = Reply(lambda answer: {"answer": answer})
        self.shard.add_partitions(
            AddPartitions(
                transactional_id=ID, producer=producer, partitions=frozenset(partitions), client_version=version
            ),
            reply,
        )
        return reply

    def add(self, producer: ProducerIdentity, *partitions: TopicPartition, version: int = 0) -> ErrorCode:
        answer: PartitionsChecked = answer_of(self.add_later(producer, *partitions, version=version))
        return answer.error

    def verify(self, producer: ProducerIdentity, *partitions: TopicPartition) -> list[ErrorCode]:
        request = AddPartitions(transactional_id=ID, producer=producer, partitions=frozenset(partitions))
        checked = self.shard.verify_partitions(request)
        return [checked.error_of(each) for each in partitions]

    def end_later(self, producer: ProducerIdentity, *, commit: bool, version: int = 0) -> Reply[Any]:
        reply: Reply[Any] = Reply(lambda answer: {"answer": answer})
        request = EndTransaction(transactional_id=ID, producer=producer, commit=commit, client_version=version)
        self.shard.end_transaction(request, reply)
        return reply

    def end(self, producer: ProducerIdentity, *, commit: bool, version: int = 0) -> Identified:
        answer: Identified = answer_of(self.end_later(producer, commit=commit, version=version))
        return answer

    # -- reading

    @property
    def known(self) -> Transaction:
        found = self.shard.get(ID)
        assert found is not None
        return found

    @property
    def state(self) -> TransactionState:
        return self.known.state

    def history(self) -> list[Transaction | None]:
        """All that the log says about the id, oldest first."""
        decoded = [decode(record) for record in self.log]
        return [entry[1] for entry in decoded if entry is not None and entry[0] == ID]


def answer_of(reply: Reply[Any]) -> Any:
    assert reply.body is not None, "the request was not answered"
    return reply.body["answer"]
