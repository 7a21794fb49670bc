"""What the producers of both shells share: their arguments, the headers and bytes of a record, checks, and their end.

A shell adds what waits and what calls its client: connecting, buffering, settling, closing.
"""

from __future__ import annotations

import itertools
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import SystemRandom
from types import GenericAlias
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

from ottla.clock import SystemClock
from ottla.config import check_servers, producer_settings
from ottla.config.arguments import OTHER_METHODS, MissingMethod
from ottla.config.chosen_address import say_which_address
from ottla.config.clients import mapping_of
from ottla.config.priorities import Priorities, with_priority
from ottla.config.token_argument import TokenFunction, with_token
from ottla.errors import ConfigError, DeliveryError, LifecycleError, OttlaError, UndeliveredRecord
from ottla.failures.expiry import EXPIRES_HEADER, Moment, with_expiry
from ottla.processes import forks
from ottla.producer.deliveries import DeliveryTracker, delivery_error
from ottla.producer.encoded import check_topic, topic_name
from ottla.producer.event_options import with_event
from ottla.producer.explain import Explain
from ottla.producer.later import DelayedSend, checked_schedule, later_of, scheduled
from ottla.producer.message_ids import MessageIds, with_message_id
from ottla.producer.partitioners import CustomPartitioner, Partitioner
from ottla.producer.record_sends import handled, is_sender
from ottla.producer.sent_watch import SentWatch
from ottla.producer.serializing import Serializer
from ottla.producer.signature import BULK_OPTIONS, BulkOptions, PartitionerName, Profile, refuse_unknown
from ottla.producer.size_policy import SizePolicy
from ottla.producer.tracing import SendSpans, send_spans
from ottla.producer.transaction_steps import TransactionCalls
from ottla.producer.transactions import TransactionStates
from ottla.quantities import Span, seconds, timeout
from ottla.raising import again
from ottla.records import Header, Headers, topic_problem
from ottla.schedule.headers import DEFAULT_NAME
from ottla.telemetry import Hooks, Listeners, Throttling
from ottla.typevars import K_contra, V_contra
from ottla.wire_client.net.reachability import START_TIMEOUT_S

if TYPE_CHECKING:
    from ottla.telemetry.traces.open_span import OpenSpan


_numbers: Final = itertools.count(1)

_ANSWER_S: Final = 10.0

T = TypeVar("T")
D = TypeVar("D")


def _names_of(topics: Sequence[str]) -> tuple[str, ...]:
    names: list[str] = []
    for topic in (topics,) if isinstance(topics, str) else topics:
        problem = topic_problem(topic)
        if problem is not None:
            raise ConfigError(f"topics: {problem}")
        names += topic.topics if isinstance(topic, Priorities) else (topic_name(topic),)
    return tuple(names)


class _ProducerType(ABCMeta):
    """Completion offers what a producer has, without what it says to call instead of something else."""

    def __dir__(cls) -> Iterable[str]:
        return [name for name in super().__dir__() if name not in OTHER_METHODS["producer"]]


class ProducerCore(Generic[V_contra, K_contra], metaclass=_ProducerType):
    """One producer, but for what its shell does in its own way. The shells subclass it."""

    if not TYPE_CHECKING:  # before Python 3.13 `Generic` has no defaults, and wants both types
        __class_getitem__ = classmethod(GenericAlias)

    # What a send reads has a place of its own, from where it is read in half the time.
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_is_listened_to",
        "_limit_of",
        "_message_ids",
        "_refusal",
        "_sent_watch",
        "_spans",
        "_takes_bytes",
    )

    _kind: ClassVar[str]
    """Begins the name of each producer, in logs and of its threads."""
    _left_behind: ClassVar[str]
    """Resources that a fork leaves in the parent process."""
    _errors_type: ClassVar[type[Explain]]
    _errors: Any
    """Converts the client's failures to Ottla's errors, by the shell's `_errors_type`."""
    _transactions: TransactionCalls | None
    _tracker: DeliveryTracker[Any]
    _watch_topic: Callable[[str], object]
    """Learn the limit of a topic that is new, and go on looking at it."""
    _look_again: Callable[[str], object]
    """The limit of a topic may have changed."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        profile: Profile | None = None,
        settings: Mapping[str, Any] | None = None,
        token: TokenFunction | None = None,
        partitioner: PartitionerName | CustomPartitioner | Partitioner | None = None,
        key: Any = None,
        value: Any = None,
        topics: Sequence[str] = (),
        message_ids: bool = False,
        environ: Mapping[str, str] | None = None,
        hooks: Hooks | None = None,
        schedule: str = DEFAULT_NAME,
        start_timeout_s: Span = START_TIMEOUT_S,
    ) -> None:
        """`value` and `key` are serdes (`Json(Order)`, `Avro(Order)`, `str`, ...); without them both are bytes.

        `topics` are those it will surely write to: `start` checks their limits against `batch.size` before anything is
        sent. With `message_ids` every record without the header `ottla-id` gets one, unique in the world.
        `start_timeout_s` is how long `start` waits for a broker that does not listen yet; without a start, sends wait
        as their delivery.timeout.ms says. `token` is a function, sync or async, that returns an `ottla.tokens.Token`
        for SASL OAUTHBEARER.
        """
        arguments = dict(mapping_of("settings", with_token(type(self).__name__, settings, token)))
        if partitioner is not None:
            arguments["partitioner"] = partitioner
        self.settings = producer_settings(bootstrap_servers, profile=profile, settings=arguments, environ=environ)
        check_servers(self.settings)
        say_which_address(self.settings, environ)
        self._topics = _names_of(topics)
        self._start_timeout_s = seconds("Producer", "start_timeout_s", start_timeout_s)
        self._schedule = checked_schedule(schedule)
        self._message_ids = MessageIds(f"{SystemRandom().getrandbits(64):016x}") if message_ids else None
        self._must_name_partition = self.settings["partitioner"] == "explicit"
        self._serializer = Serializer(key=key, value=value)
        self._serialize = self._serializer.encode
        self._takes_bytes = not self._serializer.has_serdes
        self._sizes = SizePolicy(self.settings)
        self._limit_of = self._sizes.limits.effective
        self._errors = self._errors_type(self.settings, self._sizes.limits)

        self._clock = SystemClock()
        self._name = f"ottla-{self._kind}-{next(_numbers)}"
        self._client_name = self.settings.get("client.id") or self._name
        self._listeners = Listeners.of(hooks)
        self._sent_watch = SentWatch(self._listeners, client=self._client_name, now_ms=self._clock.monotonic_ms)
        self._spans: SendSpans | None = None
        """Creates the spans of sends; refreshed some times a second."""
        self._is_listened_to = False
        """Whether a send may have a span, or is to be timed."""
        servers = self.settings.get("bootstrap.servers", "")
        self.throttling = Throttling.of_producer(
            self._client_name, servers, now_ms=self._clock.monotonic_ms, hooks=self._listeners
        )
        """How often, and how long in all, brokers have held this client for its quotas."""
        transactional_id = self.settings.get("transactional.id")
        self._states = None if transactional_id is None else TransactionStates(transactional_id)
        self._refusal: OttlaError | None = None
        """Why it sends nothing, if it does not."""
        self._is_over = False
        is_sender(self)

    def __bool__(self) -> bool:
        return True

    @abstractmethod
    def __len__(self) -> int:
        """Return records that are not settled yet."""

    @property
    def is_closed(self) -> bool:
        """Return whether it sends no more: it was closed, or belongs to the parent of a fork."""
        return self._is_over

    @property
    def _problems(self) -> tuple[str, ...]:
        """Topics whose records brokers do not take for now, and why."""
        return self._errors.refusals.problems() if self._errors.refusals else ()

    # A record that is sent

    def _apply_send_options(
        self,
        topic: str,
        headers: Headers,
        priority: str | None = None,
        expires_after: Span | None = None,
        expires_at: Moment | None = None,
        deliver_after: Span | None = None,
        deliver_at: Moment | None = None,
        message_id: str | None = None,
        schedule_id: str | None = None,
        event_type: str | None = None,
        subject: str | None = None,
        event_id: str | None = None,
        **unknown: object,
    ) -> tuple[str, Headers, DelayedSend | None]:
        """Return (topic, headers, when to deliver the record if not now) by the options that few sends have. Raises
        TypeError for an option that `send` does not have."""
        if unknown:
            refuse_unknown(f"{type(self).__name__}.send", unknown.keys())
        if priority is not None:
            topic = with_priority(topic, priority)
        elif topic.__class__ is not str:
            topic = topic_name(topic)
        if event_type is not None or subject is not None or event_id is not None:
            headers = with_event(topic, headers, self._serializer.value, event_type, subject, event_id)
        later = None
        if deliver_after is not None or deliver_at is not None or schedule_id is not None:
            later = later_of(topic, deliver_after, deliver_at, schedule_id, expires_after, self._schedule)
            expires_after = None  # counts from the due time
        if expires_after is not None or expires_at is not None:
            now_ms = self._clock.now_ms()
            headers = with_expiry(topic, headers, expires_after=expires_after, expires_at=expires_at, now_ms=now_ms)
        if message_id is not None or self._message_ids is not None:
            headers = with_message_id(topic, headers, message_id, self._message_ids)
        return topic, headers, later

    def _check_bulk_options(self, options: BulkOptions) -> None:
        """Raise TypeError for an option that `send_many` does not have, before any record is sent."""
        refuse_unknown(f"{type(self).__name__}.send_many", options.keys() - BULK_OPTIONS)

    def _apply_bulk_options(self, topic: str, options: BulkOptions) -> tuple[str, DelayedSend | None, list[Header]]:
        """Return (topic, delivery time of delayed records, replacement headers) by the options of a `send_many`."""
        if not options:
            return topic_name(topic), None, []
        topic, headers, later = self._apply_send_options(
            topic,
            (),
            options.get("priority"),
            options.get("expires_after"),
            options.get("expires_at"),
            options.get("deliver_after"),
            options.get("deliver_at"),
        )
        return topic, later, [header for header in headers if header[0] == EXPIRES_HEADER]

    def _begin_span(
        self,
        topic: str,
        key: Any,
        value: Any,
        headers: Headers,
        on_delivery: Callable[[D], None] | None,
        *,
        may_be_root: bool = False,
    ) -> tuple[Headers, OpenSpan | None, Callable[[D], None] | None, bytes | None]:
        """Return (headers, span, callback, root) of a record whose send may have a span, or is to be timed.

        `root` is the `traceparent` of a trace that begins here and is not recorded: such a record needs no span. It is
        given only with `may_be_root`, to a caller that adds the header after its own were checked.
        """
        span = None
        root: Any = None
        if self._spans is not None:
            if may_be_root and not headers:
                root = self._spans.root()
            if root.__class__ is not bytes:
                headers, span = self._spans.begin(topic, key, value, headers, root)
                root = None
        if self._sent_watch.wants_sample:
            on_delivery = self._timed(on_delivery)
        return headers, span, on_delivery, root

    def _into_slot(
        self,
        later: DelayedSend,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        most_bytes: int,
    ) -> tuple[int, bytes, list[Header], int]:
        """Return (slot, key, headers, bytes at most) of the record that waits in the schedule topic. Raises
        `RecordTooLarge` where it would not fit there, or into its own topic later."""
        if most_bytes > self._limit_of.get(topic, -1):
            self._check_size(topic, key, value, headers)
        slot, key, headers = scheduled(later, topic, partition, key, headers, self._clock.now_ms())
        most_bytes += later.most_more_bytes  # its key is in a header now
        if most_bytes > self._limit_of.get(later.topic, -1):
            self._check_size(later.topic, key, value, headers)
        return slot, key, headers, most_bytes

    def _check_size(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Check the exact size of a record near the limit, and of any record to a new topic."""
        if topic not in self._limit_of:
            check_topic(topic)
            self._watch_topic(topic_name(topic))
        try:
            self._sizes.check(topic, key, value, headers)
        except OttlaError:
            self._look_again(topic)  # the limit may have been raised since
            raise

    def _not_sent(
        self, topic: str, key: Any, partition: int | None, error: BaseException, span: OpenSpan | None = None
    ) -> None:
        """Fail the transaction of a send that raised: without the record it cannot be committed."""
        if self._transactions is not None:
            self._transactions.failures.send_raised(topic, key, partition, error)
        if span is not None:
            span.not_delivered(error)

    # What became of records

    @abstractmethod
    def flush(self, timeout_s: Span | None = None) -> Any:
        """Wait until all that was sent is settled. Raises `DeliveryError` with what was not delivered.

        It lists the failures that were not raised to a caller yet nor marked as handled, and, after `timeout_s`, the
        records that are not settled. Without `timeout_s` it waits for delivery.timeout.ms; by then every record is.
        """

    @abstractmethod
    def _still_out(self) -> tuple[list[UndeliveredRecord], OttlaError | None]:
        """Return (the records that are not settled, why they are not if the client has said so)."""

    def _raise_failures(self) -> None:
        raised = [sent for sent in handled.get() or () if sent.is_kept_in(self._tracker)]
        failures, total = self._tracker.take_failures()
        still_out, cause = self._still_out()
        error = delivery_error(failures, total, still_out, cause=cause)
        for sent in raised:
            sent.mark_handled()  # the handler that flushes knows of them
        if error is not None:
            raise error

    def __dir__(self) -> Iterable[str]:
        return [name for name in super().__dir__() if name not in OTHER_METHODS["producer"]]

    @abstractmethod
    def transaction(self, timeout_s: Span = 60.0) -> Any:
        """Return a transaction: what is sent in its block is seen by read_committed consumers all at once, or never."""

    def _open_transaction(self, make: Callable[..., T], timeout_s: Span) -> T:
        self._check_open()
        if self._transactions is None:
            raise self._errors.transactional_id_missing()
        return make(self._transactions, timeout_s=timeout("transaction", timeout_s))

    def _start_limits(self, timeout_s: Span | None) -> tuple[float, float]:
        """Return (how long a start waits for a listener, how long a listener may take to respond), in seconds."""
        wait_s = self._start_timeout_s if timeout_s is None else timeout("start", timeout_s)
        return wait_s, _ANSWER_S if not wait_s else max(1.0, min(_ANSWER_S, wait_s))

    def _look_for_listeners(self) -> None:
        self._spans = send_spans(self.settings.get("client.id"), self._spans)
        self._sent_watch.look(lambda: len(self))
        self._listeners_found()

    def _listeners_found(self) -> None:
        self._is_listened_to = self._spans is not None or self._sent_watch.wants_sample

    def _timed(self, on_delivery: Callable[[D], None] | None) -> Callable[[D], None]:
        """Return the callback for the record that is sent now, which measures the time until it is settled. The next
        ones are not timed."""
        on_delivery = self._sent_watch.timed(on_delivery)
        self._listeners_found()
        return on_delivery

    # Life

    def _check_open(self) -> None:
        if self._refusal is not None:
            raise again(self._refusal)

    def _refuses(self, error: OttlaError | None = None) -> None:
        """Refuse all further sends."""
        self._is_over = True
        self._refusal = error or LifecycleError("this producer is closed: make a new one")

    @contextmanager
    def _closing_after(self, error: BaseException | None) -> Iterator[None]:
        """Close when the producer's block is left. `error` is what ended the block."""
        try:
            yield
        except DeliveryError as undelivered:
            if error is None:
                raise
            error.add_note(str(undelivered))  # what ended the block matters more; this must not be silent either

    def _forked(self) -> None:
        """Reset the producer in a child process after fork: its connections stayed in the parent, so nothing here can
        work."""
        self._refuses(forks.carried_over("producer", self._left_behind))


# Not `__getattr__`: a class that has one reads each attribute twice as slowly (0.35 µs in a `send`).
for _name in OTHER_METHODS["producer"]:
    setattr(ProducerCore, _name, MissingMethod("producer", _name))
