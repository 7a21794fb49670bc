"""Where records are between `send` and aiokafka: waiting for room, waiting for their topic, in a partition's batch.

A record takes room in the buffer (buffer.memory, queue.buffering.max.messages) until it is settled. Without room it
waits in line for max.block.ms. Everything runs on the producer's event loop; nothing here blocks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from ottla.aio.produce.partition_batches import Lane, PartitionBatch
from ottla.aio.produce.produce_errors import TOO_LARGE, ErrorTranslator
from ottla.aio.produce.renewal import Renewal
from ottla.aio.produce.topic_metadata import HeldRecord, Topic, Topics, fail_held
from ottla.clock import Clock
from ottla.config import Settings
from ottla.errors import BrokerUnavailable, FencedError, LifecycleError, OttlaError
from ottla.producer import Partitioner
from ottla.producer.encoded import bad_arguments
from ottla.producer.size_policy import SizePolicy


class SendBuffer:
    """The buffer of one asyncio producer, and the lanes out of it."""

    def __init__(
        self,
        settings: Settings,
        *,
        client: Any,
        topics: Topics,
        partitioner: Partitioner,
        sizes: SizePolicy,
        errors: ErrorTranslator,
        clock: Clock,
        look_again: Callable[[str], None],
        learn: Callable[[str], Awaitable[None]],
    ) -> None:
        self.client = client
        self.linger_s: float = settings["linger.ms"] / 1000
        self.delivery_timeout_ms: int = settings["delivery.timeout.ms"]
        self.in_a_hurry = False
        """Someone flushes or closes: batches do not linger."""
        self.renewal: Renewal | None = None
        self.each_time: Callable[[], None] = lambda: None
        """Called whenever the house is kept."""
        self._settings = settings
        self._topics = topics
        self._partitioner = partitioner
        self._sizes = sizes
        self._errors = errors
        self._clock = clock
        self._look_again = look_again
        self._learn = learn
        self._asking: set[asyncio.Task[None]] = set()
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._unsettled = 0
        self._is_letting_in = False
        self._buffered_bytes = 0
        self._most_bytes: int = settings["buffer.memory"]
        self._most_records: int = settings["queue.buffering.max.messages"] or (1 << 62)
        self._waiting: deque[HeldRecord] = deque()
        self._waiting_bytes = 0
        self._progress: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Return records that are not settled yet."""
        return self._unsettled + len(self._waiting)

    # -- in ---------------------------------------------------------------------------------------------------------

    def accept(self, record: HeldRecord) -> None:
        """Take a record in, or let it wait for room. Raises BufferFull when as much waits as the buffer holds."""
        if self._waiting or not self._has_room(record.size_bytes):
            if self._waiting_bytes + record.size_bytes > self._most_bytes:
                raise self._errors.buffer_full(record.topic, len(self))
            self._waiting.append(record._replace(expires_ms=self.monotonic_ms() + self._settings["max.block.ms"]))
            self._waiting_bytes += record.size_bytes
        else:
            self._buffer(record)

    def must_wait(self, size_bytes: int) -> bool:
        """Return whether a record of this size would wait in line."""
        return bool(self._waiting) or not self._has_room(size_bytes)

    async def room(self, topic: str, size_bytes: int) -> None:
        """Wait until a record of this size has room. Raises BufferFull after max.block.ms."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings["max.block.ms"] / 1000
        while self.must_wait(size_bytes):
            left_s = deadline - loop.time()
            if left_s <= 0:
                raise self._errors.buffer_full(topic, len(self))
            await self.wait_for_progress(left_s)

    def _has_room(self, size_bytes: int) -> bool:
        return self._buffered_bytes + size_bytes <= self._most_bytes and self._unsettled < self._most_records

    def _buffer(self, record: HeldRecord) -> None:
        self._unsettled += 1
        self._buffered_bytes += record.size_bytes
        topic = self._topics.get(record.topic)
        if topic.is_stale or topic.held:
            topic.held.append(record._replace(expires_ms=self.monotonic_ms() + self.delivery_timeout_ms))
        else:
            self._place(topic, record)

    def _place(self, topic: Topic, record: HeldRecord) -> None:
        """Choose the partition and put the record into its batch. What cannot be placed is settled as failed."""
        partition = record.partition
        try:
            if partition is None:
                partition = self._partitioner.choose(record.key, topic.partitions, topic.available, topic=topic.name)
            elif partition not in topic.partitions:
                raise self._errors.unknown_partition(topic.name, partition)
            lane = self._lanes.get((topic.name, partition))
            if lane is None:
                lane = self._lanes[topic.name, partition] = Lane(self, topic.name, partition)
            lane.add(record.receiver, record.key, record.value, record.headers, record.timestamp_ms, record.size_bytes)
        except Exception as error:  # a warning that was turned into an error counts as well: nothing may be lost here
            if not isinstance(error, OttlaError):
                error = bad_arguments(topic.name, record.headers, error, timestamp_ms=record.timestamp_ms)
            self._refuse(record, error)

    def _refuse(self, record: HeldRecord, error: OttlaError) -> None:
        record.receiver.not_delivered(error, record.partition, record.key)
        self.settled(1, record.size_bytes)

    # -- what topics report -----------------------------------------------------------------------------------------

    def on_topic(self, topic: Topic) -> None:
        """Send what was held for a topic, now that its partitions and its limit are known."""
        while topic.held:
            record = topic.held.popleft()
            try:
                self._sizes.check(topic.name, record.key, record.value, record.headers)
            except OttlaError as error:
                self._refuse(record, error)
            else:
                self._place(topic, record)

    def on_topic_missing(self, topic: Topic) -> None:
        """Fail what is held for a topic that the cluster does not have."""
        while topic.held:
            self._refuse(topic.held.popleft(), self._errors.unknown_topic(topic.name))

    def topic_refused(self, topic: Topic) -> None:
        """Fail what is held for a topic that this client may not describe."""
        code, text = "TOPIC_AUTHORIZATION_FAILED", "it may not even be described"
        while topic.held:
            error = self._errors.refused(topic.name, text, code=code, topic=topic.name)
            self._refuse(topic.held.popleft(), error)

    # -- what lanes need --------------------------------------------------------------------------------------------

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def batch_closed(self, topic: str) -> None:
        self._partitioner.batch_is_full(topic)

    def settled(self, records: int, size_bytes: int) -> None:
        """Wake senders that wait for room: records have left the buffer, and their callbacks were called."""
        self._unsettled -= records
        self._buffered_bytes -= size_bytes
        if self._is_letting_in:
            return  # one that was let in could not be placed: the loop below, further up the stack, goes on
        self._is_letting_in = True
        try:
            while self._waiting and self._has_room(self._waiting[0].size_bytes):
                record = self._waiting.popleft()
                self._waiting_bytes -= record.size_bytes
                self._buffer(record)
        finally:
            self._is_letting_in = False
        self._made_progress()

    def explain(self, error: BaseException, topic: str, partition: int, batch: PartitionBatch) -> OttlaError:
        explained = self._errors.of_batch(error, topic, partition, size_bytes=_size_alone(batch))
        if isinstance(error, TOO_LARGE):
            self._look_again(topic)
        leaves_a_gap = not isinstance(explained, FencedError | LifecycleError | BrokerUnavailable)
        if leaves_a_gap and self._settings["enable.idempotence"] and self.renewal is not None:
            self.renewal.wanted()
        return explained

    def refused(
        self,
        error: BaseException,
        topic: str,
        partition: int,
        batch: PartitionBatch,
        fail: Callable[[PartitionBatch, OttlaError], None],
    ) -> None:
        if not (isinstance(error, TOO_LARGE) and self._errors.contradicts_limit(topic, _size_alone(batch))):
            fail(batch, self.explain(error, topic, partition, batch))
            return

        async def ask_and_fail() -> None:
            await self._learn(topic)  # the limit was lowered, or is not known: the text names the one that holds
            fail(batch, self.explain(error, topic, partition, batch))

        task = asyncio.get_running_loop().create_task(ask_and_fail(), name=f"ottla-refused-{topic}")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def ready_to_send(self) -> None:
        if self.renewal is not None:
            await self.renewal.done()

    def use_client(self, client: Any) -> None:
        """Use this client from now on."""
        self.client = client
        self._topics.use(client)

    def under_way(self) -> int:
        """Return the batches that are with the client."""
        return sum(lane.under_way() for lane in self._lanes.values())

    # -- out --------------------------------------------------------------------------------------------------------

    async def settle(self, timeout_s: float) -> bool:
        """Wait until nothing is outstanding, without lingering. False when time ran out."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        self.in_a_hurry = True
        try:
            while len(self):
                left_s = deadline - loop.time()
                if left_s <= 0:
                    return False
                for lane in list(self._lanes.values()):
                    lane.hurry()
                await self.wait_for_progress(min(left_s, 0.5))
        finally:
            self.in_a_hurry = False
        return True

    async def wait_for_progress(self, timeout_s: float) -> None:
        """Wait until some record is settled."""
        if self._progress is None or self._progress.done():
            self._progress = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._progress], timeout=timeout_s)

    async def expire_held_records(self) -> None:
        """Give up what is out of time, a few times within the shortest of the times. Runs until cancelled."""
        step_s = min(1.0, self.delivery_timeout_ms / 4000, max(0.01, self._settings["max.block.ms"] / 4000))
        while True:
            await asyncio.sleep(step_s)
            self.give_up(self._errors.timed_out, now_ms=self.monotonic_ms())
            self.each_time()

    def give_up(self, error_of: Callable[[str], OttlaError], *, now_ms: int | None) -> None:
        """Settle as failed what is out of time, or everything when `now_ms` is None."""
        while self._waiting and (now_ms is None or self._waiting[0].expires_ms <= now_ms):
            record = self._waiting.popleft()
            self._waiting_bytes -= record.size_bytes
            full = error_of(record.topic) if now_ms is None else self._errors.buffer_full(record.topic, len(self))
            record.receiver.not_delivered(full, record.partition, record.key)
        expired = self._topics.take_expired(now_ms=now_ms)
        fail_held(expired, error_of)
        for record in expired:
            self.settled(1, record.size_bytes)
        for lane in list(self._lanes.values()):
            lane.give_up(error_of, now_ms=now_ms)
        self._made_progress()

    async def stop(self) -> None:
        """End the lanes' tasks."""
        if self.renewal is not None:
            await self.renewal.stop()
        await self._topics.stop()
        asking = list(self._asking)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        for lane in list(self._lanes.values()):
            await lane.stop()

    def _made_progress(self) -> None:
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)


def _size_alone(batch: PartitionBatch) -> int:
    """Return the encoded size of a batch of one record; 0 for more records, as none of them is known to be the
    reason."""
    return batch.encoded_bytes if len(batch.keys) == 1 else 0
