"""What the commands of `ottla apply` are given: files, services, plan files, and the record of what was applied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.options import takes
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.admin.declared.apply_plan import ApplyPlan
    from ottla.admin.declared.declared_cluster import DeclaredCluster
    from ottla.serdes.registry_admin import RegistryAdmin


PLAN_ENDING: Final = ".json"

takes_a_registry: Final = click.option(
    "--registry",
    envvar="OTTLA_REGISTRY",
    metavar="URL[,...]",
    help="The schema registry, where schemas are declared; OTTLA_REGISTRY in the environment.",
)


of_declarations: Final = takes(
    click.argument("files", metavar="[FILE...]", nargs=-1, type=FILE),
    click.option(
        "--app",
        "targets",
        multiple=True,
        metavar="MODULE:APP",
        help="Also what this service declares with create_topics, or else the topics it uses; repeatable.",
    ),
    click.option(
        "--prune",
        is_flag=True,
        help="Delete undeclared topics under the prefixes, or of the owners, that [prune] of a file names.",
    ),
    click.option(
        "--record",
        type=FILE,
        help="The file that remembers what was declared, to unset what is removed.  [default: FILE.applied.json]",
    ),
    takes_a_registry,
)
"""Give a command the options that say what is declared: FILE..., `--app`, `--prune`, `--record`."""


def planned(
    admin: Admin,
    files: tuple[Path, ...],
    targets: tuple[str, ...],
    *,
    prune: bool,
    record: Path,
    registry: str | None = None,
) -> ApplyPlan:
    """Return the plan from what files and services declare. `registry` is the address of the schema registry."""
    from ottla.admin.declared.apply_plan import ORDER
    from ottla.browse.apply_drift import Comparison, declared_in
    from ottla.cli.shared.registry_options import given_registry

    declared = declared_in(files, [(target, _of_app(target)) for target in targets])
    compared = Comparison(admin, declared, record, given_registry(registry))
    plan = compared.cluster_plan(prune=prune)
    found = compared.schema_changes()
    if not found:
        return plan
    changes = sorted((*plan.changes, *found), key=lambda each: (each.is_deletion_of_topic, ORDER[each.kind]))
    return replace(plan, changes=tuple(changes))


def open_registry(url: str | None) -> RegistryAdmin:
    """Return the client of the registry whose schemas are declared."""
    from ottla.browse.apply_drift import required_registry
    from ottla.cli.shared.registry_options import given_registry

    return required_registry(given_registry(url)).open()


def record_path(files: tuple[Path, ...], targets: tuple[str, ...], given: Path | None) -> Path:
    """Return the file that remembers what was declared: beside the first file."""
    if not files and not targets:
        raise InputError("found neither a FILE nor --app, wanted what is declared")
    if given is not None:
        return given
    from ottla.browse.apply_drift import record_beside

    return record_beside(files[0] if files else Path(targets[0].rpartition(":")[0].replace(".", "-") + ".toml"))


def read_plan(path: Path) -> ApplyPlan:
    """Return the plan in a file that `ottla apply plan -o` or an undo wrote."""
    from ottla.admin.declared.apply_plan import load_plan
    from ottla.admin.facts.facts_file import read_bounded
    from ottla.browse.secret_sources import refuse_if_others_write

    plan = load_plan(read_bounded(path), source=str(path))
    if any(change.secret[:1] == ("command",) for change in plan.changes):
        refuse_if_others_write(path, path.stat())
    return plan


def check_plan_name(path: Path, option: str) -> None:
    """Raise InputError for a file that `ottla apply run` would not take for a plan."""
    if path.suffix != PLAN_ENDING:
        raise InputError(f"{option}: found {str(path)!r}, wanted a name that ends in {PLAN_ENDING}, as plans do")


def passwords_of(plan: ApplyPlan) -> dict[tuple[str, str], str]:
    """Return the passwords that the plan needs, from the environment or from commands. They stand in no file."""
    from ottla.admin.declared.apply_plan import Kind
    from ottla.browse.secret_sources import secret_of

    found = {}
    for change in plan.changes:
        if change.kind is Kind.USER and change.new is not None:
            if not change.secret:
                raise InputError(f"user {change.subject}, {change.name}: its password is not known to this plan")
            where = f"user {change.subject}: password"
            found[change.subject, change.name] = secret_of(change.secret, where=where)
    return found


def _of_app(target: str) -> DeclaredCluster:
    from ottla.admin.declared.declared_cluster import DeclaredCluster, DeclaredTopic
    from ottla.app.app import declarations_of
    from ottla.cli.services.run import load_app

    app = load_app(target)
    specs = declarations_of(app).topics_to_create(app.create_topics or True)
    return DeclaredCluster(
        topics={
            name: DeclaredTopic(
                partitions=spec.partitions, replication_factor=spec.replication_factor, settings=spec.config_texts
            )
            for name, spec in specs.items()
        }
    )
