"""Write a handful of records and wait for every acknowledgement: for tests and the command line.

A service uses `Producer`, which checks sizes, batches and reports each delivery. This one is a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ottla.browse.record_input import InputRecord
from ottla.browse.writing import RecordWriter, RefusedRecord
from ottla.config.topic_presence import TOPICS_TIMEOUT_S
from ottla.errors import DeliveryError, UndeliveredRecord
from ottla.producer.encoded import check_topic, header_list, placed
from ottla.records import Headers
from ottla.serdes import SerdeContext, as_serde, serde_of
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla.wire_client.net.reachability import addresses_of, require_reachable
from ottla_wire.compression_type import CompressionType

_MOST_NAMED: Final = 1_000
_NO_LIMIT: Final = 1_000_000_000


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
    """Send every value in order and return how many, once all are acknowledged.

    Raises `UnknownTopic` for a topic that the cluster does not have, and `DeliveryError` for any other record that is
    not acknowledged.
    """
    addresses_of(bootstrap_servers)
    check_topic(topic)
    partition, timestamp_ms = placed(topic, partition, timestamp_ms)
    if settings:  # a login is what goes wrong
        require_reachable(bootstrap_servers, settings, timeout_s=timeout_s)
    timeout_ms = round(timeout_s * 1_000)
    wire = connection_settings(
        {"client.id": "ottla-topic-writer", **(settings or {}), "bootstrap.servers": bootstrap_servers},
        api_timeout_ms=timeout_ms,
        delivery_timeout_ms=timeout_ms,
        compression=CompressionType.NONE,
        max_request_size=_NO_LIMIT,  # the topic's limit is the broker's to hold
    )
    given_headers = tuple(header_list(topic, headers)[0]) if headers else ()
    count = 0
    with Cluster(wire) as cluster:
        cluster.topic(topic, missing_for_s=TOPICS_TIMEOUT_S)
        writer = RecordWriter(cluster, topic, acknowledged=lambda _partition, _offset, _lines: None, what="value")
        try:
            for part_value, part_key in _with_keys(values, keys):
                raw_value = _encode(part_value, value, SerdeContext(topic, "value"))
                raw_key = _encode(part_key, key, SerdeContext(topic, "key"))
                count += 1
                writer.add(InputRecord(count, raw_key, raw_value, given_headers, partition, timestamp_ms))
            writer.flush()
        except RefusedRecord as error:
            missing = UndeliveredRecord(topic=topic, partition=partition, key=None, error=str(error))
            left = count - writer.written
            raise DeliveryError([missing] * min(left, _MOST_NAMED), total=left) from error
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
