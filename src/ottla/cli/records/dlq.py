"""`ottla dlq`: look into a dead letter topic, and send what is in it back to where it came from.

Reads the headers of Ottla, Spring, Kafka Connect, Kafka Streams, SmallRye and Karafka.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.browse.topic_partitions import parse_place
from ottla.cli.shared.cluster_options import (
    check_reachable,
    chosen_cluster,
    open_admin,
    open_cluster,
    reaches_a_cluster,
)
from ottla.cli.shared.complete import complete_groups, complete_topics
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.options import takes
from ottla.cli.shared.output import Format, Output, plain, prints, say, warn
from ottla.cli.shared.parameter_types import Number, TimeMs
from ottla.cli.shared.progress import ProgressLine
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.browse.redrive import RedriveReport
    from ottla.config import Settings
    from ottla.failures.redrive import Redrive
    from ottla.failures.selection import DeadLetterFilter


_KINDS: Final = ("malformed", "invalid", "failed", "expired")

_MOST_DESTINATIONS: Final = 1_000


_filter_options: Final = takes(
    click.option(
        "--since",
        "since_ms",
        type=TimeMs(),
        metavar="TIME",
        help="Only dead letters written at or after this time, as -2h or 2026-11-22T10:00 (UTC).",
    ),
    click.option("--group", shell_complete=complete_groups, help="Only dead letters of this consumer group."),
    click.option("--error", help="Only dead letters with this text in the error's type or message."),
    click.option("--origin", help="Only dead letters from this topic."),
    click.option("--kind", type=click.Choice(_KINDS), help="Only dead letters of this kind."),
)


def _filter(
    kind: str | None, origin: str | None, error: str | None, group: str | None, since_ms: int | None
) -> DeadLetterFilter:
    from ottla.failures.selection import DeadLetterFilter

    return DeadLetterFilter(kind=kind, origin_topic=origin, error=error, group=group, since_ms=since_ms)


@click.group(cls=CommandGroup, late={"purge": "ottla.cli.records.purge:purge"})
def dlq() -> None:
    """List, show, redrive and delete dead letters.

    \b
    Examples:
      ottla dlq list
      ottla dlq show orders.dead-letters 0:0
      ottla dlq redrive orders.dead-letters --dry-run
    """


@dlq.command("list")
@click.argument("topic", required=False, shell_complete=complete_topics)
@reaches_a_cluster
@prints
@_filter_options
@click.option("--from", "start", default="earliest", metavar="WHERE", show_default=True, help="Where to begin, as for"
              " `consume`: -100 (the last of each partition), -2h, 2026-11-22T10:00, 0:42.")  # fmt: skip
@click.option(
    "--last",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Number of dead letters to show, the newest last.",
)
def list_letters(topic: str | None, kafka: Settings, out: Output, start: str, last: int, **criteria: Any) -> None:
    """Count the dead letters of TOPIC by origin, kind and error, and show the last ones.

    Without TOPIC, show every topic with the name of a dead letter topic, and its number of dead letters.

    \b
    Examples:
      ottla dlq list
      ottla dlq list orders.dead-letters --kind malformed
      ottla dlq list orders.dead-letters --from -2h --format json
    """
    if topic is None:
        _list_topics(kafka, out)
        return
    from ottla.browse.dead_letter_reader import SMALL_FETCHES
    from ottla.browse.dead_letter_view import DeadLetterSummary
    from ottla.browse.reading import read_blocks, size_of
    from ottla.browse.spans import parse_place, resolved

    found = DeadLetterSummary(last=last, wanted=_filter(**criteria))
    now_ms = time.time_ns() // 1_000_000
    begin = parse_place(start, option="--from", now_ms=now_ms)
    with open_cluster(kafka, **SMALL_FETCHES) as cluster:
        end = parse_place("latest", option="--until", now_ms=now_ms)
        spans = resolved(cluster, topic, start=begin, until=end, only=None, say=say)
        with ProgressLine("read", total=size_of(spans)) as progress, closing(read_blocks(cluster, spans)) as blocks:
            for block in blocks:
                if block is not None:
                    found.add_block(block)
                    progress.advance(len(block.rows))
    say(f"{topic}: {found.letters:,} dead letters")
    if found.others:
        say(f"{found.others:,} more records have no dead letter headers: they are not dead letters")
    newest = found.newest()
    if out.format is Format.JSON:
        counts: dict[str, Any] = {"topic": topic, "letters": found.letters, "others": found.others, "newest": newest}
        out.items("dlq.list/1", (), found.by_cause(), **counts)
    elif out.format is Format.PLAIN:
        for item in found.by_cause():
            click.echo("\t".join(["cause", *map(plain, item.values())]))
        for item in newest:
            click.echo("\t".join(["letter", *map(plain, item.values())]))
    elif found.letters:
        causes = ("count", "origin", "kind", "error")
        out.items("dlq.list/1", causes, found.by_cause())
        if newest:
            click.echo()
            out.items("dlq.list/1", tuple(newest[0]), newest)


@dlq.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("place", metavar="PARTITION:OFFSET")
@reaches_a_cluster
@prints
def show(topic: str, place: str, kafka: Settings, out: Output) -> None:
    """Show one dead letter of TOPIC in full: the reason, its headers, its bytes.

    \b
    Examples:
      ottla dlq show orders.dead-letters 0:0
      ottla dlq show orders.dead-letters 0:0 --format json
    """
    from ottla.browse.dead_letter_reader import SMALL_FETCHES, existing_record
    from ottla.browse.dead_letter_view import for_people, header_lines, whole
    from ottla.cli.shared.visible import visible
    from ottla.failures.foreign import describe_dead_letter

    partition, offset = _place(place)
    with open_cluster(kafka, **SMALL_FETCHES) as cluster:
        row = existing_record(cluster, topic, partition, offset)
    view = describe_dead_letter(row[4])
    if view is None:
        raise InputError(f"{topic}: the record at {place} has no dead letter headers: it is not a dead letter")
    item = whole(int(partition), row, view)
    if out.format is Format.JSON:
        out.one("dlq.show/1", {"topic": topic, **item})
        return
    out.one("dlq.show/1", for_people(item, row))
    for line in header_lines(row):
        click.echo(f"header{chr(9) if out.format is Format.PLAIN else '  '}{visible(line)}")
    if view.stack_trace and out.format is Format.PLAIN:
        click.echo(f"stack trace\t{visible(view.stack_trace)}")
    elif view.stack_trace:
        click.echo()
        for line in view.stack_trace.splitlines():
            click.echo(visible(line.replace("\t", "    ")))


def _place(text: str) -> tuple[int, int]:
    """Return the partition and offset of `0:42`."""
    found = parse_place(text)
    if found is None:
        raise InputError(f"expected PARTITION:OFFSET as `ottla dlq list` prints it, as in 0:42, got {text!r}")
    return found


@dlq.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("places", metavar="[PARTITION:OFFSET...]", nargs=-1)
@reaches_a_cluster
@prints
@changes
@_filter_options
@click.option(
    "--to",
    "to_topic",
    shell_complete=complete_topics,
    help="Send all dead letters to this topic instead of their origin.",
)
@click.option("--per-second", type=Number(0, min_open=True), help="At most this many records per second.")
@click.option("--limit", type=click.IntRange(1), help="Stop after this many records.")
@click.option("--without-expiry", is_flag=True, help="Remove the expiry, so that expired records are handled.")
def redrive(
    topic: str,
    places: tuple[str, ...],
    kafka: Settings,
    out: Output,
    consent: Consent,
    to_topic: str | None,
    per_second: float | None,
    limit: int | None,
    without_expiry: bool,
    **criteria: Any,
) -> None:
    """Send the dead letters of TOPIC back to the topics they came from.

    The headers of a dead letter name its topic, and anyone who may write to TOPIC can forge them. So the
    command shows the topics and asks first, unless you name the topic with --to or --origin, or agree with
    --yes.

    The same command continues where it stopped, also after Ctrl-C. A record that fails again is dead-lettered again,
    with the header ottla-redriven.

    With PARTITION:OFFSET, as `ottla dlq list` prints it, these dead letters alone are sent, each time that the command
    runs. A later redrive of the whole topic sends them once more.

    \b
    Examples:
      ottla dlq redrive orders.dead-letters --dry-run
      ottla dlq redrive orders.dead-letters 0:0 --dry-run
      ottla dlq redrive orders.dead-letters --error Timeout --origin orders --per-second 50
      ottla dlq redrive orders.dead-letters --kind invalid --to orders.to-repair
    """
    from ottla.browse.redrive import redrive as send_back
    from ottla.cli.shared.visible import visible
    from ottla.config import security_of

    chosen = [_place(each) for each in places] or None
    given = [name for name, value in criteria.items() if value is not None and name != "origin"]
    if chosen and (given or limit is not None):
        raise InputError("found PARTITION:OFFSET and a filter or --limit, wanted one of them")
    check_reachable(kafka)

    def send(origins: Collection[str] | None, what: str, *, is_dry_run: bool) -> tuple[RedriveReport, Counter[str]]:
        to: Counter[str] = Counter()

        def count(record: Redrive) -> None:
            is_counted = record.topic in to or len(to) < _MOST_DESTINATIONS
            to[record.topic if is_counted else "other topics"] += 1

        with ProgressLine(what) as progress, _saying_how_to_go_on(to, is_dry_run=is_dry_run, continues=not chosen):
            report = send_back(
                kafka["bootstrap.servers"],
                topic,
                settings=security_of(kafka),
                wanted=_filter(**criteria),
                to_topic=to_topic,
                origins=origins,
                places=chosen,
                per_second=per_second,
                limit=limit,
                has_expiry=not without_expiry,
                is_dry_run=is_dry_run,
                on_redrive=count,
                on_seen=progress.set,
            )
        return report, to

    origin = criteria["origin"]
    origins: Collection[str] | None = None if origin is None else {origin}
    if not (consent.is_dry_run or consent.yes or to_topic or origin):
        _, planned = send(None, "read", is_dry_run=True)
        origins = planned.keys()
        if len(planned) > _MOST_DESTINATIONS:
            raise InputError(f"{topic}: its headers name more than {_MOST_DESTINATIONS:,} topics: name one by --origin")
        if planned:
            for destination, count in planned.most_common():
                say(f"{count:,} would be sent to {visible(destination)}")
            consent.agree("Send them?")
    elif not consent.is_dry_run and (cluster := chosen_cluster()) is not None and cluster.confirm:
        consent.agree("Send them?")
    is_dry_run = consent.is_dry_run
    report, to = send(origins, "read" if is_dry_run else "sent", is_dry_run=is_dry_run)
    verb = "would be sent" if is_dry_run else "sent"
    summary = f"{report.redriven:,} {verb}, {report.filtered:,} not selected, {report.homeless:,} without an origin"
    out.items(
        "dlq.redrive/1",
        ("count", "to"),
        [{"count": count, "to": destination} for destination, count in to.most_common()],
        empty=summary,
        topic=topic,
        dry_run=is_dry_run,
        **{name: getattr(report, name) for name in ("redriven", "filtered", "homeless", "refused", "gone")},
    )
    if to:
        say(summary)
    _say_what_stays(report)


def _list_topics(kafka: Settings, out: Output) -> None:
    """Print every topic whose name looks like a dead letter topic's, and its maximum number of dead letters."""
    from ottla.admin.facts.facts_reader import is_dead_letter_name
    from ottla.browse.dead_letter_reader import topic_items

    with open_admin(kafka) as admin:
        names = sorted(each.name for each in admin.list_topics() if is_dead_letter_name(each.name))
    with open_cluster(kafka) as cluster:
        items = topic_items(cluster, names)
    columns = ("topic", "partitions", "letters", "newest")
    out.items("dlq.topics/1", columns, items, empty="no topic is named as dead letter topics are")


@contextmanager
def _saying_how_to_go_on(to: Counter[str], *, is_dry_run: bool, continues: bool) -> Iterator[None]:
    """End a redrive with its count at Ctrl-C and SIGTERM."""
    try:
        yield
    except KeyboardInterrupt:
        if not is_dry_run:
            warn(f"{to.total():,} sent{'; the same command continues' if continues else ''}")
        raise


def _say_what_stays(report: RedriveReport) -> None:
    if report.refused:
        warn(f"{report.refused:,} not sent to the topic of their headers, the first because {report.first_refusal}")
    if report.gone:
        warn(f"{report.gone:,} not sent: the dead letter has no value, and its record is no longer in its topic")
    if report.homeless:
        say("records without an origin have no dead letter headers: give --to TOPIC to send them as well")
