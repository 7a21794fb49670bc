"""A producer for threads, over confluent-kafka (librdkafka).

How it works.

1. `send` runs in the caller's thread. It serializes, checks the size against the topic's limit, and hands the record to
   librdkafka's buffer with a `Delivery` as its callback. It waits for no metadata and no broker; only a full buffer
   makes it wait, for `max.block.ms` at most.
2. Options that most sends do not have (expiry, priority, id, delay) come as a dict and are applied first, by
   `_apply_send_options`: they become another topic, a header, or a slot of the schedule topic.
3. `_send_slow_path` is for producers with a transactional.id, with a partitioner that librdkafka does not have, or with
   a warning to give. `SendBuffer` then holds a record until the partitions of its topic are known.
4. librdkafka reports each record once. The reports are served by the thread of `ReportService`, by a sending thread
   every 256 sends, and by `flush`. A report settles its `Delivery`.
5. `DeliveryTracker` knows what is outstanding, and every failure that was not raised to a caller yet. The next `flush`
   or `close` raises those: no failure is silent.
6. `ClusterWatch`, in a thread of its own, asks brokers what librdkafka does not say: the size limits of topics, their
   partitions, and why a record is not accepted.
7. What a handler sends belongs to the record that it handles: `send` adds the delivery to `handled`, a context variable
   that the handler's caller has set.
8. `close` flushes, gives up what is not settled, and stops both threads. After a fork the child's copy refuses to send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Final, Self, Unpack, overload

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import Producer as ConfluentProducer  # an instrumentor replaces the package's own

from ottla.app.member.broker_wait import wait_for_broker
from ottla.config import for_admin
from ottla.config.arguments import explained
from ottla.errors import (
    ConfigError,
    DeliveryError,
    OttlaError,
    UndeliveredRecord,
)
from ottla.processes import forks, green_threads, lookups
from ottla.producer import size_in_own_batch, unsettled
from ottla.producer.bulk import Outgoing
from ottla.producer.core import ProducerCore
from ottla.producer.encoded import placed, topic_name
from ottla.producer.later import cancel_records
from ottla.producer.partitioners import warn_of_null_keys
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
from ottla.producer.size import FIXED_BYTES
from ottla.producer.tracing import ROOT_BYTES
from ottla.quantities import Span, timeout
from ottla.raising import again
from ottla.records import Headers
from ottla.schedule.headers import schedule_topic
from ottla.serdes.base import SerdeOf
from ottla.stepping import run
from ottla.sync.client import ending
from ottla.sync.client.callbacks import guarded
from ottla.sync.client.reachable import brokers_of
from ottla.sync.client.statistics import on_statistics, with_statistics
from ottla.sync.client.throttled import on_throttle
from ottla.sync.produce.bulk import Bulk, send_bulk, send_encoded
from ottla.sync.produce.cluster_watch import ClusterWatch
from ottla.sync.produce.delivery import Delivery, TracedDelivery
from ottla.sync.produce.placement import librdkafka_settings, own_partitioner
from ottla.sync.produce.produce_errors import TOO_LARGE, UNKNOWN_TOPIC, ErrorTranslator
from ottla.sync.produce.reports import SERVE_EVERY, ReportService
from ottla.sync.produce.send_buffer import REFUSALS, SendBuffer
from ottla.sync.produce.transaction import Transaction, TransactionRunner
from ottla.telemetry import log_event
from ottla.telemetry.traces.propagation import TRACEPARENT
from ottla.tokens.confluent import await_token
from ottla.typevars import Builtin, BytesLike, K_contra, OtherBuiltin, V_contra
from ottla.wire_client.producing.full_disks import why_not_taken

_IN_PASSING = SERVE_EVERY - 1
_FIRST_FLUSH_S: Final = 0.001
"""The first wait of a flush. Each is twice as long as the one before it: see `reports`."""
_LONGEST_FLUSH_S: Final = 0.2
_WAITS_LONG_MS: Final = 3_000
_ASK_AGAIN_MS: Final = 5_000
_WARN_NULL_KEYS = frozenset({"consistent", "fnv1a"})


class Producer(ProducerCore[V_contra, K_contra]):
    """Sends records. Make one per process and share it: it is thread-safe, and batches best when all sends meet in it.

        with Producer("localhost:9092", value=Json(Order)) as producer:
            producer.send("orders", order, key=b"42")

    Leaving the block flushes, and raises `DeliveryError` with what was not delivered.

    For type checkers it is generic in its values and keys: `Producer[Order]` sends orders with keys of bytes,
    `Producer[Order, str]` orders with keys of text, and `Producer` alone bytes with keys of bytes.
    """

    _kind = "producer"
    _left_behind = "threads and connections"
    _errors_type = ErrorTranslator
    _errors: ErrorTranslator
    _transactions: TransactionRunner | None
    __slots__ = ("_can_produce_directly", "_client", "_outstanding", "_reports")  # see ProducerCore

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
        self: Producer[Builtin, BytesLike],
        bootstrap_servers: Servers = None,
        *,
        value: type[Builtin],
        key: None = None,
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[Builtin, Key],
        bootstrap_servers: Servers = None,
        *,
        value: type[Builtin],
        key: SerdeOf[Key],
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[BytesLike, Builtin],
        bootstrap_servers: Servers = None,
        *,
        value: None = None,
        key: type[Builtin],
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[Value, Builtin],
        bootstrap_servers: Servers = None,
        *,
        value: SerdeOf[Value],
        key: type[Builtin],
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Producer[Builtin, OtherBuiltin],
        bootstrap_servers: Servers = None,
        *,
        value: type[Builtin],
        key: type[OtherBuiltin],
        **options: Unpack[ProducerOptions],
    ) -> None: ...

    @explained("Producer")
    def __init__(self, bootstrap_servers: Servers = None, **options: Any) -> None:
        super().__init__(bootstrap_servers, **options)
        choice = self.settings["partitioner"]
        self._warn_null_keys: str | None = choice if choice in _WARN_NULL_KEYS else None
        config = {**self.settings.to_confluent(), **librdkafka_settings(choice, self.settings)}
        self._client = self._make_client(config)
        self._reports = ReportService(
            self._client,
            explain=self._errors.of_delivery,
            longest_wait_s=self.settings["delivery.timeout.ms"] / 1000 + 5,
            name=self._name,
        )
        self._tracker = self._reports.tracker
        self._buffer = SendBuffer(
            self._client,
            self.settings,
            partitioner=own_partitioner(choice, Random()),
            reports=self._reports,
            errors=self._errors,
            clock=self._clock,
            after_failure=self._after_failure,
            check_open=self._check_open,
        )
        self._with_room, self._explained = self._buffer.with_room, self._buffer.refusal
        self._reports.on_failure = self._after_failure
        self._reports.on_fatal = self._errors.on_error
        self._reports.wants_to_know_first = self._wants_limit_first
        self._outstanding = self._reports.tracker.outstanding
        self._watch = ClusterWatch(
            self._client,
            admin_config={**for_admin(self.settings).to_confluent(), "log_level": 0},
            limits=self._sizes.limits,
            on_limit=self._sizes.on_limit,
            on_partitions=self._buffer.on_partitions,
            on_missing=self._buffer.on_topic_missing,
            why_not_taken=self._ask_why_not_taken,
            clock=self._clock,
            timeout_ms=self.settings["request.timeout.ms"],
            max_age_ms=self.settings["metadata.max.age.ms"],
            propagation_ms=self.settings["topic.metadata.propagation.max.ms"],
            name=self._name,
        )
        self._watch_topic = partial(self._watch.watch, partitions=self._buffer.places_itself)
        self._look_again = self._watch.look_again
        self._errors.unmade_schedules = self._watch.unmade_schedules
        self._transactions = (
            None if self._states is None else TransactionRunner(self, self._client, self._states, self._errors)
        )
        self._reports.tracker.on_settled = self._sent_watch.settled
        self._look_for_listeners()
        self._can_produce_bulk_directly = not (
            self._buffer.places_itself or self._warn_null_keys or self._must_name_partition
        )
        self._can_produce_directly = self._can_produce_bulk_directly and self._transactions is None
        self._waiting: Any = None
        """A record that was not settled when it was looked at last."""
        self._ask_why_ms = 0
        self._reports.on_each_round = self._housekeeping
        self._reports.start()
        forks.watch(self)
        forks.owns(self)

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
        on_delivery: Callable[[Delivery], None] | None = None,
        **options: Unpack[RareOptions],
    ) -> Delivery:
        """Hand one record to the client's buffer, and return at once.

        `value`: what the producer's serde takes; bytes without one. None is a tombstone.

        `key`: the same. Records with equal keys go to one partition, in order.

        `on_delivery`: called with the delivery once it is settled, in the producer's own thread.

        The other arguments are those of `SendOptions`.

        Returns the `Delivery`, which says what became of the record. Raises `RecordTooLarge`, `SerializationError`,
        `InputError` for an argument that cannot be, and `BufferFull` when the buffer stayed full for max.block.ms.
        """
        if self._refusal is not None:
            raise again(self._refusal)
        record_key: Any = key
        data: Any = value
        span = root = delayed = None
        try:
            if options or self._message_ids is not None:
                topic, headers, delayed = self._apply_send_options(topic, headers, **options)
            elif topic.__class__ is not str:
                topic = topic_name(topic)
            if partition is not None or timestamp_ms is not None:
                partition, timestamp_ms = placed(topic, partition, timestamp_ms)
            if self._is_listened_to:
                headers, span, on_delivery, root = self._begin_span(
                    topic, key, value, headers, on_delivery, may_be_root=True
                )
            are_bytes = data.__class__ is bytes and (record_key is None or record_key.__class__ is bytes)
            if are_bytes and not headers and self._takes_bytes:  # as `encoded` does it, whose call costs 0.15 µs
                headers, most_bytes = (), FIXED_BYTES + len(data) + len(record_key or b"")
            else:
                record_key, data, headers, most_bytes = self._serialize(topic, key, value, headers)
            if root is not None:
                headers, most_bytes = [(TRACEPARENT, root)], most_bytes + ROOT_BYTES
            if delayed is not None:
                partition, record_key, headers, most_bytes = self._into_slot(
                    delayed, topic, partition, record_key, data, headers, most_bytes
                )
                topic = delayed.topic
            if most_bytes > self._limit_of.get(topic, -1):
                self._check_size(topic, record_key, data, headers)
            callbacks = None if on_delivery is None else [on_delivery]
            if span is None:
                delivery = Delivery(topic, record_key, self._reports, callbacks)
            else:
                delivery = TracedDelivery(topic, record_key, self._reports, callbacks, span=span)
            if self._can_produce_directly:
                place = -1 if partition is None else partition
                try:
                    self._client.produce(
                        topic, data, record_key, place, delivery, None, timestamp_ms or 0, headers or None
                    )
                except REFUSALS as error:
                    self._buffer.handle_rejected(error, delivery, data, partition, timestamp_ms, headers)
            else:
                self._send_slow_path(delivery, data, partition, timestamp_ms, headers)
            self._outstanding.append(delivery)
            if not len(self._outstanding) & _IN_PASSING:
                self._reports.serve_in_passing()
            sends = handled.get()
            if sends is not None and not detached:
                sends.add(delivery)
            return delivery
        except BaseException as error:
            self._not_sent(topic, record_key, partition, error, span)
            raise

    @lists_options(BulkOptions)
    def send_many(
        self, topic: str, records: Iterable[Outgoing | tuple[Any, ...]], **options: Unpack[BulkOptions]
    ) -> Bulk:
        """Send many records to one topic, faster than one by one: they share one delivery, the `Bulk`.

        Each record is an `Outgoing` or a tuple in its order: (value, key, headers, partition, timestamp_ms), of which
        the tail may be left out. `Bulk.result()` waits until all are settled. A record that cannot be sent raises here,
        as in `send`; those before it are on their way, and `error.bulk` has their results.

        The options apply to all records: `expires_after`, `expires_at`, `priority`, `deliver_after`, `deliver_at`,
        `event_type`, `subject` and `detached`. They mean what they mean in `SendOptions`.
        """
        self._check_open()
        try:
            return send_bulk(self, topic, records, options)
        except BaseException as error:
            self._not_sent(topic, None, None, error)
            raise

    def cancel(self, schedule_id: str) -> Bulk:
        """Cancel the messages that were sent with this `schedule_id` and are not due yet.

        The cancel is written to every slot of the schedule. Acknowledged before a message's due time
        (`cancel(...).result()` waits for that), it is always honoured. Afterwards it may come too late.
        """
        self._check_open()
        if self._transactions is not None:
            self._transactions.states.check_can_send()
        return send_encoded(self, schedule_topic(self._schedule), cancel_records(schedule_id))

    # -- settling ---------------------------------------------------------------------------------------------------

    def flush(self, timeout_s: Span | None = None) -> None:
        self._check_open()
        self._settle(self._reports.longest_wait_s if timeout_s is None else timeout("flush", timeout_s))
        self._raise_failures()

    def close(self, timeout_s: Span | None = None) -> None:
        """Flush, then give up what is not settled after `timeout_s`, and end. Raises `DeliveryError` like `flush`.

        Closing again does nothing.
        """
        if self._refusal is not None:
            return
        limit_s = self._reports.longest_wait_s if timeout_s is None else timeout("close", timeout_s)
        if self._transactions is not None:
            run(self._transactions.steps.end())
        self._settle(limit_s)
        self._refuses()
        forks.unwatch(self)
        self._watch.stop()
        self._buffer.give_up_held()
        if len(self._client):
            self._client.purge()
            self._reports.flush(1.0)
        self._reports.stop()
        self._reports.tracker.sweep(len(self._outstanding))
        self._sent_watch.ended()
        is_settled = self._transactions is None or self._transactions.states.is_settled
        if is_settled and not self._errors.has_fatal_error:
            ending.end(self._client)
        self._raise_failures()

    def start(self, timeout_s: Span | None = None) -> None:
        """Check what can be checked before the first record; `with Producer(...)` does it.

        A broker that does not listen yet is waited for, as long as `start_timeout_s` of the producer says (10 s if not
        given), or `timeout_s`. Raises `BrokerUnavailable` when none comes, and `ConfigError` when `batch.size` is above
        what the given topics (or, without any, topics without a limit of their own) take. Sending does not need it.
        With a `transactional.id` earlier producers of the same id are fenced here, and what they left open is aborted:
        before it is, no consumer can get the group's stable offsets.
        """
        self._check_open()
        wait_s, answer_s = self._start_limits(timeout_s)
        wait_for_broker(self.settings, wait_s, lambda: self._is_over)
        deadline = monotonic() + answer_s
        try:
            brokers = brokers_of(self._client, deadline - monotonic())
        except KafkaException as error:
            raise self._errors.unavailable(error.args[0].str()) from error
        self._check_batch_size(min(brokers), deadline)
        if self._transactions is not None:
            self._transactions.initialize(max(1.0, deadline - monotonic()))

    def transaction(self, timeout_s: Span = 60.0) -> Transaction:
        """Return a transaction: what is sent in its block is seen by read_committed consumers all at once, or never.

            with producer.transaction() as transaction:
                producer.send("invoices", invoice)
                transaction.send_offsets(offsets, consumer)

        Needs `settings={"transactional.id": ...}`. An exception in the block aborts it. `FencedError` means that a
        newer instance with the same id took over. `timeout_s` is for each step: `send_offsets`, commit, abort.
        """
        return self._open_transaction(Transaction, timeout_s)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close(0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._closing_after(error):
            self.close()

    def __len__(self) -> int:
        """Return records that are not settled yet. Events that librdkafka has not delivered, such as errors, count as
        well."""
        return len(self._buffer)

    @property
    def _has_fatal_error(self) -> bool:
        """Return whether the client had a fatal error: it delivers no more records, and reports none of them."""
        return self._errors.has_fatal_error

    # -- behind the hot path ----------------------------------------------------------------------------------------

    def _send_slow_path(
        self, delivery: Delivery, value: bytes | None, partition: int | None, timestamp_ms: int | None, headers: Headers
    ) -> None:
        """Send a record in a transaction, with Ottla's own partitioner, or with a warning to give first."""
        topic = delivery.topic
        if self._transactions is not None:
            self._transactions.states.check_can_send()
        if self._must_name_partition and partition is None:
            raise self._errors.partition_missing(topic)
        if self._warn_null_keys and delivery.key is None and partition is None:
            warn_of_null_keys(self._warn_null_keys, topic)
            self._warn_null_keys = None
        self._buffer.send(delivery, value, partition, timestamp_ms, headers)

    def _settle(self, timeout_s: float, *, should_abort: Callable[[], bool] = lambda: False) -> None:
        """Wait until nothing is outstanding or `should_abort()`. Polls, so that Ctrl-C works."""
        deadline = monotonic() + timeout_s
        tracker = self._reports.tracker
        step_s = _FIRST_FLUSH_S
        while True:
            left_s = deadline - monotonic()
            self._buffer.expire_held_records()
            still_out = self._reports.flush(max(0.0, min(left_s, step_s)))
            step_s = min(2 * step_s, _LONGEST_FLUSH_S)
            is_settled = still_out == 0 and self._buffer.held == 0
            if is_settled and not tracker.unfinished():
                tracker.sweep(len(tracker.outstanding))  # not cleared: another thread may have sent since
                return
            if left_s <= 0 or (step_s == _LONGEST_FLUSH_S and should_abort()):
                return
            if is_settled:  # the background thread is about to run the last reports
                sleep(0.001)
            elif still_out == 0:
                sleep(0.01)

    def _still_out(self) -> tuple[list[UndeliveredRecord], OttlaError | None]:
        """Return (the records that are not settled, why they are not if the client has said so)."""
        unfinished = self._reports.tracker.unfinished()
        if not unfinished or not self._errors.last_problem:
            return unsettled(unfinished, "not acknowledged yet"), None
        cause = self._errors.unavailable("it is still being tried")
        return unsettled(unfinished, f"not acknowledged yet: {cause}"), cause

    def _housekeeping(self) -> None:
        """Run in the reports thread, every 50 ms at the latest."""
        self._buffer.expire_held_records()
        self._look_for_refusals()
        self._look_for_listeners()

    # -- what the background threads report -------------------------------------------------------------------------

    def _after_failure(self, error: Any, topic: str) -> None:
        if error.code() == TOO_LARGE:
            self._watch.look_again(topic)
        elif error.code() in UNKNOWN_TOPIC:
            self._watch.look_for_partitions(topic, once=True)  # it may be created yet: have the client look again

    def _wants_limit_first(self, error: Any, message: Any, then: Callable[[], None]) -> bool:
        """Return whether the error must wait for the topic's limit: a broker's "too large" names no limit, so it is
        requested unless the known one explains the refusal. A timeout names no reason at all."""
        if error.code() == KafkaError._MSG_TIMED_OUT and not self._errors.refusals.reason(message.topic()):
            return self._watch.after_reason(message.topic(), then)
        if error.code() != TOO_LARGE:
            return False
        topic = message.topic()
        size_bytes = size_in_own_batch(message.key(), message.value(), message.headers() or [])
        return self._errors.contradicts_limit(topic, size_bytes) and self._watch.after_limit(topic, then)

    def _look_for_refusals(self) -> None:
        """Ask why, once a record has waited for longer than any election takes, and again while there is a reason: the
        client does not say what brokers answer to what it tries again."""
        now_ms = self._clock.monotonic_ms()
        waiting = self._waiting
        if waiting is None or waiting.done():
            try:
                waiting = self._waiting = self._outstanding[0]
            except IndexError:
                waiting = self._waiting = None
            if not self._errors.refusals:
                self._ask_why_ms = now_ms + _WAITS_LONG_MS
        topics = set(self._errors.refusals.topics())
        if waiting is not None:
            topics.add(waiting.topic)
        if topics and now_ms >= self._ask_why_ms:
            self._ask_why_ms = now_ms + _ASK_AGAIN_MS
            for topic in topics:
                self._watch.after_reason(topic, lambda: None)

    def _ask_why_not_taken(self, topic: str) -> None:
        """Find out why brokers take no records. In the thread of the watch."""
        reason = why_not_taken(self.settings, topic)
        if reason is not None:
            self._errors.refusals.found(topic, reason, self._clock.monotonic_ms())
        else:
            self._errors.refusals.taken(topic, self._clock.monotonic_ms())

    def _check_batch_size(self, broker_id: int, deadline: float) -> None:
        left_s = max(0.1, deadline - monotonic())
        if self._topics:
            self._sizes.check_batch_size(self._watch.limits_now(list(self._topics), left_s))
        else:
            self._sizes.check_batch_size_of_broker(self._watch.broker_limit_now(broker_id, left_s))

    def _make_client(self, config: dict[str, Any]) -> Any:
        green_threads.check()
        lookups.check()
        await_token(config)
        config.setdefault("log_level", 0)  # librdkafka writes to stderr; its errors arrive in error_cb
        try:
            return ConfluentProducer(
                guarded(
                    with_statistics(config, self._listeners),
                    error_cb=self._errors.on_error,
                    throttle_cb=on_throttle(self.throttling),
                    stats_cb=on_statistics(self._listeners, self._client_name),
                )
            )
        except KafkaException as error:
            raise ConfigError(f"librdkafka refuses the settings: {error.args[0].str()}") from error
        except (TypeError, ValueError) as error:
            raise ConfigError(f"confluent-kafka refuses the settings: {error}") from error

    def _at_exit(self) -> None:
        """Flush for a few seconds at the end of the process, and log what is lost: the producer was not closed."""
        if not len(self) and (self._transactions is None or self._transactions.states.is_settled):
            return
        log_event("producer_not_closed", "warning", {"records": len(self), "servers": self._errors.servers})
        try:
            self.close(5.0)
        except DeliveryError as error:
            log_event("records_lost_at_exit", "error", {"error": str(error)})

    def _c_clients(self) -> Iterable[object | None]:
        return (self._client,)
