"""`ottla dlq`: look into a dead letter topic, and send what is in it back to where it came from.

Reads the headers of Ottla, Spring, Kafka Connect, Kafka Streams, SmallRye and Karafka.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from ottla.cli.shared.cluster_options import check_reachable, reaches_a_cluster
from ottla.cli.shared.groups import CommandGroup
from ottla.config import Settings, security_of
from ottla.errors import InputError
from ottla.failures.dead_letter import KINDS
from ottla.failures.foreign import DeadLetterView, describe_dead_letter
from ottla.failures.selection import DeadLetterFilter
from ottla.records import Record

if TYPE_CHECKING:
    from ottla.sync.admin.redrive import RedriveReport
    from ottla.sync.admin.topic_reader import TopicReader

F = TypeVar("F", bound=Callable[..., Any])

_MOST_CAUSES = 1_000
"""Causes that are counted one by one: whoever writes headers decides how many there are."""

_LONGEST = 500
"""Characters of a text in `list`; `show` has all of them."""

_SHORT_QUEUE = {
    "queued.min.messages": 2_000,
    "queued.max.messages.kbytes": 4_096,
    "max.partition.fetch.bytes": 131_072,
}
"""What the client may read ahead, per partition: 64 MiB if it were not told. Dead letters compress well: a megabyte
of a fetch may be a hundred of them in memory."""


def _filter_options(command: F) -> F:
    for option in (
        click.option("--kind", type=click.Choice(KINDS), help="Why they are dead letters."),
        click.option("--origin", help="The topic they came from."),
        click.option("--error", help="A part of the error's type or message."),
        click.option("--group", help="The consumer group that gave them up."),
        click.option("--since", type=click.DateTime(), help="Dead-lettered at or after this time, UTC."),
    ):
        command = option(command)
    return command


def _filter(
    kind: str | None, origin: str | None, error: str | None, group: str | None, since: datetime | None
) -> DeadLetterFilter:
    since_ms = None if since is None else int(since.replace(tzinfo=UTC).timestamp() * 1_000)
    return DeadLetterFilter(kind=kind, origin_topic=origin, error=error, group=group, since_ms=since_ms)


@click.group(cls=CommandGroup)
def dlq() -> None:
    """Look into dead letter topics, and redrive what is in them."""


@dlq.command("list")
@click.argument("topic")
@reaches_a_cluster
@_filter_options
@click.option("--last", type=click.IntRange(0), default=10, show_default=True, help="How many to show, newest last.")
def list_letters(topic: str, kafka: Settings, last: int, **criteria: Any) -> None:
    """Count the dead letters of TOPIC by origin, kind and error, and show the last ones."""
    console = Console(highlight=False)
    wanted = _filter(**criteria)
    found = _Summary(last)
    others = 0
    for record, view in _records(kafka, topic):
        if view is None:
            others += 1
        elif wanted.matches(view):
            found.add(record, view)
    console.print(f"{topic}: {found.letters:,} dead letters")
    if others:
        console.print(f"{others:,} more records have no dead letter headers: they are no dead letters")
    if not found.letters:
        return
    summary = Table(box=None, padding=(0, 2), header_style="dim")
    for name in ("count", "origin", "kind", "error"):
        summary.add_column(name, justify="right" if name == "count" else "left")
    for (origin, kind, error), count in found.causes.most_common():
        summary.add_row(f"{count:,}", origin, kind, error)
    console.print(summary)
    if last:
        newest = Table(box=None, padding=(0, 2), header_style="dim")
        for name in ("at", "came from", "when", "attempts", "message"):
            newest.add_column(name)
        for row in found.newest():
            newest.add_row(*row)
        console.print(newest)


@dlq.command()
@click.argument("topic")
@click.argument("place", metavar="PARTITION:OFFSET")
@reaches_a_cluster
def show(topic: str, place: str, kafka: Settings) -> None:
    """Show one dead letter of TOPIC whole: why, its headers, its bytes."""
    partition, _, offset = place.partition(":")
    if not partition.isdigit() or not offset.isdigit():
        raise InputError(f"expected PARTITION:OFFSET as `ottla dlq list` prints it, as in 0:42, got {place!r}")
    with _reader(kafka, topic) as reader:
        record = reader.record_at(int(partition), int(offset)) if int(partition) in reader.partitions else None
    if record is None:
        raise InputError(f"{topic}: there is no record at partition {partition}, offset {offset}")
    view = describe_dead_letter(record.headers)
    if view is None:
        raise InputError(f"{topic}: the record at {place} has no dead letter headers: it is no dead letter")
    _show(record, view)


@dlq.command()
@click.argument("topic")
@reaches_a_cluster
@_filter_options
@click.option("--to", "to_topic", help="Send them all to this topic instead of to their origin.")
@click.option("--per-second", type=click.FloatRange(0, min_open=True), help="At most so many records per second.")
@click.option("--limit", type=click.IntRange(1), help="Stop after so many records.")
@click.option("--without-expiry", is_flag=True, help="Have them handled even if they have expired.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent; send and remember nothing.")
@click.option("--yes", is_flag=True, help="Send to whatever topics the headers name, without a question.")
def redrive(
    topic: str,
    kafka: Settings,
    to_topic: str | None,
    per_second: float | None,
    limit: int | None,
    without_expiry: bool,
    dry_run: bool,
    yes: bool,
    **criteria: Any,
) -> None:
    """Send the dead letters of TOPIC back to where they came from.

    Headers say where that is, and everyone who may write to TOPIC can write headers. So the command shows the topics
    and asks first, unless you name the topic with --to or --origin, or agree with --yes.

    The same command again goes on where it ended. A record that fails again is dead-lettered again, and says so in the
    header ottla-redriven.
    """
    from ottla.sync.admin.redrive import redrive as send_back

    check_reachable(kafka)

    def send(origins: Collection[str] | None, *, is_dry_run: bool) -> tuple[RedriveReport, Counter[str]]:
        to: Counter[str] = Counter()
        report = send_back(
            kafka["bootstrap.servers"],
            topic,
            settings=security_of(kafka),
            wanted=_filter(**criteria),
            to_topic=to_topic,
            origins=origins,
            per_second=per_second,
            limit=limit,
            has_expiry=not without_expiry,
            is_dry_run=is_dry_run,
            on_redrive=lambda record: to.update([record.topic]),
        )
        return report, to

    origin = criteria["origin"]
    origins: Collection[str] | None = None if origin is None else {origin}
    if not (dry_run or yes or to_topic or origin):
        _, planned = send(None, is_dry_run=True)
        origins = planned.keys()
        if planned:
            _show_destinations(planned, "would be sent")
            click.confirm("Send them? (--yes does not ask)", abort=True)
    report, to = send(origins, is_dry_run=dry_run)
    verb = "would be sent" if dry_run else "sent"
    _show_destinations(to, verb)
    click.echo(f"{report.redriven:,} {verb}, {report.filtered:,} not meant, {report.homeless:,} without an origin")
    if report.refused:
        click.echo(
            f"{report.refused:,} not sent where their headers say, the first because {report.first_refusal}", err=True
        )
    if report.gone:
        click.echo(
            f"{report.gone:,} not sent: the dead letter has no value, and its record is not in its topic any more",
            err=True,
        )
    if report.homeless:
        click.echo(
            "records without an origin have no dead letter headers: give --to TOPIC to send them as well", err=True
        )


def _show_destinations(counts: Counter[str], verb: str) -> None:
    for destination, count in counts.most_common():
        click.echo(f"{count:,} {verb} to {destination}")


def _reader(kafka: Settings, topic: str) -> TopicReader:
    from ottla.sync.admin.topic_reader import TopicReader

    check_reachable(kafka)
    return TopicReader(kafka["bootstrap.servers"], topic, settings={**kafka.to_confluent(), **_SHORT_QUEUE})


def _records(kafka: Settings, topic: str) -> Iterator[tuple[Record[Any], DeadLetterView | None]]:
    """Every record of the topic, one at a time; None for one that no known software has dead-lettered."""
    with _reader(kafka, topic) as reader:
        for record in reader.stream_to_end():
            yield record, describe_dead_letter(record.headers)


class _Summary:
    """What `list` shows, without the letters themselves: a topic may have more of them than memory has room."""

    def __init__(self, last: int) -> None:
        self.letters = 0
        self.causes: Counter[tuple[str, str, str]] = Counter()
        self._last = last
        self._newest: list[tuple[tuple[int, int, int], tuple[str, ...]]] = []  # a heap, the oldest first

    def add(self, record: Record[Any], view: DeadLetterView) -> None:
        self.letters += 1
        cause = (_short(view.topic or "?"), _short(view.kind or view.family), _short(view.error_type or ""))
        is_counted = cause in self.causes or len(self.causes) < _MOST_CAUSES
        self.causes[cause if is_counted else ("...", "...", "other causes")] += 1
        if not self._last:
            return
        when = (record.timestamp_ms, record.partition, record.offset)
        if len(self._newest) < self._last:
            heapq.heappush(self._newest, (when, _row(record, view)))
        elif when > self._newest[0][0]:
            heapq.heapreplace(self._newest, (when, _row(record, view)))

    def newest(self) -> list[tuple[str, ...]]:
        """A row for each of the last letters, newest last."""
        return [row for _, row in sorted(self._newest)]


def _row(record: Record[Any], view: DeadLetterView) -> tuple[str, ...]:
    place = f"{record.partition}:{record.offset}"
    when = _time(view.dead_lettered_ms)
    return place, _short(view.origin), when, str(view.attempts or ""), _short(view.message or "")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _show(record: Record[Any], view: DeadLetterView) -> None:
    console = Console(highlight=False, markup=False)
    table = Table(box=None, padding=(0, 2), show_header=False)
    table.add_row("came from", view.origin)
    table.add_row("kind", f"{view.kind or '?'} (headers of {view.family})")
    table.add_row("error", f"{view.error_type or ''}: {view.message or ''}")
    if view.omitted is not None:
        table.add_row("not in it", f"{view.omitted}: the topic did not take it; a redrive fetches it from its origin")
    table.add_row("attempts", str(view.attempts or "?"))
    table.add_row("group", view.group or "?")
    table.add_row("first failure", _time(view.first_failure_ms))
    table.add_row("dead-lettered", _time(view.dead_lettered_ms))
    table.add_row("key", repr(record.raw_key))
    table.add_row("value", repr(record.raw_value))
    for name, value in record.headers:
        if "stack-trace" not in name and "stacktrace" not in name:
            table.add_row(
                "header", f"{name} = {'null' if value is None else value.decode('utf-8', 'backslashreplace')}"
            )
    console.print(table)
    if view.stack_trace:
        console.print(view.stack_trace)


def _time(ms: int | None) -> str:
    if ms is None:
        return "?"
    try:
        return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # headers may say any number
        return f"{ms} ms"
