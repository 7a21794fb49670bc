"""An idempotent producer: acks=all, retries until acknowledged, one batch under way per partition.

It never gives a batch up, so a leader that has all acknowledged records never responds OUT_OF_ORDER_SEQUENCE_NUMBER. A
deposed leader that does not know it yet may; so the error is accepted only after `PATIENCE` times in a row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from broker_embedded.cluster.simulation.clients.client import LEADER_ERRORS, Client, RequestRefused, TryAgain
from broker_embedded.cluster.simulation.clients.connection import NoAnswer
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message
from ottla_wire.records.record import RecordData, encode_batch

PRODUCE_TIMEOUT_MS = 2_000

PATIENCE = 20

SENT_AGAIN = (*LEADER_ERRORS, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class NumberingProducer:
    """A producer whose batches are numbered, per partition."""

    is_transactional = False

    def __init__(self, client: Client, *, now_ms: Callable[[], int]) -> None:
        self.producer_id = -1
        self.epoch = -1
        self._client = client
        self._now_ms = now_ms
        self._sequences: dict[tuple[str, int], int] = {}

    def _batch(self, values: Sequence[bytes], sequence: int) -> bytes:
        now_ms = self._now_ms()
        records = [
            RecordData(offset=index, timestamp_ms=now_ms, key=None, value=value, headers=())
            for index, value in enumerate(values)
        ]
        return encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=self.is_transactional,
        )


class IdempotentProducer(NumberingProducer):
    """Appends batches; each is in the log once, however often it was sent."""

    def __init__(self, client: Client, *, now_ms: Callable[[], int]) -> None:
        super().__init__(client, now_ms=now_ms)
        self._one_at_a_time: dict[tuple[str, int], asyncio.Lock] = {}

    async def start(self) -> None:
        """Get a producer id."""

        async def attempt() -> Message:
            body = {"transactional_id": None, "transaction_timeout_ms": 60_000}
            answer = await self._client.ask_any(ApiKey.INIT_PRODUCER_ID, 4, body)
            if answer.error_code:
                raise TryAgain(ErrorCode(answer.error_code).name)
            return answer

        given = await self._client.until_done(attempt)
        self.producer_id, self.epoch = given.producer_id, given.producer_epoch

    async def send(self, topic: str, partition: int, values: Sequence[bytes]) -> int:
        """Append one batch; returns the offset of its first record once it is acknowledged by all in-sync replicas."""
        place = (topic, partition)
        async with self._one_at_a_time.setdefault(place, asyncio.Lock()):
            sequence = self._sequences.get(place, 0)
            batch = self._batch(values, sequence)
            offset = await append(self._client, topic, partition, batch)
            self._sequences[place] = (sequence + len(values)) & 0x7FFFFFFF
            return offset


async def append(
    client: Client, topic: str, partition: int, batch: bytes, *, transactional_id: str | None = None
) -> int:
    """Append one batch, by as many attempts as it takes; the offset of its first record."""
    out_of_order = 0

    async def attempt() -> int:
        nonlocal out_of_order
        try:
            return await _append_once(client, topic, partition, batch, transactional_id)
        except RequestRefused as error:
            if error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or out_of_order == PATIENCE:
                raise
            out_of_order += 1
            client.forget_leaders()
            raise TryAgain(str(error)) from None

    return await client.until_done(attempt)


async def _append_once(client: Client, topic: str, partition: int, batch: bytes, transactional_id: str | None) -> int:
    """Make one attempt, and return the offset of the first record. Raises TryAgain, NoAnswer or RequestRefused."""
    leader = await client.leader(topic, partition)
    body = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout_ms": PRODUCE_TIMEOUT_MS,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
    }
    try:
        answer = await client.ask(leader, ApiKey.PRODUCE, 9, body)
    except NoAnswer:
        client.forget_leaders()
        raise
    (partition_response,) = answer.responses[0].partition_responses
    if partition_response.error_code in LEADER_ERRORS:
        client.forget_leaders()
    if partition_response.error_code in SENT_AGAIN or ErrorCode(partition_response.error_code).retriable:
        raise TryAgain(ErrorCode(partition_response.error_code).name)
    if partition_response.error_code:
        raise RequestRefused(partition_response.error_code, f"{client.name} writes to {topic}-{partition}")
    return int(partition_response.base_offset)
