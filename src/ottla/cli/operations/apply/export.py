"""`ottla apply export`: a cluster as it is, as a file that declares it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.operations.apply.sources import open_registry, takes_a_registry
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.output import say, warn
from ottla.cli.shared.visible import visible

if TYPE_CHECKING:
    from ottla.config import Settings


@click.command()
@click.argument("patterns", metavar="[PATTERN...]", nargs=-1, shell_complete=complete_topics)
@click.option("-o", "--output", "to", type=FILE, help="Write to this file, not to stdout.")
@takes_a_registry
@reaches_a_cluster
def export(patterns: tuple[str, ...], to: Path | None, registry: str | None, kafka: Settings) -> None:
    """Print a cluster as TOML that declares it: all of it, or only topics that match a PATTERN, as 'orders*'.

    Settings are those that are set on a topic or group itself. Passwords cannot be read from a cluster: each user has
    the name of an environment variable instead. With --registry and -o, the latest schema of each subject is written to
    a folder beside the file.

    \b
    Examples:
      ottla apply export
      ottla apply export 'orders*' -o cluster.toml
    """
    from ottla.admin.declared.reading import read_everything
    from ottla.browse.cluster_file_text import cluster_file_text

    with open_admin(kafka) as admin:
        names = [
            topic.name
            for topic in admin.list_topics()
            if not patterns or any(fnmatchcase(topic.name, pattern) for pattern in patterns)
        ]
        groups = [] if patterns else [group.group_id for group in admin.list_groups()]
        found, not_read = admin.carry_out(read_everything(names, groups, is_of_topics_only=bool(patterns)))
    for reason in not_read:
        warn(f"not read: {visible(reason)}")
    text = cluster_file_text(found)
    has_schemas = registry is not None and not patterns
    if has_schemas and to is not None:
        from ottla.browse.cluster_file_schemas import export_schemas

        schemas, count = export_schemas(open_registry(registry), to)
        text = f"{text}\n{schemas}" if schemas else text
        say(f"{count} schema{'' if count == 1 else 's'} written to {to.stem}-schemas")
    elif has_schemas:
        say("no schemas: -o FILE writes them to a folder beside the file")
    if to is None:
        click.echo(text, nl=False)
        return
    from ottla.admin.facts.facts_file import write_whole

    write_whole(to, text.encode())
    say(f"written to {to}")
