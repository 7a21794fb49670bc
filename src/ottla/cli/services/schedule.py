"""`ottla schedule`: deliver the delayed messages of a schedule, show them, and cancel them; control recurring tasks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from ottla.cli.shared.cluster_options import check_reachable, reaches_a_cluster, timeout_s
from ottla.cli.shared.complete import complete_topics
from ottla.cli.shared.consent import Consent, changes
from ottla.cli.shared.groups import CommandGroup
from ottla.cli.shared.outcome import changing
from ottla.cli.shared.output import Output, prints, say
from ottla.config import Settings, security_of
from ottla.errors import InputError, UnknownTopic
from ottla.schedule.headers import DEFAULT_NAME, ScheduledMessage, schedule_topic
from ottla.schedule.tasks.task_records import State

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS = ("due", "id", "topic", "key", "bytes", "moved", "recurs")
_TASKS = "ottla.cli.services.schedule_tasks"


def _checked(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    from ottla.producer.later import checked_schedule

    return checked_schedule(name)


def name_option(command: F) -> F:
    return click.option("--name", default=DEFAULT_NAME, show_default=True, callback=_checked, help="The schedule.")(
        command
    )


@click.group(
    cls=CommandGroup,
    late={
        "run": "ottla.cli.services.scheduler:run",
        **{verb: f"{_TASKS}:{verb}" for verb in ("pause", "resume", "trigger", "remove")},
    },
)
def schedule() -> None:
    """Deliver, show and cancel delayed messages; pause, resume, trigger and remove recurring tasks.

    \b
    Examples:
      ottla schedule run
      ottla schedule list
      ottla schedule show invoice-17
      ottla schedule cancel invoice-17 --dry-run
      ottla schedule pause billing/daily-report
    """


@schedule.command("list")
@name_option
@reaches_a_cluster
@click.option("--first", type=click.IntRange(1), default=20, show_default=True, help="Number of messages to show.")
@click.option("--topic", shell_complete=complete_topics, help="Only messages for this topic.")
@prints
def list_messages(kafka: Settings, out: Output, name: str, first: int, topic: str | None) -> None:
    """List waiting messages and recurring tasks, the next one first. Reads the whole schedule.

    \b
    Examples:
      ottla schedule list
      ottla schedule list --topic orders --first 5 --format json
    """
    tasks = _tasks(kafka, name)
    waiting = [message for message in _waiting(kafka, name, tasks=tasks) if topic is None or message.topic == topic]
    tasks = [state for state in tasks if topic is None or state.definition.topic == topic]
    recurring = f", {len(tasks):,} recurring tasks" if tasks else ""
    say(f"{schedule_topic(name)}: {len(waiting):,} messages wait{recurring}")
    found: list[tuple[int | None, dict[str, Any]]]
    found = [(message.due_ms, _item(message)) for message in waiting[:first]]
    found += [(_next_ms(state), _task_item(state)) for state in tasks]
    found.sort(key=lambda each: (each[0] is None, each[0] or 0, each[1]["id"]))
    out.items("schedule.list/1", _COLUMNS, [item for _, item in found[:first]], empty="nothing waits")


@schedule.command("show")
@click.argument("schedule_id", metavar="ID")
@name_option
@reaches_a_cluster
@prints
def show(schedule_id: str, kafka: Settings, out: Output, name: str) -> None:
    """Show the messages that wait with this ID, or the recurring task.

    \b
    Examples:
      ottla schedule show invoice-17
      ottla schedule show billing/daily-report
    """
    tasks = _tasks(kafka, name)
    found = [_item(message) for message in _waiting(kafka, name, tasks=tasks) if message.id == schedule_id]
    found += [_task_item(state) for state in tasks if state.definition.id == schedule_id]
    if not found:
        raise InputError(f"{schedule_topic(name)}: no message waits with the id {schedule_id!r}")
    out.items("schedule.show/1", _COLUMNS, found, empty="nothing waits")


@schedule.command("cancel")
@click.argument("schedule_id", metavar="ID")
@name_option
@reaches_a_cluster
@prints
@changes
def cancel(schedule_id: str, kafka: Settings, out: Output, consent: Consent, name: str) -> None:
    """Cancel the messages that were sent with this ID and are not due yet.

    \b
    Examples:
      ottla schedule cancel invoice-17 --dry-run
      ottla schedule cancel invoice-17 --yes
    """
    from ottla.sync.produce.producer import Producer

    check_reachable(kafka)
    out.one("schedule.cancel/1", {"id": schedule_id, "schedule_name": name, "topic": schedule_topic(name)})
    if not consent.agree(f"Cancel {schedule_id!r} in {schedule_topic(name)}?"):
        return
    timeout_ms = round(timeout_s() * 1_000)
    bounded = {"linger.ms": 0, "request.timeout.ms": timeout_ms, "delivery.timeout.ms": timeout_ms}
    settings = {**security_of(kafka), **bounded}
    producer: Producer[Any, Any] = Producer(kafka["bootstrap.servers"], settings=settings, schedule=name)
    with changing(), producer:
        producer.cancel(schedule_id).result()
    say(f"cancelled: {schedule_id}")


def _waiting(kafka: Settings, name: str, *, tasks: list[State]) -> list[ScheduledMessage]:
    from ottla.browse.topic_reader import TopicReader
    from ottla.schedule.listing import waiting_in
    from ottla.schedule.topics import command_for

    servers, topic = kafka["bootstrap.servers"], schedule_topic(name)
    try:
        with TopicReader(servers, topic, settings=kafka) as reader:
            return waiting_in(reader.stream_to_end())
    except UnknownTopic:
        if not tasks:
            raise UnknownTopic(
                f"{topic}: the cluster does not have the topic of this schedule; a first delayed message creates it, "
                f"and so does `{command_for(topic, servers)}`"
            ) from None
        return []  # apps declare tasks before the first scheduler creates the topic of messages


def _tasks(kafka: Settings, name: str) -> list[State]:
    from ottla.cli.services.schedule_tasks import tasks_of

    check_reachable(kafka)
    return list(tasks_of(kafka, name).values())


def _next_ms(state: State) -> int | None:
    return None if state.is_paused else state.next_ms


def _task_item(state: State) -> dict[str, Any]:
    next_ms, definition = _next_ms(state), state.definition
    return {
        "due": None if next_ms is None else _time(next_ms),
        "id": definition.id,
        "topic": definition.topic,
        "key": definition.id,
        "bytes": 0,
        "moved": 0,
        "recurs": definition.times + (" (paused)" if state.is_paused else ""),
        "is_paused": state.is_paused,
        "version": ".".join(map(str, definition.version)),
        "last": None if state.last_ms is None else _time(state.last_ms),
    }


def _item(message: ScheduledMessage) -> dict[str, Any]:
    return {
        "due": _time(message.due_ms),
        "id": message.id,
        "topic": message.topic,
        "key": None if message.key is None else message.key.decode("utf-8", "backslashreplace"),
        "bytes": len(message.value or b""),
        "moved": message.rolls,
        "recurs": None,
    }


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # anybody may write any number
        return f"{ms} ms"
