"""Named clusters in a file: how each is reached, and where its secrets come from.

    use = "dev"                                     # the cluster of commands that name none

    [clusters.dev]
    bootstrap.servers = "localhost:9092"

    [clusters.prod]
    bootstrap.servers = "kafka-1.example.com:9093,kafka-2.example.com:9093"
    security.protocol = "SASL_SSL"
    sasl.mechanism = "SCRAM-SHA-512"
    sasl.username = "ops"
    sasl.password_command = ["pass", "show", "kafka/prod"]     # its first line; or sasl.password_env = "PROD_PASSWORD"
    read_only = true                                # commands that change something refuse
    confirm = "name"                                # they ask for the cluster's name

The file is `$OTTLA_CLUSTERS`, else `~/.config/ottla/config.toml` (`$XDG_CONFIG_HOME`). It names commands that are run,
so it is read only if nobody but its owner can write it. It holds no secret: one that is written in it is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.shared.groups import suggestion
from ottla.config.catalog import ALIASES, SECRET_NAMES
from ottla.errors import ConfigError
from ottla.lazy import LazyModule
from ottla_wire.facts import fact

if TYPE_CHECKING:
    import shlex
    import subprocess
    import tomllib
else:  # of most commands, which find no file
    shlex, subprocess, tomllib = map(LazyModule, ("shlex", "subprocess", "tomllib"))

VARIABLE: Final = "OTTLA_CLUSTERS"
_MOST_BYTES: Final = 1024 * 1024
_COMMAND_S: Final = 60.0
_COMMAND: Final = "_command"
_ENVIRONMENT: Final = "_env"


@fact
class NamedCluster:
    """One cluster of the file. `settings` has no secrets; `secrets` says where each comes from."""

    name: str
    file: Path
    settings: Mapping[str, str]
    secrets: Mapping[str, tuple[str, ...]]
    """Setting -> ("command", program, argument, ...) or ("env", variable)."""
    read_only: bool = False
    confirm: bool = False

    def resolved(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the settings with their secrets. ConfigError names a command that failed; it never shows what it
        printed."""
        found = dict(self.settings)
        for name, (kind, *arguments) in self.secrets.items():
            where = f"{self.file}: clusters.{self.name}.{name}"
            if kind == "env":
                value = (os.environ if environ is None else environ).get(arguments[0])
                if value is None:
                    raise ConfigError(f"{where}{_ENVIRONMENT}: {arguments[0]} is not set in the environment")
                found[name] = value
            else:
                found[name] = _printed_by(arguments, where=where + _COMMAND)
        return found


@fact
class ClustersFile:
    """The whole file. `use` is now the cluster of commands without --cluster."""

    file: Path
    use: str | None
    clusters: Mapping[str, NamedCluster]

    def named(self, name: str) -> NamedCluster:
        """Return the cluster of this name, or ConfigError."""
        found = self.clusters.get(name)
        if found is None:
            there = suggestion(name, self.clusters) or " It names none."
            raise ConfigError(f"--cluster: found {name!r}, which {self.file} does not have.{there}")
        return found


def clusters_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return where the file is looked for."""
    variables = os.environ if environ is None else environ
    given = variables.get(VARIABLE)
    if given:
        return Path(given).expanduser()
    base = variables.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path("~/.config").expanduser()) / "ottla" / "config.toml"


def read_clusters(path: Path) -> ClustersFile:
    """Return the parsed file, or an empty one if it does not exist. Raises ConfigError for invalid content."""
    try:
        with path.open("rb") as stream:
            _check_mode(path, os.fstat(stream.fileno()))
            data = stream.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return ClustersFile(file=path, use=None, clusters={})
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"{path}: found more than {_MOST_BYTES:,} bytes, wanted a file of clusters")
    return parse_clusters(data, path)


def parse_clusters(data: bytes, path: Path) -> ClustersFile:
    """Return what a file says."""
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    unknown = document.keys() - {"use", "clusters"}
    if unknown:
        raise ConfigError(f"{path}: found {sorted(unknown)[0]!r}, wanted `use` and [clusters.NAME]")
    tables = document.get("clusters", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError(f"{path}: clusters: wanted tables, as in [clusters.prod]")
    clusters = {name: _cluster(path, name, table) for name, table in tables.items()}
    use = document.get("use")
    if use is not None and use not in clusters:
        raise ConfigError(f"{path}: use: found {use!r}, which is none of its clusters")
    return ClustersFile(file=path, use=use, clusters=clusters)


def _cluster(path: Path, name: str, table: Mapping[str, Any]) -> NamedCluster:
    settings: dict[str, str] = {}
    secrets: dict[str, tuple[str, ...]] = {}
    options = {"read_only": False, "confirm": False}
    for key, value in _flat(table):
        where = f"{path}: clusters.{name}.{key}"
        if key == "read_only":
            if not isinstance(value, bool):
                raise ConfigError(f"{where}: found {value!r}, wanted true or false")
            options[key] = value
        elif key == "confirm":
            if value != "name":
                raise ConfigError(f"{where}: found {value!r}, wanted 'name'")
            options[key] = True
        elif key.endswith(_COMMAND):
            secrets[key.removesuffix(_COMMAND)] = ("command", *_arguments(value, where))
        elif key.endswith(_ENVIRONMENT):
            if not isinstance(value, str) or not value:
                raise ConfigError(f"{where}: wanted the name of a variable")
            secrets[key.removesuffix(_ENVIRONMENT)] = ("env", value)
        elif ALIASES.get(key, key) in SECRET_NAMES:
            instead = f"{key}{_COMMAND} or {key}{_ENVIRONMENT}"
            raise ConfigError(f"{where}: a secret does not belong in this file; give {instead}")
        elif isinstance(value, bool):
            settings[key] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            settings[key] = str(value)
        else:
            raise ConfigError(f"{where}: found {type(value).__name__}, wanted text, a number, true or false")
    if "bootstrap.servers" not in settings:
        raise ConfigError(f"{path}: clusters.{name}: bootstrap.servers is missing")
    return NamedCluster(name=name, file=path, settings=settings, secrets=secrets, **options)


def _flat(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """TOML reads `sasl.username = ...` as a table in a table."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield above + key, value


def _arguments(value: Any, where: str) -> list[str]:
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise ConfigError(f"{where}: found a command that cannot be read: {error}") from None
    if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
        raise ConfigError(f'{where}: wanted a command, as in ["pass", "show", "kafka/prod"]')
    return value


def _printed_by(command: list[str], *, where: str) -> str:
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        problem = f"took longer than {_COMMAND_S:g} s" if isinstance(error, subprocess.TimeoutExpired) else str(error)
        raise ConfigError(f"{where}: {command[0]}: {problem}") from None
    if ended.returncode:
        raise ConfigError(f"{where}: {command[0]} ended with {ended.returncode}")
    try:
        value = ended.stdout.decode("utf-8").split("\n", 1)[0].rstrip("\r")
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: {command[0]} printed bytes that are not UTF-8") from None
    if not value:
        raise ConfigError(f"{where}: {command[0]} printed nothing")
    return value


def _check_mode(path: Path, found: os.stat_result) -> None:
    if os.name != "posix":
        return
    if found.st_uid not in (os.getuid(), 0):
        raise ConfigError(f"{path}: another user owns it, and it names commands that would be run")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"{path}: others may write it (mode {stat.S_IMODE(found.st_mode):o}), and it names commands that would be"
            f" run: chmod 600 {path}"
        )
