"""What `ottla apply` would change of its files now: for the doctor and a page of the console. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.admin.declared.applied_file import read_applied
from ottla.admin.declared.declared_cluster import DeclaredCluster, merged
from ottla.browse.cluster_file import read_cluster_file
from ottla.errors import InputError, OttlaError
from ottla_wire.facts import fact

if TYPE_CHECKING:
    from ottla.admin import Admin
    from ottla.admin.declared.apply_plan import ApplyPlan, PlannedChange
    from ottla.browse.registry_access import RegistryAccess

RECORD_ENDING: Final = ".applied.json"


class Comparison:
    """Compares what is declared with a cluster and its registry, and with what was applied to the cluster before.

    `record` is the file that remembers the latter. Raises InputError for schemas without a registry.
    """

    def __init__(self, admin: Admin, declared: DeclaredCluster, record: Path, registry: RegistryAccess | None) -> None:
        self.cluster_id = admin.facts(()).cluster_id
        self._applied = read_applied(record, self.cluster_id)
        self._admin = admin
        self._declared = declared
        self._record = record
        self._registry = required_registry(registry) if declared.schemas or self._applied.levels else None

    def cluster_plan(self, *, prune: bool = False) -> ApplyPlan:
        """Return the plan for the cluster, without that for the registry."""
        return self._admin.plan_declared(
            self._declared, applied=self._applied, prune=prune, record=str(self._record.absolute())
        )

    def schema_changes(self) -> tuple[PlannedChange, ...]:
        """Return the changes of the registry: none if neither the declarations nor the record has schemas."""
        if self._registry is None:
            return ()
        from ottla.browse.declared_schemas import planned_schemas

        return planned_schemas(self._declared.schemas, self._applied, self._registry.open())


def required_registry(registry: RegistryAccess | None) -> RegistryAccess:
    """Return the registry whose schemas are declared. InputError without one."""
    if registry is None:
        raise InputError("found schemas and no registry, wanted --registry or OTTLA_REGISTRY")
    return registry


@fact
class Drift:
    """The changes that applying would make. A part that could not be compared is in `not_read`: its reason."""

    cluster_id: str
    changes: tuple[PlannedChange, ...]
    not_read: tuple[str, ...]


def record_beside(file: Path) -> Path:
    """Return the file that remembers what was declared in a file and those after it."""
    return file.with_name(f"{file.stem}{RECORD_ENDING}")


def declared_in(files: Sequence[Path], services: Iterable[tuple[str, DeclaredCluster]] = ()) -> DeclaredCluster:
    """Return what files and services, each with its name, declare together. InputError for a file that declares
    nothing, or two that contradict."""
    return merged([*((str(file), read_cluster_file(file)) for file in files), *services])


def find_drift(admin: Admin, files: Sequence[Path], registry: RegistryAccess | None) -> Drift:
    """Return what applying these files would change. What brokers or the registry refuse or do not answer is in
    `not_read`. InputError for files that declare nothing, and for schemas without a registry."""
    compared = Comparison(admin, declared_in(files), record_beside(files[0]), registry)
    changes: list[PlannedChange] = []
    not_read: list[str] = []
    try:
        changes += compared.cluster_plan().changes
    except OttlaError as error:
        not_read.append(str(error))
    try:
        changes += compared.schema_changes()
    except OttlaError as error:
        not_read.append(str(error))
    return Drift(cluster_id=compared.cluster_id, changes=tuple(changes), not_read=tuple(not_read))


def change_item(change: PlannedChange, doomed: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return an item of `apply.plan/1`. `doomed` is what is deleted with a topic."""
    item: dict[str, Any] = {
        "kind": change.kind.value,
        "subject": change.subject,
        "name": change.name or None,
        "old": change.old,
        "inherited": change.inherited,
        "new": change.new,
        "note": _note(change, doomed) or None,
    }
    return item if doomed is None else {**item, "records": doomed["records"], "groups": doomed["groups"]}


def _note(change: PlannedChange, doomed: dict[str, Any] | None) -> str:
    if doomed is not None:
        records = "unknown" if doomed["records"] is None else f"{doomed['records']:,}"
        groups = ", ".join(doomed["groups"]) or "none"
        return f"{change.note}: {records} records; groups: {groups}"
    if change.inherited is not None:
        return f"{change.inherited} without it"
    return change.note
