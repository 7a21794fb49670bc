"""Before something changes: what will change is shown, a cluster may be read-only, and a person is asked.

On a terminal a command asks. Without one it needs `--yes`, and ends with 2 if it has none: a script that waits for an
answer that never comes is worse than one that fails. A named cluster with `confirm = "name"` wants its name typed;
`--yes` does not answer that on a terminal.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from ottla.cli.shared.cluster_options import chosen_cluster
from ottla.cli.shared.options import takes
from ottla.cli.shared.output import is_terminal, say
from ottla.cli.shared.streams import has_failed
from ottla.errors import ConfigError, InputError

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Consent:
    """The options of a changing command: `--dry-run`, `--yes`."""

    is_dry_run: bool
    yes: bool

    def agree(self, question: str, *, name: str | None = None) -> bool:
        """Return whether to go on. False for a dry run; True after a yes; else the command ends with exit code 2.

        With a `name` (of a topic that is deleted, say) this name has to be typed. A read-only cluster refuses before
        anything is asked.
        """
        if self.is_dry_run:
            say("dry run: nothing was changed")
            return False
        cluster = chosen_cluster()
        if cluster is not None and cluster.confirm:
            name = cluster.name
        elif self.yes:
            return True
        if has_failed():
            say("what would change could not be printed: nothing was changed (--yes changes it all the same)")
            raise click.exceptions.Exit(1)
        if not is_terminal(sys.stdin):
            if self.yes:
                return True
            raise InputError(f"{question} There is no terminal to ask at: --yes agrees, --dry-run only shows")
        if name is None:
            agreed = click.confirm(question, err=True)
        else:
            typed = click.prompt(f"{question} Type {name!r} to agree", default="", show_default=False, err=True)
            agreed = typed == name
        if not agreed:
            say("nothing was changed")
            raise click.exceptions.Exit(2)
        return True


def refuse_if_read_only(instead: str) -> None:
    """Raise ConfigError if the command's cluster is read-only. `instead` names an allowed alternative."""
    cluster = chosen_cluster()
    if cluster is not None and cluster.read_only:
        raise ConfigError(f"cluster {cluster.name} is read_only in {cluster.file}: {instead}")


def changes(command: F) -> F:
    """Give a changing command `--dry-run` and `--yes`. It is called with `consent`.

    Stands below `reaches_a_cluster`, so that a read-only cluster is known before the command begins.
    """

    @functools.wraps(command)
    def with_consent(*args: Any, dry_run: bool, yes: bool, **options: Any) -> Any:
        if not dry_run:
            refuse_if_read_only("only --dry-run is allowed")
        return command(*args, consent=Consent(is_dry_run=dry_run, yes=yes), **options)

    return takes(
        click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing."),
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
    )(with_consent)  # type: ignore[return-value]  # a command all the same
