"""`ottla topics copy`: a topic with its settings and records, byte for byte, to another name on the same cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.shared.cluster_options import open_admin, open_cluster, reaches_a_cluster, timeout_s
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.output import Output, prints, say, warn
from ottla.errors import InputError, OttlaError

if TYPE_CHECKING:
    from ottla.admin import Admin, TopicInfo
    from ottla.config import Settings
    from ottla.records import TopicPartition
    from ottla.wire_client import Cluster

_NOT_COPIED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Settings that name the replicas of their own topic."""


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("to", shell_complete=complete_topics)
@reaches_a_cluster
@prints
@click.option("--from", "start", default="earliest", show_default=True, metavar="WHERE", help="Where to begin, as for"
              " `consume`: -100 (the last of each partition), -2h, 2026-11-22T10:00, 0:42,1:7.")  # fmt: skip
@click.option("--until", default="latest", metavar="WHERE", help="Where to stop.  [default: the end as it is now]")
@click.option("--append", is_flag=True, help="Allow a target topic that has records.")
@changes
def copy(
    topic: str, to: str, kafka: Settings, out: Output, consent: Consent, start: str, until: str, append: bool
) -> None:
    """Copy the records of TOPIC to the topic TO, byte for byte: keys, values, headers, nulls, times, partitions.

    TO is created with the partitions, replicas and settings of TOPIC if it does not exist. Records of aborted
    transactions are left out, so offsets differ. Committed offsets of groups are not copied. An interrupted copy prints
    the command that continues it.

    \b
    Examples:
      ottla topics copy orders orders-2 --dry-run
      ottla topics copy orders orders-3 --yes
      ottla topics copy orders copy --from -1h --append --yes
    """
    from ottla.browse.reading import size_of
    from ottla.browse.spans import parse_place, resolved
    from ottla.records import topic_problem

    problem = topic_problem(to)
    if problem is not None:
        raise InputError(problem)
    if to == topic:
        raise InputError(f"found {topic} twice, wanted another topic to copy to")
    now_ms = time.time_ns() // 1_000_000
    begin = parse_place(start, option="--from", now_ms=now_ms)
    end = parse_place(until, option="--until", now_ms=now_ms)
    with open_admin(kafka) as admin:
        (source,) = admin.describe_topics(topic, parts=())
        is_new = _is_new(admin, source, to, append=append)
        with open_cluster(kafka, delivery_timeout_ms=round(timeout_s() * 1000)) as cluster:
            spans = resolved(cluster, topic, start=begin, until=end, only=None, say=say)
            columns = ("partition", "first_offset", "end_offset", "records")
            items = [
                {"partition": place.partition, "first_offset": first, "end_offset": stop, "records": stop - first}
                for place, (first, stop) in spans.items()
            ]
            out.items("topics.copy/1", columns, items, empty=f"{topic}: no records", topic=topic, to=to, creates=is_new)
            what = f"{to}, a new topic of {len(source.partitions)} partitions" if is_new else to
            if not consent.agree(f"Copy up to {size_of(spans):,} records to {what}?"):
                return
            if is_new:
                _create(admin, source, to)
            written = _copy(cluster, spans, topic, to)
    say(f"{written:,} records written to {to}")


def _is_new(admin: Admin, source: TopicInfo, to: str, *, append: bool) -> bool:
    """Return whether the topic has to be created. InputError for one that cannot take the copy."""
    from ottla.admin import Part

    facts = admin.facts({Part.TOPICS, Part.OFFSETS}, topics=[to])
    there = facts.by_topic.get(to)
    if there is None:
        return True
    if len(there.partitions) < len(source.partitions):
        found, wanted = len(there.partitions), len(source.partitions)
        raise InputError(
            f"{to}: found {found} partitions, wanted {wanted} as {source.name} has (topics add-partitions)"
        )
    if not append and any(each.high_watermark for each in there.partitions):
        raise InputError(f"{to}: it has, or had, records; --append copies behind them")
    return False


def _create(admin: Admin, source: TopicInfo, to: str) -> None:
    from ottla.admin import TopicSpec

    own = {
        name: each.value
        for name, each in admin.topic_settings(source.name).items()
        if each.source == "DYNAMIC_TOPIC_CONFIG" and each.value is not None and name not in _NOT_COPIED
    }
    spec = TopicSpec(partitions=len(source.partitions), replication_factor=source.replication_factor, config=own)
    admin.create_topics({to: spec})


def _copy(cluster: Cluster, spans: Mapping[TopicPartition, tuple[int, int]], topic: str, to: str) -> int:
    """Write the records; how many. What ends it says first from where to go on."""
    from ottla.browse.reading import read_blocks, size_of
    from ottla.browse.record_input import InputRecord
    from ottla.browse.writing import RecordWriter
    from ottla.cli.shared.progress import ProgressLine

    next_offsets = {place.partition: first for place, (first, _) in spans.items()}

    def acknowledged(partition: int, _base_offset: int, offsets: Sequence[int]) -> None:
        next_offsets[partition] = offsets[-1] + 1

    writer: RecordWriter | None = None
    try:
        writer = RecordWriter(cluster, to, acknowledged=acknowledged, what="offset")
        try:
            with (
                ProgressLine("copied", total=size_of(spans)) as progress,
                closing(read_blocks(cluster, spans)) as blocks,
            ):
                for block in blocks:
                    if block is None:
                        continue
                    number = block.partition
                    for offset, at_ms, key, value, headers in block.rows:
                        writer.add(InputRecord(offset, key, value, tuple(headers), number, at_ms))
                    progress.advance(len(block.rows))
        except KeyboardInterrupt:
            writer.flush()  # so that it is known how far it came; Ctrl-C again gives up
            raise
        writer.flush()
    except BaseException as error:
        if writer is not None:
            writer.abandon()
        written = 0 if writer is None else writer.written
        ends = {place.partition: stop for place, (_, stop) in spans.items()}
        left = {number: (next_offsets[number], end) for number, end in ends.items() if next_offsets[number] < end}
        if left:
            _say_how_to_go_on(topic, to, written, left)
        if isinstance(error, OttlaError) and written:
            warn(f"ottla: {type(error).__name__}: {error}")
            raise click.exceptions.Exit(1) from None
        raise
    return writer.written


def _say_how_to_go_on(topic: str, to: str, written: int, left: Mapping[int, tuple[int, int]]) -> None:
    starts = ",".join(f"{number}:{first}" for number, (first, _) in sorted(left.items()))
    ends = ",".join(f"{number}:{end}" for number, (_, end) in sorted(left.items()))
    warn(f"{written:,} records written to {to}; records sent but not acknowledged may be there as well")
    warn(f"continue with: ottla topics copy {topic} {to} --append --from {starts} --until {ends}")
