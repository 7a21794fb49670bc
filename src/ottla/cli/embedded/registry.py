"""`ottla registry`: the embedded schema registry as a process, for Compose files and other languages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.cli.shared.cluster_options import check_reachable, reaches_a_cluster
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.options import port_option
from ottla.cli.shared.output import warn
from ottla.cli.shared.serving import stopped_by_signals
from ottla.errors import ConfigError, InputError

if TYPE_CHECKING:
    import ssl

    from ottla.config import Settings


F = TypeVar("F", bound=Callable[..., Any])


def _users_file(option: str, parameter: str, *, whose: str) -> Callable[[F], F]:
    return click.option(
        option,
        parameter,
        type=FILE,
        metavar="FILE",
        help=f"A file with NAME=PASSWORD in each line: {whose}. Arguments are seen by other users of the machine.",
    )


@click.group(cls=CommandGroup)
def registry() -> None:
    """The embedded schema registry: Confluent's REST API on loopback, for laptops and tests.

    \b
    Examples:
      ottla registry start
      ottla registry start --memory --port 0
    """


@registry.command()
@port_option(8081)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. 0.0.0.0 is every address of this machine, open to all without --user or --users.",
)
@click.option("--memory", is_flag=True, help="Keep the schemas in memory only, without a cluster.")
@click.option(
    "--user", "users", multiple=True, metavar="NAME=PASSWORD", help="A user for basic authentication; may be repeated."
)
@_users_file("--users", "users_file", whose="users for basic authentication")
@click.option(
    "--read-only-user",
    "readers",
    multiple=True,
    metavar="NAME=PASSWORD",
    help="A user who may change nothing; may be repeated.",
)
@_users_file("--read-only-users", "readers_file", whose="users who may change nothing")
@click.option("--tls-cert", type=FILE, help="Serve HTTPS with this certificate.")
@click.option("--tls-key", type=FILE, help="Its private key, if in another file.")
@reaches_a_cluster
def start(
    port: int,
    host: str,
    memory: bool,
    users: tuple[str, ...],
    users_file: Path | None,
    readers: tuple[str, ...],
    readers_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    kafka: Settings,
) -> None:
    """Start a registry in the foreground and print its address. Stop it with Ctrl-C.

    The schemas are kept in the compacted topic _schemas of the cluster, in Confluent's format, and are there after a
    restart. Run one registry for a cluster: a second one would not see what the first one registers.

    \b
        ready registry=http://127.0.0.1:PORT

    \b
    Examples:
      ottla registry start
      ottla registry start --port 0 --memory
      ottla registry start --memory --port 0 --users users.txt --read-only-user ci=other
    """
    from ottla.testing.registry import EmbeddedRegistry

    accepted, read_only = _users(users, users_file, readers, readers_file)
    tls = _tls(tls_cert, tls_key)
    servers: str | None = None
    if not memory:
        check_reachable(kafka)
        servers = str(kafka["bootstrap.servers"])
    served = EmbeddedRegistry(
        servers,
        host=host,
        port=port,
        users=accepted,
        read_only=read_only,
        tls=tls,
        settings={name: str(value) for name, value in kafka.items() if name != "bootstrap.servers"},
    )
    stopped = threading.Event()
    with stopped_by_signals(stopped.set), served:
        opened = _what_is_open(host, served.port, has_login=bool(accepted), is_encrypted=tls is not None)
        if opened is not None:
            warn(opened)
        click.echo(f"ready registry={served.url}")
        stopped.wait()


def _what_is_open(host: str, port: int, *, has_login: bool, is_encrypted: bool) -> str | None:
    """Return what other machines can do that reach the port, in one line; None on loopback."""
    from ottla.console.address import is_loopback

    if is_loopback(host):
        return None
    who = "needs a login to read, register" if has_login else "can read, register"
    more = "schemas" if has_login else "all schemas, no login"
    secrecy = "encrypted" if is_encrypted else "passwords unencrypted" if has_login else "unencrypted"
    place = f"listening on {host}, port {port}: every machine that reaches it"
    return f"{place} {who} and delete {more}; {secrecy}. For development only"


def _users(
    users: Sequence[str], users_file: Path | None, readers: Sequence[str], readers_file: Path | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the passwords of all users, and of those who may change nothing, by name. Raises `InputError`, without a
    password, for what is no pair NAME=PASSWORD and for a name that is given twice."""
    from broker_embedded.common.errors import StartupError
    from broker_embedded.security.users_file import pairs_in, users_of

    try:
        writing = {"--user": users, "--users": pairs_in(users_file, "--users") if users_file else ()}
        file = pairs_in(readers_file, "--read-only-users") if readers_file else ()
        reading = {"--read-only-user": readers, "--read-only-users": file}
        for option, pairs in {**writing, **reading}.items():
            if any(":" in pair.partition("=")[0] for pair in pairs):
                raise InputError(f"{option}: wanted NAME=PASSWORD, with a name without ':'")
        return users_of({**writing, **reading}), users_of(reading)
    except StartupError as error:
        raise InputError(str(error)) from None


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        if key is not None:
            raise InputError("found --tls-key without --tls-cert")
        return None
    import ssl

    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise ConfigError(
            f"--tls-cert {certificate}: wanted a readable certificate and its key (PEM): {error}"
        ) from None
    return context
