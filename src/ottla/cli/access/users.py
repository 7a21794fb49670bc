"""`ottla users`: SCRAM users of a cluster. A password is never an argument: other users of the machine see those."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import click

from ottla.browse.access_items import LONGEST_PASSWORD, checked_password, existing_user, found_user, user_item
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.options import takes
from ottla.cli.shared.outcome import changing
from ottla.cli.shared.output import Output, is_terminal, prints, say
from ottla.config import Settings
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.admin.operations.scram_changes import ScramUser


PASSWORD_VARIABLE: Final = "OTTLA_USER_PASSWORD"
_COLUMNS: Final = ("user", "mechanism", "iterations")
_CHANGED: Final = ("user", "mechanism", "old_iterations", "iterations")


_of_a_mechanism: Final = click.option(
    "--mechanism",
    type=click.Choice(["SCRAM-SHA-256", "SCRAM-SHA-512"], case_sensitive=False),
    default="SCRAM-SHA-512",
    show_default=True,
    help="The mechanism that clients log in with.",
)


_of_a_password: Final = takes(
    _of_a_mechanism,
    click.option("--password-stdin", is_flag=True, help="Read the password from the first line of stdin."),
    click.option(
        "--iterations",
        type=click.IntRange(4_096, 16_384),
        default=8_192,
        show_default=True,
        help="Rounds of the hash: more cost an attacker, and each login, more time.",
    ),
)


@click.group(cls=CommandGroup)
def users() -> None:
    """List, create and delete SCRAM users, and change their passwords.

    The password is prompted for, or read from stdin (--password-stdin) or OTTLA_USER_PASSWORD.

    \b
    Examples:
      ottla users list
      ottla users create billing --password-stdin --yes < password.txt
      ottla users delete billing --yes
    """


@users.command("list")
@reaches_a_cluster
@prints
def list_users(kafka: Settings, out: Output) -> None:
    """List users with their mechanisms. Brokers return no passwords.

    \b
    Examples:
      ottla users list
      ottla users list --format json
    """
    with open_admin(kafka) as admin:
        found = admin.find_scram_users()
    out.items("users.list/1", _COLUMNS, map(user_item, found), empty="no users")


@users.command()
@click.argument("user")
@_of_a_password
@reaches_a_cluster
@prints
@changes
def create(
    user: str,
    mechanism: str,
    iterations: int,
    password_stdin: bool,
    consent: Consent,
    kafka: Settings,
    out: Output,
) -> None:
    """Create USER. A user who has a password for this mechanism is refused: `rotate` changes it.

    \b
    Examples:
      ottla users create billing --password-stdin --yes < password.txt
      ottla users create billing --dry-run
    """
    with open_admin(kafka) as admin:
        found = found_user(admin, user, mechanism)
        if found is not None:
            raise InputError(f"{user}: found a password for {mechanism}, wanted none: `ottla users rotate` changes it")
        _put("users.create/1", admin, out, consent, user, mechanism, None, iterations, password_stdin, "created")


@users.command()
@click.argument("user")
@_of_a_password
@reaches_a_cluster
@prints
@changes
def rotate(
    user: str,
    mechanism: str,
    iterations: int,
    password_stdin: bool,
    consent: Consent,
    kafka: Settings,
    out: Output,
) -> None:
    """Change the password of USER. The old one is refused at once; connections that are open stay.

    Kafka keeps one password per user and mechanism. For an overlap, give the user the other mechanism, move the clients
    to it, then delete the first one.

    \b
    Examples:
      ottla users rotate reports --password-stdin --yes < password.txt
      ottla users rotate reports --dry-run
    """
    with open_admin(kafka) as admin:
        found = existing_user(admin, user, mechanism)
        _put("users.rotate/1", admin, out, consent, user, mechanism, found, iterations, password_stdin, "changed")


@users.command()
@click.argument("user")
@_of_a_mechanism
@reaches_a_cluster
@prints
@changes
def delete(user: str, mechanism: str, consent: Consent, kafka: Settings, out: Output) -> None:
    """Delete the password of USER for a mechanism. Connections that are open stay.

    \b
    Examples:
      ottla users delete reports --yes
      ottla users delete reports --mechanism SCRAM-SHA-512 --dry-run
    """
    with open_admin(kafka) as admin:
        found = existing_user(admin, user, mechanism)
        item = {"user": user, "mechanism": mechanism, "old_iterations": found.iterations, "iterations": None}
        out.items("users.delete/1", _CHANGED, [item])
        if not consent.agree(f"Delete the password of {user} for {mechanism}?"):
            return
        with changing():
            admin.delete_scram_user(user, mechanism)
    say(f"deleted: {user}, {mechanism}")


def _put(
    schema: str,
    admin: Admin,
    out: Output,
    consent: Consent,
    user: str,
    mechanism: str,
    found: ScramUser | None,
    iterations: int,
    password_stdin: bool,
    done: str,
) -> None:
    """Show the change, read the password, ask, and make it."""
    old = None if found is None else found.iterations
    password = None if consent.is_dry_run else _password(user, from_stdin=password_stdin)
    item = {"user": user, "mechanism": mechanism, "old_iterations": old, "iterations": iterations}
    out.items(schema, _CHANGED, [item])
    if not consent.agree(f"Set the password of {user} for {mechanism}?") or password is None:
        return
    with changing():
        admin.set_scram_user(user, mechanism, password=password, iterations=iterations)
    say(f"{user}, {mechanism}: {done}")


def _password(user: str, *, from_stdin: bool) -> str:
    """Return the password from stdin, the environment or a prompt. It is in no message."""
    given = os.environ.get(PASSWORD_VARIABLE)
    if from_stdin:
        given = sys.stdin.readline(LONGEST_PASSWORD + 2).rstrip("\r\n")
    elif given is None:
        if not is_terminal(sys.stdin):
            raise InputError(
                f"found no password for {user}, wanted --password-stdin, {PASSWORD_VARIABLE} in the environment, or a "
                "terminal to ask at"
            )
        given = str(click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True, err=True))
    return checked_password(given)
