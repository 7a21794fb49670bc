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
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.browse.dotted_names import dotted
from ottla.browse.secret_sources import COMMAND, ENVIRONMENT, command_arguments, refuse_if_others_write, secret_of
from ottla.cli.shared.groups import suggestion
from ottla.config.catalog import ALIASES, SECRET_NAMES
from ottla.errors import ConfigError
from ottla.lazy import LazyModule
from ottla_wire.facts import fact

if TYPE_CHECKING:
    import tomllib
else:  # of most commands, which find no file
    tomllib = LazyModule("tomllib")

VARIABLE: Final = "OTTLA_CLUSTERS"
_MOST_BYTES: Final = 1024 * 1024


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
            found[name] = secret_of((kind, *arguments), where=where, environ=environ)
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
            refuse_if_others_write(path, os.fstat(stream.fileno()))
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
    for key, value in dotted(table):
        where = f"{path}: clusters.{name}.{key}"
        if key == "read_only":
            if not isinstance(value, bool):
                raise ConfigError(f"{where}: found {value!r}, wanted true or false")
            options[key] = value
        elif key == "confirm":
            if value != "name":
                raise ConfigError(f"{where}: found {value!r}, wanted 'name'")
            options[key] = True
        elif key.endswith(COMMAND):
            secrets[key.removesuffix(COMMAND)] = ("command", *command_arguments(value, where))
        elif key.endswith(ENVIRONMENT):
            if not isinstance(value, str) or not value:
                raise ConfigError(f"{where}: wanted the name of a variable")
            secrets[key.removesuffix(ENVIRONMENT)] = ("env", value)
        elif ALIASES.get(key, key) in SECRET_NAMES:
            instead = f"{key}{COMMAND} or {key}{ENVIRONMENT}"
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
