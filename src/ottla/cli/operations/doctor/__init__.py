"""`ottla doctor`: the checks of `ottla.admin.doctor` on a cluster, on a file of facts, and on a service."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.operations.apply.sources import takes_a_registry
from ottla.cli.operations.doctor.display import print_report
from ottla.cli.operations.doctor.evidence import (
    check_bridge,
    declaration,
    drift_of,
    facts_of_cluster,
    facts_of_files,
)
from ottla.cli.shared.cluster_options import reaches_a_cluster
from ottla.cli.shared.file_type import FILE
from ottla.cli.shared.outcome import fail
from ottla.cli.shared.output import Output, prints, say
from ottla.errors import ConfigError, InputError

if TYPE_CHECKING:
    from ottla.admin.doctor import Report
    from ottla.config import Settings

_SEVERITIES = ("error", "warning", "note")


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
    "--declared", multiple=True, type=FILE, help="Also find drift from this file of `ottla apply`; repeatable."
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
    type=FILE,
    help="Check a file of `ottla cluster facts` instead of a cluster; several are samples, the oldest first.",
)
@click.option("--samples", type=click.IntRange(1, 100), default=1, show_default=True, help="Number of samples to take.")
@click.option("--every", default="30s", show_default=True, metavar="TIME", help="Time between two samples.")
@click.option("--deep", is_flag=True, help="Also read the records of __consumer_offsets, which GRP03 needs.")
@click.option("--baseline", type=FILE, help="A file of accepted findings.")
@click.option(
    "--accept", type=FILE, help="Write a baseline that accepts all current findings; with --reason and --until."
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
    app = None if target is None else declaration(target, processes)
    if mapping is not None:
        check_bridge(kafka, mapping)
    seen = (
        facts_of_files(files) if files else facts_of_cluster(kafka, samples, every, wanted, unwanted, app, is_deep=deep)
    )
    drift = drift_of(kafka, declared, files, registry) if declared else None
    evidence = Evidence(
        facts=seen[-1],
        earlier=seen[:-1],
        app=app,
        drift=None if drift is None else drift.changes,
        drift_not_read=() if drift is None else drift.not_read,
    )
    report = examine(evidence, only=wanted, skip=unwanted)
    if known is not None:
        report = without_accepted(report, known, today=dt.datetime.now(dt.UTC).date())
    refused = [each for each in report.not_checked if each.id in report.checked]
    print_report(out, report, seen[-1])
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
    from ottla.admin.doctor.baseline import parse_day

    return parse_day(until, "--until")


def _accept(path: Path, report: Report, reason: str, until: dt.date) -> None:
    from ottla.admin.doctor import dump_baseline
    from ottla.admin.facts.facts_file import write_whole

    if path.exists():
        raise InputError(f"--accept {path}: the file exists; a baseline is never overwritten")
    write_whole(path, dump_baseline(report, reason=reason, until=until))
    say(f"{path}: {len(report.findings)} findings accepted until {until}")
