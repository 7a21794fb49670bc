"""The doctor in a test: a cluster, and a service on it, as they should be."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.admin.admin_client import Admin
from ottla.admin.doctor import Evidence, Report, Severity, declaration_of, examine
from ottla.admin.facts.cluster_facts import Part
from ottla.admin.facts.facts_reader import EVERYTHING

if TYPE_CHECKING:
    from broker_embedded.cluster import EmbeddedCluster
    from ottla.app import App
    from ottla.testing.kafka import Kafka

_OF_THE_EMBEDDED_BROKER = ("STO06",)
"""Its logs are in a temporary directory, and should be."""


def assert_healthy(
    cluster: str | Kafka | EmbeddedCluster | Admin,
    *,
    app: App | None = None,
    processes: int = 1,
    only: Collection[str] = (),
    ignore: Collection[str] = (),
    fail_on: Severity = Severity.WARNING,
) -> Report:
    """Fail with what the doctor finds on a cluster: an address, the `kafka` fixture, an embedded cluster or an `Admin`.

    `app` is checked against the cluster as well, without running it; `processes` is how many of them are to run. `only`
    and `ignore` are ids of checks, `fail_on` is the mildest severity that fails. A check whose facts were refused or
    not reached fails too: it is not known to be well. Returns the report. The checks of the embedded broker's own
    temporary directory are left out.
    """
    if isinstance(cluster, Admin):
        return _assert(cluster, app, processes, only, (*ignore,), fail_on)
    servers = cluster if isinstance(cluster, str) else cluster.bootstrap_servers
    is_embedded = not isinstance(cluster, str) and getattr(cluster, "cluster", cluster) is not None
    skip = (*ignore, *(_OF_THE_EMBEDDED_BROKER if is_embedded and not only else ()))
    with Admin(servers, settings=getattr(cluster, "settings", None)) as admin:
        return _assert(admin, app, processes, only, skip, fail_on)


def _assert(
    admin: Admin, app: App | None, processes: int, only: Collection[str], skip: Collection[str], fail_on: Severity
) -> Report:
    __tracebackhide__ = True
    facts = admin.facts({*EVERYTHING, Part.SCHEDULES})
    declared = None if app is None else declaration_of(app, processes=processes)
    report = examine(Evidence(facts=facts, app=declared), only=only, skip=skip)
    found = [f"{each.id} {each.severity}: {each.message}; fix: {each.fix}" for each in report.at_least(fail_on)]
    made = set(report.checked)
    found += [f"{each.id} not checked: {each.reason}" for each in report.not_checked if each.id in made]
    if found:
        raise AssertionError("\n".join([f"the doctor found {len(found)}:", *found]))
    return report
