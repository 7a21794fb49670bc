"""`ottla apply plan`: what would change, and whether something would."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.operations.apply.display import show_plan
from ottla.cli.operations.apply.sources import check_plan_name, of_declarations, planned, record_path
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import Output, prints, say

if TYPE_CHECKING:
    from ottla.config import Settings


@click.command()
@of_declarations
@click.option("-o", "--output", "to", type=FILE, help="Write the plan to a file, for `ottla apply run`.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 if something would change: the cluster has drifted.")
@reaches_a_cluster
@prints
def plan(
    files: tuple[Path, ...],
    targets: tuple[str, ...],
    prune: bool,
    record: Path | None,
    registry: str | None,
    to: Path | None,
    exit_code: bool,
    kafka: Settings,
    out: Output,
) -> None:
    """Show what applying FILEs would change. Changes nothing.

    \b
    Examples:
      ottla apply plan cluster.toml
      ottla apply plan cluster.toml --exit-code --format json
      ottla apply plan cluster.toml -o plan.json
    """
    fields: dict[str, Any] = {}
    if to is not None:
        check_plan_name(to, "--output")
    with open_admin(kafka) as admin:
        where = record_path(files, targets, record)
        found = planned(admin, files, targets, prune=prune, record=where, registry=registry)
        if to is not None:
            from ottla.admin.declared.apply_plan import dump_plan
            from ottla.admin.facts.facts_file import write_whole

            write_whole(to, dump_plan(found))
            fields["file"] = str(to)
        show_plan(out, "apply.plan/1", admin, found, **fields)
    if to is not None:
        say(f"written to {to}; nothing changes until: ottla apply run {to}")
    if exit_code and found.changes:
        fail()
