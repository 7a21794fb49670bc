"""Precedence of addresses: the command line's, else the code's, else the environment's.

In the environment `OTTLA_BOOTSTRAP_SERVERS` is for everything; `OTTLA_CLIENT_BOOTSTRAP_SERVERS` is its older name. Who
reads the wrong cluster's records does not see it from errors, so a log event says what was passed over.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Final

from ottla.config.addresses import BadAddress, parse_addresses
from ottla.config.catalog import ALIASES, Role
from ottla.config.settings import SERVERS_VARIABLE, Settings
from ottla.errors import ConfigError
from ottla.showing import shown, shown_text

_NAME: Final = "bootstrap.servers"
_ALIAS: Final = "OTTLA_CLIENT_BOOTSTRAP_SERVERS"
_MOST_SAID: Final = 1_000
_said: set[tuple[str, ...]] = set()
_lock = threading.Lock()


def say_which_address(settings: Settings, environ: Mapping[str, str] | None = None) -> None:
    """Log which address a client takes where the environment has another one: once in a process."""
    taken = settings.setting(_NAME)
    if taken is None:
        return
    variables = os.environ if environ is None else environ
    names = (SERVERS_VARIABLE, _ALIAS, f"OTTLA_{settings.role.name}_BOOTSTRAP_SERVERS")
    others = {name: variables[name] for name in names if variables.get(name) and name != taken.origin}
    say_which_of(str(taken.value), "the code" if taken.origin == "argument" else taken.origin, others)


def say_which_of(taken: str, origin: str, others: Mapping[str, str]) -> None:
    """Log that the address `taken` of `origin` counts, if one of the others (origin → address) differs from it."""
    passed_over = {name: other for name, other in others.items() if _plain(other) != _plain(taken)}
    key = (taken, origin, *passed_over, *passed_over.values())
    with _lock:
        if not passed_over or key in _said or len(_said) >= _MOST_SAID:
            return
        _said.add(key)
    from ottla.telemetry import log_event  # where nothing differs, nothing is logged

    hidden = {name: shown_text(other) for name, other in passed_over.items()}
    log_event("address_chosen", "info", {"taken": shown_text(taken), "from": origin, "passed_over": hidden})


def given_on_command_line(servers: str, environ: MutableMapping[str, str]) -> None:
    """Use this address for all settings of the process without one, whatever the environment has. Raises `ConfigError`
    that names the option: settings would name the variable."""
    try:
        parse_addresses(servers)
    except BadAddress as error:
        raise ConfigError(f"--bootstrap-servers: found {shown(servers)}, wanted {error}") from None
    for name in [*(f"OTTLA_{role.name}_BOOTSTRAP_SERVERS" for role in Role), _ALIAS]:
        environ.pop(name, None)
    environ[SERVERS_VARIABLE] = servers


def without_address(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings without the names of an address."""
    return {name: value for name, value in settings.items() if ALIASES.get(name, name) != _NAME}


def address_in(settings: Mapping[str, object]) -> object:
    """Return the address in settings, or None."""
    return next((value for name, value in settings.items() if ALIASES.get(name, name) == _NAME), None)


def _plain(servers: str) -> Sequence[str]:
    return sorted(part.strip() for part in servers.split(","))
