"""`ottla doctor`: the checks of `ottla.admin.doctor` on a cluster, on a file of facts, and on a service."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.browse.doctor_items import finding_item, finding_items, report_fields
from ottla.browse.human_amounts import milliseconds
from ottla.cli.operations.apply.sources import takes_a_registry
from ottla.cli.operations.notes import wait
from ottla.cli.shared.cluster_options import open_admin, reaches_a_cluster
from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import Column, Format, Output, prints, say, warn
from ottla.cli.shared.visible import visible
from ottla.errors import ConfigError, InputError

if TYPE_CHECKING:
    from ottla.admin import ClusterFacts
    from ottla.admin.declared.apply_plan import PlannedChange
    from ottla.admin.doctor import AppDeclaration, Finding, Report
    from ottla.config import Settings

_SEVERITIES = ("error", "warning", "note")
_COLOURS = {"error": "red", "warning": "yellow", "note": "blue"}
_FOLDED_FROM = 3
"""Findings of one check that a person is shown; a pipe and JSON have all of them."""

_COLUMNS = (Column("severity"), Column("id"), Column("subject"), Column("message"), Column("fix"))


def _explain(ctx: click.Context, option: click.Parameter, ids: tuple[str, ...]) -> None:
    """Print the page of checks and end; nothing is connected to."""
    if not ids or ctx.resilient_parsing:
        return
    from ottla.admin.doctor import all_checks

    checks = all_checks()
    for id in ids:
        if id.upper() not in checks:
            raise ConfigError(f"{id}: no check has this id, wanted one of {', '.join(checks)}")
        check = checks[id.upper()]
        needs = [*sorted(check.reads), *(["a service (--app)"] if check.needs_app else [])]
        needs += ["declarations (--declared)"] if check.needs_declared else []
        needs += [f"{check.samples} samples (--samples)"] if check.samples > 1 else []
        click.echo(f"{check.id} ({check.severity}): {check.title}\n\n{check.why}\n")
        click.echo(f"fix:   {check.fix}\nreads: {', '.join(needs)}")
    raise click.exceptions.Exit(0)


@click.command()
@reaches_a_cluster
@prints
@click.option("--only", multiple=True, metavar="ID[,ID]", help="Only these checks; may be repeated.")
@click.option("--skip", multiple=True, metavar="ID[,ID]", help="Not these checks; may be repeated.")
@click.option(
    "--fail-on",
    type=click.Choice(_SEVERITIES),
    default="warning",
    show_default=True,
    help="The lowest severity that makes the exit code 1.",
)
@click.option("--app", "target", metavar="MODULE:APP", help="Also check this service against the cluster.")
@click.option(
    "--declared",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also find drift from this file of `ottla apply`; repeatable.",
)
@takes_a_registry
@click.option(
    "--bridge",
    "mapping",
    type=click.Path(dir_okay=False),
    help="Also check that the topics of this mapping file of `ottla bridge` are there and may be written.",
)
@click.option(
    "--processes", type=click.IntRange(1), default=1, show_default=True, help="Number of processes of the service."
)
@click.option(
    "--facts",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Check a file of `ottla cluster facts` instead of a cluster; several are samples, the oldest first.",
)
@click.option("--samples", type=click.IntRange(1, 100), default=1, show_default=True, help="Number of samples to take.")
@click.option("--every", default="30s", show_default=True, metavar="TIME", help="Time between two samples.")
@click.option("--deep", is_flag=True, help="Also read the records of __consumer_offsets, which GRP03 needs.")
@click.option("--baseline", type=click.Path(path_type=Path, dir_okay=False), help="A file of accepted findings.")
@click.option(
    "--accept",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a baseline that accepts all current findings; with --reason and --until.",
)
@click.option("--reason", help="With --accept: the reason.")
@click.option(
    "--until", metavar="DATE", help="With --accept: the last day that the findings are accepted, as 2027-01-31."
)
@click.option(
    "--explain",
    multiple=True,
    metavar="ID",
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Explain what a check looks for and why, and exit.",
)
def doctor(
    kafka: Settings,
    out: Output,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    fail_on: str,
    target: str | None,
    declared: tuple[Path, ...],
    registry: str | None,
    mapping: str | None,
    processes: int,
    files: tuple[Path, ...],
    samples: int,
    every: str,
    deep: bool,
    baseline: Path | None,
    accept: Path | None,
    reason: str | None,
    until: str | None,
) -> None:
    """Find problems of a cluster, of a file of its facts, or between a cluster and a service.

    It changes nothing, and reads no records without --deep. A check whose facts could not be read is reported as not
    checked.

    The exit code is 0 if nothing was found, 1 for findings (--fail-on) and checks that were refused, 2 if it could not
    begin.

    \b
    Examples:
      ottla doctor
      ottla doctor --samples 2 --every 1s --fail-on error
      ottla doctor --only REP01,REP04 --format json
      ottla doctor --explain GRP04
    """
    from ottla.admin.doctor import Evidence, Severity, chosen, examine, load_baseline, without_accepted
    from ottla.admin.facts.facts_file import read_bounded

    wanted, unwanted = _ids(only), _ids(skip)
    chosen(wanted, unwanted)
    accepted_until = _until(accept, reason, until)
    known = None if baseline is None else load_baseline(read_bounded(baseline), source=str(baseline))
    app = None if target is None else _declaration(target, processes)
    if mapping is not None:
        _check_bridge(kafka, mapping)
    seen = _from_files(files) if files else _from_cluster(kafka, samples, every, wanted, unwanted, app, is_deep=deep)
    drift = _drift(kafka, declared, files, registry) if declared else None
    report = examine(Evidence(facts=seen[-1], earlier=seen[:-1], app=app, drift=drift), only=wanted, skip=unwanted)
    if known is not None:
        report = without_accepted(report, known, today=dt.datetime.now(dt.UTC).date())
    refused = [each for each in report.not_checked if each.id in report.checked]
    _print(out, report, seen[-1])
    if accept is not None and accepted_until is not None:
        _accept(accept, report, str(reason), accepted_until)
    elif report.at_least(Severity(fail_on)) or refused:
        fail()


def _ids(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each.strip().upper() for text in texts for each in text.split(",") if each.strip())


def _until(accept: Path | None, reason: str | None, until: str | None) -> dt.date | None:
    if accept is None:
        if reason is not None or until is not None:
            raise InputError("found --reason or --until without --accept FILE")
        return None
    if not reason or until is None:
        raise InputError("--accept: wanted --reason and --until as well: each accepted finding has a reason and an end")
    try:
        return dt.date.fromisoformat(until)
    except ValueError:
        raise InputError(f"--until: found {until!r}, wanted a date as in 2027-01-31") from None


def _declaration(target: str, processes: int) -> AppDeclaration:
    from ottla.admin.doctor import declaration_of
    from ottla.cli.services.run import load_app

    return declaration_of(load_app(target), processes=processes)


def _drift(
    kafka: Settings, declared: tuple[Path, ...], facts: tuple[Path, ...], registry: str | None
) -> tuple[PlannedChange, ...]:
    """Return what applying these files would change."""
    from ottla.cli.operations.apply.sources import planned, record_path

    if facts:
        raise InputError("found --declared and --facts, wanted a cluster to compare with the declarations")
    with open_admin(kafka) as admin:
        return planned(
            admin, declared, (), prune=False, record=record_path(declared, (), None), registry=registry
        ).changes


def _check_bridge(kafka: Settings, path: str) -> None:
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


def _from_files(files: tuple[Path, ...]) -> list[ClusterFacts]:
    from ottla.admin import read_facts_file

    seen = [read_facts_file(file) for file in files]
    for before, after, file in zip(seen, seen[1:], files[1:], strict=False):
        if after.cluster_id != before.cluster_id or after.at_ms <= before.at_ms:
            raise InputError(f"{file}: wanted a later sample of the same cluster than the file before it")
    return seen


def _from_cluster(
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

    pause_ms = milliseconds(every)
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


def _print(out: Output, report: Report, facts: ClusterFacts) -> None:
    if out.format is Format.JSON:
        out.items("doctor/1", _COLUMNS, finding_items(report), **report_fields(report, facts))
    elif out.format is Format.PLAIN:
        out.items("doctor/1", _COLUMNS, [finding_item(each) for each in report.findings], empty=_nothing(report))
    else:
        _print_folded(report.findings, empty=_nothing(report))
    _say_rest(report)


def _nothing(report: Report) -> str:
    """Return the sentence for a report without findings. Parts that could not be read are named: they are no good
    result."""
    refused = {each.id for each in report.not_checked} & set(report.checked)
    if not refused:
        return "nothing found"
    return f"nothing found by {len(set(report.checked) - refused)} checks; {len(refused)} could not see all (below)"


def _print_folded(findings: tuple[Finding, ...], *, empty: str) -> None:
    by_id: dict[tuple[str, str], list[Finding]] = {}
    for each in findings:
        by_id.setdefault((each.id, each.severity), []).append(each)
    for (id, severity), found in by_id.items():
        label = click.style(f"{severity:<7} {id}", fg=_COLOURS[severity])
        for each in found[:_FOLDED_FROM]:
            click.echo(f"{label}  {visible(each.message)}\n               fix: {visible(each.fix)}")
        if len(found) > _FOLDED_FROM:
            click.echo(f"{label}  and {len(found) - _FOLDED_FROM} more: --only {id} --format plain")
    if not findings:
        say(empty)


def _say_rest(report: Report) -> None:
    """Print what was accepted and what was not checked, one line per reason."""
    if report.accepted:
        say(f"{len(report.accepted)} accepted by the baseline")
    by_reason: dict[str, list[str]] = {}
    for each in report.not_checked:
        by_reason.setdefault(each.reason, []).append(each.id)
    for reason, ids in by_reason.items():
        warn(f"not checked: {', '.join(ids)}: {visible(reason)}")


def _accept(path: Path, report: Report, reason: str, until: dt.date) -> None:
    from ottla.admin.doctor import dump_baseline
    from ottla.admin.facts.facts_file import write_whole

    if path.exists():
        raise InputError(f"--accept {path}: the file exists; a baseline is never overwritten")
    write_whole(path, dump_baseline(report, reason=reason, until=until))
    say(f"{path}: {len(report.findings)} findings accepted until {until}")
