"""Commands on a cluster that wants a login: the options of a user, from a file as Kafka's own tools take it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner

from ottla.cli import main
from ottla.testing import SecureKafka


def login(secured: SecureKafka, user: str, password: str) -> list[str]:
    """`-b` and `--config-file` of a user; the file has the password, which no process list shows."""
    assert secured.certificates is not None
    path = Path(secured.certificates.ca).parent / f"{user}.properties"
    settings = secured.settings_of(user, password)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return ["-b", secured.bootstrap_servers, "--config-file", str(path)]


def grant(as_admin: Sequence[str], user: str, *allowed: str) -> None:
    """`ottla acls create` by somebody who may: `grant(login, "reader", "--topic", "orders", "--operation", "read")`."""
    granted = CliRunner().invoke(
        main, ["acls", "create", "--yes", *as_admin, "--allow-principal", f"User:{user}", *allowed]
    )
    assert granted.exit_code == 0, granted.output
