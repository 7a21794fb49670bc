"""The final report of the demo: the account, stages, dead letters, the first rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ottla.cli.demo.account import DemoAccount
from ottla.cli.demo.display import DemoStage
from ottla.cli.demo.traces import TraceLine
from ottla.failures.foreign import DeadLetterView
from ottla.records import Header

Sample = tuple[DeadLetterView, bytes | None, Sequence[Header]]


def print_report(
    console: Console,
    *,
    account: DemoAccount,
    stages: Sequence[DemoStage],
    samples: Sequence[Sample],
    rows: Sequence[Mapping[str, Any]],
    trees: Sequence[Sequence[TraceLine]] = (),
) -> None:
    """Print the report, in the order in which questions come up."""
    _heading(console, "Stages")
    times = Table(box=None, padding=(0, 2))
    for name, justify in (("stage", "left"), ("what", "right"), ("rate", "right"), ("seconds", "right")):
        times.add_column(name, justify=justify, header_style="dim")  # type: ignore[arg-type]
    for stage in stages:
        times.add_row(stage.name, stage.count() or stage.note, stage.rate(), f"{stage.seconds:.2f}")
    console.print(times)

    for view, value, headers in samples:
        _heading(console, f"A dead letter ({view.kind})")
        letter = Table(box=None, padding=(0, 2), show_header=False)
        letter.add_row("came from", view.origin)
        letter.add_row("error", f"{view.error_type}: {view.message}")
        letter.add_row("attempts", str(view.attempts))
        letter.add_row("group", view.group or "")
        letter.add_row("dead-lettered", _time(view.dead_lettered_ms))
        letter.add_row("value", "null" if value is None else f"{len(value)} bytes: {value[:40].hex(' ')}")
        letter.add_row(
            "own headers", ", ".join(_readable(header) for header in headers if "ottla-dlq" not in header[0])
        )
        console.print(letter)

    for tree in trees:
        _heading(console, "The trace of a flight")
        _print_tree(console, tree)

    _heading(console, "Mean delay per carrier and hour, first rows")
    table = Table(box=None, padding=(0, 2))
    for column in ("hour", "carrier", "flights", "mean_delay", "wind_speed", "visib"):
        table.add_column(column, justify="left" if column in ("hour", "carrier") else "right", header_style="dim")
    for row in rows:
        table.add_row(*(_cell(row[column.header]) for column in table.columns))  # type: ignore[index]
    console.print(table)

    _heading(console, "Account")
    lines = Table(box=None, padding=(0, 2), show_header=False)
    for line in account.lines:
        lines.add_row(line.what, line.found, Text("ok", "green") if line.holds else Text("WRONG", "bold red"))
    console.print(lines)
    verdict = (
        Text("The account balances.", "bold green")
        if account.balances
        else Text("The account does NOT balance.", "bold red")
    )
    console.print(verdict)


def _print_tree(console: Console, tree: Sequence[TraceLine]) -> None:
    spans = Table(box=None, padding=(0, 2))
    for name, justify in (("at ms", "right"), ("took ms", "right"), ("process", "left"), ("span", "left")):
        spans.add_column(name, justify=justify, header_style="dim")  # type: ignore[arg-type]
    for line in tree:
        text = Text("  " * line.depth + line.text)
        spans.add_row(f"{line.at_ms:,.1f}", f"{line.took_ms:,.1f}", line.service, text)
    console.print(spans)


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, "bold"))


def _readable(header: Header) -> str:
    name, value = header
    return f"{name}={'null' if value is None else value.decode('utf-8', 'backslashreplace')}"


def _time(ms: int | None) -> str:
    return "" if ms is None else datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return value.strftime("%Y-%m-%d %H:%M") if isinstance(value, datetime) else str(value)
