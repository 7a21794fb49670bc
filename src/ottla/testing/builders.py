"""Records for tests, made without a broker: as if a consumer had read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ottla.records import Headers, Record
from ottla.serdes import Serde, SerdeContext, as_serde, serde_of

DEFAULT_TIMESTAMP_MS: Final = 1_700_000_000_000
"""The time `ManualClock` starts at."""


def make_record(
    value: Any = None,
    *,
    key: Any = None,
    topic: str = "test",
    partition: int = 0,
    offset: int = 0,
    headers: Headers = (),
    timestamp_ms: int = DEFAULT_TIMESTAMP_MS,
    value_serde: Any = None,
    key_serde: Any = None,
) -> Record[Any]:
    """Return a record with `value`, and with its bytes on the wire.

    Without a serde, bytes, text and integers are encoded as themselves and anything else as JSON. A `value_serde` is
    the one of the handler under test: give it bytes instead of a value, and they are decoded, so that
    `make_record(b"{", value_serde=Json(Order))` is a record with a malformed value.
    """
    raw_value, value = _both(value, value_serde, SerdeContext(topic, "value", headers))
    raw_key, key = _both(key, key_serde, SerdeContext(topic, "key"))
    return Record(topic, partition, offset, timestamp_ms, key, value, list(headers), raw_key, raw_value)


def make_records(values: Iterable[Any], *, offset: int = 0, **same_for_all: Any) -> list[Record[Any]]:
    """Return one record per value, at consecutive offsets from `offset` on."""
    return [make_record(value, offset=offset + position, **same_for_all) for position, value in enumerate(values)]


def _both(part: Any, given: Any, ctx: SerdeContext) -> tuple[bytes | None, Any]:
    """Return the encoded and the decoded form of one part."""
    serde: Serde[Any] = serde_of(part) if given is None else as_serde(given)
    if isinstance(part, bytes):
        return part, serde.deserialize(part, ctx)
    return serde.serialize(part, ctx), part
