"""Plans as files: Kafka's own reassignment JSON, with more under keys that Kafka's tools ignore (`ottla`).

`kafka-reassign-partitions` executes such a file, and files that it, or a person, wrote are read here. A file may hold
anything, so all of it is checked: an error names the place in it, what was found and what was wanted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec

from ottla.admin.placement.cluster_model import Model
from ottla.admin.placement.move_plan import BrokerLoad, DiskMove, Move, MovePlan
from ottla.errors import InputError
from ottla.topics import TopicPartition

FORMAT: Final = 1
ANY: Final = "any"
"""Kafka's word for: the broker chooses the directory."""

_Id = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=249)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One partition of a file. `log_dirs` is empty, or has a path or `any` for each replica."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...] = ()
    why: str = ""
    batch: int = 0

    @property
    def place(self) -> TopicPartition:
        """Topic and number."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """The content of a plan file. `cluster_id` is empty if the file does not name a cluster."""

    entries: tuple[Entry, ...]
    cluster_id: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


def dump_plan(plan: MovePlan) -> bytes:
    """Return the plan as a file: one line for each partition, so that a person can read and cut it."""
    lines = [
        {
            "topic": move.topic,
            "partition": move.partition,
            "replicas": list(move.new),
            "log_dirs": list(move.log_dirs) or [ANY] * len(move.new),
            "ottla": {"from": list(move.old), "bytes": move.bytes, "batch": move.batch, "why": move.why},
        }
        for move in plan.moves
    ]
    about = {
        "format": FORMAT,
        "cluster_id": plan.cluster_id,
        "kind": plan.kind,
        "facts": {"at_ms": plan.at_ms},
        "goals": {"tolerance": plan.tolerance, "max_fill": plan.max_fill},
        "floor": {"level": round(plan.floor.level, 4), "why": plan.floor.why},
        "bytes_copied": plan.bytes_copied,
        "batches": plan.batches,
        "before": _loads(plan.before),
        "after": _loads(plan.after),
        "notes": list(plan.notes),
        "left_out": [{"topic": each.topic, "partition": each.partition, "why": each.why} for each in plan.left_out],
    }
    return _document(lines, about)


def dump_rollback(moves: Iterable[Move]) -> bytes:
    """Return Kafka's plain JSON for where everything was before these moves."""
    lines = []
    for move in moves:
        back = {each.broker: each.source for each in move.disk_moves}
        dirs = [back.get(broker, ANY) for broker in move.old]
        lines.append({"topic": move.topic, "partition": move.partition, "replicas": list(move.old), "log_dirs": dirs})
    return _document(lines, None)


def load_plan(data: bytes, *, source: str = "plan") -> PlanFile:
    """Return what a file wants. InputError for what Kafka would refuse, or would do other than its author thinks."""
    try:
        found = msgspec.json.decode(data, type=_PlanDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{source}: {error or 'JSON nested too deeply'}; wanted Kafka's reassignment JSON") from None
    if found.version != 1:
        raise InputError(f"{source}: found version {found.version}, wanted 1")
    about = found.ottla
    if about.get("format", FORMAT) != FORMAT:
        raise InputError(f"{source}: found format {about['format']!r} of ottla, wanted {FORMAT}")
    seen: set[TopicPartition] = set()
    entries = []
    for at, each in enumerate(found.partitions):
        entry = _entry(each, f"{source}: partitions[{at}]")
        if entry.place in seen:
            raise InputError(f"{source}: partitions[{at}]: found {entry.place} a second time, wanted each once")
        seen.add(entry.place)
        entries.append(entry)
    cluster = about.get("cluster_id", "")
    return PlanFile(entries=tuple(entries), cluster_id=cluster if isinstance(cluster, str) else "", extra=about)


def moves_of(file: PlanFile, model: Model) -> tuple[Move, ...]:
    """Return the changes of the file to the current cluster, without partitions that are in place already. Raises
    InputError for a topic, partition or log directory that the cluster does not have."""
    found = []
    for entry in file.entries:
        now = model.by_place.get(entry.place)
        if now is None:
            raise InputError(f"{entry.place}: the cluster has no such partition")
        disk_moves = []
        for broker, path in zip(entry.replicas, entry.log_dirs, strict=False):
            if path == ANY:
                continue
            known = model.by_id.get(broker)
            disks = known.disks if known is not None else ()
            at = next((at for at, disk in enumerate(disks) if path in disk.paths), None)
            if at is None:
                paths = ", ".join(path for disk in disks for path in disk.paths) or "none"
                raise InputError(
                    f"{entry.place}: found log directory {path!r} for broker {broker}, wanted one of {paths}"
                )
            source = now.disks.get(broker)
            if broker in now.replicas and source is not None and source != at:
                disk_moves.append(DiskMove(broker=broker, source=disks[source].path, target=path))
        if entry.replicas == now.replicas and not disk_moves:
            continue
        found.append(
            Move(
                topic=entry.topic,
                partition=entry.partition,
                bytes=now.size,
                old=now.replicas,
                new=entry.replicas,
                log_dirs=entry.log_dirs or (ANY,) * len(entry.replicas),
                disk_moves=tuple(disk_moves),
                why=entry.why,
                batch=entry.batch,
                rate=now.rate,
            )
        )
    return tuple(found)


class _Partition(msgspec.Struct):
    topic: _Name
    partition: _Id
    replicas: list[_Id]
    log_dirs: list[str] | None = None
    ottla: dict[str, Any] = {}


class _PlanDocument(msgspec.Struct):
    version: int
    partitions: list[_Partition]
    ottla: dict[str, Any] = {}


def _entry(each: _Partition, place: str) -> Entry:
    name = f"{place} ({each.topic}-{each.partition})"
    if not each.replicas:
        raise InputError(f"{name}: found no replicas, wanted at least one broker")
    if len(set(each.replicas)) != len(each.replicas):
        raise InputError(f"{name}: found replicas {each.replicas}, wanted each broker once")
    if each.log_dirs is not None and len(each.log_dirs) != len(each.replicas):
        raise InputError(
            f"{name}: found {len(each.log_dirs)} log_dirs for {len(each.replicas)} replicas, wanted one for each"
        )
    why, batch = each.ottla.get("why", ""), each.ottla.get("batch", 0)
    return Entry(
        topic=each.topic,
        partition=each.partition,
        replicas=tuple(each.replicas),
        log_dirs=tuple(each.log_dirs or ()),
        why=why if isinstance(why, str) else "",
        batch=batch if isinstance(batch, int) else 0,
    )


def _document(lines: list[dict[str, Any]], about: dict[str, Any] | None) -> bytes:
    body = ",\n  ".join(json.dumps(line) for line in lines)
    partitions = f"[\n  {body}\n ]" if lines else "[]"
    rest = "" if about is None else f',\n "ottla": {json.dumps(about, indent=1)}'
    return f'{{"version": 1,\n "partitions": {partitions}{rest}\n}}\n'.encode()


def _loads(loads: Iterable[BrokerLoad]) -> dict[str, Any]:
    return {
        str(load.id): {
            "bytes": load.bytes,
            "level": None if load.level is None else round(load.level, 4),
            "replicas": load.replicas,
            "leaders": load.leaders,
            "leader_weight": round(load.leader_weight, 1),
        }
        for load in loads
    }


def moves_between(file: PlanFile, rollback: PlanFile, model: Model) -> tuple[Move, ...]:
    """Return the moves of a run that has begun: from the replicas in its rollback file to those in the plan file."""
    before = {entry.place: entry for entry in rollback.entries}
    found = []
    for entry in file.entries:
        old = before.get(entry.place)
        if old is None:
            continue  # it was so already when the run began
        now = model.by_place.get(entry.place)
        found.append(
            Move(
                topic=entry.topic,
                partition=entry.partition,
                bytes=0 if now is None else now.size,
                old=old.replicas,
                new=entry.replicas,
                log_dirs=entry.log_dirs or (ANY,) * len(entry.replicas),
                why=entry.why,
                batch=entry.batch,
                rate=0.0 if now is None else now.rate,
            )
        )
    return tuple(found)
