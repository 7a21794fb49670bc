"""How a command reaches a schema registry: address, login and TLS, as the serdes of services take them.

A password or a token is in the environment, or in the address, and never an option: other users of the machine see
those. `consume`, `produce`, `console`, `apply` and `doctor` have `--registry` alone, and take the rest from the
environment.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.options import quiet_option, takes
from ottla.cli.shared.output import be_quiet
from ottla.cli.shared.parameter_types import timeout_option
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.browse.registry_access import RegistryAccess

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_URL: Final = "http://localhost:8081"
_TIMEOUT_S: Final = 5.0
_FILES: Final = {
    "registry_ca": "Trust certificates of these authorities (PEM), in place of the system's.",
    "registry_certificate": "Show this client certificate (PEM).",
    "registry_key": "The private key of that certificate (PEM), if it is not in the same file.",
}
_NAMES: Final = ("registry", "registry_user", *_FILES, "registry_timeout_s")


def reaches_a_registry(command: F) -> F:
    """Give a command the options. It is called with `access`; `access.open()` returns the client.

    A subject, version or id that the registry does not have ends the command with one line, as a wrong argument does.
    """

    @functools.wraps(command)
    def with_registry(*args: Any, quiet: bool, **options: Any) -> Any:
        from ottla.serdes.registry import UnknownSchema

        if quiet:
            be_quiet()
        access = registry_access({name: options.pop(name) for name in _NAMES})
        try:
            return command(*args, access=access, **options)
        except UnknownSchema as error:
            raise InputError(str(error)) from None

    return takes(
        click.option(
            "--registry",
            envvar="OTTLA_REGISTRY",
            metavar="URL[,...]",
            help=f"The schema registry; OTTLA_REGISTRY in the environment.  [default: {DEFAULT_URL}]",
        ),
        click.option(
            "--registry-user",
            envvar="OTTLA_REGISTRY_USER",
            metavar="NAME",
            help="User; the password is OTTLA_REGISTRY_PASSWORD. A bearer token is OTTLA_REGISTRY_TOKEN.",
        ),
        timeout_option(
            "registry_timeout_s", _TIMEOUT_S, "How long the registry may take for an answer; it is tried three times."
        ),
        quiet_option("Print problems only."),
        *(
            click.option("--" + name.replace("_", "-"), type=FILE, envvar=f"OTTLA_{name.upper()}", help=text)
            for name, text in _FILES.items()
        ),
    )(with_registry)  # type: ignore[return-value]  # a command all the same


def given_registry(url: str | None) -> RegistryAccess | None:
    """Return the access to the registry of `--registry` or OTTLA_REGISTRY, with the login and the TLS of the
    environment. None without an address."""
    url = url or os.environ.get("OTTLA_REGISTRY")
    if not url:
        return None
    given: dict[str, Any] = {"registry": url, "registry_user": os.environ.get("OTTLA_REGISTRY_USER")}
    for name in _FILES:
        path = os.environ.get(f"OTTLA_{name.upper()}")
        given[name] = Path(path) if path else None
    return registry_access(given)


def registry_access(given: Mapping[str, Any], *, environ: Mapping[str, str] | None = None) -> RegistryAccess:
    """Return the access that the options of a command and the environment describe."""
    from ottla.browse.registry_access import RegistryAccess

    variables = os.environ if environ is None else environ
    url = given.get("registry") or None
    return RegistryAccess(
        url=url or DEFAULT_URL,
        user=given.get("registry_user") or None,
        password=variables.get("OTTLA_REGISTRY_PASSWORD") or None,
        token=variables.get("OTTLA_REGISTRY_TOKEN") or None,
        ca=given.get("registry_ca"),
        certificate=given.get("registry_certificate"),
        key=given.get("registry_key"),
        key_password=variables.get("OTTLA_REGISTRY_KEY_PASSWORD") or None,
        timeout_s=given.get("registry_timeout_s") or _TIMEOUT_S,
        is_default=url is None,
    )
