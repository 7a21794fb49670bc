"""Words that fingers know from Kafka's own tools and others: some are taken, for the rest ours is suggested."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import click

SAME_OPTIONS: Final = {
    "bootstrap-server": "bootstrap-servers",
    "command-config": "config-file",
    "max-messages": "limit",
}
"""Options that mean the same, without their dashes."""

RENAMED_COMMANDS: Final = {
    "clusters": "contexts",
    "forget": "delete-offsets",
    "offsets": "store-offsets",
    "scheduler": "schedule",
    "trim": "delete-records",
}
"""Names of commands before 0.2, and their names today. The old names go with 0.3."""

SAME_COMMANDS: Final = {"describe": "show", "reassign": "plan", **RENAMED_COMMANDS}
"""A group that has the second command accepts the first as well, and does not list it."""

_COMMANDS: Final = {
    **dict.fromkeys(("add", "new", "make"), ("create",)),
    **dict.fromkeys(("alter", "change", "update", "configure", "config"), ("set",)),
    **dict.fromkeys(("cat", "read", "tail", "consumer", "subscribe", "kcat"), ("consume",)),
    **dict.fromkeys(("destroy", "drop", "remove", "rm"), ("delete", "remove")),
    **dict.fromkeys(("describe", "info", "get", "inspect"), ("show", "list")),
    **dict.fromkeys(("executed", "execute", "apply"), ("run",)),
    **dict.fromkeys(("ls", "all"), ("list",)),
    **dict.fromkeys(("publish", "send", "write", "producer"), ("produce",)),
    **dict.fromkeys(("rewind", "seek"), ("reset",)),
    **dict.fromkeys(("serve", "start"), ("run",)),
    **dict.fromkeys(("topic",), ("topics",)),
    **dict.fromkeys(("truncate", "purge"), ("delete-records", "purge")),
    **dict.fromkeys(("consumer-groups", "group"), ("groups",)),
}
_OPTIONS: Final = {
    "--by-duration": "--to -2h",
    "--config": "NAME=VALUE",
    "--consumer-property": "--set",
    "--consumer.config": "--config-file",
    "--delete-config": "NAME",
    "--execute": "--yes",
    "--force": "--yes",
    "--from-beginning": "--from earliest",
    "--from-latest": "--from latest",
    "--group": "GROUP",
    "--offset": "--from",
    "--output": "--format",
    "--producer-property": "--set",
    "--producer.config": "--config-file",
    "--property": "--set",
    "--reset-offsets": "--to",
    "--shift-by": "--shift",
    "--to-current": "--shift 0",
    "--to-datetime": "--to",
    "--to-earliest": "--to earliest",
    "--to-latest": "--to latest",
    "--to-offset": "--to",
    "--topic": "TOPIC",
    "--value": "FILE",
}
"""Ours, where the command has it: an option with the value it may need, or the name of an argument."""


def command_meant(given: str, names: Collection[str]) -> str | None:
    """Return the command of ours that another tool calls so."""
    return next((name for name in _COMMANDS.get(given, ()) if name in names), None)


def no_such_option(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with what the command has for this option, or the nearest name, if one is near."""
    import difflib

    ctx, given = error.ctx, error.option_name
    if ctx is None:
        return error
    ours = _OPTIONS.get(given, "")
    options = [name for each in ctx.command.params if isinstance(each, click.Option) for name in each.opts]
    if ours.partition(" ")[0] in options:
        return click.NoSuchOption(given, message=f"No such option {given!r}. Did you mean {ours!r}?", ctx=ctx)
    arguments = [each.make_metavar(ctx) for each in ctx.command.params if isinstance(each, click.Argument)]
    if ours and any(ours in each for each in arguments):
        message = f"No such option {given!r}: {ours} is an argument, without a name before it."
        return click.NoSuchOption(given, message=message, ctx=ctx)
    # Without the dashes, which make all options alike.
    long = {name.lstrip("-"): name for name in options if name.startswith("--")}
    near = difflib.get_close_matches(given.lstrip("-"), long, n=1)
    hint = f" Did you mean {long[near[0]]!r}?" if near else ""
    return click.NoSuchOption(given, message=f"No such option {given!r}.{hint}", ctx=ctx)
