"""`ottla consume`: print the records of a topic. It joins no group and commits nothing, so it disturbs no service."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from ottla.cli.records.options import schema_options
from ottla.cli.shared.cluster_options import open_cluster, reaches_a_cluster
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.output import is_terminal, say, warn
from ottla.cli.shared.streams import end_without_reader, wait_for_reader
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.browse.decoding import Decoder
    from ottla.cli.records.printing import Printer
    from ottla.config import Settings
    from ottla.wire_client.fetching.record_rows import RecordRows

_MOST_A_SECOND: Final = 1_000
"""Records per second shown while a topic is followed on a terminal: more cannot be read, and slow the terminal down."""


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@reaches_a_cluster
@click.option("--from", "start", metavar="WHERE", help="earliest, latest, -10 (the last ten of each partition), -2h,"
              " 2026-11-22T10:00, or PARTITION:OFFSET[,...].  [default: earliest; latest with -f]")  # fmt: skip
@click.option("--from-beginning", is_flag=True, hidden=True, help="As --from earliest; a word of Kafka's own tool.")
@click.option("--until", metavar="WHERE", help="Where to stop, in the form of --from.  [default: the end as it is now]")
@click.option("-f", "--follow", is_flag=True, help="Follow new records at the end, until Ctrl-C.")
@click.option("-n", "--limit", type=click.IntRange(1), help="Stop after this many records.")
@click.option("-p", "--partitions", metavar="P,...", help="Only these partitions, as 0,2,5-7.")
@click.option("--key", help="Only records with this key.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME[=VALUE]", help="Only records with this header; repeatable."
)
@click.option("--grep", metavar="REGEX", help="Only records whose key or value matches this regular expression.")
@click.option("--where", metavar="EXPR", help="Only records for which this holds, as in 'value.total > 100 and"
              " headers.source == \"web\"'.")  # fmt: skip
@schema_options
@click.option("--format", "form", metavar="table|plain|json|'%k %v\\n'", help="Output format: a name, or a format"
              " string as in kcat.  [default: a table on a terminal, else plain]")  # fmt: skip
@click.option("-H", "--names", is_flag=True, help="Begin plain output with a line of column names.")
@click.option("--headers-only", is_flag=True, help="Print headers, and sizes instead of values.")
@click.option("--null", default="", metavar="TEXT", help="Text printed for null.")
@click.option("--uncommitted", is_flag=True, help="Also records of open and of aborted transactions.")
@click.option("--no-color", is_flag=True, help="No colours; NO_COLOR in the environment means the same.")
def consume(
    topic: str,
    kafka: Settings,
    start: str | None,
    from_beginning: bool,
    until: str | None,
    follow: bool,
    limit: int | None,
    partitions: str | None,
    form: str | None,
    names: bool,
    headers_only: bool,
    null: str,
    uncommitted: bool,
    no_color: bool,
    decoders: tuple[Decoder, Decoder],
    **criteria: Any,
) -> None:
    """Print the records of TOPIC, up to its current end, or as they arrive (-f).

    Records of a partition are in order; partitions are mixed. With --format json every record is a line that `ottla
    produce --format json` accepts, byte for byte.

    \b
    Examples:
      ottla consume orders -n 10
      ottla consume orders --from -1h --where 'value.total > 100'
      ottla consume orders --format json | ottla produce copy --format json
    """
    from ottla.browse.reading import follow_growing, read_blocks, size_of
    from ottla.browse.selecting import Selection
    from ottla.browse.spans import FOR_EVER, parse_partitions, parse_place, resolved
    from ottla.browse.where import parse_where
    from ottla.cli.records.printing import PLAIN_NAMES, printer_of
    from ottla.cli.shared.progress import ProgressLine
    from ottla.wire_client.ranges import Isolation

    if follow and until is not None:
        raise InputError(f"found -f and --until {until}, wanted one of them: -f has no end")
    if from_beginning:
        if start is not None:
            raise InputError(f"found --from-beginning and --from {start}, wanted one of them")
        start = "earliest"
    now_ms = time.time_ns() // 1_000_000
    key, value = decoders
    where = criteria.pop("where")
    selection = Selection(
        key=criteria["key"],
        headers=criteria["headers"],
        pattern=criteria["grep"],
        where=None if where is None else parse_where(where, now_ms=now_ms),
        decoders={"key": key, "value": value},
    )
    on_terminal = is_terminal(sys.stdout)
    form = form or ("table" if on_terminal else "plain")
    color = click.get_current_context().color is not False and not no_color
    to_lines = printer_of(
        form,
        key=key,
        value=value,
        has_values=not headers_only,
        is_terminal=on_terminal,
        has_color=on_terminal and color,
        null=null,
    )
    begin = parse_place(start or ("latest" if follow else "earliest"), option="--from", now_ms=now_ms)
    end = None if follow else parse_place(until or "latest", option="--until", now_ms=now_ms)
    only = None if partitions is None else parse_partitions(partitions)
    end_without_reader()
    out = sys.stdout.buffer
    isolation = Isolation.READ_UNCOMMITTED if uncommitted else Isolation.READ_COMMITTED
    with open_cluster(kafka, isolation=isolation) as cluster:
        spans = resolved(cluster, topic, start=begin, until=end, only=only, say=say)
        if form == "plain" and names:
            out.write(PLAIN_NAMES.encode())
        total = None if follow else size_of(spans)
        with ProgressLine("read", total=total, is_shown=not on_terminal) as progress:
            sink = _Sink(out, to_lines, limit=limit, is_followed=follow, on_terminal=on_terminal)
            try:
                grows = follow and only is None and not begin.offsets
                reading = (
                    follow_growing(cluster, topic, spans, end=FOR_EVER)
                    if grows
                    else read_blocks(cluster, spans, follow=follow)
                )
                with closing(reading) as blocks:
                    for block in blocks:
                        progress.advance(0 if block is None else len(block.rows))
                        if not sink.takes(None if block is None else selection.of(block)):
                            break
            finally:
                sink.say_what_was_left_out()
    out.flush()
    if not sink.printed:
        say(f"{topic}: no records")
    _say_failures(key, "keys")
    _say_failures(value, "values")
    if key.failures or value.failures:
        raise click.exceptions.Exit(1)


class _Sink:
    """Prints lines: as many as were asked for, and on a terminal no more than a person can read."""

    def __init__(
        self, out: BinaryIO, to_lines: Printer, *, limit: int | None, is_followed: bool, on_terminal: bool
    ) -> None:
        from ottla.cli.records.printing import PrintBudget

        self._out = out
        self._to_lines = to_lines
        self._left = limit
        self._is_followed = is_followed
        self._budget = PrintBudget(_MOST_A_SECOND) if is_followed and on_terminal else None
        self._said = 0
        self.printed = 0

    def takes(self, block: RecordRows | None) -> bool:
        """Print a block; None stands for an empty response. Returns False once the requested number is printed."""
        if block is not None and block.rows:
            rows = block.rows if self._left is None else block.rows[: self._left]
            if self._budget is not None:
                rows = rows[: self._budget.takes(len(rows), time.monotonic())]
            self._out.write(self._to_lines(block._replace(rows=rows)))
            self.printed += len(rows)
            if self._left is not None:
                self._left -= len(rows)
        if self._is_followed:
            self._out.flush()
        if block is None:
            self.say_what_was_left_out()
        if (block is None or not block.rows) and not wait_for_reader(0):
            return False
        return self._left != 0

    def say_what_was_left_out(self) -> None:
        """Say how many records more were not printed because they came too fast."""
        if self._budget is not None and self._budget.left_out > self._said:
            count = self._budget.left_out - self._said
            self._said = self._budget.left_out
            warn(f"{count:,} records were left out: more than {_MOST_A_SECOND:,} a second")


def _say_failures(decoder: Decoder, what: str) -> None:
    if decoder.failures:
        warn(f"{decoder.failures:,} {what} could not be decoded, and are shown as they are: {decoder.first_failure}")
