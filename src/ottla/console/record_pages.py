"""Records of a topic: searched within bounds, one whole, and followed.

A search ends after so many records that were found, looked at, bytes, or seconds, and says how far it came; `next` goes
on from there. Nothing joins a group, nothing is committed.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ottla.browse.dead_letter_reader import existing_record
from ottla.browse.decoding import FORMATS, Decoder, SchemaSource, decoder_of
from ottla.browse.reading import read_blocks, size_of
from ottla.browse.record_export import csv_text, json_lines
from ottla.browse.record_json import lines_of
from ottla.browse.selecting import Selection
from ottla.browse.spans import parse_partitions, parse_place, resolved
from ottla.browse.where import parse_where
from ottla.console.masks import HIDDEN
from ottla.console.query import Query
from ottla.console.sampling import sample
from ottla.console.state import ConsoleState
from ottla.errors import InputError
from ottla.records import TopicPartition
from ottla.wire_client.cluster.cluster_client import LATEST, Cluster
from ottla.wire_client.fetching.record_rows import RecordRows
from ottla.wire_client.ranges import Isolation
from ottla_wire.records import Row

MOST_RECORDS: Final = 500
MOST_SCANNED: Final = 500_000
MOST_BYTES: Final = 128 * 1024 * 1024
MOST_EXPORTED: Final = 10_000
MOST_EXPORT_BYTES: Final = 32 * 1024 * 1024
MOST_SECONDS: Final = 8.0
LONGEST_SHOWN: Final = 4_000
"""Characters of a key or value in a list."""
LONGEST_WHOLE: Final = 1024 * 1024
_MOST_HEADERS: Final = 200
_RAW_BYTES: Final = 16 * 1024

_AS_TEXT: Final = msgspec.json.Encoder(decimal_format="number").encode

_TAIL_FETCHES: Final = {"fetch_max_bytes": 1024 * 1024, "max_partition_fetch_bytes": 64 * 1024}
"""A round of a tail shows some dozen records. A batch that is larger comes whole, and none behind it."""
SMALL_FETCHES: Final = {"fetch_max_bytes": 2 * 1024 * 1024, "max_partition_fetch_bytes": 256 * 1024}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How records are decoded, masked and chosen."""

    console: ConsoleState
    key: Decoder
    value: Decoder
    selection: Selection

    def wanted(self, block: RecordRows) -> tuple[RecordRows, dict[int, int | None]]:
        """Return the records of a block that are meant, masked; and the sizes of their values as they really are."""
        sizes: dict[int, int | None] = {}
        masks = self.console.masks
        if masks.any:
            sizes = {row[0]: None if row[3] is None else len(row[3]) for row in block.rows}
            key, value = _plain_of(self.key), _plain_of(self.value)
            block = block._replace(rows=[masks.row(row, key=key, value=value) for row in block.rows])
        return self.selection.of(block), sizes

    def items(self, block: RecordRows, sizes: Mapping[int, int | None], *, longest: int) -> list[dict[str, Any]]:
        """Return records as `ottla consume --format json` prints them, long texts cut, with the sizes of values."""
        masks = self.console.masks
        key = None if self.key.is_raw or masks.changes("key") else self.key
        value = None if self.value.is_raw or masks.changes("value") else self.value
        found = []
        for row in block.rows:
            cut = _cut(row, longest, cuts_key=key is None, cuts_value=value is None)
            item: dict[str, Any] = msgspec.json.decode(lines_of(block._replace(rows=[cut]), key=key, value=value))
            for part, data in (("key", row[2]), ("value", row[3])):
                item[f"{part}_bytes"] = None if data is None else len(data)
                _show(item, part, data, longest)
            if row[0] in sizes:
                item["value_bytes"] = sizes[row[0]]
            item["headers_left_out"] = max(0, len(row[4]) - _MOST_HEADERS)
            found.append(item)
        return found


def records(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return a search."""
    limit = query.number("limit", 50, least=1, most=MOST_RECORDS) or 50
    return _searched(console, query, limit=limit, longest=LONGEST_SHOWN, most_bytes=MOST_BYTES)


def export(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return a search as the content of a file. Masks hide there what they hide on the page."""
    form = query.one_of("format", ("json", "csv"), "json")
    limit = query.number("limit", 500, least=1, most=MOST_EXPORTED) or 500
    found = _searched(console, query, limit=limit, longest=LONGEST_WHOLE, most_bytes=MOST_EXPORT_BYTES)
    content = csv_text(found["records"]) if form == "csv" else json_lines(found["records"])
    return {
        "schema": "ottla.console.export/1",
        "name": f"{found['topic']}.{'csv' if form == 'csv' else 'jsonl'}",
        "type": "text/csv" if form == "csv" else "application/jsonl",
        "content": content,
        "count": len(found["records"]),
        "ended_by": found["ended_by"],
    }


def _searched(console: ConsoleState, query: Query, *, limit: int, longest: int, most_bytes: int) -> dict[str, Any]:
    topic = query.needed("topic")
    start = query.text("from", "-20") or "-20"
    until = query.text("until", "latest") or "latest"
    only = query.text("partitions")
    isolation = Isolation.READ_UNCOMMITTED if query.flag("uncommitted") else Isolation.READ_COMMITTED
    reading = reading_of(console, query, topic)
    query.done()
    now_ms = console.now_ms()
    begin = parse_place(start, option="from", now_ms=now_ms)
    end = parse_place(until, option="until", now_ms=now_ms)
    chosen = None if only is None else parse_partitions(only)
    said: list[str] = []
    began = time.monotonic()
    with console.cluster(isolation=isolation, **SMALL_FETCHES) as cluster:
        spans = resolved(cluster, topic, start=begin, until=end, only=chosen, say=said.append)
        keeps_newest = begin.last is not None
        search = _Search(
            reading,
            spans,
            limit=limit,
            longest=longest,
            most_bytes=most_bytes,
            until=began + MOST_SECONDS,
            keeps_newest=keeps_newest,
        )
        search.run(cluster)
    found = search.found
    return {
        "schema": "ottla.console.records/1",
        "topic": topic,
        "records": found,
        "scanned": search.scanned,
        "total": size_of(spans),
        "is_whole": not search.left,
        "next": ",".join(f"{place.partition}:{offset}" for place, offset in sorted(search.left.items())) or None,
        "ended_by": search.ended_by,
        "seconds": round(time.monotonic() - began, 3),
        "said": said[:10],
        "failures": _failures(reading),
    }


class _Search:
    """Goes through the spans until a bound is reached. `left` is where each partition goes on that is not done.

    `keeps_newest`: the newest records of all partitions are wanted, so it goes on after `limit`, and drops older ones.
    """

    def __init__(
        self,
        reading: Reading,
        spans: dict[TopicPartition, tuple[int, int]],
        *,
        limit: int,
        longest: int,
        most_bytes: int,
        until: float,
        keeps_newest: bool,
    ) -> None:
        self._reading, self._limit, self._until = reading, limit, until
        self._longest, self._most_bytes = longest, most_bytes
        self._spans, self._keeps_newest = spans, keeps_newest
        self._bytes = 0
        self.left = {place: first for place, (first, _) in spans.items()}
        self.found: list[dict[str, Any]] = []
        self.scanned = 0
        self.ended_by = "end"

    def run(self, cluster: Cluster) -> None:
        with closing(read_blocks(cluster, self._spans)) as blocks:
            for block in blocks:
                if block is not None and not self._takes(block):
                    break
            else:
                self.left = {}
        self._drop_older()

    def _drop_older(self) -> None:
        self.found.sort(key=lambda item: (item["timestamp"], item["partition"], item["offset"]))
        if self._keeps_newest:
            del self.found[: -self._limit]

    def _takes(self, block: RecordRows) -> bool:
        """Look at a block. False: a bound is reached."""
        place = TopicPartition(block.topic, block.partition)
        chosen, sizes = self._reading.wanted(block)
        room = len(chosen.rows) if self._keeps_newest else self._limit - len(self.found)
        rows = chosen.rows[:room]
        self.found += self._reading.items(chosen._replace(rows=rows), sizes, longest=self._longest)
        if self._keeps_newest and len(self.found) > 2 * max(MOST_RECORDS, self._limit):
            self._drop_older()
        last = rows[-1][0] if rows and not self._keeps_newest and len(chosen.rows) >= room else block.rows[-1][0]
        self.scanned += sum(1 for row in block.rows if row[0] <= last)
        self._bytes += sum(len(row[3] or b"") + len(row[2] or b"") for row in block.rows)
        self.left[place] = last + 1
        if last + 1 >= self._spans[place][1]:
            del self.left[place]
        if len(self.found) >= self._limit and not self._keeps_newest:
            self.ended_by = "limit"
        elif self.scanned >= MOST_SCANNED:
            self.ended_by = "scanned"
        elif self._bytes >= self._most_bytes:
            self.ended_by = "bytes"
        elif time.monotonic() >= self._until:
            self.ended_by = "seconds"
        return self.ended_by == "end"


def record(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return one record, whole up to a megabyte, with the beginning of its raw bytes."""
    asked = one_record(console, query, topic="topic")
    with console.cluster(isolation=Isolation.READ_UNCOMMITTED, **SMALL_FETCHES) as cluster:
        row = asked.row(cluster)
    found = whole_record(asked.reading, asked.topic, asked.partition, row)
    return {"schema": "ottla.console.record/1", "record": found}


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRecord:
    """Which record a question is about, and how it is to be decoded."""

    topic: str
    partition: int
    offset: int
    reading: Reading

    def row(self, cluster: Cluster) -> Row:
        """Return the record. Raises InputError if there is none."""
        return existing_record(cluster, self.topic, self.partition, self.offset)


def one_record(console: ConsoleState, query: Query, *, topic: str) -> OneRecord:
    """Return the record that the query names; the query has no other parameters."""
    name = query.needed(topic)
    partition = query.number("partition", None, least=0, most=2**31 - 1)
    offset = query.number("offset", None, least=0, most=2**63 - 1)
    reading = reading_of(console, query, name, filters=False)
    query.done()
    if partition is None or offset is None:
        raise InputError("found no partition or no offset, wanted both")
    return OneRecord(topic=name, partition=partition, offset=offset, reading=reading)


def whole_record(reading: Reading, topic: str, partition: int, row: Row) -> dict[str, Any]:
    """Return a record with everything that may be shown of it."""
    block, sizes = reading.wanted(RecordRows(topic, partition, False, [row]))
    (item,) = reading.items(block, sizes, longest=LONGEST_WHOLE)
    masked = block.rows[0]
    for part, data in (("key", masked[2]), ("value", masked[3])):
        if data is not None:
            item[f"{part}_raw"] = base64.standard_b64encode(data[:_RAW_BYTES]).decode()
            item[f"{part}_pretty"] = _pretty(data)
    return item


def reading_of(console: ConsoleState, query: Query, topic: str, *, filters: bool = True) -> Reading:
    """Return how to decode and select a topic's records, by the query."""
    source = SchemaSource(registry=console.choices.registry)
    key = decoder_of(query.one_of("key_as", FORMATS, "auto"), source, option="key_as")
    form = query.one_of("as", FORMATS, "auto")
    file = console.choices.schemas.get(topic)
    if file is not None and form in ("auto", "avro"):
        form, source = "avro", SchemaSource(file=file)
    value = decoder_of(form, source, option="as")
    masks = console.masks
    # What is masked is JSON by then, whatever it was encoded as.
    shown = {
        "key": Decoder(None) if masks.changes("key") else key,
        "value": Decoder(None) if masks.changes("value") else value,
    }
    where = query.text("where", most=4_000) if filters else None
    selection = Selection(
        key=query.text("key") if filters else None,
        headers=query.texts("header", most=20) if filters else (),
        pattern=query.text("grep", most=500) if filters else None,
        where=None if where is None else parse_where(where, now_ms=console.now_ms()),
        decoders=shown,
    )
    return Reading(console=console, key=key, value=value, selection=selection)


def tail(
    console: ConsoleState, query: Query, *, per_second: int, clock: Any = time.monotonic
) -> Iterator[dict[str, Any] | None]:
    """Yield records as they come, a message every half second; None where there is nothing to say.

    Each round looks at what came since the last one, and no more than a bound of it: a topic at full speed is sampled,
    what was passed over is counted, and its brokers serve the console little beside everybody else.
    """
    topic = query.needed("topic")
    only = query.text("partitions")
    reading = reading_of(console, query, topic)
    query.done()
    chosen = None if only is None else parse_partitions(only)
    latest = parse_place("latest", option="from", now_ms=console.now_ms())
    fetches = _TAIL_FETCHES if reading.selection.takes_all else SMALL_FETCHES
    with console.cluster(isolation=Isolation.READ_COMMITTED, **fetches) as cluster:
        positions = {
            place: first
            for place, (first, _) in resolved(cluster, topic, start=latest, until=None, only=chosen).items()
        }
        yield {"positions": len(positions)}
        second, left, rounds = -1, 0, 0
        while True:
            rounds += 1
            if int(clock()) != second:
                second, left = int(clock()), per_second
            ends = {place: end for place, (end, _) in cluster.list_offsets(dict.fromkeys(positions, LATEST)).items()}
            # Where every record is meant, no more of them are read than are shown.
            spans, skipped = sample(
                positions, ends, left if reading.selection.takes_all else _MOST_A_ROUND, turn=rounds
            )
            positions = ends
            message: dict[str, Any] = {"records": [], "scanned": size_of(spans), "skipped": skipped, "left_out": 0}
            if spans:
                with closing(read_blocks(cluster, spans)) as blocks:
                    for block in blocks:
                        if block is None:
                            continue
                        found, sizes = reading.wanted(block)
                        rows = found.rows[:left]
                        left -= len(rows)
                        message["left_out"] += len(found.rows) - len(rows)
                        message["records"] += reading.items(found._replace(rows=rows), sizes, longest=LONGEST_SHOWN)
            yield message if spans or skipped else None


_MOST_A_ROUND: Final = 5_000
"""Records that a round of a tail looks at."""


def _show(item: dict[str, Any], part: str, data: bytes | None, longest: int) -> None:
    """Set the text of a decoded part: numbers as written in the record, long text cut."""
    shown = item.get(part)
    if f"{part}_as" in item and not isinstance(shown, str):
        shown = item[f"{part}_text"] = _AS_TEXT(shown).decode()
    if isinstance(shown, str) and len(shown) > longest:
        item[part] = item[f"{part}_text"] = shown[:longest]
        item[f"{part}_cut"] = True
    elif data is not None and len(data) > longest and f"{part}_as" not in item:
        item[f"{part}_cut"] = True


def _cut(row: Row, longest: int, *, cuts_key: bool, cuts_value: bool) -> Row:
    offset, at, key, value, headers = row
    headers = tuple(
        (name[:1_000], None if content is None else content[:longest]) for name, content in headers[:_MOST_HEADERS]
    )
    if cuts_key:
        key = _begin(key, longest)
    if cuts_value:
        value = _begin(value, longest)
    return (offset, at, key, value, headers)


def _begin(data: bytes | None, longest: int) -> bytes | None:
    """Return the beginning of the bytes; not in the middle of a character, or a cut text would be no text."""
    if data is None or len(data) <= longest:
        return data
    end = longest
    while end > longest - 4 and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]


def _pretty(data: bytes) -> str | None:
    """Return the bytes as indented JSON with numbers as written; None if they are no JSON."""
    if not data[:1].strip() or data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        msgspec.json.decode(data)
        return msgspec.json.format(data[:LONGEST_WHOLE], indent=2).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _plain_of(decoder: Decoder) -> Any:
    def plain(data: bytes) -> Any:
        found = decoder(data)
        return None if found is None else found[1]

    return None if decoder.is_raw else plain


def _failures(reading: Reading) -> list[str]:
    return [
        f"{decoder.failures:,} {part}s could not be decoded, and are shown as they are: "
        f"{HIDDEN if reading.console.masks.changes(part) else decoder.first_failure}"
        for part, decoder in (("key", reading.key), ("value", reading.value))
        if decoder.failures
    ]
