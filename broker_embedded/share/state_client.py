"""Asks the share coordinator, here or on another broker, and asks again while it moves or loads.

Requests of one share partition go one after the other, so that a write that is repeated never overtakes a later one;
writes that wait meanwhile go together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from broker_embedded.common.clock import client_timer
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.peers import Peers
from broker_embedded.common.promises import Promise
from broker_embedded.common.types import SHARE_STATE_TOPIC, TopicPartition
from broker_embedded.coordinator.share.coordinator import ShareCoordinator, coordinator_key
from broker_embedded.metadata.cache import MetadataCache
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

from .events import UNCHANGED, StateBatch
from .persister import OnRead, OnWritten, ShareKey
from .state_requests import Delete, Initialize, Read, StateRequest, Summarize, Summary, Write

PATIENCE_S = 30.0
"""A coordinator that is not found for so long fails the request."""
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.01, 1.0
CHANNEL = "share-state"

_RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)

OnResult: TypeAlias = Callable[[Any], None]
"""Called with the result of a request, or a BrokerError."""


@fact
class _Waiting:
    request: StateRequest
    on_result: OnResult


class ShareStateClient:
    """Implements `persister.Persister`, and the group coordinator's requests."""

    def __init__(
        self,
        *,
        node_id: int,
        coordinator: ShareCoordinator,
        metadata: MetadataCache,
        loop: asyncio.AbstractEventLoop,
        peers: Peers,
        ensure_topic: Callable[[], Promise[None]],
    ) -> None:
        self._node_id = node_id
        self._coordinator = coordinator
        self._metadata = metadata
        self._loop = loop
        self._call_later = client_timer(loop)  # a member waits for it, also while the cluster's clock is held
        self._peers = peers
        self._ensure_topic = ensure_topic
        self._queues: dict[ShareKey, deque[_Waiting]] = {}
        """Share partitions with a request under way, or with results that are being passed on."""
        self._is_closed = False

    def close(self) -> None:
        """Stop sending requests; pending callers get no response."""
        self._is_closed = True
        self._queues.clear()

    # --- requests

    def read(self, key: ShareKey, leader_epoch: int, on_done: OnRead) -> None:
        """Read a state for a leader. One that was never begun begins now."""

        def on_read(found: Any) -> None:
            if isinstance(found, BrokerError) and found.code == ErrorCode.INVALID_REQUEST:
                self.initialize(key, state_epoch=0, start_offset=UNCHANGED, on_done=on_initialized)
            else:
                on_done(found)

        def on_initialized(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._ask(key, Read(leader_epoch=leader_epoch), on_done)
            else:
                on_done(BrokerError(error, "the share coordinator could not begin the state"))

        self._ask(key, Read(leader_epoch=leader_epoch), on_read)

    def write(
        self,
        key: ShareKey,
        *,
        leader_epoch: int,
        state_epoch: int,
        start_offset: int,
        batches: Sequence[StateBatch],
        complete_count: int,
        on_done: OnWritten,
    ) -> None:
        write = Write(
            leader_epoch=leader_epoch,
            state_epoch=state_epoch,
            start_offset=start_offset,
            batches=tuple(batches),
            complete_count=complete_count,
        )
        self._ask(key, write, _code_of(on_done))

    def initialize(self, key: ShareKey, *, state_epoch: int, start_offset: int, on_done: OnWritten) -> None:
        """Initialize a state; with an offset, replace an existing one."""
        self._ask(key, Initialize(state_epoch=state_epoch, start_offset=start_offset), _code_of(on_done))

    def delete(self, key: ShareKey, on_done: OnWritten) -> None:
        """Forget a state."""
        self._ask(key, Delete(), _code_of(on_done))

    def summarize(self, key: ShareKey, on_done: Callable[[Summary | BrokerError], None]) -> None:
        """Read the start offset of a state, for an operator."""
        self._ask(key, Summarize(), on_done)

    # --- one after the other

    def _ask(self, key: ShareKey, request: StateRequest, on_result: OnResult) -> None:
        waiting = _Waiting(request=request, on_result=on_result)
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(waiting)
            return
        queue = self._queues[key] = deque([waiting])
        self._begin(key, queue)

    def _begin(self, key: ShareKey, queue: deque[_Waiting]) -> None:
        waiting = [queue[0]]
        request = queue[0].request
        for each in list(queue)[1:]:
            together = request.followed_by(each.request)
            if together is None:
                break
            request = together
            waiting.append(each)
        attempt = _Attempt(deadline_s=self._loop.time() + PATIENCE_S)

        def on_result(result: Any) -> None:
            if self._is_closed:
                return
            for _ in waiting:
                queue.popleft()
            for each in waiting:
                each.on_result(result)  # it may ask again: that waits in the queue until all have their results
            if self._queues.get(key) is not queue:
                return  # it was closed meanwhile
            if queue:
                self._begin(key, queue)
            else:
                del self._queues[key]

        self._try(key, request, attempt, on_result)

    def _try(self, key: ShareKey, request: StateRequest, attempt: _Attempt, on_result: OnResult) -> None:
        if self._is_closed:
            return

        def answered(result: Any) -> None:
            is_retried = isinstance(result, BrokerError) and result.code in _RETRIED
            if is_retried and self._loop.time() < attempt.deadline_s:
                self._call_later(attempt.next_backoff_s(), self._try, key, request, attempt, on_result)
            elif is_retried:
                on_result(BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, result.message))
            else:
                on_result(result)

        try:
            leader = self._leader_of(key)
            if leader == self._node_id:
                request.run(self._coordinator.shard_of(key), key, answered)
            else:
                self._send(leader, key, request, answered)
        except BrokerError as error:
            answered(error)

    def _leader_of(self, key: ShareKey) -> int:
        image = self._metadata.image
        if image.topic(SHARE_STATE_TOPIC) is None:
            self._ensure_topic()
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_STATE_TOPIC} is being created")
        number = self._coordinator.partition_of(coordinator_key(key))
        state = image.partition(TopicPartition(SHARE_STATE_TOPIC, number))
        if state is None or not state.has_leader:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_STATE_TOPIC}-{number} has no leader")
        return state.leader

    def _send(self, leader: int, key: ShareKey, request: StateRequest, answered: OnResult) -> None:
        partition = {"partition": key.partition, **request.fields()}
        body = {"group_id": key.group_id, "topics": [{"topic_id": key.topic_id, "partitions": [partition]}]}
        sent = self._peers.send(leader, request.api, request.version, body, channel=CHANNEL)

        def done(future: asyncio.Future[Message]) -> None:
            if future.cancelled() or future.exception() is not None:
                answered(BrokerError(ErrorCode.NETWORK_EXCEPTION, f"broker {leader} did not answer"))
                return
            result = future.result().results[0].partitions[0]
            if result.error_code:
                answered(BrokerError(ErrorCode.of(result.error_code), result.error_message or ""))
            else:
                answered(request.result_of(result))

        sent.add_done_callback(done)


class _Attempt:
    """How often and until when a request is repeated."""

    def __init__(self, *, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self._backoff_s = FIRST_BACKOFF_S

    def next_backoff_s(self) -> float:
        backoff_s = self._backoff_s
        self._backoff_s = min(LONGEST_BACKOFF_S, 2 * backoff_s)
        return backoff_s


def _code_of(on_done: OnWritten) -> OnResult:
    def on_result(result: Any) -> None:
        on_done(ErrorCode.of(result.code) if isinstance(result, BrokerError) else ErrorCode.NONE)

    return on_result
