"""`ottla quotas`: how much clients may use of each broker, by user, client id or address (KIP-546)."""

from __future__ import annotations

from typing import Any, Final

import click

from ottla.browse.access_items import entity_text, quota_changes, quota_item, quota_number
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.options import takes
from ottla.cli.shared.outcome import changing
from ottla.cli.shared.output import Column, Output, prints, say
from ottla.config import Settings
from ottla.config.pairs import parse_pairs
from ottla.errors import InputError

KINDS = {"user": "--user", "client-id": "--client-id", "ip": "--ip"}


def _number_column(name: str) -> Column:
    return Column(name, text=lambda value: "none" if value is None else f"{value:,.15g}")


_CHANGED = ("quota", _number_column("old"), _number_column("new"))


_options: Final = takes(
    reaches_a_cluster,
    click.option("--user", help="A user."),
    click.option("--user-defaults", is_flag=True, help="Every user who has no quota of their own."),
    click.option("--client-id", help="A client id."),
    click.option("--client-defaults", is_flag=True, help="Every client id that has no quota of its own."),
    click.option("--ip", help="An address that clients connect from."),
    click.option("--ip-defaults", is_flag=True, help="Every address that has no quota of its own."),
)


@click.group(cls=CommandGroup)
def quotas() -> None:
    """List and set quotas: bytes and requests per second and broker.

    \b
    Examples:
      ottla quotas list
      ottla quotas set producer_byte_rate=1MB --client-id reports --yes
      ottla quotas remove producer_byte_rate --client-id reports --yes
    """


@quotas.command("list")
@_options
@prints
def list_quotas(kafka: Settings, out: Output, **entity: Any) -> None:
    """List quotas: all, or those of a user, client id or address.

    \b
    Examples:
      ottla quotas list
      ottla quotas list --client-id reports --format json
    """
    with open_admin(kafka) as admin:
        found = admin.find_quotas(_entity(**entity))
    columns: list[Column | str] = [*KINDS, "quota", _number_column("value")]
    out.items("quotas.list/1", columns, map(quota_item, found), empty="no quotas")


@quotas.command("set")
@click.argument("wanted", metavar="QUOTA=VALUE...", nargs=-1, required=True)
@_options
@prints
@changes
def set_quotas(wanted: tuple[str, ...], consent: Consent, kafka: Settings, out: Output, **entity: Any) -> None:
    """Set quotas of a user, a client id, both together, or an address.

    QUOTA is producer_byte_rate, consumer_byte_rate, request_percentage or controller_mutation_rate; of an address
    connection_creation_rate.

    \b
    Examples:
      ottla quotas set producer_byte_rate=1MB --client-id reports --yes
      ottla quotas set consumer_byte_rate=10MiB request_percentage=50 --user reports --dry-run
    """
    values = {
        name: quota_number(name, value)
        for name, value in parse_pairs(
            wanted, option="QUOTA", wanted="QUOTA=VALUE", example="producer_byte_rate=1MB"
        ).items()
    }
    _change("quotas.set/1", kafka, _entity(**entity), dict(values), out, consent)


@quotas.command()
@click.argument("names", metavar="QUOTA...", nargs=-1, required=True)
@_options
@prints
@changes
def remove(names: tuple[str, ...], consent: Consent, kafka: Settings, out: Output, **entity: Any) -> None:
    """Remove quotas of a user, a client id, both together, or an address.

    \b
    Examples:
      ottla quotas remove producer_byte_rate --client-id reports --yes
      ottla quotas remove producer_byte_rate --client-id reports --dry-run
    """
    _change("quotas.remove/1", kafka, _entity(**entity), dict.fromkeys(names), out, consent)


def _change(
    schema: str,
    kafka: Settings,
    entity: dict[str, str | None],
    wanted: dict[str, float | None],
    out: Output,
    consent: Consent,
) -> None:
    """Show each quota before and after, have the broker check them, ask, and change them. None removes a quota."""
    if not entity:
        raise InputError(
            "found no entity, wanted --user, --client-id or --ip, or one of the defaults, as --user-defaults"
        )
    whose = entity_text(entity)
    with open_admin(kafka) as admin:
        items = quota_changes(admin, entity, wanted)
        out.items(schema, _CHANGED, items, empty="nothing to change")
        if not items or not consent.agree(f"Change the quotas of {whose}?"):
            return
        with changing():
            admin.alter_quotas(entity, wanted)
    say(f"{whose}: changed")


def _entity(
    *,
    user: str | None,
    user_defaults: bool,
    client_id: str | None,
    client_defaults: bool,
    ip: str | None,
    ip_defaults: bool,
) -> dict[str, str | None]:
    given = (("user", user, user_defaults), ("client-id", client_id, client_defaults), ("ip", ip, ip_defaults))
    for kind, name, is_default in given:
        if name is not None and is_default:
            raise InputError(f"{KINDS[kind]} {name}: found a name and the default as well, wanted one of them")
    return {kind: name for kind, name, is_default in given if name is not None or is_default}
