"""`ottla apply`: the cluster as code. `ottla apply cluster.toml` is short for `ottla apply run cluster.toml`."""

from __future__ import annotations

from pathlib import Path

import click

from ottla.cli.shared.groups import CommandGroup

_ROOM = "ottla.cli.operations.apply"
_COMMANDS = {
    "plan": f"{_ROOM}.planned:plan",
    "run": f"{_ROOM}.applied:run",
    "export": f"{_ROOM}.export:export",
}


class _FileFirst(CommandGroup):
    """A group whose first argument may be a file, or `--app`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_run = bool(args) and args[0] not in (*_COMMANDS, "--help", "-h") and not self._is_typo(args[0])
        return super().parse_args(ctx, ["run", *args] if is_run else args)

    @staticmethod
    def _is_typo(word: str) -> bool:
        """Return whether a word is neither a file nor an option, and so a command that does not exist."""
        return word.isidentifier() and not Path(word).exists()


@click.group(cls=_FileFirst, late=_COMMANDS)
def apply() -> None:
    """Make a cluster as declared in files: topics, settings, ACLs, quotas, users.

    What is declared is set, what was declared before and is removed is unset, and all else is left alone.

    \b
    Examples:
      ottla apply plan cluster.toml --exit-code
      ottla apply cluster.toml --dry-run
      ottla apply export > cluster.toml
    """
