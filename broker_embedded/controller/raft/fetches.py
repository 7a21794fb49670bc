"""Serves Fetch requests for the metadata log, of voters and observers: decode, respond or wait, add the batches.

Who may read what is decided elsewhere (`answer`). A fetch that has nothing to bring waits up to its max_wait_ms and is
woken by what it waits for: a batch, a higher high watermark (KIP-1166), the end of a leadership.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import CLUSTER_METADATA_TOPIC
from broker_embedded.controller.raft.messages import KNOWS_ALL, FetchAnswer, FetchRequest
from broker_embedded.storage.log import Log
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

Body = dict[str, Any]
Answer = Body | asyncio.Future[Body]

METADATA_TOPIC_ID = bytes(15) + b"\x01"
MAX_BYTES = 8 * 1024 * 1024
"""Kafka's bound of one fetch of the metadata log."""


@fact
class IncomingFetch:
    """A decoded Fetch of the metadata log."""

    fetch: FetchRequest
    max_wait_ms: int
    max_bytes: int


class MetadataFetches:
    """The fetches of one node's metadata log, with those that wait."""

    def __init__(
        self, *, loop: asyncio.AbstractEventLoop, log: Log, answer: Callable[[FetchRequest], FetchAnswer]
    ) -> None:
        self._loop = loop
        self._log = log
        self._answer = answer
        self._waiting: dict[asyncio.Future[Body], tuple[IncomingFetch, asyncio.TimerHandle]] = {}

    def serve(self, incoming: IncomingFetch, answer: FetchAnswer) -> Answer:
        """Return the response, or a promise of it if there is nothing new and the request may wait."""
        if answer.is_worth_sending or incoming.max_wait_ms <= 0:
            return self._body(incoming, answer)
        future: asyncio.Future[Body] = self._loop.create_future()
        timer = self._loop.call_later(incoming.max_wait_ms / 1000, self._expire, future)
        self._waiting[future] = (incoming, timer)
        future.add_done_callback(self._forget)  # also when whoever asked has gone
        return future

    def wake(self) -> None:
        """Respond to waiting fetches after a change."""
        for future, (incoming, _) in list(self._waiting.items()):
            if not future.done():
                answer = self._answer(incoming.fetch)
                if answer.is_worth_sending:
                    self._complete(future, incoming, answer)

    def close(self) -> None:
        """Drop all waiting fetches without a response."""
        for future in list(self._waiting):
            future.cancel()
            self._forget(future)

    def _expire(self, future: asyncio.Future[Body]) -> None:
        if not future.done():
            incoming, _ = self._waiting[future]
            self._complete(future, incoming, self._answer(incoming.fetch))

    def _complete(self, future: asyncio.Future[Body], incoming: IncomingFetch, answer: FetchAnswer) -> None:
        try:
            body = self._body(incoming, answer)
        except (OSError, BrokerError) as error:  # the disk: only this request fails
            future.set_exception(error)
        else:
            future.set_result(body)

    def _forget(self, future: asyncio.Future[Body]) -> None:
        waited = self._waiting.pop(future, None)
        if waited is not None:
            waited[1].cancel()

    def _body(self, incoming: IncomingFetch, answer: FetchAnswer) -> Body:
        """Return the response body with the stored batches. Consumers, which are not replicas, read committed batches
        only.
        """
        offset = incoming.fetch.fetch_offset
        is_consumer = incoming.fetch.replica_id < 0
        end_offset = answer.high_watermark if is_consumer else self._log.log_end_offset
        partition = partition_body(answer, log_start_offset=self._log.log_start_offset)
        if answer.may_have_batches and offset < end_offset:
            partition["records"] = self._log.read(offset, incoming.max_bytes, max_offset=end_offset).buffers()
        return response_body([partition])


def decode_fetch(request: Message, *, cluster_id: str | None) -> IncomingFetch | Body:
    """Parse a Fetch of the metadata log. Returns the error response for any other fetch."""
    if cluster_id is not None and request.cluster_id not in (None, cluster_id):
        return {"error_code": int(ErrorCode.INCONSISTENT_CLUSTER_ID), "responses": []}
    topic = request.topics[0] if len(request.topics) == 1 else None
    if topic is None or len(topic.partitions) != 1 or topic.partitions[0].partition != 0:
        return {"error_code": int(ErrorCode.INVALID_REQUEST), "responses": []}
    wanted = topic.partitions[0]
    state = request.replica_state
    replica_id: int = request.replica_id if state is None or "replica_state" not in request.FIELDS else state.replica_id
    fetch = FetchRequest(
        replica_id=replica_id,
        epoch=wanted.current_leader_epoch,
        fetch_offset=wanted.fetch_offset,
        last_fetched_epoch=wanted.last_fetched_epoch,
        high_watermark=wanted.high_watermark if "high_watermark" in wanted.FIELDS else KNOWS_ALL,
    )
    return IncomingFetch(
        fetch=fetch,
        max_wait_ms=request.max_wait_ms,
        max_bytes=max(0, min(wanted.partition_max_bytes, request.max_bytes, MAX_BYTES)),
    )


def partition_body(answer: FetchAnswer, *, log_start_offset: int) -> Body:
    body: Body = {
        "partition_index": 0,
        "error_code": int(answer.error),
        "high_watermark": answer.high_watermark,
        "last_stable_offset": answer.high_watermark,
        "log_start_offset": log_start_offset,
        "current_leader": {"leader_id": answer.leader_id, "leader_epoch": answer.epoch},
        "aborted_transactions": None,
        "preferred_read_replica": -1,
        "records": b"",
    }
    if answer.diverging is not None:
        body["diverging_epoch"] = {"epoch": answer.diverging.epoch, "end_offset": answer.diverging.end_offset}
    return body


def response_body(partitions: Iterable[Body]) -> Body:
    """Return the topic by name and by id: each version of the response uses one of them."""
    return {
        "throttle_time_ms": 0,
        "error_code": 0,
        "session_id": 0,
        "responses": [{"topic": CLUSTER_METADATA_TOPIC, "topic_id": METADATA_TOPIC_ID, "partitions": list(partitions)}],
    }
