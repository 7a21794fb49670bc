"""`ottla apply run`: the changes are shown, agreed to, and made; what was before is in an undo file first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.browse.reset_items import undo_path
from ottla.cli.operations.apply.display import show_plan
from ottla.cli.operations.apply.replicas import check_moves, move_replicas, takes_a_throttle
from ottla.cli.operations.apply.sources import (
    PLAN_ENDING,
    check_plan_name,
    of_declarations,
    open_registry,
    passwords_of,
    planned,
    read_plan,
    record_path,
)
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.outcome import changing
from ottla.cli.shared.output import Output, prints, say
from ottla.cli.shared.visible import visible
from ottla.errors import InputError, OttlaError

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.admin.declared.apply_plan import ApplyPlan
    from ottla.config import Settings
    from ottla.serdes.registry_admin import RegistryAdmin


@click.command()
@of_declarations
@click.option(
    "--undo",
    "undo_file",
    type=FILE,
    help="The file for the plan that reverts this one.  [default: ./apply-undo-TIME.json]",
)
@takes_a_throttle
@reaches_a_cluster
@prints
@changes
def run(
    files: tuple[Path, ...],
    targets: tuple[str, ...],
    prune: bool,
    record: Path | None,
    registry: str | None,
    undo_file: Path | None,
    throttle: str | None,
    no_throttle: bool,
    kafka: Settings,
    out: Output,
    consent: Consent,
) -> None:
    """Make the cluster as FILEs declare it, or apply one plan: a file that ends in .json.

    A plan is applied only to the values that it was made from. An undo file is such a plan: applied, it reverts what it
    can. After a kill, the same command continues.

    \b
    Examples:
      ottla apply run cluster.toml --dry-run
      ottla apply run cluster.toml topics.toml --prune --yes
      ottla apply run plan.json --yes
    """
    if undo_file is not None:
        check_plan_name(undo_file, "--undo")
    with open_admin(kafka) as admin:
        if any(file.suffix == PLAN_ENDING for file in files):
            if len(files) != 1 or targets or prune:
                raise InputError("found a plan beside other declarations or --prune, wanted the plan alone")
            plan = read_plan(files[0])
            if record is not None:
                plan = replace(plan, record=str(record))
        else:
            where = record_path(files, targets, record)
            plan = planned(admin, files, targets, prune=prune, record=where, registry=registry)
        show_plan(out, "apply.run/1", admin, plan)
        schemas = open_registry(registry) if plan.of_registry else None
        if plan.changes:
            admin.check_declared(plan)
            if schemas is not None:
                from ottla.browse.declared_schemas import check_schemas

                check_schemas(plan, schemas)
            check_moves(admin, plan.replica_factors, throttle=throttle, no_throttle=no_throttle)
            if not consent.agree(_question(plan), name=_typed(plan)):
                return
        elif consent.is_dry_run:
            return
        passwords = passwords_of(plan)  # a command of the plan runs after the question only
        _carry_out(kafka, admin, schemas, plan, passwords, undo_file, throttle=throttle, no_throttle=no_throttle)


def _carry_out(
    kafka: Settings,
    admin: Admin,
    registry: RegistryAdmin | None,
    plan: ApplyPlan,
    passwords: dict[tuple[str, str], str],
    undo_file: Path | None,
    *,
    throttle: str | None,
    no_throttle: bool,
) -> None:
    from ottla.admin.declared.applied_file import write_applied
    from ottla.admin.declared.declared_cluster import both_applied

    record = Path(plan.record) if plan.record else None
    path = undo_path(undo_file, "apply", plan.at_ms, what="undo")
    during = both_applied(plan.before, plan.applied)
    expected = (plan.before, during, both_applied(plan.applied, plan.before), plan.applied)
    if plan.changes:
        if record is not None:
            write_applied(record, plan.cluster_id, during, expected=expected)
        with changing():
            try:
                admin.apply_declared(plan, undo_file=path, passwords=passwords)
                if registry is not None:
                    _apply_schemas(plan, registry)
            finally:
                if path.exists():
                    say(f"revert it with: ottla apply {visible(str(path))}")
        if plan.replica_factors:
            move_replicas(kafka, admin, plan, throttle=throttle, no_throttle=no_throttle)
        say("1 change made" if len(plan.changes) == 1 else f"{len(plan.changes)} changes made")
    if record is not None and (plan.changes or plan.before != plan.applied):
        write_applied(record, plan.cluster_id, plan.applied, expected=expected)


def _apply_schemas(plan: ApplyPlan, registry: RegistryAdmin) -> None:
    """Make the changes of the schema registry. What fails then is a part of the plan, if brokers changed something."""
    from ottla.admin.errors import PartlyDone
    from ottla.browse.declared_schemas import apply_schemas

    made = [str(each) for each in plan.changes if each not in plan.of_registry]
    try:
        apply_schemas(plan, registry)
    except OttlaError as error:
        if not made:
            raise
        raise PartlyDone("changes", done=made, failed={"schemas": error}) from error


def _question(plan: ApplyPlan) -> str:
    count, deleted = len(plan.changes), plan.deleted_topics
    what = f"Make {count} changes" if count > 1 else "Make this change"
    return f"{what}, and delete {_typed(plan)} with all records?" if deleted else f"{what}?"


def _typed(plan: ApplyPlan) -> str | None:
    """Return what has to be typed before topics are deleted."""
    deleted = plan.deleted_topics
    if not deleted:
        return None
    return deleted[0] if len(deleted) == 1 else f"{len(deleted)} topics"
