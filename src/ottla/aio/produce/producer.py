"""A producer for asyncio, over aiokafka. The same names, rules and errors as the threaded one in `ottla.sync`.

`send` is a plain function: it serializes, checks the size, puts the record into its partition's batch and returns an
`AsyncDelivery`. `await delivery` (or `await producer.send(...)`, which is the same) waits for the acknowledgement. It
does not wait for metadata. A full buffer makes records wait for room, in order, for `max.block.ms`; then their delivery
is `BufferFull`. A loop that sends without ever awaiting gets `BufferFull` at once when as much again waits: `send_many`
waits for room by itself.

How it works.

1. `send` runs on the event loop and awaits nothing. The options that most sends do not have (expiry, priority, id,
   delay) come as a dict and are applied first, by `_apply_send_options`: they become another topic, a header, or a
   slot of the schedule topic.
2. The first record of a topic may need an answer of a schema registry. A thread asks for it, and the topic's records
   are held in order until it has come.
3. `SendBuffer` holds a record while the buffer is full, or while the partitions of its topic are not known. Then the
   partitioner chooses, and the record joins a batch of its partition, which is handed to aiokafka whole.
4. aiokafka has one future per batch. It settles the deliveries of the batch's records; callbacks run on the loop.
5. `DeliveryTracker` knows what is outstanding, and every failure that was not raised to a caller yet. The next `flush`
   or `close` raises those: no failure is silent.
6. `ClusterWatch` asks brokers for the size limits of topics. `expire_held_records` is a task that fails the records
   whose time has passed.
7. What a handler sends belongs to the record that it handles: `send` adds the delivery to `handled`, a context variable
   that the handler's caller has set.
8. `close` flushes, gives up what is not settled, and ends the tasks. After a fork the child's copy refuses to send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from ottla.aio.client.broker_calls import BrokerCalls
from ottla.aio.client.ending import end
from ottla.aio.client.no_new_topics import create_no_topics
from ottla.aio.client.reachable import start_client, wait_for_broker
from ottla.aio.produce.bulk import AsyncBulk
from ottla.aio.produce.cluster_watch import ClusterWatch
from ottla.aio.produce.delivery import AsyncDelivery
from ottla.aio.produce.produce_errors import ErrorTranslator
from ottla.aio.produce.renewal import Renewal, stop_client
from ottla.aio.produce.reports import Reports
from ottla.aio.produce.schemas import Schemas, Unserialized
from ottla.aio.produce.send_buffer import SendBuffer
from ottla.aio.produce.topic_metadata import HeldRecord, Topics
from ottla.aio.produce.transaction import Transaction, TransactionRunner
from ottla.aio.produce.transaction_client import sender_of
from ottla.config import for_admin
from ottla.config.arguments import explained
from ottla.errors import (
    ConfigError,
    LifecycleError,
    OttlaError,
    UndeliveredRecord,
)
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.processes import forks, lookups
from ottla.producer import make_partitioner, unsettled
from ottla.producer.bulk import Outgoing, as_events, outgoing
from ottla.producer.core import ProducerCore
from ottla.producer.encoded import header_list, placed, topic_name
from ottla.producer.later import DelayedSend, cancel_records
from ottla.producer.message_ids import with_message_id
from ottla.producer.record_sends import handled
from ottla.producer.signature import (
    BulkOptions,
    Key,
    ProducerOptions,
    RareOptions,
    SendOptions,
    Servers,
    Value,
    lists_options,
)
from ottla.producer.size import most_bytes
from ottla.producer.tracing import bulk_ended, with_added
from ottla.quantities import Span, timeout
from ottla.raising import again
from ottla.records import Header, Headers
from ottla.schedule.headers import schedule_topic
from ottla.serdes.base import SerdeOf
from ottla.stepping import run_async
from ottla.telemetry import log_event
from ottla.typevars import Builtin, BytesLike, K_contra, OtherBuiltin, V_contra
from ottla_wire.protocol import ErrorCode

if TYPE_CHECKING:
    from ottla.telemetry.traces.open_span import OpenSpan


_SWEEP_EVERY = 512
_YIELD_EVERY = 500

_running_loop = asyncio._get_running_loop  # None instead of an error where no loop runs


class AsyncProducer(ProducerCore[V_contra, K_contra]):
    """Sends records from one event loop. Make one per process and share it among all tasks.

        async with AsyncProducer("localhost:9092", value=Json(Order)) as producer:
            await producer.send("orders", order, key=b"42")

    Leaving the block flushes, and raises `DeliveryError` with what was not delivered.

    For type checkers it is generic in its values and keys: `AsyncProducer[Order]` sends orders with keys of bytes,
    `AsyncProducer[Order, str]` orders with keys of text, and `AsyncProducer` alone bytes with keys of bytes.
    """

    _kind = "async-producer"
    _left_behind = "event loop and connections"
    _errors_type = ErrorTranslator
    _errors: ErrorTranslator
    _transactions: TransactionRunner | None

    @overload
    def __init__(
        self,
        bootstrap_servers: Servers = None,
        *,
        value: SerdeOf[V_contra] | None = None,
        key: SerdeOf[K_contra] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncProducer[Builtin, BytesLike],
        bootstrap_servers: Servers = None,
        *,
        value: type[Builtin],
        key: None = None,
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncProducer[Builtin, Key],
        bootstrap_servers: Servers = None,
        *,
        value: type[Builtin],
        key: SerdeOf[Key],
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncProducer[BytesLike, Builtin],
        bootstrap_servers: Servers = None,
        *,
        value: None = None,
        key: type[Builtin],
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncProducer[Value, Builtin],
        bootstrap_servers: Servers = None,
        *,
        value: SerdeOf[Value],
        key: type[Builtin],
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncProducer[Builtin, OtherBuiltin],
        bootstrap_servers: Servers = None,
        *,
        value: type[Builtin],
        key: type[OtherBuiltin],
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @explained("AsyncProducer")
    def __init__(self, bootstrap_servers: Servers = None, **options: Any) -> None:
        super().__init__(bootstrap_servers, **options)
        self._client_config = {**self.settings.to_aiokafka(), "linger_ms": 0}  # batches linger here, not once more
        self._partitioner = make_partitioner(self.settings["partitioner"], random=Random())
        self._has_serdes = self._serializer.has_serdes
        self._schemas = Schemas(self._serializer.unprepared, self._send_prepared)
        self._reports = Reports()
        self._tracker = self._reports.tracker
        self._tracker.on_settled = self._sent_watch.settled
        self._transactions = None
        self._refusal = LifecycleError("this producer is not started: `await producer.start()`, or use `async with`")
        # what `start` makes, on the event loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._buffer: SendBuffer
        self._watch: ClusterWatch
        self._housekeeper: asyncio.Task[None] | None = None
        self._was_opened = False
        self._look_for_listeners()

    __init__.__wrapped__ = ProducerCore.__init__  # type: ignore[attr-defined]  # whose arguments `help` shows

    # -- sending ----------------------------------------------------------------------------------------------------

    # A named argument with a default costs each call a lookup in a dict. With options that few sends have as a dict, a
    # send takes a sixth less instructions.
    @lists_options(SendOptions)
    def send(
        self,
        topic: str,
        value: V_contra | None = None,
        *,
        key: K_contra | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        detached: bool = False,
        on_delivery: Callable[[AsyncDelivery], None] | None = None,
        **options: Unpack[RareOptions],
    ) -> AsyncDelivery:
        """Put one record into its batch, and return at once. Awaiting the result waits for the acknowledgement.

        `value`: what the producer's serde takes; bytes without one. None is a tombstone.

        `key`: the same. Records with equal keys go to one partition, in order.

        `on_delivery`: called with the delivery once it is settled, on the event loop.

        The other arguments are those of `SendOptions`.

        Returns the `AsyncDelivery`, which says what became of the record. Raises `RecordTooLarge`,
        `SerializationError`, and `InputError` for an argument that cannot be. While the registry has not been asked for
        the schema of the topic yet, the first two are in the delivery.
        """
        span = delayed = None
        try:
            if options or self._message_ids is not None:
                topic, headers, delayed = self._apply_send_options(topic, headers, **options)
            elif topic.__class__ is not str:
                topic = topic_name(topic)
            if partition is not None or timestamp_ms is not None:
                partition, timestamp_ms = placed(topic, partition, timestamp_ms)
            if timestamp_ms is None:
                timestamp_ms = self._clock.now_ms()
            if self._is_listened_to:
                headers, span, on_delivery, _ = self._begin_span(topic, key, value, headers, on_delivery)
                if span is not None:
                    on_delivery = partial(_span_ends, span, on_delivery)
            if self._has_serdes and not self._schemas.is_ready(topic):
                self._check_caller()
                delivery = AsyncDelivery(topic, None, self._reports, on_delivery)
                self._schemas.hold(topic, Unserialized(delivery, value, key, headers, partition, timestamp_ms, delayed))
            elif delayed is not None:
                delivery = AsyncDelivery(delayed.topic, delayed.id, self._reports, on_delivery)
                self._accept_later(delayed, delivery, topic, key, value, headers, partition, timestamp_ms)
            else:
                record_key, data, header_list, size_bytes = self._encode(topic, key, value, headers, partition)
                delivery = AsyncDelivery(topic, record_key, self._reports, on_delivery)
                held = HeldRecord(
                    topic, delivery, record_key, data, header_list, partition, timestamp_ms, size_bytes, 0
                )
                self._buffer.accept(held)
            self._tracker.outstanding.append(delivery)
            if not len(self._tracker.outstanding) & (_SWEEP_EVERY - 1):
                self._tracker.sweep_in_passing(2 * _SWEEP_EVERY, unfinished=len(self))
            sends = handled.get()
            if sends is not None and not detached:
                sends.add_of_loop(delivery, self._loop)
            return delivery
        except BaseException as error:
            self._not_sent(topic, key, partition, error, span)
            raise

    @lists_options(BulkOptions)
    async def send_many(
        self, topic: str, records: Iterable[Outgoing | tuple[Any, ...]], **options: Unpack[BulkOptions]
    ) -> AsyncBulk:
        """Send many records to one topic, faster than one by one: they share one delivery, the `AsyncBulk`.

        Returns once all are in the buffer, waiting for room where needed; `await bulk` waits until all are settled.
        Each record is an `Outgoing` or a tuple in its order: (value, key, headers, partition, timestamp_ms), of which
        the tail may be left out. A record that cannot be sent raises here; those before it are on their way.

        The options apply to all records: `expires_after`, `expires_at`, `priority`, `deliver_after`, `deliver_at`,
        `event_type`, `subject` and `detached`. They mean what they mean in `SendOptions`.
        """
        self._check_bulk_options(options)
        topic, later, shared = self._apply_bulk_options(topic, options)
        if self._has_serdes and not self._schemas.is_ready(topic):
            self._check_caller()
            await self._schemas.prepare(topic)
            await self._schemas.settle(self.settings["delivery.timeout.ms"] / 1000)  # single sends go first
        target = topic if later is None else later.topic
        bulk = self._new_bulk(target, detached=options.get("detached", False))
        added: list[Header] = []
        span = None
        if self._spans is not None:
            added, span = self._spans.begin_bulk(topic)
        if span is not None:
            bulk.add_done_callback(partial(bulk_ended, span))
        sent = 0
        try:
            for record in as_events(topic, records, self._serializer.value, options):
                value, key, headers, partition, timestamp_ms = outgoing(topic, sent, record)
                if partition is not None or timestamp_ms is not None:
                    partition, timestamp_ms = placed(topic, partition, timestamp_ms)
                if added:
                    headers = with_added(header_list(topic, headers)[0], added)
                if self._message_ids:
                    headers = with_message_id(topic, headers, None, self._message_ids)
                if shared:
                    headers = [*(header for header in headers if header[0] != EXPIRES_HEADER), *shared]
                if later is None:
                    record_key, data, listed, size_bytes = self._encode(topic, key, value, headers, partition)
                else:
                    self._check_caller()
                    record_key, data, listed, most = self._serialize(topic, key, value, headers)
                    partition, record_key, listed, size_bytes = self._into_slot(
                        later, topic, partition, record_key, data, listed, most
                    )
                if self._buffer.must_wait(size_bytes):
                    await self._buffer.room(target, size_bytes)
                    self._check_open()
                if timestamp_ms is None:
                    timestamp_ms = self._clock.now_ms()
                self._buffer.accept(
                    HeldRecord(target, bulk, record_key, data, listed, partition, timestamp_ms, size_bytes, 0)
                )
                sent += 1
                if not sent % _YIELD_EVERY:  # other tasks, and the sending itself, need the loop
                    await asyncio.sleep(0)
        except BaseException as error:
            error.add_note(f"send_many: {sent:,} records before this one are on their way to {topic}")
            self._not_sent(topic, None, None, error)
            raise
        finally:
            bulk.all_sent(sent)
        return bulk

    # -- settling ---------------------------------------------------------------------------------------------------

    def cancel(self, schedule_id: str) -> AsyncBulk:
        """Cancel the messages that were sent with this `schedule_id` and are not due yet.

        The cancel is written to every slot of the schedule. Acknowledged before a message's due time
        (`await producer.cancel(...)` waits for that), it is always honoured. Afterwards it may come too late.
        """
        self._check_caller()
        topic = schedule_topic(self._schedule)
        records = cancel_records(schedule_id)
        bulk = self._new_bulk(topic)
        now_ms, sent = self._clock.now_ms(), 0
        try:
            for value, key, headers, partition in records:
                self._check_size(topic, key, value, headers)
                size_bytes = most_bytes(key, value, headers)
                self._buffer.accept(HeldRecord(topic, bulk, key, value, headers, partition, now_ms, size_bytes, 0))
                sent += 1
        finally:
            bulk.all_sent(sent)
        return bulk

    async def flush(self, timeout_s: Span | None = None) -> None:
        self._check_open()
        await self._settle(timeout_s, "flush")
        self._raise_failures()

    @property
    def _is_started(self) -> bool:
        """Return whether `start` has done its work."""
        return self._refusal is None

    async def close(self, timeout_s: Span | None = None) -> None:
        """Flush, then give up what is not settled after `timeout_s`, and end. Raises `DeliveryError` like `flush`.

        Closing again, or before `start`, does nothing.
        """
        if self._refusal is None:
            timeout("close", 0 if timeout_s is None else timeout_s)  # before anything is ended
            if self._transactions is not None:
                await run_async(self._transactions.steps.end())
            await self._settle(timeout_s, "close")
        self._refuses()
        if self._was_opened:
            self._was_opened = False
            await self._end()
            self._raise_failures()

    async def start(self, timeout_s: Span | None = None) -> None:
        """Connect, and check what can be checked before the first record; `async with` does it.

        A broker that does not listen yet is waited for, as long as `start_timeout_s` of the producer says (10 s if not
        given), or `timeout_s`. Raises `BrokerUnavailable` when none comes, and `ConfigError` when `batch.size` is above
        what the given topics (or, without any, topics without a limit of their own) take.
        """
        if self._loop is not None:
            raise again(self._refusal) if self._refusal else LifecycleError("this producer is started already")
        if self._is_over:
            self._check_open()
        wait_s, answer_s = self._start_limits(timeout_s)
        lookups.check()
        await wait_for_broker(self.settings, wait_s, lambda: self._is_over)
        client = await self._new_client(answer_s)
        self._loop = asyncio.get_running_loop()
        self._open(client, answer_s)
        try:
            await self._check_batch_size()
            for topic in self._topics:  # a thread talks to the schema registry now: a send must not block the loop
                await self._schemas.prepare(topic)
        except BaseException:
            self._was_opened = False
            await self._end()
            self._loop = None
            raise
        if self._states is not None:
            self._transactions = TransactionRunner(self, self._states, self._errors, self._reports)
        self._look_for_listeners()
        self._buffer.each_time = self._look_for_listeners
        self._housekeeper = self._loop.create_task(
            self._buffer.expire_held_records(), name="ottla-producer-housekeeping"
        )
        self._housekeeper.add_done_callback(self._task_ended)
        self._refusal = None
        forks.watch(self)

    def transaction(self, timeout_s: Span = 60.0) -> Transaction:
        """Return a transaction: what is sent in its block is seen by read_committed consumers all at once, or never.

            async with producer.transaction() as transaction:
                producer.send("invoices", invoice)
                await transaction.send_offsets(offsets, consumer)

        Needs `settings={"transactional.id": ...}`. An exception in the block aborts it. `FencedError` means that a
        newer instance with the same id took over. `timeout_s` is for each step: `send_offsets`, commit, abort.
        """
        return self._open_transaction(Transaction, timeout_s)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._closing_after(error):
            await self.close()

    def __len__(self) -> int:
        """Return records that are not settled yet."""
        return len(self._buffer) + len(self._schemas) if self._was_opened else 0

    # -- what transactions use --------------------------------------------------------------------------------------

    @property
    def _client(self) -> Any:
        """The aiokafka producer of the moment."""
        return self._buffer.client

    async def _settle_all(self, timeout_s: float) -> bool:
        """Wait until nothing is outstanding. False when time ran out."""
        await self._schemas.settle(timeout_s)
        return await self._buffer.settle(timeout_s) and not len(self._schemas)

    async def _renew_client(self, timeout_s: float, *, even_if_unwanted: bool = False) -> None:
        """Replace the client if a refused batch has made it useless."""
        renewal = self._buffer.renewal
        assert renewal is not None
        if even_if_unwanted:
            renewal.is_wanted = True
        if not await renewal.now(timeout_s):
            raise self._errors.unavailable(f"no new client within {timeout_s:g} s")

    async def _new_client(self, timeout_s: float) -> Any:
        """Return a started aiokafka producer. Raises `ConfigError` if aiokafka refuses a setting."""
        try:
            client = AIOKafkaProducer(**self._client_config)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ConfigError(f"aiokafka refuses the settings: {error}") from error
        if not self.settings["allow.auto.create.topics"]:
            create_no_topics(client.client)
        calls = BrokerCalls(
            client.client,
            self.throttling,
            hooks=self._listeners,
            name=self._client_name,
            now_ms=self._clock.monotonic_ms,
        )
        calls.on_written = self._written
        try:
            async with asyncio.timeout(timeout_s):
                await start_client(client)
        except (TimeoutError, KafkaError, OSError) as error:
            await stop_client(client)
            raise self._errors.of_call(error, what="start") from error
        except BaseException:
            await stop_client(client)
            raise
        sender_of(client).add_done_callback(self._client_ended)
        return client

    def _written(self, topic: str, error_code: int) -> None:
        """Record that a broker answered a batch of this topic."""
        if error_code:
            self._errors.refusals.answered(topic, ErrorCode.of(error_code), self._clock.monotonic_ms())
        elif self._errors.refusals:
            self._errors.refusals.taken(topic, self._clock.monotonic_ms())

    def _client_ended(self, sender: asyncio.Task[None]) -> None:
        """Fail the records in flight, because the client's sender has ended: with the sender's error, or without one if
        it was cancelled. Later batches fail likewise."""
        is_the_one = self._was_opened and sender is sender_of(self._buffer.client)
        if is_the_one and (sender.cancelled() or sender.exception() is None):
            self._task_ended(sender)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Fail what is in flight, as a task has ended without which nothing can be settled."""
        if self._refusal is not None:
            return
        error = None if task.cancelled() else task.exception()
        how = "was cancelled from outside" if error is None else f"failed: {error!r}"
        name = "housekeeping" if task is self._housekeeper else "the client's sender"
        problem = f"a task of the producer ({name}) {how}, and it sends nothing any more: make a new one"
        self._refusal = LifecycleError(problem)  # `close` still ends what is left of it
        if len(self):
            lost = {"records": len(self), "servers": self._errors.servers, "error": problem}
            log_event("records_lost_at_exit", "error", lost)

        def error_of(topic: str) -> OttlaError:
            return LifecycleError(f"{topic}: not acknowledged: {problem}")

        self._schemas.give_up(error_of)
        self._buffer.give_up(error_of, now_ms=None)

    def _look_for_listeners(self) -> None:
        self._tracker.sweep()
        super()._look_for_listeners()

    def _new_bulk(self, topic: str, *, detached: bool = False) -> AsyncBulk:
        bulk = AsyncBulk(topic, self._reports)
        self._tracker.outstanding.append(bulk)
        sends = handled.get()
        if sends is not None and not detached:
            sends.add_of_loop(bulk, self._loop)
        return bulk

    # -- behind send ------------------------------------------------------------------------------------------------

    def _check_caller(self) -> None:
        self._check_open()
        if _running_loop() is not self._loop:
            raise LifecycleError(
                "this producer belongs to another event loop: call it there (loop.call_soon_threadsafe), or use the "
                "threaded Producer"
            )
        if self._states is not None:
            self._states.check_can_send()

    def _send_prepared(self, topic: str, send: Unserialized) -> None:
        """Send a record that waited for the registry."""
        if send.later is not None:
            delivery = send.delivery
            delivery.topic, delivery.key = send.later.topic, send.later.id
            self._accept_later(
                send.later, delivery, topic, send.key, send.value, send.headers, send.partition, send.timestamp_ms
            )
            return
        key, data, headers, size_bytes = self._encode(topic, send.key, send.value, send.headers, send.partition)
        send.delivery.key = key
        self._buffer.accept(
            HeldRecord(topic, send.delivery, key, data, headers, send.partition, send.timestamp_ms, size_bytes, 0)
        )

    def _accept_later(
        self,
        later: DelayedSend,
        delivery: AsyncDelivery,
        topic: str,
        key: Any,
        value: Any,
        headers: Headers,
        partition: int | None,
        timestamp_ms: int,
    ) -> None:
        """Encode and check for the topic, and put into the slot that the record waits in."""
        self._check_caller()
        record_key, data, listed, most = self._serialize(topic, key, value, headers)
        slot, waits_as, listed, size_bytes = self._into_slot(later, topic, partition, record_key, data, listed, most)
        self._buffer.accept(
            HeldRecord(later.topic, delivery, waits_as, data, listed, slot, timestamp_ms, size_bytes, 0)
        )

    def _encode(
        self,
        topic: str,
        key: Any,
        value: Any,
        headers: Headers,
        partition: int | None,
    ) -> tuple[bytes | None, bytes | None, list[Header], int]:
        """Serialize and check: (key, value, headers, at most so many bytes)."""
        self._check_caller()
        if partition is None and self._must_name_partition:
            raise self._errors.partition_missing(topic)
        encoded = self._serialize(topic, key, value, headers)
        if encoded[3] > self._limit_of.get(topic, -1):
            self._check_size(topic, *encoded[:3])
        return encoded

    # -- behind flush and close -------------------------------------------------------------------------------------

    async def _settle(self, timeout_s: Span | None, call: str) -> None:
        longest_s = self.settings["delivery.timeout.ms"] / 1000 + 5
        limit_s = longest_s if timeout_s is None else timeout(call, timeout_s)
        started_ms = self._clock.monotonic_ms()
        await self._schemas.settle(limit_s)
        spent_s = (self._clock.monotonic_ms() - started_ms) / 1000
        if await self._buffer.settle(max(0.0, limit_s - spent_s)) and not len(self._schemas):
            self._tracker.sweep(len(self._tracker.outstanding))

    def _still_out(self) -> tuple[list[UndeliveredRecord], OttlaError | None]:
        """Return (the records that are not settled, why they are not)."""
        unfinished = self._tracker.unfinished()
        if not unfinished:
            return [], None
        cause = self._errors.unavailable("records are still being tried")
        return unsettled(unfinished, f"not acknowledged yet: {cause}"), cause

    async def _end(self) -> None:
        forks.unwatch(self)
        await end(self._housekeeper)
        await self._schemas.stop(self._errors.given_up)
        self._buffer.give_up(self._errors.given_up, now_ms=None)
        await self._buffer.stop()
        await self._watch.stop()
        await stop_client(self._buffer.client)
        self._tracker.sweep(len(self._tracker.outstanding))
        self._sent_watch.ended()

    # -- behind start -----------------------------------------------------------------------------------------------

    def _open(self, client: Any, timeout_s: float) -> None:
        self._watch = ClusterWatch(
            admin_config=for_admin(self.settings).to_aiokafka(),
            limits=self._sizes.limits,
            on_limit=self._sizes.on_limit,
            clock=self._clock,
            timeout_ms=min(self.settings["request.timeout.ms"], max(1_000, int(timeout_s * 1000))),
        )
        self._watch_topic, self._look_again = self._watch.watch, self._watch.look_again
        self._errors.unmade_schedules = self._watch.unmade_schedules
        topics = Topics(
            client,
            propagation_ms=self.settings["topic.metadata.propagation.max.ms"],
            ask_for_limit=self._watch.learn,
            on_found=lambda topic: self._buffer.on_topic(topic),
            on_missing=lambda topic: self._buffer.on_topic_missing(topic),
            on_refused=lambda topic: self._buffer.topic_refused(topic),
        )
        self._buffer = SendBuffer(
            self.settings,
            client=client,
            topics=topics,
            partitioner=self._partitioner,
            sizes=self._sizes,
            errors=self._errors,
            clock=self._clock,
            look_again=self._watch.look_again,
            learn=self._watch.learn,
        )
        self._buffer.renewal = Renewal(self._buffer, self._new_client, by_itself=self._states is None)
        self._was_opened = True

    async def _check_batch_size(self) -> None:
        if self._topics:
            self._sizes.check_batch_size(await self._watch.limits_now(list(self._topics)))
            return
        brokers = sorted(broker.nodeId for broker in self._client.client.cluster.brokers())
        if brokers:
            self._sizes.check_batch_size_of_broker(await self._watch.broker_limit_now(brokers[0]))

    # -- when the process forks or ends -----------------------------------------------------------------------------

    def _at_exit(self) -> None:
        """Log that the process ends with the producer open. Its event loop is gone, so nothing can be sent."""
        if len(self):
            log_event("records_lost_at_exit", "error", {"records": len(self), "servers": self._errors.servers})


def _span_ends(span: OpenSpan, then: Callable[[AsyncDelivery], None] | None, delivery: AsyncDelivery) -> None:
    """End the span of a settled record, then call its sender's callback."""
    error = delivery.exception()
    if error is not None:
        span.not_delivered(error)
    else:
        report = delivery.report
        span.delivered(report.partition, report.offset)
    if then is not None:
        then(delivery)
