"""The options of `ottla broker start` that say who may connect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ottla.cli.embedded.users_file import users_file_option, users_in, users_of_options

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--security-protocol",
        type=click.Choice(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
        help="The protocol for clients. Default: PLAINTEXT, without a password.",
    ),
    click.option("--user", "users", multiple=True, metavar="NAME=PASSWORD", help="A user for SASL; may be repeated."),
    users_file_option("--users", "users_file", whose="users for SASL"),
    click.option(
        "--sasl-mechanism",
        "mechanisms",
        type=click.Choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]),
        multiple=True,
        help="May be repeated. Those with passwords if left out.",
    ),
    click.option(
        "--oauth",
        "oauth",
        multiple=True,
        metavar="NAME=VALUE",
        help="Which tokens OAUTHBEARER accepts: jwks, issuer, audience, scope, ... May be repeated.",
    ),
    click.option(
        "--max-reauth-ms",
        "reauth",
        multiple=True,
        metavar="MECHANISM=MS",
        help="How long a login by this mechanism is valid; may be repeated.",
    ),
    click.option(
        "--certificates",
        type=click.Path(file_okay=False),
        metavar="DIR",
        help="For TLS: a folder of test certificates. Missing ones are created: ca.pem, server.pem, client.pem.",
    ),
    click.option(
        "--certificate", type=click.Path(), metavar="FILE", help="For TLS: the brokers' certificate chain (PEM)."
    ),
    click.option("--key", type=click.Path(), metavar="FILE", help="Its private key (PEM), if it is not in that file."),
    click.option("--client-ca", type=click.Path(), metavar="FILE", help="CA that signs client certificates (PEM)."),
    click.option(
        "--client-auth",
        type=click.Choice(["none", "requested", "required"]),
        help="Whether clients must show a certificate. Default: none.",
    ),
)


def security_options(command: F) -> F:
    """Give a command the options; `security_arguments` makes the broker's of them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def security_arguments(
    users: tuple[str, ...],
    mechanisms: tuple[str, ...],
    oauth: tuple[str, ...] = (),
    reauth: tuple[str, ...] = (),
    users_file: Path | None = None,
    **named: str | None,
) -> list[str]:
    """The options as arguments of `python -m broker_embedded`."""
    arguments: list[str] = []
    for name, value in named.items():
        if value is not None:
            arguments += [f"--{name.replace('_', '-')}", value]
    for name, password in users_of_options({"--user": users, "--users": users_in(users_file, "--users")}).items():
        arguments += ["--user", f"{name}={password}"]
    for mechanism in mechanisms:
        arguments += ["--sasl-mechanism", mechanism]
    for pair in oauth:
        arguments += ["--oauth", pair]
    for pair in reauth:
        arguments += ["--max-reauth-ms", pair]
    return arguments
