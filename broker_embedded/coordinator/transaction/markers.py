"""Sends a transaction's end markers to every leader, and retries until each has written them.

Partitions led by this broker are written at once; for every other broker one WriteTxnMarkers request is under way at a
time, and what gathers meanwhile goes with the next. What fails is tried again, at the latest after `RETRY_MS`, earlier
when the metadata names a new leader. A partition that no longer exists needs no marker.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Any, Protocol

from broker_embedded.common.peers import Peers
from broker_embedded.common.types import NO_LEADER, TopicPartition
from broker_embedded.metadata.cache import MetadataCache
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

from .marker_writer import MarkerWriter, TransactionMarker
from .transaction import ProducerIdentity

log = logging.getLogger(__name__)

RETRY_MS = 100
REQUEST_VERSION = 2
CHANNEL = "txn-markers"

_DONE = frozenset(
    {
        ErrorCode.NONE,
        # The partition already obeys a later epoch of this producer: the transaction cannot be open there.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class MarkerOutcome(Enum):
    WRITTEN = "written"
    FENCED = "fenced"
    """A leader knows a newer coordinator, which finishes the transaction."""


@fact
class Ending:
    """A decided transaction."""

    state_partition: int
    """Partition of `__transaction_state`."""
    transactional_id: str
    producer: ProducerIdentity
    committed: bool
    partitions: frozenset[TopicPartition]
    coordinator_epoch: int
    client_version: int

    @property
    def marker(self) -> TransactionMarker:
        return TransactionMarker(
            producer=self.producer,
            committed=self.committed,
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=self.client_version,
        )


class Markers(Protocol):
    """Methods of the markers that a shard uses."""

    def send(self, ending: Ending, on_done: Callable[[MarkerOutcome], None]) -> None:
        """Send the markers. `on_done` is called once, perhaps before this returns; never after `forget`."""
        ...

    def forget(self, state_partition: int) -> None:
        """Stop sending markers of these transactions: another coordinator does."""
        ...


class MarkerSender:
    """Implements `Markers` for all shards of one broker."""

    def __init__(
        self,
        *,
        node_id: int,
        metadata: MetadataCache,
        writer: MarkerWriter,
        loop: asyncio.AbstractEventLoop,
        peers: Peers,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._writer = writer
        self._loop = loop
        self._peers = peers
        self._sendings: dict[tuple[int, str], _Sending] = {}
        self._queues: dict[int, deque[tuple[_Sending, list[TopicPartition]]]] = {}
        self._busy: set[int] = set()

    # -- Markers

    def send(self, ending: Ending, on_done: Callable[[MarkerOutcome], None]) -> None:
        sending = _Sending(ending, on_done)
        key = (ending.state_partition, ending.transactional_id)
        replaced = self._sendings.get(key)
        if replaced is not None:
            replaced.is_over = True
        self._sendings[key] = sending
        self._dispatch(sending, list(ending.partitions))

    def forget(self, state_partition: int) -> None:
        for key in [key for key in self._sendings if key[0] == state_partition]:
            self._sendings.pop(key).is_over = True

    def close(self) -> None:
        for sending in self._sendings.values():
            sending.is_over = True
        self._sendings.clear()

    def on_metadata(self) -> None:
        """Retry waiting partitions after a change of leaders."""
        for sending in list(self._sendings.values()):
            self._try_again(sending)

    # -- one ending

    def _dispatch(self, sending: _Sending, partitions: Iterable[TopicPartition]) -> None:
        image = self._metadata.image
        local: list[TopicPartition] = []
        remote: dict[int, list[TopicPartition]] = {}
        gone: list[TopicPartition] = []
        for partition in sorted(partitions):
            state = image.partition(partition)
            if state is None:
                gone.append(partition)
            elif state.leader == self._node_id:
                local.append(partition)
            elif state.leader == NO_LEADER:
                self._wait(sending, partition)
            else:
                remote.setdefault(state.leader, []).append(partition)
        for node, theirs in remote.items():
            self._queues.setdefault(node, deque()).append((sending, theirs))
            self._send_to(node)
        marker = sending.ending.marker
        for partition in local:
            self._writer.write(partition, marker, partial(self._answered, sending, partition))
        for partition in gone:
            log.info("%s is gone: it needs no marker of %r", partition, sending.ending.transactional_id)
            self._answered(sending, partition, ErrorCode.NONE)

    def _answered(self, sending: _Sending, partition: TopicPartition, error: ErrorCode) -> None:
        if sending.is_over:
            return
        if error is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            self._over(sending, MarkerOutcome.FENCED)
        elif error not in _DONE:
            log.debug("marker of %r for %s: %s", sending.ending.transactional_id, partition, error.name)
            self._wait(sending, partition)
        else:
            sending.remaining.discard(partition)
            if not sending.remaining:
                self._over(sending, MarkerOutcome.WRITTEN)

    def _over(self, sending: _Sending, outcome: MarkerOutcome) -> None:
        sending.is_over = True
        self._sendings.pop((sending.ending.state_partition, sending.ending.transactional_id), None)
        sending.on_done(outcome)

    def _wait(self, sending: _Sending, partition: TopicPartition) -> None:
        sending.waiting.add(partition)
        if not sending.has_timer:
            sending.has_timer = True
            self._loop.call_later(RETRY_MS / 1000, self._timer_fired, sending)

    def _timer_fired(self, sending: _Sending) -> None:
        sending.has_timer = False
        self._try_again(sending)

    def _try_again(self, sending: _Sending) -> None:
        if sending.waiting and not sending.is_over:
            waiting, sending.waiting = sending.waiting, set()
            self._dispatch(sending, waiting)

    # -- one broker

    def _send_to(self, node: int) -> None:
        queue = self._queues.get(node)
        if node in self._busy or not queue:
            return
        batch = [(sending, partitions) for sending, partitions in queue if not sending.is_over]
        queue.clear()
        if not batch:
            return
        self._busy.add(node)
        body = {"markers": [_wire_marker(sending.ending, partitions) for sending, partitions in batch]}
        future = self._peers.send(node, ApiKey.WRITE_TXN_MARKERS, REQUEST_VERSION, body, channel=CHANNEL)
        future.add_done_callback(lambda done: self._on_response(node, batch, done))

    def _on_response(
        self, node: int, batch: list[tuple[_Sending, list[TopicPartition]]], done: asyncio.Future[Message]
    ) -> None:
        self._busy.discard(node)
        answers = {} if done.cancelled() or done.exception() is not None else _answers(done.result())
        for sending, partitions in batch:
            for partition in partitions:
                key = (sending.ending.producer.producer_id, partition)
                self._answered(sending, partition, answers.get(key, ErrorCode.NETWORK_EXCEPTION))
        self._send_to(node)


class _Sending:
    """Markers in flight."""

    __slots__ = ("ending", "has_timer", "is_over", "on_done", "remaining", "waiting")

    def __init__(self, ending: Ending, on_done: Callable[[MarkerOutcome], None]) -> None:
        self.ending = ending
        self.on_done = on_done
        self.remaining = set(ending.partitions)
        self.waiting: set[TopicPartition] = set()
        """Partitions without a reachable leader at the moment."""
        self.has_timer = False
        self.is_over = False


def _wire_marker(ending: Ending, partitions: Iterable[TopicPartition]) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return {
        "producer_id": ending.producer.producer_id,
        "producer_epoch": ending.producer.epoch,
        "transaction_result": ending.committed,
        "topics": [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()],
        "coordinator_epoch": ending.coordinator_epoch,
        "transaction_version": ending.client_version,
    }


def _answers(response: Message) -> dict[tuple[int, TopicPartition], ErrorCode]:
    return {
        (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): ErrorCode(partition.error_code)
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
