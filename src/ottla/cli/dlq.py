"""`ottla dlq`: look into a dead letter topic, and send what is in it back to where it came from.

Reads the headers of Ottla, Spring, Kafka Connect, Kafka Streams, SmallRye and Karafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from ottla.delivery.dead_letter import KINDS
from ottla.delivery.foreign import DeadLetterView, describe_dead_letter
from ottla.delivery.selection import DeadLetterFilter
from ottla.errors import InputError
from ottla.records import Record

F = TypeVar("F", bound=Callable[..., Any])

_SERVERS = click.option(
    "--bootstrap-servers", envvar="OTTLA_BOOTSTRAP_SERVERS", default="localhost:9092", show_default=True
)


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


@click.group()
def dlq() -> None:
    """Look into dead letter topics, and redrive what is in them."""


@dlq.command("list")
@click.argument("topic")
@_SERVERS
@_filter_options
@click.option("--last", type=click.IntRange(0), default=10, show_default=True, help="How many to show, newest last.")
def list_letters(topic: str, bootstrap_servers: str, last: int, **criteria: Any) -> None:
    """Count the dead letters of TOPIC by origin, kind and error, and show the last ones."""
    console = Console(highlight=False)
    wanted = _filter(**criteria)
    letters = [(record, view) for record, view in _letters(bootstrap_servers, topic) if wanted.matches(view)]
    causes = Counter((view.topic or "?", view.kind or view.family, view.error_type or "") for _, view in letters)
    console.print(f"{topic}: {len(letters):,} dead letters")
    if not letters:
        return
    summary = Table(box=None, padding=(0, 2), header_style="dim")
    for name in ("count", "origin", "kind", "error"):
        summary.add_column(name, justify="right" if name == "count" else "left")
    for (origin, kind, error), count in causes.most_common():
        summary.add_row(f"{count:,}", origin, kind, error)
    console.print(summary)
    if last:
        newest = Table(box=None, padding=(0, 2), header_style="dim")
        for name in ("at", "came from", "when", "attempts", "message"):
            newest.add_column(name)
        for record, view in letters[-last:]:
            place = f"{record.partition}:{record.offset}"
            newest.add_row(
                place, view.origin, _time(view.dead_lettered_ms), str(view.attempts or ""), view.message or ""
            )
        console.print(newest)


@dlq.command()
@click.argument("topic")
@click.argument("place", metavar="PARTITION:OFFSET")
@_SERVERS
def show(topic: str, place: str, bootstrap_servers: str) -> None:
    """Show one dead letter of TOPIC whole: why, its headers, its bytes."""
    partition, _, offset = place.partition(":")
    if not partition.isdigit() or not offset.isdigit():
        raise InputError(f"expected PARTITION:OFFSET as `ottla dlq list` prints it, as in 0:42, got {place!r}")
    for record, view in _letters(bootstrap_servers, topic):
        if (record.partition, record.offset) == (int(partition), int(offset)):
            _show(record, view)
            return
    raise InputError(f"{topic}: there is no dead letter at partition {partition}, offset {offset}")


@dlq.command()
@click.argument("topic")
@_SERVERS
@_filter_options
@click.option("--to", "to_topic", help="Send them all to this topic instead of to their origin.")
@click.option("--per-second", type=click.FloatRange(0, min_open=True), help="At most so many records per second.")
@click.option("--limit", type=click.IntRange(1), help="Stop after so many records.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent; send and remember nothing.")
def redrive(
    topic: str,
    bootstrap_servers: str,
    to_topic: str | None,
    per_second: float | None,
    limit: int | None,
    dry_run: bool,
    **criteria: Any,
) -> None:
    """Send the dead letters of TOPIC back to where they came from.

    The same command again goes on where it ended. A record that fails again is dead-lettered again, and says so in the
    header ottla-redriven.
    """
    from ottla.sync.redrive import redrive as send_back

    to: Counter[str] = Counter()
    report = send_back(
        bootstrap_servers,
        topic,
        wanted=_filter(**criteria),
        to_topic=to_topic,
        per_second=per_second,
        limit=limit,
        is_dry_run=dry_run,
        on_redrive=lambda record: to.update([record.topic]),
    )
    verb = "would be sent" if dry_run else "sent"
    for destination, count in to.most_common():
        click.echo(f"{count:,} {verb} to {destination}")
    click.echo(f"{report.redriven:,} {verb}, {report.filtered:,} not meant, {report.homeless:,} without an origin")
    if report.homeless:
        click.echo(
            "records without an origin have no dead letter headers: give --to TOPIC to send them as well", err=True
        )


def _letters(bootstrap_servers: str, topic: str) -> Iterator[tuple[Record[Any], DeadLetterView]]:
    from ottla.sync.topic_reader import TopicReader

    with TopicReader(bootstrap_servers, topic) as reader:
        for record in reader.read_to_end():
            yield record, describe_dead_letter(record.headers) or DeadLetterView(family="no dead letter headers")


def _show(record: Record[Any], view: DeadLetterView) -> None:
    console = Console(highlight=False, markup=False)
    table = Table(box=None, padding=(0, 2), show_header=False)
    table.add_row("came from", view.origin)
    table.add_row("kind", f"{view.kind or '?'} (headers of {view.family})")
    table.add_row("error", f"{view.error_type or ''}: {view.message or ''}")
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
    return "?" if ms is None else datetime.fromtimestamp(ms / 1_000, UTC).isoformat(sep=" ", timespec="milliseconds")
