"""`ottla dlq purge`: deletes dead letters that are no longer needed, after showing what they are."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import click

from ottla.cli.shared.cluster_options import open_admin, open_cluster, reaches_a_cluster
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.output import Output, prints, say
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.config import Settings


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--before", default="latest", metavar="WHERE", help="First dead letter to keep, as for `consume`: -7d,"
              " -100 (the last of each partition), 2026-11-22T10:00, 0:42.  [default: none is kept]")  # fmt: skip
@reaches_a_cluster
@prints
@changes
def purge(topic: str, before: str, kafka: Settings, out: Output, consent: Consent) -> None:
    """Delete the oldest dead letters of TOPIC: all that are there now, or those before a time or an offset.

    Counts them by origin, kind and error first, and asks for the topic's name. Kafka deletes from the start of a
    partition only, so single dead letters cannot be deleted. A topic that also has other records is refused: use `ottla
    topics delete-records` for it.

    \b
    Examples:
      ottla dlq purge orders.dead-letters --dry-run
      ottla dlq purge orders.dead-letters --before -7d --yes
      ottla dlq purge orders.dead-letters --before 0:1 --yes
    """
    from ottla.browse.dead_letter_reader import SMALL_FETCHES
    from ottla.browse.dead_letter_view import DeadLetterSummary
    from ottla.browse.reading import read_blocks, size_of
    from ottla.browse.spans import parse_place, resolved
    from ottla.cli.shared.progress import ProgressLine

    now_ms = time.time_ns() // 1_000_000
    begin = parse_place("earliest", option="--from", now_ms=now_ms)
    end = parse_place(before, option="--before", now_ms=now_ms, is_change=True)
    found = DeadLetterSummary(last=0)
    with open_cluster(kafka, **SMALL_FETCHES) as cluster:
        spans = resolved(cluster, topic, start=begin, until=end, only=None, say=say)
        with ProgressLine("read", total=size_of(spans)) as progress, closing(read_blocks(cluster, spans)) as blocks:
            for block in blocks:
                if block is not None:
                    found.add_block(block)
                    progress.advance(len(block.rows))
    if found.others:
        raise InputError(
            f"{topic}: {found.others:,} of {found.others + found.letters:,} records have no dead letter headers: they"
            " are no dead letters, and ottla topics delete-records deletes any records"
        )
    columns = ("count", "origin", "kind", "error")
    partitions = [
        {"partition": place.partition, "first_offset": first, "new_first_offset": stop}
        for place, (first, stop) in sorted(spans.items())
    ]
    empty = f"{topic}: no dead letters to delete"
    out.items(
        "dlq.purge/1", columns, found.by_cause(), empty=empty, topic=topic, letters=found.letters, partitions=partitions
    )
    if not spans or not consent.agree(f"Delete {found.letters:,} dead letters of {topic}?", name=topic):
        return
    with open_admin(kafka) as admin:
        admin.delete_records({place: stop for place, (_, stop) in spans.items()})
    say(f"{topic}: {found.letters:,} dead letters deleted")
