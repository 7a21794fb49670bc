"""The settings of one client: resolved from four sources, each value with its origin and reason.

Later sources win: default < profile < environment < argument. An argument is what the code says at the place where the
client is made, so nothing overrules it silently; the environment changes what the code leaves open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from ottla.config import values
from ottla.config.catalog import ALIASES, ASYNCIO_ONLY, HIDDEN_NAMES, THREADS_ONLY, Role, known_names
from ottla.config.defaults import Default
from ottla.config.worker_names import NAMES_OF_PROCESS, WORKER_VARIABLE, name_of_worker
from ottla.errors import ConfigError
from ottla.showing import HIDDEN
from ottla.showing import shown as shown_in_error
from ottla_wire.facts import fact

SERVERS_VARIABLE: Final = "OTTLA_BOOTSTRAP_SERVERS"
"""The address for everything: services, producers, consumers and commands."""

_PASSWORD_IN_URL: Final = re.compile(r"//[^/@\s]*@")


class Shell(Enum):
    """Which client carries the settings out."""

    THREADS = "threads"
    """`ottla.sync`, over confluent-kafka (librdkafka)."""
    ASYNCIO = "asyncio"
    """`ottla.aio`, over aiokafka."""


class SettingSource(Enum):
    """Source of a value."""

    DEFAULT = "default"
    PROFILE = "profile"
    ENVIRONMENT = "environment"
    ARGUMENT = "argument"


@fact
class Setting:
    """One effective setting. `origin` is the source in words: ``profile high_throughput``, ``OTTLA_PRODUCER_ACKS``."""

    name: str
    value: Any = field(repr=False)
    source: SettingSource
    origin: str
    why: str

    @property
    def shown_value(self) -> str:
        """The value as it may be printed: a secret never is."""
        return printable(self.name, self.value)


def printable(name: str, value: Any) -> str:
    """Return the value of a setting as it may be printed: a secret never is."""
    return HIDDEN if ALIASES.get(name, name) in HIDDEN_NAMES else shown(value)


def shown(value: Any) -> str:
    """Return a setting's value for display. Passwords in URLs are hidden; callbacks and other objects are shown by
    name, because their arguments may be secret. A setting whose whole value is secret must not be passed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _PASSWORD_IN_URL.sub(f"//{HIDDEN}@", value)
    if value is None or isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    return str(getattr(value, "__name__", type(value).__name__))


class Settings(Mapping[str, Any]):
    """The effective settings of one client by Kafka's names: a read-only mapping from name to value."""

    def __init__(self, role: Role, settings: Mapping[str, Setting]) -> None:
        self.role = role
        self._settings = MappingProxyType(dict(settings))

    def __getitem__(self, name: str) -> Any:
        return self._settings[ALIASES.get(name, name)].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        shown = ", ".join(f"{s.name}={s.shown_value}" for s in self._settings.values())
        return f"Settings({self.role.value}: {shown})"

    def setting(self, name: str) -> Setting | None:
        """Return the setting with its origin and reason, or None if it is not set."""
        return self._settings.get(ALIASES.get(name, name))

    def explain(self) -> list[Setting]:
        """Return every effective setting, by name."""
        return sorted(self._settings.values(), key=lambda setting: setting.name)

    def was_chosen(self, name: str) -> bool:
        """Return True if the environment or an argument set it."""
        setting = self.setting(name)
        return setting is not None and setting.source in (SettingSource.ENVIRONMENT, SettingSource.ARGUMENT)

    def with_defaults(self, *defaults: Default) -> Settings:
        """Return a copy in which these defaults replace other defaults and profiles, but no chosen value.

        A default whose value is None removes the setting.
        """
        settings = dict(self._settings)
        for default in defaults:
            if self.was_chosen(default.name):
                continue
            settings.pop(default.name, None)
            if default.value is not None:
                settings[default.name] = Setting(
                    name=default.name,
                    value=default.value,
                    source=SettingSource.DEFAULT,
                    origin="default",
                    why=default.why,
                )
        return Settings(self.role, settings)

    def to_confluent(self) -> dict[str, Any]:
        """Return the configuration for confluent-kafka (librdkafka)."""
        from ottla.config.to_confluent import to_confluent

        return to_confluent(self)

    def to_aiokafka(self) -> dict[str, Any]:
        """Return the keyword arguments for aiokafka."""
        from ottla.config.to_aiokafka import to_aiokafka

        return to_aiokafka(self)

    def to_client(self, shell: Shell) -> dict[str, Any]:
        """Return the arguments of `shell`'s client."""
        return self.to_confluent() if shell is Shell.THREADS else self.to_aiokafka()


def resolve(
    role: Role,
    *,
    defaults: Sequence[Mapping[str, Default]],
    profile: tuple[str, Mapping[str, Default]] | None,
    environ: Mapping[str, str],
    arguments: Mapping[str, Any],
) -> Settings:
    """Merge the sources. Names are checked here, values against their own type; checks across settings come after."""
    found: dict[str, Setting] = {}

    def put(name: str, value: Any, source: SettingSource, origin: str, why: str) -> None:
        value = values.parse(name, value, origin=origin)
        found[name] = Setting(name=name, value=value, source=source, origin=origin, why=why)

    for table in defaults:
        for default in table.values():
            put(default.name, default.value, SettingSource.DEFAULT, "default", default.why)
    if profile is not None:
        profile_name, table = profile
        for default in table.values():
            put(default.name, default.value, SettingSource.PROFILE, f"profile {profile_name}", default.why)
    for name, variable, text in _from_environment(role, environ):
        put(name, text, SettingSource.ENVIRONMENT, variable, "set in the environment")
    given: dict[str, str] = {}
    for as_given, value in arguments.items():
        name = canonical_name(role, as_given)
        if name in given and arguments[given[name]] != value:
            raise ConfigError(
                f"{name}: found twice, as {given[name]}={shown_in_error(arguments[given[name]])} and as "
                f"{as_given}={shown_in_error(value)}; "
                "wanted once (they are one setting)"
            )
        given[name] = as_given
        if value is None:  # not set after all: what other sources say stands
            continue
        put(name, value, SettingSource.ARGUMENT, "argument", "set in the code")
    if WORKER_VARIABLE in environ:
        for name in NAMES_OF_PROCESS & found.keys():
            setting = found[name]
            if isinstance(setting.value, str) and setting.value:
                origin = f"{setting.origin}, with the number of {WORKER_VARIABLE}"
                found[name] = replace(setting, value=name_of_worker(setting.value, environ), origin=origin)
    return Settings(role, found)


def canonical_name(role: Role, name: str) -> str:
    """Return Kafka's name of a setting this role has, or a ConfigError with the nearest name there is."""
    if not isinstance(name, str):
        raise ConfigError(f"settings: found {shown_in_error(name)} as a name, wanted Kafka's names, as in acks")
    known = known_names(role)
    if name in known:
        return ALIASES.get(name, name)
    for other in Role:
        if other is not role and name in known_names(other):
            raise ConfigError(f"{name}: found for {_A[role]}, but it is a setting of {_A[other]}")
    import difflib

    as_dotted = name.replace("_", ".")
    nearest = [as_dotted] if as_dotted in known else difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"; did you mean {nearest[0]}?" if nearest else "; `ottla config explain --all` lists what there is"
    before, equals, _ = name.partition("=")  # NAME=VALUE in place of a name: the value may be a secret
    raise ConfigError(f"{before}{equals}: no {role.value} setting has this name{hint}")


_A = {Role.PRODUCER: "a producer", Role.CONSUMER: "a consumer", Role.ADMIN: "an admin client"}


def _from_environment(role: Role, environ: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield (setting, variable, text), first from OTTLA_CLIENT_*, which is for every role, then the address that is for
    everything, then from the role's own."""
    names = {name.upper().replace(".", "_"): name for name in known_names(role)}
    elsewhere = {name.upper().replace(".", "_") for other in Role for name in known_names(other)}
    for prefix in ("OTTLA_CLIENT_", f"OTTLA_{role.name}_"):
        if prefix != "OTTLA_CLIENT_" and environ.get(SERVERS_VARIABLE):
            yield "bootstrap.servers", SERVERS_VARIABLE, environ[SERVERS_VARIABLE]
        for variable in sorted(environ):
            if not variable.startswith(prefix):
                continue
            key = variable.removeprefix(prefix)
            name = names.get(key)
            if name is not None:
                yield ALIASES.get(name, name), variable, environ[variable]
            elif not (prefix == "OTTLA_CLIENT_" and key in elsewhere):
                import difflib

                nearest = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
                hint = f"; did you mean {prefix}{nearest[0]}?" if nearest else ""
                raise ConfigError(f"{variable}: no {role.value} setting has this name{hint}")


def is_for_threads_only(role: Role, name: str) -> bool:
    return name in THREADS_ONLY[role]


def is_for_asyncio_only(name: str) -> bool:
    return name in ASYNCIO_ONLY
