"""What `ottla doctor` examines: samples of a cluster or of files, a service, and drift from declarations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.browse.human_amounts import milliseconds
from ottla.cli.operations.notes import wait
from ottla.cli.shared.cluster_options import open_admin
from ottla.cli.shared.output import say
from ottla.errors import InputError

if TYPE_CHECKING:
    from ottla.admin import ClusterFacts
    from ottla.admin.doctor import AppDeclaration
    from ottla.browse.apply_drift import Drift
    from ottla.config import Settings


def declaration(target: str, processes: int) -> AppDeclaration:
    """Return what a service declares, with so many processes."""
    from ottla.admin.doctor import declaration_of
    from ottla.cli.services.run import load_app

    return declaration_of(load_app(target), processes=processes)


def drift_of(kafka: Settings, files: tuple[Path, ...], facts: tuple[Path, ...], registry: str | None) -> Drift:
    """Return what applying these files would change."""
    from ottla.browse.apply_drift import find_drift
    from ottla.cli.shared.registry_options import given_registry

    if facts:
        raise InputError("found --declared and --facts, wanted a cluster to compare with the declarations")
    with open_admin(kafka) as admin:
        return find_drift(admin, files, given_registry(registry))


def check_bridge(kafka: Settings, path: str) -> None:
    """Raise `ConfigError` or `UnknownTopic` for a mapping file that a bridge could not begin with."""
    from ottla.bridge.mapping.mapping_file import read_mapping
    from ottla.cli.services.bridge import find_serde
    from ottla.cli.shared.cluster_options import check_reachable
    from ottla.config.topic_presence import TopicWait
    from ottla.wire_client.producing.writable_topics import await_writable

    topics = read_mapping(path, find_serde).topics
    check_reachable(kafka)
    wait = TopicWait(topics, servers=kafka["bootstrap.servers"], timeout_s=0, now_s=0, who="bridge")
    await_writable(kafka, wait, what="message", now_s=lambda: 0)
    say(f"{path}: {', '.join(topics) or 'no topic by name'}: there, and may be written")


def facts_of_files(files: tuple[Path, ...]) -> list[ClusterFacts]:
    """Return the samples in files, which are of one cluster, the oldest first."""
    from ottla.admin import read_facts_file

    seen = [read_facts_file(file) for file in files]
    for before, after, file in zip(seen, seen[1:], files[1:], strict=False):
        if after.cluster_id != before.cluster_id or after.at_ms <= before.at_ms:
            raise InputError(f"{file}: wanted a later sample of the same cluster than the file before it")
    return seen


def facts_of_cluster(
    kafka: Settings,
    samples: int,
    every: str,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    app: AppDeclaration | None,
    *,
    is_deep: bool,
) -> list[ClusterFacts]:
    """Take so many samples of the parts that the checks read, one after the other."""
    from ottla.admin import Part
    from ottla.admin.doctor import chosen

    pause_ms = milliseconds("--every", every)
    parts = set[Any]().union(
        *(check.reads for check in chosen(only, skip).values() if app is not None or not check.needs_app)
    )
    if not is_deep:
        parts.discard(Part.COMMIT_TIMES)
    seen: list[ClusterFacts] = []
    with open_admin(kafka) as admin:
        for number in range(samples):
            if number:
                wait(max(pause_ms / 1000, 0.002), f"waiting for sample {number + 1} of {samples}")
            seen.append(admin.facts(parts))
    return seen
