"""Options that several commands have. `ottla --help` loads this: it imports click alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def takes(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return the decorator that gives a command all these options, in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def port_option(default: int) -> Callable[[F], F]:
    """Return the option `--port` of a command that listens."""
    return click.option(
        "--port",
        type=click.IntRange(0, 65_535),
        default=default,
        show_default=True,
        help="Port to listen on; 0 takes a free one.",
    )


def quiet_option(text: str) -> Callable[[F], F]:
    """Return the option `--quiet`; `text` is its help."""
    return click.option("-q", "--quiet", is_flag=True, help=text)


CONTROL: Final = click.option(
    "--control",
    envvar="OTTLA_BROKER_CONTROL",
    metavar="URL",
    help="The cluster's control API, as `ottla broker start --control-port 0` prints it. Or OTTLA_BROKER_CONTROL.",
)
"""The option of commands that call the control API of an embedded cluster."""
