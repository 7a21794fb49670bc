"""Requests to the share coordinator about one share partition: how each is run here, and sent to another broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from broker_embedded.common.errors import BrokerError
from broker_embedded.coordinator.share.records import batches_of, batches_to_message
from broker_embedded.coordinator.share.shard import ShareShard
from broker_embedded.coordinator.share.state import NOT_COUNTED
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

from .events import UNCHANGED, PersistedState, StateBatch
from .persister import ShareKey

OnResult = Callable[[Any], None]


class StateRequest:
    """One request. `run` raises BrokerError, or calls back with the result or a BrokerError."""

    __slots__ = ()
    api: ClassVar[ApiKey]
    version: ClassVar[int] = 0

    def fields(self) -> dict[str, Any]:
        """Return the fields of the request's partition, beside its number."""
        return {}

    def run(self, shard: ShareShard, key: ShareKey, on_result: OnResult) -> None:
        raise NotImplementedError

    def result_of(self, answer: Message) -> Any:
        """Return the result that the answer's partition has; None if it has none."""
        return None

    def followed_by(self, later: StateRequest) -> StateRequest | None:
        """Return one request that does the work of both, or None if they must be sent one after the other."""
        return None


@fact
class Summary:
    """What an operator sees of a state."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int


@fact
class Initialize(StateRequest):
    api: ClassVar[ApiKey] = ApiKey.INITIALIZE_SHARE_GROUP_STATE
    state_epoch: int
    start_offset: int

    def fields(self) -> dict[str, Any]:
        return {"state_epoch": self.state_epoch, "start_offset": self.start_offset}

    def run(self, shard: ShareShard, key: ShareKey, on_result: OnResult) -> None:
        shard.initialize(
            key, state_epoch=self.state_epoch, start_offset=self.start_offset, on_done=_reported(on_result)
        )


@fact
class Read(StateRequest):
    api: ClassVar[ApiKey] = ApiKey.READ_SHARE_GROUP_STATE
    leader_epoch: int

    def fields(self) -> dict[str, Any]:
        return {"leader_epoch": self.leader_epoch}

    def run(self, shard: ShareShard, key: ShareKey, on_result: OnResult) -> None:
        shard.read(key, leader_epoch=self.leader_epoch, on_done=on_result)

    def result_of(self, answer: Message) -> PersistedState:
        return PersistedState(answer.state_epoch, answer.start_offset, batches_of(answer.state_batches))


@fact
class Write(StateRequest):
    api: ClassVar[ApiKey] = ApiKey.WRITE_SHARE_GROUP_STATE
    version: ClassVar[int] = 1
    leader_epoch: int
    state_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    complete_count: int

    def fields(self) -> dict[str, Any]:
        return {
            "state_epoch": self.state_epoch,
            "leader_epoch": self.leader_epoch,
            "start_offset": self.start_offset,
            "delivery_complete_count": self.complete_count,
            "state_batches": batches_to_message(self.batches),
        }

    def run(self, shard: ShareShard, key: ShareKey, on_result: OnResult) -> None:
        shard.write(
            key,
            leader_epoch=self.leader_epoch,
            state_epoch=self.state_epoch,
            start_offset=self.start_offset,
            batches=self.batches,
            complete_count=self.complete_count,
            on_done=_reported(on_result),
        )

    def followed_by(self, later: StateRequest) -> StateRequest | None:
        is_of_same_leader = isinstance(later, Write) and later.leader_epoch == self.leader_epoch
        if not isinstance(later, Write) or not is_of_same_leader or later.state_epoch != self.state_epoch:
            return None
        return Write(
            leader_epoch=self.leader_epoch,
            state_epoch=self.state_epoch,
            start_offset=max(self.start_offset, later.start_offset),
            batches=(*self.batches, *later.batches),
            complete_count=later.complete_count,
        )


@fact
class Delete(StateRequest):
    api: ClassVar[ApiKey] = ApiKey.DELETE_SHARE_GROUP_STATE

    def run(self, shard: ShareShard, key: ShareKey, on_result: OnResult) -> None:
        shard.delete(key, _reported(on_result))


@fact
class Summarize(StateRequest):
    """As an operator asks: an unknown state has no start offset yet."""

    api: ClassVar[ApiKey] = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
    version: ClassVar[int] = 1

    def fields(self) -> dict[str, Any]:
        return {"leader_epoch": -1}

    def run(self, shard: ShareShard, key: ShareKey, on_result: OnResult) -> None:
        on_result(summary_of(shard, key))

    def result_of(self, answer: Message) -> Summary:
        return Summary(
            state_epoch=answer.state_epoch,
            leader_epoch=answer.leader_epoch,
            start_offset=answer.start_offset,
            complete_count=answer.delivery_complete_count,
        )


def summary_of(shard: ShareShard, key: ShareKey) -> Summary:
    """Return the summary of a share partition; an empty one if it is unknown."""
    known = shard.get(key)
    if known is None:
        return Summary(state_epoch=0, leader_epoch=0, start_offset=UNCHANGED, complete_count=NOT_COUNTED)
    return Summary(
        state_epoch=known.state_epoch,
        leader_epoch=known.leader_epoch,
        start_offset=known.start_offset,
        complete_count=known.complete_count,
    )


def _reported(on_result: OnResult) -> Callable[[ErrorCode], None]:
    def done(error: ErrorCode) -> None:
        on_result(None if error is ErrorCode.NONE else BrokerError(error, "the share coordinator could not write"))

    return done
