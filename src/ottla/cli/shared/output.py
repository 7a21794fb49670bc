"""What commands print: a table on a terminal, one tab-separated line per item in a pipe, JSON with a schema name.

    @prints
    def list_topics(out: Output) -> None:
        out.items("topics.list/1", ("topic", "partitions"), found, empty="no topics")

An item is a mapping of plain values: text, numbers, booleans, None, lists and mappings of them. Numbers are whole in
plain and JSON; a table may group their digits. Nothing is ever cut. JSON is one document:
`{"schema": "ottla.topics.list/1", "items": [...]}`; within a schema's number, fields are added and never renamed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

from ottla.cli.shared.options import takes
from ottla.cli.shared.visible import visible, width
from ottla.lazy import LazyModule

if TYPE_CHECKING:
    import json
else:  # loaded by the formats that have it
    json = LazyModule("json")

F = TypeVar("F", bound=Callable[..., Any])

Item: TypeAlias = Mapping[str, Any]

_LINES_AT_ONCE: Final = 500
_NO_TERMINAL: Final = 160
"""Columns that a table may have in a file or a pipe."""
_LEAST_USUAL: Final = 40
_NUMBERS: Final = ({int}, {float}, {int, float})
_QUIET: Final = "ottla.quiet"


class Format(Enum):
    """How results are printed (`--format`)."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table and of plain lines: the item's field, and how a table shows it. A field's name alone is one
    as well. Numbers are aligned right. JSON has all fields of an item.

    `text` makes what a table shows of the field's value; plain lines show the value itself.
    """

    name: str
    title: str | None = None
    text: Callable[[Any], str] | None = None


def prints(command: F) -> F:
    """Give a command `--format`, `-H` and `--no-color`. It is called with `out`, an `Output`."""

    @functools.wraps(command)
    def with_output(*args: Any, output_format: str | None, header: bool, no_color: bool, **options: Any) -> Any:
        if no_color:
            click.get_current_context().color = False
        chosen = Format(output_format) if output_format else default_format()
        return command(*args, out=Output(chosen, header=header), **options)

    return takes(
        click.option(
            "--format",
            "output_format",
            type=click.Choice([each.value for each in Format]),
            help="A table on a terminal, else plain: one line per item, separated by tabs.",
        ),
        click.option("-H", "--header", is_flag=True, help="Begin plain output with a line of column names."),
        click.option("--no-color", is_flag=True, help="No colours; NO_COLOR in the environment means the same."),
    )(with_output)  # type: ignore[return-value]  # a command all the same


def default_format() -> Format:
    """Return a table for people, plain lines for programs."""
    return Format.TABLE if is_terminal(sys.stdout) else Format.PLAIN


def is_terminal(stream: Any) -> bool:
    """Return whether the stream is a terminal."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # closed, or replaced
        return False


class Output:
    """Prints a command's results on stdout. Remarks go to stderr (`say`)."""

    def __init__(self, format: Format, *, header: bool = False) -> None:
        self.format = format
        self._header = header

    def items(
        self,
        schema: str,
        columns: Sequence[Column | str],
        items: Iterable[Item],
        *,
        empty: str = "nothing found",
        **fields: Any,
    ) -> None:
        """Print items. `empty` is printed if there are none; `fields` are added beside the items in JSON. `schema` is
        `NOUN.VERB/NUMBER`. Plain and JSON output is streamed; a table needs all items for its widths."""
        shown_columns = [Column(each) if isinstance(each, str) else each for each in columns]
        if self.format is Format.JSON:
            _json_items(schema, fields, items)
        elif self.format is Format.PLAIN:
            names = [column.name for column in shown_columns]
            lines = ("\t".join([plain(item.get(name)) for name in names]) + "\n" for item in items)
            first = next(lines, None)
            if first is None:
                say(empty)
                return
            if self._header:
                click.echo("\t".join(names))
            _echo_lines(chain((first,), lines))
        else:
            found = list(items)
            if found:
                _print_table(shown_columns, found)
            else:
                say(empty)

    def one(self, schema: str, item: Item) -> None:
        """Print one thing: name and value a line, or a JSON document."""
        if self.format is Format.JSON:
            click.echo(json.dumps({"schema": f"ottla.{schema}", **item}, ensure_ascii=False, indent=2))
        elif self.format is Format.PLAIN:
            for name, value in item.items():
                click.echo(f"{name}\t{plain(value)}")
        else:
            named = {name.replace("_", " "): shown(value) for name, value in item.items()}
            widest = max(map(width, named), default=0)
            for name, text in named.items():
                click.echo(f"{click.style(name, dim=True)}{' ' * (widest - width(name))}  {text}".rstrip())


def say(text: str) -> None:
    """Say something beside the results, on stderr; nothing with `--quiet`."""
    if not is_quiet():
        click.echo(text, err=True)


def warn(text: str) -> None:
    """Say on stderr what is wrong, or missing in the results: also with `--quiet`."""
    click.echo(text, err=True)


def notes_for_people(error: Exception) -> list[str]:
    """Return what stands below an error at a terminal, as where its page is. Where logs and programs read, it is one
    line."""
    return list(getattr(error, "__notes__", ())) if sys.stderr.isatty() else []


def be_quiet() -> None:
    """Print problems only, for the rest of the command."""
    click.get_current_context().meta[_QUIET] = True


def is_quiet() -> bool:
    """Return whether the command runs with --quiet, which prints problems only."""
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(_QUIET))


def plain(value: Any) -> str:
    """Return a value on one line without tabs: empty for None, JSON for lists and mappings."""
    if type(value) is str:
        return visible(value)
    if value is None:
        return ""
    if type(value) is int:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False)
    return visible(str(value))


def shown(value: Any) -> str:
    """Return a value for people: whole numbers with grouped digits, lists with commas."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple) and not any(isinstance(each, dict | list | tuple) for each in value):
        return ", ".join(plain(each) for each in value)
    return plain(value)


def none_or(value: Any) -> str:
    """Return a number as text; `none` if there is none, which differs from 0."""
    return "none" if value is None else f"{value:,}"


def unknown_or(value: Any) -> str:
    """Return a number as text; `unknown` if it could not be read, which differs from 0."""
    return "unknown" if value is None else f"{value:,}"


def _print_table(columns: Sequence[Column], items: Sequence[Item]) -> None:
    titles = [column.title or column.name.replace("_", " ") for column in columns]
    values = [[item.get(column.name) for column in columns] for item in items]
    rows = [[_cell(*each) for each in zip(columns, found, strict=True)] for found in values]
    widths = _widths([[width(cell) for cell in cells] for cells in zip(titles, *rows, strict=True)])
    kinds = ({type(each) for each in found if each is not None} for found in zip(*values, strict=True))
    are_numbers = [found in _NUMBERS for found in kinds]
    click.echo(click.style(_aligned(widths, are_numbers, titles), dim=True))
    for row in rows:
        click.echo(_aligned(widths, are_numbers, row))


def _cell(column: Column, value: Any) -> str:
    return shown(value) if column.text is None else visible(column.text(value))


def _widths(columns: Sequence[Sequence[int]]) -> list[int]:
    """Return how wide each column is. Where a line would not fit, a few long cells stretch their own lines alone."""
    import shutil

    room = shutil.get_terminal_size(fallback=(_NO_TERMINAL, 24)).columns
    widest = [max(cells) for cells in columns]
    if sum(widest) + 2 * (len(widest) - 1) <= room:
        return widest
    usual = max(_LEAST_USUAL, room // 2)
    return [max((cell for cell in cells if cell <= usual), default=usual) for cells in columns]


def _aligned(widths: Sequence[int], are_numbers: Sequence[bool], cells: Sequence[str]) -> str:
    padded = []
    for widest, is_number, cell in zip(widths, are_numbers, cells, strict=True):
        space = " " * (widest - width(cell))
        padded.append(space + cell if is_number else cell + space)
    return "  ".join(padded).rstrip()


def _json_items(schema: str, fields: Item, items: Iterable[Item]) -> None:
    start = json.dumps({"schema": f"ottla.{schema}", **fields}, ensure_ascii=False)
    separators = chain(("\n",), repeat(",\n"))
    found = (
        separator + json.dumps(item, ensure_ascii=False) for separator, item in zip(separators, items, strict=False)
    )
    click.echo(start[:-1] + ', "items": [', nl=False)
    click.echo("\n]}" if _echo_lines(found) else "]}")


def _echo_lines(lines: Iterator[str]) -> bool:
    """Print lines, many by one write: each is flushed. Returns whether there were any."""
    count = 0
    while written := list(islice(lines, _LINES_AT_ONCE)):
        count += len(written)
        click.echo("".join(written), nl=False)
    return count > 0
