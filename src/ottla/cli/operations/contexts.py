"""`ottla contexts`: the clusters of the file, the one that commands use, and whether each responds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from ottla.cli.shared.cluster_options import cluster_settings
from ottla.cli.shared.clusters_file import NamedCluster, clusters_path, parse_clusters, read_clusters
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.output import Column, Output, prints, say
from ottla.errors import ConfigError, InputError, OttlaError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
_ANSWER_S = 5.0


@click.group(cls=CommandGroup)
def contexts() -> None:
    """Manage named clusters, so that commands need no addresses or secrets.

    \b
    They are in ~/.config/ottla/config.toml, or the file that OTTLA_CLUSTERS names:
      use = "dev"
      [clusters.dev]
      bootstrap.servers = "localhost:9092"
      [clusters.prod]
      bootstrap.servers = "kafka.example.com:9093"
      security.protocol = "SASL_SSL"
      sasl.mechanism = "SCRAM-SHA-512"
      sasl.username = "ops"
      sasl.password_command = ["pass", "show", "kafka/prod"]
      read_only = true

    \b
    Examples:
      ottla contexts list
      ottla contexts check prod
      ottla contexts use dev
    """


@contexts.command("list")
@prints
def list_clusters(out: Output) -> None:
    """List the named clusters; `*` marks the default.

    \b
    Examples:
      ottla contexts list
      ottla contexts list --format json
    """
    found = read_clusters(clusters_path())
    items = [_item(cluster, is_used=cluster.name == found.use) for cluster in found.clusters.values()]
    columns = (
        Column("used", text=lambda used: "*" if used else ""),
        "name",
        "bootstrap_servers",
        "security_protocol",
        Column("read_only", text=lambda value: "yes" if value else ""),
    )
    out.items("clusters.list/1", columns, items, empty=f"{found.file} names no cluster")


@contexts.command()
@click.argument("name")
@prints
def check(name: str, out: Output) -> None:
    """Connect to cluster NAME, log in, and print which broker responded.

    \b
    Examples:
      ottla contexts check prod
      ottla contexts check prod --format json
    """
    from ottla.cli.shared.cluster_options import open_cluster

    cluster = read_clusters(clusters_path()).named(name)
    kafka = cluster_settings(None, {}, named=cluster)
    with open_cluster(kafka, request_timeout_ms=round(_ANSWER_S * 1000)) as there:
        out.one("clusters.check/1", {"name": name, "answered": there.any_broker().address})


@contexts.command()
@click.argument("name")
@prints
def use(name: str, out: Output) -> None:
    """Make NAME the default cluster.

    \b
    Examples:
      ottla contexts use dev
    """
    path = clusters_path()
    read_clusters(path).named(name)
    text = path.read_text("utf-8")
    line = f'use = "{name}"'
    head, found, tables = _before_tables(text)
    head, count = re.subn(r"(?m)^[ \t]*use[ \t]*=.*$", line, head, count=1)
    _write(path, (head if count else f"{line}\n{head}") + found + tables)
    out.one("clusters.use/1", {"name": name, "file": str(path)})
    say(f"{name} is now the cluster of commands without --cluster")


@contexts.command()
@click.argument("name")
@click.option(
    "-b", "--bootstrap-servers", metavar="HOST:PORT[,...]", required=True, help="The bootstrap servers of the cluster."
)
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="A setting that is not a secret; repeatable.")
@click.option(
    "--password-command", help="A command that prints the password (sasl.password), as 'pass show kafka/prod'."
)
@click.option("--password-env", metavar="VARIABLE", help="The environment variable that has the password.")
@click.option("--read-only", is_flag=True, help="Refuse commands that change the cluster.")
@prints
def add(
    name: str,
    bootstrap_servers: str,
    pairs: tuple[str, ...],
    password_command: str | None,
    password_env: str | None,
    read_only: bool,
    out: Output,
) -> None:
    """Add cluster NAME to the file. Only its owner may read the file.

    \b
    Examples:
      ottla contexts add test -b test-1:9092,test-2:9092
      ottla contexts add live -b live:9093 --set security.protocol=SSL --read-only
    """
    import json

    from ottla.config.pairs import parse_pairs

    if not _NAME.fullmatch(name):
        raise InputError(f"found {name!r}, wanted a name of letters, digits, '_' and '-'")
    path = clusters_path()
    if name in read_clusters(path).clusters:
        raise InputError(f"{path}: there is a cluster {name!r} already")
    entries: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
    entries |= parse_pairs(pairs, wanted="NAME=VALUE", example="security.protocol=SASL_SSL")
    if password_command is not None:
        entries["sasl.password_command"] = password_command
    if password_env is not None:
        entries["sasl.password_env"] = password_env
    if read_only:
        entries["read_only"] = True
    text = path.read_text("utf-8") if path.exists() else ""
    for key in entries:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", key):
            raise ConfigError(f"--set: found {key!r}, wanted a setting's name")
    lines = [f"[clusters.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in entries.items())]
    changed = f"{text.rstrip()}\n\n" * bool(text.strip()) + "\n".join(lines) + "\n"
    added = parse_clusters(changed.encode(), path).named(name)
    cluster_settings(None, {}, named=_without_secrets(added))
    _write(path, changed)
    out.one(
        "clusters.add/1", {"name": name, "bootstrap_servers": added.settings["bootstrap.servers"], "file": str(path)}
    )
    say(f"{path}: {name} added")


def _item(cluster: NamedCluster, *, is_used: bool) -> dict[str, Any]:
    from ottla.config.settings import printable

    return {
        "name": cluster.name,
        "used": is_used,
        "bootstrap_servers": cluster.settings["bootstrap.servers"],
        "security_protocol": cluster.settings.get("security.protocol", "PLAINTEXT"),
        "read_only": cluster.read_only,
        "settings": {name: printable(name, value) for name, value in cluster.settings.items()},
        "secrets": {name: source[0] for name, source in cluster.secrets.items()},
    }


def _without_secrets(cluster: NamedCluster) -> NamedCluster:
    """Return the cluster without commands that ask for secrets: settings can be checked without a password."""
    placeholders = dict.fromkeys(cluster.secrets, "not asked for")
    return NamedCluster(name=cluster.name, file=cluster.file, settings={**cluster.settings, **placeholders}, secrets={})


def _before_tables(text: str) -> tuple[str, str, str]:
    """Return the text split at the first table: only before it, `use` is a key of the file itself."""
    match = re.search(r"(?m)^[ \t]*\[", text)
    return (text, "", "") if match is None else (text[: match.start()], "", text[match.start() :])


def _write(path: Path, text: str) -> None:
    """Write the file whole or not at all, readable by its owner only."""
    from ottla.admin.facts.facts_file import write_whole

    parse_clusters(text.encode(), path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise OttlaError(f"{path}: {error.strerror}") from error
    write_whole(path, text.encode(), mode=0o600)
