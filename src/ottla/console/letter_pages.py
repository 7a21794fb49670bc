"""Dead letters: by cause, one beside the record it came from, and a redrive that is counted before it is done."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from ottla.admin.facts.facts_reader import is_dead_letter_name
from ottla.browse.dead_letter_reader import record_at, topic_items
from ottla.browse.dead_letter_view import DeadLetterSummary, short, when
from ottla.browse.reading import read_blocks, size_of
from ottla.browse.redrive import RedriveReport
from ottla.browse.redrive import redrive as send_back
from ottla.browse.spans import parse_place, resolved
from ottla.config import security_of
from ottla.console.jobs import Job
from ottla.console.letter_retries import retries_of
from ottla.console.masks import Masks
from ottla.console.query import Query
from ottla.console.record_pages import MOST_SECONDS, SMALL_FETCHES, one_record, whole_record
from ottla.console.state import ConsoleState
from ottla.errors import InputError, OttlaError
from ottla.failures.foreign import DeadLetterView, describe_dead_letter
from ottla.failures.redrive import Redrive
from ottla.failures.selection import DeadLetterFilter
from ottla.wire_client.ranges import Isolation

_KINDS: Final = ("", "malformed", "invalid", "failed", "expired")
_NEWEST: Final = 50
_DRY_RUN_S: Final = 20.0
_MOST_DESTINATIONS: Final = 1_000
_LONGEST_TRACE: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest:
    """A redrive that was shown. `origins` are its only target topics."""

    topic: str
    wanted: DeadLetterFilter
    to_topic: str | None
    origins: Collection[str]
    total: int


def topics(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return every topic whose name looks like a dead letter topic's, and its maximum number of dead letters."""
    query.done()
    names = sorted(each.name for each in console.seen().facts.topics if is_dead_letter_name(each.name))

    def ask() -> dict[str, Any]:
        with console.cluster() as cluster:
            return {"schema": "ottla.dlq.topics/1", "items": topic_items(cluster, names)}

    return console.answers.of(("letters/topics", *names), ask)


def letters(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return the dead letters of a topic by cause, and the newest ones, as far as the time of a search allows."""
    topic = query.needed("name")
    start = query.text("from", "earliest") or "earliest"
    found = DeadLetterSummary(last=_NEWEST, wanted=_filter(console, query))
    query.done()
    now_ms = console.now_ms()
    until = time.monotonic() + MOST_SECONDS
    scanned = 0
    with console.cluster(**SMALL_FETCHES) as cluster:
        end = parse_place("latest", option="until", now_ms=now_ms)
        begin = parse_place(start, option="from", now_ms=now_ms)
        spans = resolved(cluster, topic, start=begin, until=end, only=None)
        with closing(read_blocks(cluster, spans)) as blocks:
            for block in blocks:
                if block is not None:
                    found.add_block(block)
                    scanned += len(block.rows)
                if time.monotonic() >= until:
                    break
    newest = [{**each, "message": console.masks.text(each["message"])} for each in found.newest()]
    return {
        "schema": "ottla.dlq.list/1",
        "topic": topic,
        "letters": found.letters,
        "others": found.others,
        "scanned": scanned,
        "total": size_of(spans),
        "items": list(found.by_cause()),
        "newest": newest[::-1],
    }


def letter(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return one dead letter, its retries, and its original record if the topic still has it."""
    asked = one_record(console, query, topic="name")
    with console.cluster(isolation=Isolation.READ_UNCOMMITTED, **SMALL_FETCHES) as cluster:
        row = asked.row(cluster)
        topic, partition, offset = asked.topic, asked.partition, asked.offset
        view = describe_dead_letter(row[4])
        if view is None:
            raise InputError(f"{topic}: the record at {partition}:{offset} has no dead letter headers")
        origin: dict[str, Any] | None = None
        why = "its headers do not say where it came from"
        if view.topic is not None and view.partition is not None and view.offset is not None:
            why = f"{view.origin} is not in its topic any more"
            try:
                there = record_at(cluster, view.topic, view.partition, view.offset)
                if there is not None:
                    origin = whole_record(asked.reading, view.topic, view.partition, there)
            except OttlaError as error:
                why = str(error)
        topics = console.seen().facts.by_topic
        retries = retries_of(cluster, view, topics=topics, shown=console.masks.text, monotonic=time.monotonic)
    return {
        "schema": "ottla.console.letter/1",
        "why": _why(view, console.masks),
        "letter": whole_record(asked.reading, topic, partition, row),
        "retries": list(retries.items),
        "retries_note": retries.note,
        "origin": origin,
        "no_origin": None if origin is not None else why,
    }


def _why(view: DeadLetterView, masks: Masks) -> dict[str, Any]:
    """Return the cause in the headers. A message may quote the record, so it is hidden if anything is masked."""
    return {
        "came_from": view.origin,
        "kind": view.kind,
        "family": view.family,
        "error": view.error_type,
        "message": None if view.message is None else masks.text(short(view.message)),
        "attempts": view.attempts,
        "group": view.group,
        "first_failure": when(view.first_failure_ms),
        "dead_lettered": when(view.dead_lettered_ms),
        "stack_trace": None if view.stack_trace is None else masks.text(view.stack_trace[:_LONGEST_TRACE]),
        "not_in_it": view.omitted,
    }


def plan_redrive(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Return a dry run: the number of dead letters to send, by topic. Sends and stores nothing."""
    topic = query.needed("name")
    wanted = _filter(console, query)
    to_topic = query.text("to", most=300)
    query.done()
    to: Counter[str] = Counter()
    until = time.monotonic() + _DRY_RUN_S

    def count(record: Redrive) -> None:
        to[record.topic] += 1
        if len(to) > _MOST_DESTINATIONS:
            raise InputError(f"{topic}: its headers name more than {_MOST_DESTINATIONS:,} topics: choose one by origin")
        if time.monotonic() > until:
            raise InputError(f"{topic}: more letters than can be counted in {_DRY_RUN_S:g} s: filter them")

    report = send_back(
        console.kafka["bootstrap.servers"],
        topic,
        settings=security_of(console.kafka),
        wanted=wanted,
        to_topic=to_topic,
        is_dry_run=True,
        on_redrive=count,
    )
    request = RedriveRequest(
        topic=topic, wanted=wanted, to_topic=to_topic, origins=frozenset(to), total=report.redriven
    )
    return {
        "schema": "ottla.console.redrive/1",
        "topic": topic,
        "plan": console.plans.keep(request) if report.redriven else None,
        "to": [{"topic": name, "letters": number} for name, number in to.most_common()],
        **_counts(report),
    }


def redrive(console: ConsoleState, query: Query) -> dict[str, Any]:
    """Send the counted dead letters, to the shown topics and no others."""
    number = query.number("plan", None, least=1, most=2**53)
    per_second = query.number("per_second", None, least=1, most=1_000_000)
    limit = query.number("limit", None, least=1, most=2**53)
    console.agree(query)
    request = console.plans.take(number, RedriveRequest)
    origins = request.origins if request.to_topic is None else None

    def work(job: Job) -> None:
        def stopped() -> None:
            if job.stop.is_set():
                raise KeyboardInterrupt  # what was sent until then is acknowledged and remembered

        sent = 0

        def count(_record: Redrive) -> None:
            nonlocal sent
            sent += 1
            job.progress = {**job.progress, "sent": sent, "total": request.total}
            stopped()

        def seen(looked_at: int, of: int) -> None:
            job.progress = {**job.progress, "seen": looked_at, "of": of}
            stopped()

        report = send_back(
            console.kafka["bootstrap.servers"],
            request.topic,
            settings=security_of(console.kafka),
            wanted=request.wanted,
            to_topic=request.to_topic,
            origins=origins,
            per_second=per_second,
            limit=limit,
            on_redrive=count,
            on_seen=seen,
            sleep=lambda seconds: None if not job.stop.wait(seconds) else stopped(),
        )
        job.progress = {"sent": report.redriven, "total": report.redriven, **_counts(report)}

    console.audit(
        "dlq.redrive",
        request.topic,
        before={"letters": request.total, "filter": request.wanted.label},
        after={"to": request.to_topic or sorted(request.origins), "per_second": per_second, "limit": limit},
    )
    return console.jobs.begin("redrive", request.topic, work).item()


def _counts(report: RedriveReport) -> dict[str, Any]:
    return {
        "redriven": report.redriven,
        "filtered": report.filtered,
        "homeless": report.homeless,
        "refused": report.refused,
        "first_refusal": report.first_refusal,
        "gone": report.gone,
    }


def _filter(console: ConsoleState, query: Query) -> DeadLetterFilter:
    return DeadLetterFilter(
        kind=query.one_of("kind", _KINDS, "") or None,
        origin_topic=query.text("origin", most=300),
        error=query.text("error", most=500),
        group=query.text("group", most=500),
        ignores_messages=console.masks.any,
    )
