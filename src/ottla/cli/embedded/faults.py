"""`ottla broker faults`: faults of requests in a cluster that runs, through its control API."""

from __future__ import annotations

from typing import Any

import click

from ottla.browse.control_api import call
from ottla.cli.shared.options import CONTROL
from ottla.cli.shared.parameter_types import Milliseconds

_FAULT = click.argument("fault", type=click.IntRange(min=1))
_NOT_SELECTORS = ("id", "count", "skip", "hits", "held", "armed")


@click.group()
def faults() -> None:
    """Make requests fail, delay them, close their connections or damage their records.

    \b
    Example:
      ottla broker faults add --api PRODUCE --topic orders --error NOT_LEADER_OR_FOLLOWER --count 2
    """


@faults.command("list")
@CONTROL
def list_faults(control: str | None) -> None:
    """List the faults, and how many requests each has hit.

    \b
    Example:
      ottla broker faults list
    """
    shown = call(control, "GET", "/faults")["faults"]
    for fault in shown:
        click.echo(_line(fault))
    if not shown:
        click.echo("no faults")


@faults.command()
@click.option("--api", help="The API by its name in Kafka, such as PRODUCE or ListOffsets.")
@click.option("--broker", type=click.IntRange(min=0), help="Only requests to this broker.")
@click.option("--topic", help="Only requests that name this topic.")
@click.option("--partition", type=click.IntRange(min=0), help="Only requests that name this partition.")
@click.option("--group", help="Only requests that name this group.")
@click.option("--transactional-id", help="Only requests that name this transactional id.")
@click.option("--client-id", help="Only requests of this client; may be a shell pattern.")
@click.option(
    "--source", type=click.Choice(["clients", "brokers", "any"]), help="Requests of these senders. Default: clients."
)
@click.option("--error", help="Respond with this error, for the named partitions or the whole request.")
@click.option("--message", help="The text of the error.")
@click.option("--disconnect", is_flag=True, default=None, help="Close the connection.")
@click.option("--delay-ms", type=Milliseconds(min=0), help="Delay the request.")
@click.option("--hold", is_flag=True, default=None, help="Keep the request until `ottla broker faults release`.")
@click.option("--corrupt", is_flag=True, default=None, help="Change a byte of the records in a Fetch response.")
@click.option(
    "--after-apply", is_flag=True, default=None, help="Apply the request first; only the response is affected."
)
@click.option(
    "--count", type=click.IntRange(min=1), help="How many matching requests are hit. Default: all until it is removed."
)
@click.option("--skip", type=click.IntRange(min=0), help="How many matching requests are let through first.")
@CONTROL
def add(control: str | None, **wanted: Any) -> None:
    """Add a fault to matching requests, and print its number.

    \b
    Examples:
      ottla broker faults add --api PRODUCE --topic orders --error NOT_LEADER_OR_FOLLOWER --count 2
      ottla broker faults add --api FETCH --delay-ms 500
    """
    fault = call(control, "POST", "/faults", {name: value for name, value in wanted.items() if value is not None})
    click.echo(_line(fault))


@faults.command()
@_FAULT
@CONTROL
def release(fault: int, control: str | None) -> None:
    """Release the requests that FAULT holds. It holds no further ones.

    \b
    Example:
      ottla broker faults release 1
    """
    click.echo(_line(call(control, "POST", f"/faults/{fault}/release", {})))


@faults.command()
@click.argument("fault", type=click.IntRange(min=1), required=False)
@click.option("--all", "everything", is_flag=True, help="Remove all faults.")
@CONTROL
def remove(fault: int | None, everything: bool, control: str | None) -> None:
    """Remove FAULT, and release what it holds.

    \b
    Examples:
      ottla broker faults remove 1
      ottla broker faults remove --all
    """
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
