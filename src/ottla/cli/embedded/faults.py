"""`ottla broker faults`: faults of requests in a cluster that runs, through its control API."""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.embedded.control_client import CONTROL, call

_FAULT = click.argument("fault", type=click.IntRange(min=1))
_NOT_SELECTORS = ("id", "count", "skip", "hits", "held", "armed")


@click.group()
def faults() -> None:
    """Make requests fail, late, cut off or damaged."""


@faults.command("list")
@CONTROL
def list_faults(control: str | None) -> None:
    """Show the faults, and how often each has acted."""
    shown = call(control, "GET", "/faults")["faults"]
    for fault in shown:
        click.echo(_line(fault))
    if not shown:
        click.echo("no faults")


@faults.command()
@click.option("--api", help="The API by its name in Kafka, such as PRODUCE or ListOffsets.")
@click.option("--broker", type=click.IntRange(min=0))
@click.option("--topic")
@click.option("--partition", type=click.IntRange(min=0))
@click.option("--group")
@click.option("--transactional-id")
@click.option("--client-id", help="May be a shell pattern.")
@click.option("--source", type=click.Choice(["clients", "brokers", "any"]), help="Who asks. Clients if left out.")
@click.option("--error", help="Answer this error, for the partitions that are named or the whole request.")
@click.option("--message", help="What the error says.")
@click.option("--disconnect", is_flag=True, default=None, help="Close the connection.")
@click.option("--delay-ms", type=click.IntRange(min=0), help="Be late.")
@click.option("--hold", is_flag=True, default=None, help="Keep the request until `ottla broker faults release`.")
@click.option("--corrupt", is_flag=True, default=None, help="Change a byte of the records in a Fetch response.")
@click.option("--after-apply", is_flag=True, default=None, help="Do the request first; its answer suffers.")
@click.option("--count", type=click.IntRange(min=1), help="How often it acts. Until it is removed if left out.")
@click.option("--skip", type=click.IntRange(min=0), help="How many occasions pass before.")
@CONTROL
def add(control: str | None, **wanted: Any) -> None:
    """Add a fault: which requests, one thing to do to them, how often. Prints its number."""
    fault = call(control, "POST", "/faults", {name: value for name, value in wanted.items() if value is not None})
    click.echo(_line(fault))


@faults.command()
@_FAULT
@CONTROL
def release(fault: int, control: str | None) -> None:
    """Let go of what FAULT holds; it holds nothing more."""
    click.echo(_line(call(control, "POST", f"/faults/{fault}/release", {})))


@faults.command()
@click.argument("fault", type=click.IntRange(min=1), required=False)
@click.option("--all", "everything", is_flag=True, help="Remove all of them.")
@CONTROL
def remove(fault: int | None, everything: bool, control: str | None) -> None:
    """Remove FAULT. What it holds goes on."""
    if everything == (fault is not None):
        raise click.UsageError("name one FAULT, or say --all")
    if fault is None:
        call(control, "DELETE", "/faults")
        click.echo("no faults")
    else:
        click.echo(_line(call(control, "DELETE", f"/faults/{fault}")))


def _line(fault: dict[str, Any]) -> str:
    words = " ".join(f"{name}={value}" for name, value in fault.items() if name not in _NOT_SELECTORS)
    of = "" if fault["count"] is None else f" of {fault['count']}"
    held = f", holds {fault['held']}" if fault["held"] else ""
    over = "" if fault["armed"] else ", over"
    return f"fault {fault['id']}: {words} ({fault['hits']}{of} hits{held}{over})"
