"""A record written from a page: as JSON, as `ottla produce --format json` takes it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ottla.browse.record_input import InputRecord
from ottla.browse.record_json import parse_record
from ottla.browse.writing import RecordWriter
from ottla.console.query import Query
from ottla.console.state import ConsoleState
from ottla.errors import InputError

_MOST_HEADERS: Final = 1_000


def produce(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Write one record. The answer says where it is."""
    topic = query.needed("topic")
    given = query.anything("record")
    console.agree(query)
    record = parse_record(msgspec.json.encode(given))
    if record.key_as is not None or record.value_as is not None:
        raise InputError(
            "record: found a part that is not text, wanted key and value as text, or as key_base64, value_base64"
        )
    if len(record.headers) > _MOST_HEADERS:
        raise InputError(f"headers: found {len(record.headers):,}, wanted at most {_MOST_HEADERS:,}")
    placed: list[tuple[int, int]] = []
    with console.cluster() as cluster:
        cluster.topic(topic)
        console.audit(
            "records.produce", topic, after={"partition": record.partition, "bytes": len(record.value or b"")}
        )
        writer = RecordWriter(
            cluster, topic, acknowledged=lambda partition, offset, _lines: placed.append((partition, offset))
        )
        writer.add(InputRecord(1, record.key, record.value, record.headers, record.partition, None))
        writer.flush()
    partition, offset = placed[0]
    return {"schema": "ottla.console.produced/1", "topic": topic, "partition": partition, "offset": offset}
