"""Batches per partition, filled here and handed to aiokafka whole.

aiokafka's own `send` waits for metadata and for room in the partition's batch, record by record. Filling batches here
makes a send a plain function call, and costs one aiokafka future per batch instead of one per record.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaTimeoutError

from ottla.aio.client.ending import end
from ottla.aio.produce.delivery import BatchResult, Receiver
from ottla.errors import OttlaError
from ottla.records import Header

if TYPE_CHECKING:
    from ottla.aio.produce.send_buffer import SendBuffer


class PartitionBatch:
    """Records of one partition that travel together."""

    __slots__ = (
        "builder",
        "encoded_bytes",
        "expires_ms",
        "is_settled",
        "keys",
        "receivers",
        "size_bytes",
        "timestamps",
    )

    def __init__(self, builder: Any, expires_ms: int) -> None:
        self.builder = builder
        self.receivers: list[Receiver] = []
        self.keys: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.size_bytes = 0
        self.encoded_bytes = 0
        self.expires_ms = expires_ms
        self.is_settled = False


class Lane:
    """One partition: the batch that fills, those that are ready, those that are on their way."""

    def __init__(self, owner: SendBuffer, topic: str, partition: int) -> None:
        self._owner = owner
        self.topic = topic
        self.partition = partition
        self._filling: PartitionBatch | None = None
        self._ready: deque[PartitionBatch] = deque()
        self._under_way: set[PartitionBatch] = set()
        self._task: asyncio.Task[None] | None = None
        self._no_more_linger: asyncio.Future[None] | None = None

    def add(
        self,
        receiver: Receiver,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header],
        timestamp_ms: int,
        size_bytes: int,
    ) -> None:
        """Put a record into the batch that fills, or into the next one when that is full."""
        batch = self._filling
        if batch is None:
            batch = self._open()
        if batch.builder.append(timestamp=timestamp_ms, key=key, value=value, headers=headers) is None:
            self._close()
            batch = self._open()
            batch.builder.append(timestamp=timestamp_ms, key=key, value=value, headers=headers)
        batch.receivers.append(receiver)
        batch.keys.append(key)
        batch.timestamps.append(timestamp_ms)
        batch.size_bytes += size_bytes
        if self._task is None or self._task.done():
            self._begin()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"ottla-lane-{self.topic}")

    def hurry(self) -> None:
        """Send what there is without lingering."""
        has_records = self._filling is not None or self._ready
        if has_records and (self._task is None or self._task.done()):  # it was cancelled
            self._begin()
        if self._no_more_linger is not None and not self._no_more_linger.done():
            self._no_more_linger.set_result(None)

    def give_up(self, error_of: Callable[[str], OttlaError], *, now_ms: int | None) -> None:
        """Fail batches whose time has expired (all if `now_ms` is None). A batch that aiokafka already holds may still
        be written: such a delivery is undecided."""
        for batch in [*self._under_way, *self._ready, *([self._filling] if self._filling else [])]:
            if now_ms is None or batch.expires_ms <= now_ms:
                self._fail(batch, error_of(self.topic))
        self._ready = deque(batch for batch in self._ready if not batch.is_settled)
        if self._filling is not None and self._filling.is_settled:
            self._filling = None

    def under_way(self) -> int:
        """Return the batches that are with the client."""
        return len(self._under_way)

    async def stop(self) -> None:
        task, self._task = self._task, None
        await end(task)

    def _open(self) -> PartitionBatch:
        owner = self._owner
        self._filling = PartitionBatch(owner.client.create_batch(), owner.monotonic_ms() + owner.delivery_timeout_ms)
        return self._filling

    def _close(self) -> None:
        assert self._filling is not None
        self._filling.builder.close()
        self._filling.encoded_bytes = self._filling.builder.size()  # before compression
        self._ready.append(self._filling)
        self._filling = None
        self._owner.batch_closed(self.topic)
        self.hurry()

    async def _run(self) -> None:
        try:
            while self._ready or self._filling is not None:
                if not self._ready:
                    if self._owner.linger_s > 0 and not self._owner.in_a_hurry:
                        await self._linger()
                    if not self._ready and self._filling is not None:
                        self._close()
                while self._ready:
                    await self._hand_over(self._ready.popleft())
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def _linger(self) -> None:
        loop = asyncio.get_running_loop()
        self._no_more_linger = future = loop.create_future()
        timer = loop.call_later(self._owner.linger_s, _set, future)
        try:
            await future
        finally:
            timer.cancel()
            self._no_more_linger = None

    async def _hand_over(self, batch: PartitionBatch) -> None:
        try:
            while not batch.is_settled:
                await self._owner.ready_to_send()
                self._under_way.add(batch)
                try:
                    future = await self._owner.client.send_batch(batch.builder, self.topic, partition=self.partition)
                except KafkaTimeoutError:
                    self._under_way.discard(batch)
                    continue  # no room in aiokafka for request.timeout.ms; delivery.timeout.ms decides
                future.add_done_callback(lambda future: self._answered(batch, future))
                return
        except asyncio.CancelledError:
            self._under_way.discard(batch)
            self._ready.appendleft(batch)  # whoever ends its task does not end its records: they still have their time
            raise
        except Exception as error:
            self._fail(batch, self._owner.explain(error, self.topic, self.partition, batch))

    def _answered(self, batch: PartitionBatch, future: asyncio.Future[Any]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        if batch.is_settled:
            return
        if error is not None:
            self._owner.refused(error, self.topic, self.partition, batch, self._fail)
            return
        metadata = future.result()
        if metadata is None:  # acks=0
            result = BatchResult(self.topic, self.partition, None, None)
        else:
            broker_time = metadata.timestamp if metadata.timestamp is not None and metadata.timestamp >= 0 else None
            offset = metadata.offset if metadata.offset >= 0 else None
            result = BatchResult(self.topic, self.partition, offset, broker_time)
        self._take_out(batch)
        for index, receiver in enumerate(batch.receivers):
            receiver.acknowledged(result, index, batch.timestamps[index])
        self._owner.settled(len(batch.receivers), batch.size_bytes)

    def _fail(self, batch: PartitionBatch, error: OttlaError) -> None:
        if batch.is_settled:
            return
        self._take_out(batch)
        for receiver, key in zip(batch.receivers, batch.keys, strict=True):
            receiver.not_delivered(error, self.partition, key)
        self._owner.settled(len(batch.receivers), batch.size_bytes)

    def _take_out(self, batch: PartitionBatch) -> None:
        batch.is_settled = True
        self._under_way.discard(batch)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
