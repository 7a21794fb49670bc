"""Takes dead letters back to the topics they came from: filtered, at a limited rate, and not twice.

How far a redrive has come is committed under a group of its own, `ottla-redrive.<topic>` plus filter and destination,
after the records are acknowledged. The same call again goes on where it ended; a crash in between repeats at most one
commit interval. Dead letters stay in their topic until retention takes them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from ottla.config import consumer_settings, security_of
from ottla.errors import BrokerUnavailable, ConfigError, UnknownTopic
from ottla.failures.dead_letter_settings import dead_letter_settings
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.failures.foreign import describe_dead_letter
from ottla.failures.redrive import FIRST_TIMESTAMP_HEADER, Redrive, build_redrive, refusal
from ottla.failures.selection import DeadLetterFilter
from ottla.quantities import number
from ottla.retrying import try_again
from ottla.sync.admin.originals import Originals
from ottla.sync.client.guarded import Consumer
from ottla.sync.client.headers import HeaderReader
from ottla.sync.produce.producer import Producer

COMMIT_EVERY: Final = 500
_TELL_EVERY: Final = 50
_TIMEOUT_S: Final = 10.0
_COORDINATOR_S: Final = 30.0
_NO_COORDINATOR_YET: Final = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
SHORT_QUEUE: Final[Mapping[str, Any]] = {
    "queued.min.messages": 2_000,
    "queued.max.messages.kbytes": 4_096,
    "max.partition.fetch.bytes": 131_072,
}
"""What the client may read ahead, per partition: 64 MiB if it were not told. Dead letters compress well: a megabyte of
a fetch may be a hundred of them in memory."""

_OF_EXPIRY: Final = frozenset({EXPIRES_HEADER, FIRST_TIMESTAMP_HEADER})


@dataclass(slots=True, kw_only=True)
class RedriveReport:
    """What a redrive did, in numbers of records."""

    seen: int = 0
    """Read from the dead letter topic."""
    redriven: int = 0
    """Sent back; in a dry run, those that would be."""
    filtered: int = 0
    """Not wanted."""
    homeless: int = 0
    """Without headers that say where they came from."""
    refused: int = 0
    """Whose headers name a topic that nothing is sent to."""
    first_refusal: str | None = None
    """Why the first of them was refused."""
    gone: int = 0
    """Dead letters without a value whose record is not in its topic any more."""


def redrive(
    bootstrap_servers: str,
    topic: str,
    *,
    wanted: DeadLetterFilter | None = None,
    to_topic: str | None = None,
    origins: Collection[str] | None = None,
    per_second: float | None = None,
    limit: int | None = None,
    has_expiry: bool = True,
    is_dry_run: bool = False,
    on_redrive: Callable[[Redrive], None] = lambda _redrive: None,
    on_seen: Callable[[int, int], None] = lambda _seen, _total: None,
    settings: Mapping[str, Any] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> RedriveReport:
    """Send the dead letters of `topic` that are `wanted` back to their origin, or all of them `to_topic`.

    Their headers name the origin, and everyone who may write to the dead letter topic can write headers: give
    `origins`, the topics that you agree to. Without them the dead letter topic itself and Kafka's own are refused.

    A record that has expired is not handled when it is sent back, unless `has_expiry` is False: then it loses the
    header that says when it expires, and a handler's `ttl_s` counts from now.

    Ends at the end of the topic as it was at the start, or after `limit` records. `per_second` bounds the rate. A dry
    run sends and remembers nothing. `on_seen` is told now and then how many records were looked at, of how many at
    most. `settings` are the clients' security, by Kafka's names.

    Raises `ConfigError` for arguments that cannot be, `UnknownTopic`, `BrokerUnavailable`, and `DeliveryError` when a
    record is not acknowledged: it will be tried again by the next call. An interrupt (Ctrl-C) ends it when what was
    sent until then is acknowledged and remembered.
    """
    if per_second is not None and number("redrive", "per_second", per_second, least=-math.inf) <= 0:
        raise ConfigError(f"redrive: per_second must be above 0, got {per_second}")
    if to_topic == topic:
        raise ConfigError(f"redrive: to_topic is the dead letter topic {topic!r} itself")
    chosen = wanted or DeadLetterFilter()
    memory = [f"ottla-redrive.{topic}", chosen.label, f"to={to_topic}" if to_topic else ""]
    group = ".".join(part for part in memory if part)
    report = RedriveReport()
    reader = HeaderReader({**(settings or {}), "bootstrap.servers": bootstrap_servers})
    with (
        closing(reader),
        _reader(bootstrap_servers, group, settings) as consumer,
        _producer(bootstrap_servers, settings) as producer,
        Originals(bootstrap_servers, settings, reader) as originals,
    ):
        uncommitted: dict[int, int] = {}
        next_at_s = time.monotonic()

        def remember() -> None:
            if uncommitted and not is_dry_run:
                producer.flush()
                offsets = [ClientPartition(topic, partition, offset) for partition, offset in uncommitted.items()]
                consumer.commit(offsets=offsets, asynchronous=False)
                uncommitted.clear()

        starts, ends, total = _unread(consumer, bootstrap_servers, topic)
        try:
            for message in _messages(consumer, bootstrap_servers, topic, starts, ends):
                report.seen += 1
                if report.seen % _TELL_EVERY == 0:
                    on_seen(report.seen, total)
                headers = reader.headers_of(message)
                view = describe_dead_letter(headers)
                record = None
                if view is not None and not chosen.matches(view):
                    report.filtered += 1
                else:
                    is_claim = view is not None and view.omitted is not None
                    place = view.topic if view is not None else None
                    problem = None
                    if place is not None and (to_topic is None or is_claim):  # a claim's record is read from there
                        problem = refusal(place, dead_letter_topic=topic, origins=origins)
                    if problem is not None:
                        report.refused += 1
                        report.first_refusal = report.first_refusal or problem
                    else:
                        record = build_redrive(
                            key=message.key(),
                            value=message.value(),
                            headers=headers,
                            to_topic=to_topic,
                            original=originals.find(view) if is_claim and view is not None else None,
                            left_out=() if has_expiry else _OF_EXPIRY,
                        )
                        report.gone += record is None and is_claim
                        report.homeless += record is None and not is_claim
                if record is not None:
                    if per_second is not None and not is_dry_run:
                        next_at_s = max(next_at_s, time.monotonic() - 1) + 1 / per_second
                        if (wait_s := next_at_s - time.monotonic()) > 0:
                            sleep(wait_s)
                    if not is_dry_run:
                        producer.send(record.topic, record.value, key=record.key, headers=record.headers)
                    report.redriven += 1
                    on_redrive(record)
                uncommitted[message.partition()] = message.offset() + 1
                if limit is not None and report.redriven >= limit:
                    break
                if report.seen % COMMIT_EVERY == 0:
                    remember()
        except KeyboardInterrupt:
            remember()
            raise
        remember()
    return report


@contextmanager
def _reader(bootstrap_servers: str, group: str, settings: Mapping[str, Any] | None) -> Iterator[Consumer]:
    effective = consumer_settings(bootstrap_servers, group_id=group, settings=settings)
    config = {
        **effective.to_confluent(),
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        **SHORT_QUEUE,
        "log_level": 0,
    }
    consumer = Consumer(config)
    try:
        yield consumer
    finally:
        consumer.close()


def _producer(bootstrap_servers: str, settings: Mapping[str, Any] | None) -> Producer:
    producer = Producer(bootstrap_servers, settings=dead_letter_settings(security_of(settings)))
    producer._sizes.leave_to_broker()  # as where they were written: some fit compressed only
    return producer


def _unread(
    consumer: Consumer, bootstrap_servers: str, topic: str
) -> tuple[list[ClientPartition], dict[int, int], int]:
    """Where the group goes on, and the end as it is now, of each partition that it has not been through; and how many
    records that is at most."""
    try:
        found = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
    except KafkaException as error:
        raise BrokerUnavailable(
            f"no Kafka broker answered at {bootstrap_servers} within {_TIMEOUT_S:g} s ({error.args[0].str()})"
        ) from error
    if found.error is not None or not found.partitions:
        raise UnknownTopic(f"{topic}: the cluster at {bootstrap_servers} has no such topic")
    committed = _committed(consumer, [ClientPartition(topic, number) for number in found.partitions])
    ends: dict[int, int] = {}
    starts = []
    total = 0
    for partition in committed:
        low, high = consumer.get_watermark_offsets(partition, timeout=_TIMEOUT_S)
        start = low if partition.offset < 0 else max(low, partition.offset)
        if start < high:
            ends[partition.partition] = high
            starts.append(ClientPartition(topic, partition.partition, start if start > low else OFFSET_BEGINNING))
            total += high - start
    return starts, ends, total


def _committed(consumer: Consumer, partitions: list[ClientPartition]) -> list[ClientPartition]:
    """What the group has committed. A cluster whose first group this is has to make a topic for it first."""

    def attempt() -> list[ClientPartition]:
        try:
            return consumer.committed(partitions, timeout=_TIMEOUT_S)
        except KafkaException as error:
            problem: KafkaError = error.args[0]
            if problem.code() not in _NO_COORDINATOR_YET:
                raise
            raise BrokerUnavailable(
                f"found no coordinator of the group within {_COORDINATOR_S:g} s ({problem.str()})"
            ) from error

    until_s = time.monotonic() + _COORDINATOR_S
    return try_again(attempt, what="group coordinator", errors=BrokerUnavailable, longest_s=0.5, until_s=until_s)


def _messages(
    consumer: Consumer, bootstrap_servers: str, topic: str, starts: list[ClientPartition], ends: Mapping[int, int]
) -> Iterator[Any]:
    """What is between the two, a message at a time."""
    open_ends = dict(ends)
    if starts:
        consumer.assign(starts)
    while open_ends:
        message: Any = consumer.poll(_TIMEOUT_S)
        if message is None:
            raise BrokerUnavailable(f"{topic}: no answer from {bootstrap_servers} within {_TIMEOUT_S:g} s")
        number = message.partition()
        problem = message.error()
        if problem is not None:
            if problem.code() == KafkaError._PARTITION_EOF:
                open_ends.pop(number, None)
                continue
            raise KafkaException(problem)
        if number not in open_ends:
            continue
        if message.offset() < open_ends[number]:
            yield message
        if message.offset() + 1 >= open_ends[number]:
            open_ends.pop(number, None)
