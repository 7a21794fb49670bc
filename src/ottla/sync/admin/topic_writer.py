"""Write a handful of records and wait for every acknowledgement: for tests and the command line.

A service uses `Producer`, which checks sizes, batches and reports each delivery. This one is a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, Message
from confluent_kafka.cimpl import Producer  # an instrumentor replaces the package's own

from ottla.config import create_command
from ottla.config.topic_presence import TOPICS_TIMEOUT_S
from ottla.errors import DeliveryError, UndeliveredRecord, UnknownTopic
from ottla.producer.encoded import check_topic, header_list, placed
from ottla.records import Headers
from ottla.serdes import SerdeContext, as_serde, serde_of
from ottla.tokens.confluent import with_tokens
from ottla.wire_client.net.reachability import addresses_of, require_reachable

_MOST_NAMED: Final = 1_000
_UNKNOWN_TOPIC: Final = frozenset({KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART})


def write_all(
    bootstrap_servers: str,
    topic: str,
    values: Iterable[Any],
    *,
    value: Any = None,
    keys: Iterable[Any] | Callable[[Any], Any] | None = None,
    key: Any = None,
    headers: Headers = (),
    partition: int | None = None,
    timestamp_ms: int | None = None,
    settings: Mapping[str, object] | None = None,
    timeout_s: float = 30.0,
) -> int:
    """Send every value in order and return how many, once all are acknowledged. Raises `UnknownTopic` for a topic that
    the cluster does not have, and `DeliveryError` for any other record that is not acknowledged."""
    addresses_of(bootstrap_servers)
    check_topic(topic)
    partition, timestamp_ms = placed(topic, partition, timestamp_ms)
    if settings:  # a login is what goes wrong, and librdkafka tries a wrong one for ever
        require_reachable(bootstrap_servers, settings, timeout_s=timeout_s)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            # Idempotence would cost half a second, which librdkafka waits before it asks for a producer id; one request
            # at a time keeps the order as well, and only a lost acknowledgement could repeat a record.
            "acks": "all",
            "max.in.flight.requests.per.connection": 1,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "delivery.timeout.ms": int(timeout_s * 1000),
            "log_level": 0,
            "allow.auto.create.topics": False,
            "topic.metadata.propagation.max.ms": int(TOPICS_TIMEOUT_S * 1000),
            **with_tokens(settings or {}),
        }
    )
    undelivered: list[UndeliveredRecord] = []
    is_missing = False

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal is_missing
        if error is not None:
            is_missing = is_missing or error.code() in _UNKNOWN_TOPIC
            raw_key = message.key()
            undelivered.append(
                UndeliveredRecord(
                    topic=topic,
                    partition=partition,
                    key=raw_key if isinstance(raw_key, bytes) else None,
                    error=error.str(),
                )
            )

    extra: dict[str, Any] = {"headers": header_list(topic, headers)[0]} if headers else {}
    if partition is not None:
        extra["partition"] = partition
    if timestamp_ms is not None:
        extra["timestamp"] = timestamp_ms
    count = 0
    for part_value, part_key in _with_keys(values, keys):
        raw_value = _encode(part_value, value, SerdeContext(topic, "value"))
        raw_key = _encode(part_key, key, SerdeContext(topic, "key"))
        while True:
            try:
                producer.produce(topic, value=raw_value, key=raw_key, on_delivery=on_delivery, **extra)
                break
            except BufferError:
                producer.poll(0.1)  # the local queue is full: let deliveries make room
        count += 1
        producer.poll(0)
    left = producer.flush(timeout_s + 1)
    if is_missing:
        command = create_command([topic], bootstrap_servers)
        raise UnknownTopic(
            f"{topic}: the cluster at {bootstrap_servers} does not have this topic; create it: `{command}`"
        )
    if undelivered or left:
        missing = len(undelivered) + left
        late = UndeliveredRecord(
            topic=topic, partition=partition, key=None, error=f"no acknowledgement in {timeout_s} s"
        )
        raise DeliveryError([*undelivered, *[late] * left][:_MOST_NAMED], total=missing)
    return count


def _with_keys(values: Iterable[Any], keys: Iterable[Any] | Callable[[Any], Any] | None) -> Iterable[tuple[Any, Any]]:
    if keys is None:
        return ((value, None) for value in values)
    if callable(keys):
        return ((value, keys(value)) for value in values)
    return zip(values, keys, strict=True)


def _encode(part: Any, given: Any, ctx: SerdeContext) -> bytes | None:
    serde = serde_of(part) if given is None else as_serde(given)
    return serde.serialize(part, ctx)
