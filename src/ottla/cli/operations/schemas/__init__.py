"""`ottla schemas`: the schemas of a registry."""

from __future__ import annotations

import click

from ottla.cli.shared.groups import CommandGroup

_ROOM = "ottla.cli.operations.schemas"
_COMMANDS = {
    "list": f"{_ROOM}.show:list_subjects",
    "show": f"{_ROOM}.show:show",
    "versions": f"{_ROOM}.show:versions",
    "diff": f"{_ROOM}.compare:diff",
    "check": f"{_ROOM}.compare:check",
    "register": f"{_ROOM}.alter:register",
    "delete": f"{_ROOM}.alter:delete",
    "restore": f"{_ROOM}.alter:restore",
    "compatibility": f"{_ROOM}.levels:compatibility",
    "set-compatibility": f"{_ROOM}.levels:set_compatibility",
    "unset-compatibility": f"{_ROOM}.levels:unset_compatibility",
}


@click.group(cls=CommandGroup, late=_COMMANDS)
def schemas() -> None:
    """List, compare, check, register and delete the schemas of a registry; set compatibility levels.

    The registry is --registry or OTTLA_REGISTRY, its user --registry-user or OTTLA_REGISTRY_USER, the password
    OTTLA_REGISTRY_PASSWORD.

    \b
    Examples:
      ottla schemas list 'orders*'
      ottla schemas diff orders-value
      ottla schemas check orders-value order.avsc
      ottla schemas register orders-value order.avsc --dry-run
    """
