"""`ottla config`: which settings a client would really run with, where each came from, and why."""

from __future__ import annotations

from typing import Any, Final

import click

from ottla.cli.shared.cluster_options import set_option
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.output import Column, Format, Output, prints
from ottla.config import (
    ALIASES,
    PROFILES,
    SPECS,
    Asyncio,
    Role,
    Setting,
    Settings,
    Shell,
    consumer_settings,
    known_names,
    producer_settings,
)
from ottla.config.assignors import offered
from ottla.config.catalog import ASYNCIO_ONLY
from ottla.config.settings import shown
from ottla.errors import ConfigError
from ottla.showing import HIDDEN

_COLUMNS: Final = (Column("name", "setting"), "value", Column("origin", "from"), "why")


@click.group(cls=CommandGroup)
def config() -> None:
    """Explain the settings of producers and consumers.

    \b
    Example:
      ottla config explain --for consumer
    """


@config.command()
@click.option(
    "--for",
    "role_name",
    type=click.Choice(["producer", "consumer"]),
    default="producer",
    show_default=True,
    help="Whose settings.",
)
@click.option("--profile", type=click.Choice(sorted(PROFILES)), help="A producer's profile.")
@set_option("linger.ms=50", what="A setting by Kafka's name")
@click.option("--shell", type=click.Choice(["threads", "asyncio"]), help="Show the settings that this client gets.")
@click.option("--all", "show_all", is_flag=True, help="List all settings, set or not.")
@prints
def explain(
    role_name: str, profile: str | None, settings: dict[str, str], shell: str | None, show_all: bool, out: Output
) -> None:
    """Print each effective setting, its value, where it came from and why.

    OTTLA_PRODUCER_LINGER_MS=50 in the environment is linger.ms=50; --set is a setting that the code passes.

    \b
    Examples:
      ottla config explain
      ottla config explain --for consumer --format json
      ottla config explain --profile high_throughput --set linger.ms=50
    """
    role = Role(role_name)
    if show_all:
        _print_catalogue(role, out)
        return
    effective = _resolve(role, profile, settings)
    if shell is not None:
        _print_translation(effective, Shell(shell), out)
    else:
        items = [_item(setting, out.format) for setting in effective.explain()]
        out.items("config.explain/1", _COLUMNS, items, role=role.value)


def _resolve(role: Role, profile: str | None, arguments: dict[str, str]) -> Settings:
    if role is Role.PRODUCER:
        return producer_settings(profile=profile, settings=arguments)
    if profile is not None:
        raise ConfigError(f"profile: found {profile}, but profiles are for producers")
    return consumer_settings(settings=arguments)


def _print_translation(settings: Settings, shell: Shell, out: Output) -> None:
    hidden = {setting.name for setting in settings.explain() if setting.shown_value == HIDDEN}
    items = [
        {"name": name, "value": HIDDEN if name in hidden or name == "sasl_plain_password" else _printed(value)}
        for name, value in sorted(settings.to_client(shell).items())
    ]
    if shell is Shell.ASYNCIO and settings.role is Role.CONSUMER:  # given to aiokafka as classes
        items.append({"name": "partition_assignment_strategy", "value": ",".join(offered(settings, on_asyncio=True))})
        items.sort(key=lambda item: str(item["name"]))
    if out.format is not Format.JSON:
        for item in items:
            click.echo(f"{item['name']}={item['value']}")
        return
    out.items("config.client/1", (), items, role=settings.role.value, client=shell.value)


def _print_catalogue(role: Role, out: Output) -> None:
    """Print every name, its type, and which client takes it."""
    aliases = {name: [alias for alias, of in ALIASES.items() if of == name] for name in SPECS}
    items: list[dict[str, Any]] = []
    for name in sorted(known_names(role) - ALIASES.keys()):
        spec = SPECS.get(name)
        if spec is None:
            kind, clients = None, ["asyncio" if name in ASYNCIO_ONLY else "threads"]
        else:
            kind = " | ".join(spec.choices) or spec.kind.value
            clients = ["threads"] if spec.aiokafka is Asyncio.MISSING else ["threads", "asyncio"]
        items.append({"name": name, "kind": kind, "clients": clients, "aliases": aliases.get(name, [])})
    if out.format is Format.JSON:
        out.items("config.names/1", (), items, role=role.value)
        return
    for item in items:
        where = f"{item['clients'][0]} only" if len(item["clients"]) == 1 else ", ".join(item["clients"])
        also = f"; also {', '.join(item['aliases'])}" if item["aliases"] else ""
        click.echo(f"{item['name']}\t{item['kind'] or ''}\t{where}{also}")


def _printed(value: Any) -> Any:
    """Return numbers, booleans and null unchanged, and hide texts and objects, which may hold a secret."""
    return value if value is None or isinstance(value, int | float) else shown(value)


def _item(setting: Setting, format: Format) -> dict[str, Any]:
    """Return an item: with the value itself for JSON, with its text for a line."""
    is_text = format is not Format.JSON or setting.shown_value == HIDDEN
    return {
        "name": setting.name,
        "value": setting.shown_value if is_text else _printed(setting.value),
        "source": setting.source.value,
        "origin": setting.origin,
        "why": setting.why,
    }
