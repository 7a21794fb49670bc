"""`ottla schemas compatibility`, `set-compatibility` and `unset-compatibility`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ottla.browse.registry_access import checked_subject
from ottla.browse.schema_changes import checked_level, plan_level, set_level
from ottla.browse.schema_items import level_item
from ottla.cli.shared.complete import complete_subjects
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.outcome import changing
from ottla.cli.shared.output import Column, Output, prints, say
from ottla.cli.shared.registry_options import reaches_a_registry
from ottla.cli.shared.visible import visible

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ottla.browse.registry_access import RegistryAccess

_LEVELS = (Column("subject", text=lambda name: name or "(the registry)"), "level", "own")
_CHANGED = (Column("subject", text=lambda name: name or "(the registry)"), "old_level", "level")


def _complete_levels(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from ottla.serdes.compatibility_levels import LEVELS

    return [CompletionItem(each) for each in LEVELS if each.startswith(incomplete.upper())]


@click.command()
@click.argument("subjects", metavar="[SUBJECT]...", nargs=-1, shell_complete=complete_subjects)
@reaches_a_registry
@prints
def compatibility(subjects: tuple[str, ...], access: RegistryAccess, out: Output) -> None:
    """Show the compatibility level of the registry, or those of subjects. OWN says whether a subject has one itself.

    \b
    Examples:
      ottla schemas compatibility
      ottla schemas compatibility orders-value --format json
    """
    registry = access.open()
    items = (level_item(registry, each) for each in (map(checked_subject, subjects) if subjects else [None]))
    out.items("schemas.compatibility/1", _LEVELS, items)


@click.command("set-compatibility")
@click.argument("level", shell_complete=_complete_levels)
@click.argument("subject", required=False, shell_complete=complete_subjects)
@reaches_a_registry
@prints
@changes
def set_compatibility(level: str, subject: str | None, access: RegistryAccess, out: Output, consent: Consent) -> None:
    """Set the compatibility LEVEL of SUBJECT, or of all subjects that have none of their own.

    LEVEL is BACKWARD, FORWARD, FULL, each of them with _TRANSITIVE, or NONE.

    \b
    Examples:
      ottla schemas set-compatibility FULL orders-value --dry-run
      ottla schemas set-compatibility FULL_TRANSITIVE orders-value --yes
      ottla schemas set-compatibility BACKWARD --yes
    """
    wanted = checked_level(level)
    _change(access, out, consent, None if subject is None else checked_subject(subject), wanted)


@click.command("unset-compatibility")
@click.argument("subject", shell_complete=complete_subjects)
@reaches_a_registry
@prints
@changes
def unset_compatibility(subject: str, access: RegistryAccess, out: Output, consent: Consent) -> None:
    """Remove the compatibility level of SUBJECT, so that the registry's applies.

    \b
    Examples:
      ottla schemas unset-compatibility orders-value --dry-run
      ottla schemas unset-compatibility orders-value --yes
    """
    _change(access, out, consent, checked_subject(subject), None)


def _change(access: RegistryAccess, out: Output, consent: Consent, subject: str | None, wanted: str | None) -> None:
    registry = access.open()
    change = plan_level(registry, subject, wanted)
    out.items("schemas.set-compatibility/1", _CHANGED, [change.item])
    if not change.is_change:
        say("nothing to change")
        return
    of = "the registry" if subject is None else subject
    question = f"Set the compatibility of {of} to {wanted}?" if wanted else f"Remove the compatibility of {of}?"
    if not consent.agree(question):
        return
    with changing():
        set_level(registry, change)
    now, before = wanted or registry.level(), change.old or "the level of the registry"
    say(visible(f"{of}: compatibility is {now}, before {before}"))
