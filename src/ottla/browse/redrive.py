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
from typing import TYPE_CHECKING, Any, Final

from ottla.browse.dead_letter_reader import SMALL_FETCHES, record_at
from ottla.browse.reading import read_blocks, size_of
from ottla.config import security_of
from ottla.errors import ConfigError, InputError, UnknownTopic
from ottla.failures.dead_letter_settings import dead_letter_settings
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.failures.foreign import DeadLetterView, describe_dead_letter
from ottla.failures.redrive import FIRST_TIMESTAMP_HEADER, Original, Redrive, build_redrive, refusal
from ottla.failures.selection import DeadLetterFilter
from ottla.quantities import number
from ottla.records import TopicPartition
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST, Cluster
from ottla.wire_client.group.group_offsets import commit_group_offsets, group_offsets
from ottla.wire_client.net.reachability import require_reachable
from ottla_wire.records import Row, shown_key

if TYPE_CHECKING:
    from ottla.sync.produce.producer import Producer

COMMIT_EVERY: Final = 500
MOST_PLACES: Final = 1_000
"""Dead letters that are named one by one."""
_TELL_EVERY: Final = 50
_TIMEOUT_S: Final = 10.0
_COORDINATOR_S: Final = 30.0
"""A cluster whose first group this is has to make a topic for it first."""

_OF_EXPIRY: Final = frozenset({EXPIRES_HEADER, FIRST_TIMESTAMP_HEADER})


@dataclass(slots=True, kw_only=True)
class RedriveReport:
    """Counts of a redrive, in records."""

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
    places: Collection[tuple[int, int]] | None = None,
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

    With `places`, each (partition, offset), those dead letters alone are sent, whatever was sent before, and nothing is
    remembered: the next redrive of the topic sends them again. `InputError` where one of them is not there; nothing is
    sent then.

    A record that has expired is not handled when it is sent back, unless `has_expiry` is False: then it loses the
    header that says when it expires, and a handler's `ttl_s` counts from now.

    Ends at the end of the topic as it was at the start, or after `limit` records. `per_second` bounds the rate. A dry
    run sends and remembers nothing. `on_seen` is called now and then with (records read, records to read at most).
    `settings` are the clients' security, by Kafka's names.

    Raises `ConfigError` for arguments that cannot be, `UnknownTopic`, `BrokerUnavailable`, and `DeliveryError` when a
    record is not acknowledged: it will be tried again by the next call. An interrupt (Ctrl-C) ends it when what was
    sent until then is acknowledged and remembered.
    """
    if per_second is not None and number("redrive", "per_second", per_second, least=-math.inf) <= 0:
        raise ConfigError(f"redrive: per_second must be above 0, got {per_second}")
    if to_topic == topic:
        raise ConfigError(f"redrive: to_topic is the dead letter topic {topic!r} itself")
    if places is not None and len(places) > MOST_PLACES:
        raise ConfigError(f"redrive: found {len(places):,} places, wanted at most {MOST_PLACES:,}")
    chosen = wanted or DeadLetterFilter()
    memory = [f"ottla-redrive.{topic}", chosen.label, f"to={to_topic}" if to_topic else ""]
    group = ".".join(part for part in memory if part)
    report = RedriveReport()
    with (
        _cluster(bootstrap_servers, settings) as cluster,
        _producer(bootstrap_servers, settings) as producer,
    ):
        uncommitted: dict[TopicPartition, int] = {}
        next_at_s = time.monotonic()

        def remember() -> None:
            if uncommitted and not is_dry_run:
                producer.flush()
            if uncommitted and not is_dry_run and places is None:
                commit_group_offsets(cluster, group, uncommitted)
                uncommitted.clear()

        if places is None:
            spans = _unread(cluster, group, topic)
            total, rows = size_of(spans), _rows(cluster, spans)
        else:
            total, rows = len(places), _rows_at(cluster, topic, places)
        try:
            for partition, (offset, _, key, value, headers) in rows:
                report.seen += 1
                if report.seen % _TELL_EVERY == 0:
                    on_seen(report.seen, total)
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
                            key=key,
                            value=value,
                            headers=headers,
                            to_topic=to_topic,
                            original=_original(cluster, view) if is_claim and view is not None else None,
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
                uncommitted[TopicPartition(topic, partition)] = offset + 1
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
def _cluster(bootstrap_servers: str, settings: Mapping[str, Any] | None) -> Iterator[Cluster]:
    require_reachable(bootstrap_servers, settings or {}, timeout_s=_TIMEOUT_S)
    wire = connection_settings(
        {"client.id": "ottla-redrive", **(settings or {}), "bootstrap.servers": bootstrap_servers},
        api_timeout_ms=round(_COORDINATOR_S * 1_000),
        request_timeout_ms=round(_TIMEOUT_S * 1_000),
        **SMALL_FETCHES,
    )
    with Cluster(wire) as cluster:
        yield cluster


def _producer(bootstrap_servers: str, settings: Mapping[str, Any] | None) -> Producer[Any, Any]:
    from ottla.sync.produce.producer import Producer

    producer: Producer[Any, Any] = Producer(bootstrap_servers, settings=dead_letter_settings(security_of(settings)))
    producer._sizes.leave_to_broker()  # as where they were written: some fit compressed only
    return producer


def _unread(cluster: Cluster, group: str, topic: str) -> dict[TopicPartition, tuple[int, int]]:
    """Return where the group continues and the end as it is now, of each partition that it has not been through."""
    places = [TopicPartition(topic, partition) for partition in cluster.topic(topic).leaders]
    committed = group_offsets(cluster, group, places)
    starts, ends = (cluster.list_offsets(dict.fromkeys(places, wanted)) for wanted in (EARLIEST, LATEST))
    spans = {place: (max(starts[place][0], committed.get(place, -1)), ends[place][0]) for place in places}
    return {place: (start, end) for place, (start, end) in spans.items() if start < end}


def _rows(cluster: Cluster, spans: Mapping[TopicPartition, tuple[int, int]]) -> Iterator[tuple[int, Row]]:
    """Yield (partition, record) of the spans, in order within a partition."""
    with closing(read_blocks(cluster, spans)) as blocks:
        for block in blocks:
            if block is not None:
                for row in block.rows:
                    yield block.partition, _with_shown_keys(row)


def _rows_at(cluster: Cluster, topic: str, places: Collection[tuple[int, int]]) -> Iterator[tuple[int, Row]]:
    """Yield (partition, record) of each place, once it is known that all of them are there."""
    chosen = sorted(set(places))
    for partition, offset in chosen:
        if record_at(cluster, topic, partition, offset) is None:
            raise InputError(f"{topic}: there is no record at partition {partition}, offset {offset}; nothing is sent")
    for partition, offset in chosen:
        row = record_at(cluster, topic, partition, offset)
        if row is not None:
            yield partition, _with_shown_keys(row)


def _with_shown_keys(row: Row) -> Row:
    """Return the record with header keys escaped where they are not UTF-8: no producer sends such keys."""
    offset, timestamp_ms, key, value, headers = row
    return offset, timestamp_ms, key, value, [(shown_key(name), data) for name, data in headers]


def _original(cluster: Cluster, view: DeadLetterView) -> Original | None:
    """Return the record that the dead letter was made of; None when its topic does not have it any more.

    Raises `BrokerUnavailable` or `PartitionUnavailable` when that is not known now.
    """
    if view.topic is None or view.partition is None or view.offset is None:
        return None
    if not 0 <= view.partition < 1 << 31 or not 0 <= view.offset < 1 << 63:
        return None  # Headers are anybody's to write.
    try:
        found = record_at(cluster, view.topic, view.partition, view.offset)
    except UnknownTopic:
        return None
    if found is None:
        return None
    _, timestamp_ms, key, value, headers = _with_shown_keys(found)
    return Original(key=key, value=value, headers=headers, timestamp_ms=timestamp_ms)
