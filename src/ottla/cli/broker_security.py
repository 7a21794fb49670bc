"""The options of `ottla broker start` that say who may connect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--security-protocol",
        type=click.Choice(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]),
        help="What clients must speak. Plain text, without a password, if left out.",
    ),
    click.option("--user", "users", multiple=True, metavar="NAME=PASSWORD", help="A user for SASL; may be repeated."),
    click.option(
        "--sasl-mechanism",
        "mechanisms",
        type=click.Choice(["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]),
        multiple=True,
        help="May be repeated. All of them if left out.",
    ),
    click.option(
        "--certificates",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="For TLS: certificates for tests. Those that are not there are made: ca.pem, server.pem, client.pem.",
    ),
    click.option(
        "--certificate", type=click.Path(), metavar="FILE", help="For TLS: PEM of the brokers' certificate chain."
    ),
    click.option("--key", type=click.Path(), metavar="FILE", help="PEM of its private key, if it is not in that file."),
    click.option("--client-ca", type=click.Path(), metavar="FILE", help="PEM of who vouches for clients."),
    click.option(
        "--client-auth",
        type=click.Choice(["none", "requested", "required"]),
        help="Whether clients must show a certificate. They need not if left out.",
    ),
)


def security_options(command: F) -> F:
    """Give a command the options; `security_arguments` makes the broker's of them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def security_arguments(
    *,
    security_protocol: str | None,
    users: tuple[str, ...],
    mechanisms: tuple[str, ...],
    certificates: Path | None,
    certificate: str | None,
    key: str | None,
    client_ca: str | None,
    client_auth: str | None,
) -> list[str]:
    """As `python -m broker_embedded` takes them."""
    if certificates is not None:
        if certificate is not None or client_ca is not None:
            raise click.UsageError("--certificates has the files that --certificate and --client-ca would name")
        certificate, client_ca = _made_certificates(certificates)
    named = {
        "--security-protocol": security_protocol,
        "--certificate": certificate,
        "--key": key,
        "--client-ca": client_ca,
        "--client-auth": client_auth,
    }
    arguments: list[str] = []
    for name, value in named.items():
        if value is not None:
            arguments += [name, value]
    for user in users:
        arguments += ["--user", user]
    for mechanism in mechanisms:
        arguments += ["--sasl-mechanism", mechanism]
    return arguments


def _made_certificates(directory: Path) -> tuple[str, str]:
    """The broker's certificate and its authority's, made now if the folder has none."""
    from ottla.errors import ConfigError
    from ottla.testing import make_certificates

    server, ca = directory / "server.pem", directory / "ca.pem"
    if not server.exists() or not ca.exists():
        directory.mkdir(parents=True, exist_ok=True)
        try:
            make_certificates(directory)
        except ConfigError as error:
            raise click.ClickException(str(error)) from None
    return str(server), str(ca)
