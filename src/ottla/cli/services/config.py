"""`ottla config`: which settings a client would really run with, where each came from, and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

import click

from ottla.cli.shared.cluster_options import set_option
from ottla.cli.shared.groups import CommandGroup
from ottla.config import (
    ALIASES,
    PROFILES,
    SPECS,
    Asyncio,
    Role,
    Setting,
    Settings,
    Shell,
    Source,
    consumer_settings,
    known_names,
    producer_settings,
)
from ottla.config.catalog import ASYNCIO_ONLY
from ottla.errors import ConfigError

_FORMATS = ("table", "plain", "json")
_COLOURS = {Source.DEFAULT: "dim", Source.PROFILE: "cyan", Source.ENVIRONMENT: "yellow", Source.ARGUMENT: "green"}


@click.group(cls=CommandGroup)
def config() -> None:
    """Explain the settings of producers and consumers."""


@config.command()
@click.option("--for", "role_name", type=click.Choice(["producer", "consumer"]), default="producer", show_default=True)
@click.option("--profile", type=click.Choice(sorted(PROFILES)), help="A producer's profile.")
@set_option("linger.ms=50", what="A setting by Kafka's name")
@click.option("--shell", type=click.Choice(["threads", "asyncio"]), help="Show the settings that this client gets.")
@click.option("--all", "show_all", is_flag=True, help="List all settings, set or not.")
@click.option("--format", "output", type=click.Choice(_FORMATS), help="Default: a table on a terminal, else plain.")
def explain(
    role_name: str, profile: str | None, settings: dict[str, str], shell: str | None, show_all: bool, output: str | None
) -> None:
    """Print each effective setting, its value, where it came from and why.

    OTTLA_PRODUCER_LINGER_MS=50 in the environment is linger.ms=50; --set stands for what the code passes.
    """
    role = Role(role_name)
    if show_all:
        _print_catalogue(role)
        return
    effective = _resolve(role, profile, settings)
    if shell is not None:
        _print_translation(effective, Shell(shell))
        return
    chosen = output or ("table" if sys.stdout.isatty() else "plain")
    if chosen == "json":
        click.echo(json.dumps([_as_dict(setting) for setting in effective.explain()], indent=2))
    elif chosen == "plain":
        for line in plain_lines(effective.explain()):
            click.echo(line)
    else:
        _print_table(effective)


def plain_lines(settings: Iterable[Setting]) -> list[str]:
    """One line per setting: name, value, origin, why, separated by tabs. For grep and for logs."""
    return [f"{setting.name}\t{setting.shown_value}\t{setting.origin}\t{setting.why}" for setting in settings]


def _resolve(role: Role, profile: str | None, arguments: dict[str, str]) -> Settings:
    if role is Role.PRODUCER:
        return producer_settings(profile=profile, settings=arguments)
    if profile is not None:
        raise ConfigError(f"profile: found {profile}, but profiles are for producers")
    return consumer_settings(settings=arguments)


def _print_table(settings: Settings) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{settings.role.value} settings", title_justify="left", expand=True)
    table.add_column("setting", no_wrap=True)
    table.add_column("value", no_wrap=True)
    table.add_column("from")
    table.add_column("why", ratio=1)
    for setting in settings.explain():
        colour = _COLOURS[setting.source]
        table.add_row(setting.name, setting.shown_value, f"[{colour}]{setting.origin}[/]", setting.why)
    Console().print(table)


def _print_translation(settings: Settings, shell: Shell) -> None:
    hidden = {name for setting in settings.explain() if setting.shown_value == "********" for name in (setting.name,)}
    for name, value in sorted(settings.to_client(shell).items()):
        is_secret = name in hidden or name in ("sasl_plain_password",)
        click.echo(f"{name}={'********' if is_secret else value}")


def _print_catalogue(role: Role) -> None:
    """Every name, its type, and which client takes it."""
    aliases = {name: [alias for alias, of in ALIASES.items() if of == name] for name in SPECS}
    for name in sorted(known_names(role) - ALIASES.keys()):
        spec = SPECS.get(name)
        if spec is None:
            where = "asyncio only" if name in ASYNCIO_ONLY else "threads only"
            click.echo(f"{name}\t\t{where}")
            continue
        kind = " | ".join(spec.choices) or spec.kind.value
        where = "threads only" if spec.aiokafka is Asyncio.MISSING else "threads, asyncio"
        also = f"; also {', '.join(aliases[name])}" if aliases[name] else ""
        click.echo(f"{name}\t{kind}\t{where}{also}")


def _as_dict(setting: Setting) -> dict[str, object]:
    return {
        "name": setting.name,
        "value": setting.shown_value if setting.shown_value == "********" else setting.value,
        "source": setting.source.value,
        "origin": setting.origin,
        "why": setting.why,
    }
