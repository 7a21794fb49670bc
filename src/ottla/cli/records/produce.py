"""`ottla produce`: write records from lines of stdin or of a file, or from what `ottla consume` printed as JSON."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from ottla.cli.records.options import encoding_options
from ottla.cli.shared.cluster_options import open_cluster, reaches_a_cluster, timeout_s
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.consent import refuse_if_read_only
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.output import is_quiet, say, warn
from ottla.cli.shared.parameter_types import Number
from ottla.errors import InputError, OttlaError

if TYPE_CHECKING:
    from ottla.browse.record_input import Encoders, Given
    from ottla.browse.writing import RecordWriter
    from ottla.config import Settings

_CHUNK_BYTES: Final = 1024 * 1024


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("file", required=False, type=FILE)
@reaches_a_cluster
@click.option("-k", "--key", help="The key of all records, or of those without one.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Split each line into key and value at this text.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME[=VALUE]", help="A header for all records;"
              " without '=' its value is null; repeatable.")  # fmt: skip
@click.option("-p", "--partition", type=click.IntRange(0), help="The partition of all records.")
@click.option("--null", "is_null", is_flag=True, help="Write one record without a value (a tombstone); read nothing.")
@click.option("--null-as", metavar="TEXT", help="Keys and values equal to this text become null.")
@encoding_options
@click.option("--format", "form", type=click.Choice(["lines", "json"]), default="lines", show_default=True,
              help="json: one record per line, as `ottla consume --format json` prints it.")  # fmt: skip
@click.option("--repartition", is_flag=True, help="Choose the partition by the key, and ignore the record's own.")
@click.option("--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="lz4",
              show_default=True, help="Compression of the batches.")  # fmt: skip
@click.option("--per-second", type=Number(0, min_open=True), help="At most this many records a second.")
@click.option("--keep-going", is_flag=True, help="Skip invalid lines, and exit with code 1.")
def produce(
    topic: str,
    file: Path | None,
    kafka: Settings,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    is_null: bool,
    null_as: str | None,
    encoders_for: Callable[[str], tuple[Encoders, Encoders]],
    form: str,
    repartition: bool,
    compression: str,
    per_second: float | None,
    keep_going: bool,
) -> None:
    """Write a record to TOPIC for each line of FILE or stdin, and print its position: PARTITION@OFFSET.

    An invalid line is named, and ends the command: earlier lines are written, later ones are not. With -q no
    positions are printed.

    \b
    Examples:
      ottla produce orders -k 7 < order.json
      ottla produce orders lines.txt --key-separator :
      ottla consume orders --format json | ottla produce copy --format json
    """
    from ottla.browse.record_input import Given, InputRecord
    from ottla.browse.writing import RecordWriter
    from ottla_wire.records import CompressionType

    refuse_if_read_only("nothing is written to it")
    if is_null and (file is not None or form == "json"):
        raise InputError("found --null and something to read, wanted one of them")
    if is_null and key is None:
        raise InputError("--null: found no --key, wanted the key whose value is to be deleted")
    keys, values = encoders_for(topic)
    given = Given(
        key=None if key is None else _as_key(key, keys),
        separator=None if key_separator is None else _separator(key_separator, form),
        headers=tuple(_header(each) for each in headers),
        partition=partition,
        null=None if null_as is None else _bytes(null_as),
        is_json=form == "json",
        follows_partitions=not repartition,
        keys=keys,
        values=values,
    )
    stream = _opened(file)
    changes = {
        "compression": CompressionType[compression.upper()],
        "delivery_timeout_ms": round(timeout_s() * 1000),
    }
    failures = 0
    with stream as source, open_cluster(kafka, **changes) as cluster:
        writer = RecordWriter(cluster, topic, acknowledged=_ignored if is_quiet() else _print_offsets)
        try:
            if is_null:
                writer.add(InputRecord(0, given.key, None, given.headers, partition, None))
            else:
                failures = _write_lines(writer, given, source, keep_going=keep_going, per_second=per_second)
            writer.flush()
        except BaseException as error:
            writer.abandon()
            if not isinstance(error, OttlaError) or not writer.written:
                if writer.written:
                    warn(_written(writer.written, topic))
                raise
            warn(f"ottla: {type(error).__name__}: {error}")
            warn(_written(writer.written, topic))
            raise click.exceptions.Exit(1) from None
    say(_written(writer.written, topic))
    if failures:
        warn(f"{failures:,} lines were left out")
        raise click.exceptions.Exit(1)


def _write_lines(
    writer: RecordWriter, given: Given, stream: BinaryIO, *, keep_going: bool, per_second: float | None
) -> int:
    """Write all lines. Returns how many were wrong. Lines read before a pause in the input are sent at once."""
    from ottla.browse.writing import RefusedRecord
    from ottla.cli.shared.progress import ProgressLine

    failures = 0
    next_at_s = time.monotonic()
    with ProgressLine("written") as progress:
        for lines in _chunks(stream):
            for number, line in lines:
                try:
                    record = given.record(number, line)
                    if record is not None:
                        if per_second is not None:
                            next_at_s = _paced(writer, next_at_s, per_second)
                        writer.add(record)
                except RefusedRecord:
                    raise
                except InputError as error:
                    if not keep_going:
                        writer.flush()  # what came before the line is written
                        raise
                    warn(str(error))
                    failures += 1
            progress.advance(len(lines))
            if not _is_more_waiting(stream):
                writer.flush()
    return failures


def _chunks(stream: BinaryIO) -> Iterator[list[tuple[int, bytes]]]:
    from ottla.cli.records.produce import Lines

    lines = Lines()
    while chunk := stream.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]  # both kinds that are opened have it
        yield lines.feed(chunk)
    yield lines.end()


def _paced(writer: RecordWriter, next_at_s: float, per_second: float) -> float:
    """Wait for the next record's turn; when the one behind it is due."""
    now_s = time.monotonic()
    if next_at_s > now_s:
        writer.flush()
        time.sleep(max(0.0, next_at_s - time.monotonic()))
    return max(next_at_s, now_s - 1) + 1 / per_second


def _is_more_waiting(stream: BinaryIO) -> bool:
    try:
        ready, _, _ = select.select([stream], [], [], 0)
    except (OSError, ValueError):  # no file, or one that select does not take: it never waits
        return True
    return bool(ready)


def _opened(file: Path | None) -> AbstractContextManager[BinaryIO]:
    if file is None or str(file) == "-":
        if sys.stdin is None:
            raise InputError("found stdin closed, wanted a FILE or lines in stdin")
        return nullcontext(sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error


def _print_offsets(partition: int, base_offset: int, lines: Sequence[int]) -> None:
    """Print `PARTITION@OFFSET` of each record."""
    offsets = range(base_offset, base_offset + len(lines)) if base_offset >= 0 else "?" * len(lines)
    sys.stdout.write("".join([f"{partition}@{offset}\n" for offset in offsets]))
    sys.stdout.flush()


def _ignored(_partition: int, _base_offset: int, _lines: Sequence[int]) -> None:
    pass


def _written(count: int, topic: str) -> str:
    return f"{count:,} records written to {topic}" if count != 1 else f"1 record written to {topic}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _as_key(text: str, keys: Encoders) -> bytes:
    if keys.declared is None:
        return _bytes(text)
    try:
        return keys.declared(_bytes(text))
    except (ValueError, TypeError) as error:
        raise InputError(f"--key: {error}") from None


def _separator(text: str, form: str) -> bytes:
    if form == "json" or not text:
        found = "--format json" if text else "nothing"
        raise InputError(f"--key-separator: found {found}, wanted a text that lines have behind their key")
    return _bytes(text.replace("\\t", "\t"))


def _header(given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not name:
        raise InputError(f"--header: found {given!r}, wanted NAME=VALUE, or NAME for null")
    return name, _bytes(value) if equals else None


LONGEST: Final = 128 * 1024 * 1024
"""Maximum line length: a record has a megabyte by Kafka's default, and a third more as base64 in JSON."""


class Lines:
    """`feed` chunks, take whole lines; `end` is the last one, which may lack its line feed."""

    def __init__(self, *, longest: int = LONGEST) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._size = 0
        self._number = 0

    def feed(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """Return the lines that end in this chunk, each with its number from 1 on. InputError for one that is too
        long."""
        first, *more = chunk.split(b"\n")
        if not more:
            self._keep(first)
            return []
        self._keep(first)
        lines = [self._whole(), *more[:-1]]
        numbered = list(enumerate(lines, self._number + 1))
        self._number += len(lines)
        self._keep(more[-1])
        return numbered

    def end(self) -> list[tuple[int, bytes]]:
        """Return the remaining lines at the end of the input."""
        rest = self._whole()
        if not rest:
            return []
        self._number += 1
        return [(self._number, rest)]

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._longest:
            raise InputError(f"line {self._number + 1}: found more than {self._longest:,} bytes, wanted a shorter line")
        if piece:
            self._pieces.append(piece)

    def _whole(self) -> bytes:
        line = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return line
