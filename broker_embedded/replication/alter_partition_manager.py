"""Sends the leaders' ISR changes to the controller (AlterPartition), and returns its responses.

One request is under way at a time; changes submitted meanwhile go into the next one. An undecided change is
sent again until metadata has overtaken it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from broker_embedded.common.clock import client_timer
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.peers import ControllerRequests
from broker_embedded.replication.leader_state import IsrProposal, NextStep
from broker_embedded.replication.own_broker import OwnBroker
from broker_embedded.replication.partition import Partition
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

log = logging.getLogger(__name__)

VERSION = 3
RETRY_S = 0.05
TIMEOUT_MS = 30_000
_RECOVERED = 0

PartitionKey = tuple[bytes, int]
"""(topic id, partition)."""


class AlterPartitionManager:
    """See the module."""

    def __init__(
        self, own: OwnBroker, *, controller: ControllerRequests, on_settled: Callable[[Partition], None]
    ) -> None:
        """`on_settled`: the controller refused a change, so that another ISR counts for the high watermark."""
        self._own = own
        self._controller = controller
        self._call_later = client_timer(own.loop)
        self._on_settled = on_settled
        self._pending: dict[PartitionKey, tuple[Partition, IsrProposal]] = {}
        self._timer: asyncio.Handle | None = None
        self._is_busy = False
        self._is_closed = False

    def submit(self, partition: Partition, change: IsrProposal) -> None:
        """Send `change` in the loop's next turn, with all other changes submitted by then."""
        self._pending[partition.topic_id, partition.topic_partition.partition] = (partition, change)
        self._schedule(0)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, delay_s: float) -> None:
        if self._timer is None and not (self._is_busy or self._is_closed):
            self._timer = self._call_later(delay_s, self._send) if delay_s else self._own.loop.call_soon(self._send)

    def _send(self) -> None:
        self._timer = None
        proposals = {key: proposal for key, proposal in self._pending.items() if _is_wanted(*proposal)}
        self._pending = {}
        if not proposals or self._is_closed:
            return
        self._is_busy = True

        def done(answered: asyncio.Future[Message]) -> None:
            self._is_busy = False
            if not answered.cancelled() and (error := answered.exception()) is not None:
                self._log(error)
            elif not answered.cancelled() and not self._is_closed:
                self._on_answer(proposals, answered.result())
                return
            self._retry(proposals)

        self._controller.send(
            ApiKey.ALTER_PARTITION, VERSION, self._request(proposals), timeout_ms=TIMEOUT_MS
        ).add_done_callback(done)

    def _request(self, proposals: dict[PartitionKey, tuple[Partition, IsrProposal]]) -> dict[str, Any]:
        topics: dict[bytes, list[dict[str, Any]]] = {}
        for (topic_id, number), (_, change) in proposals.items():
            topics.setdefault(topic_id, []).append(
                {
                    "partition_index": number,
                    "leader_epoch": change.leader_epoch,
                    "new_isr_with_epochs": [{"broker_id": node, "broker_epoch": epoch} for node, epoch in change.isr],
                    "leader_recovery_state": _RECOVERED,
                    "partition_epoch": change.partition_epoch,
                }
            )
        return {
            "broker_id": self._own.node_id,
            "broker_epoch": self._own.epoch(),
            "topics": [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()],
        }

    def _on_answer(self, proposals: dict[PartitionKey, tuple[Partition, IsrProposal]], response: Message) -> None:
        if response.error_code:  # of the whole request: a stale broker epoch, a controller that has resigned
            log.info("AlterPartition was refused: %s; sent again", ErrorCode.of(response.error_code).name)
            self._retry(proposals)
            return
        undecided = dict(proposals)
        for topic in response.topics:
            for each in topic.partitions:
                proposal = proposals.get((topic.topic_id, each.partition_index))
                if proposal is None:
                    continue
                partition, change = proposal
                if partition.leading is None:
                    del undecided[topic.topic_id, each.partition_index]
                    continue
                error = ErrorCode.of(each.error_code)
                step = partition.leading.on_answer(change, error, partition_epoch=each.partition_epoch)
                if error:
                    log.info("%s: ISR %s not set: %s", partition.topic_partition, list(change.nodes), error.name)
                if step is NextStep.NOTHING:
                    del undecided[topic.topic_id, each.partition_index]
                    self._on_settled(partition)
        self._retry(undecided)

    def _retry(self, proposals: dict[PartitionKey, tuple[Partition, IsrProposal]]) -> None:
        """Send pending changes again after a pause; newer changes do not wait for it."""
        for key, proposal in proposals.items():
            self._pending.setdefault(key, proposal)
        if self._pending:
            self._schedule(RETRY_S if proposals else 0)

    @staticmethod
    def _log(error: BaseException) -> None:
        if isinstance(error, BrokerError):
            log.info("AlterPartition got no answer: %s; sent again", error.message)
        else:
            log.error("AlterPartition failed; sent again", exc_info=error)


def _is_wanted(partition: Partition, change: IsrProposal) -> bool:
    return partition.leading is not None and partition.leading.pending is change
