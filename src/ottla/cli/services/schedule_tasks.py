"""`ottla schedule pause`, `resume`, `trigger` and `remove`: changes of recurring tasks."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import click

from ottla.cli.services.schedule import name_option
from ottla.cli.shared.cluster_options import check_reachable, reaches_a_cluster, timeout_s
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.outcome import changing
from ottla.cli.shared.output import Output, prints, say
from ottla.config import Settings, security_of
from ottla.errors import InputError, UnknownTopic
from ottla.schedule.tasks.task_records import State, pause_record, removal_record, tasks_topic, trigger_record


def _task_command(function: Callable[..., None]) -> click.Command:
    """Make a command that changes one recurring task."""
    return click.command()(
        click.argument("task_id", metavar="TASK")(name_option(reaches_a_cluster(prints(changes(function)))))
    )


@_task_command
def pause(task_id: str, kafka: Settings, out: Output, consent: Consent, name: str) -> None:
    """Pause a recurring TASK: nothing is due until it is resumed. Stays over deployments.

    \b
    Example:
      ottla schedule pause billing/daily-report
    """
    id = _known(kafka, name, task_id)
    _write(kafka, out, consent, name, "pause", id, pause_record(id, is_paused=True))


@_task_command
def resume(task_id: str, kafka: Settings, out: Output, consent: Consent, name: str) -> None:
    """Resume a recurring TASK with its next due time. The due times of the pause are not made up for.

    \b
    Example:
      ottla schedule resume billing/daily-report
    """
    id = _known(kafka, name, task_id)
    _write(kafka, out, consent, name, "resume", id, pause_record(id, is_paused=False))


@_task_command
def trigger(task_id: str, kafka: Settings, out: Output, consent: Consent, name: str) -> None:
    """Run a recurring TASK once more, now. A paused one is run as well.

    \b
    Example:
      ottla schedule trigger billing/daily-report --yes
    """
    id = _known(kafka, name, task_id)
    _write(kafka, out, consent, name, "trigger", id, trigger_record(id, uuid.uuid4().hex))


@_task_command
def remove(task_id: str, kafka: Settings, out: Output, consent: Consent, name: str) -> None:
    """Remove a recurring TASK that no app declares any more. An app that does declares it again when it starts.

    \b
    Example:
      ottla schedule remove billing/old-report --dry-run
    """
    id = _known(kafka, name, task_id)
    _write(kafka, out, consent, name, "remove", id, removal_record(id))


def tasks_of(kafka: Settings, name: str) -> dict[str, State]:
    """Return the recurring tasks of a schedule by id; none where no app has declared one."""
    from ottla.schedule.tasks.reading import read_tasks
    from ottla.wire_client.client_settings import connection_settings
    from ottla.wire_client.cluster.cluster_client import Cluster
    from ottla.wire_client.ranges import Isolation

    timeout_ms = round(timeout_s() * 1_000)
    wire = connection_settings(
        kafka, isolation=Isolation.READ_COMMITTED, client_id="ottla-schedule", api_timeout_ms=timeout_ms
    )
    try:
        with Cluster(wire) as cluster:
            return read_tasks(cluster, tasks_topic(name))
    except UnknownTopic:
        return {}


def _known(kafka: Settings, name: str, given: str) -> str:
    """Return the id of a task, given as `group/id`, or as the id where one group has it."""
    check_reachable(kafka)
    known = tasks_of(kafka, name)
    if given in known:
        return given
    named = [id for id in known if id.rpartition("/")[2] == given]
    if len(named) == 1:
        return named[0]
    if named:
        raise InputError(f"{given!r} is a task of several groups, wanted one of {', '.join(sorted(named))}")
    there = f"; there are {', '.join(sorted(known)[:20])}" if known else ""
    raise InputError(f"{tasks_topic(name)}: no task has the id {given!r}{there}")


def _write(
    kafka: Settings,
    out: Output,
    consent: Consent,
    name: str,
    change: str,
    id: str,
    record: tuple[bytes, bytes | None],
) -> None:
    from ottla.sync.produce.producer import Producer

    topic = tasks_topic(name)
    out.one("schedule.task/1", {"change": change, "id": id, "schedule_name": name, "topic": topic})
    if not consent.agree(f"{change.capitalize()} {id!r} in {topic}?"):
        return
    timeout_ms = round(timeout_s() * 1_000)
    bounded = {"linger.ms": 0, "request.timeout.ms": timeout_ms, "delivery.timeout.ms": timeout_ms}
    producer: Producer[Any, Any] = Producer(kafka["bootstrap.servers"], settings={**security_of(kafka), **bounded})
    with changing(), producer:
        producer.send(topic, record[1], key=record[0]).result()
    say(f"acknowledged: {change} {id}")
