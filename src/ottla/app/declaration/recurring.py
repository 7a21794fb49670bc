"""`App.every`: a handler that runs again and again, at the times of a cron expression or in an interval.

@app.every("0 8 * * mon-fri", tz="Europe/Berlin", id="daily-report")
def daily_report(run: TaskRun) -> None: ...
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Final, Literal, TypeAlias, Unpack, get_args

from ottla.app.background.app_tasks import AppTasks
from ottla.app.declaration.declaring import DeclaresOnApp, F
from ottla.app.declaration.handler_decorator import DeclaresHandlers
from ottla.app.handler.handler_options import TopicOptions
from ottla.config.arguments import explained
from ottla.errors import ConfigError
from ottla.producer.later import checked_schedule
from ottla.quantities import Span, milliseconds_of, seconds
from ottla.records import topic_problem
from ottla.schedule.tasks.due_times import MAX_INTERVAL_MS, MIN_INTERVAL_MS, InvalidTimes
from ottla.schedule.tasks.task_records import MAX_ID, MAX_VERSION, NEVER_EXPIRES, Definition, Missed
from ottla.schedule.tasks.task_run import TaskRun
from ottla.serdes import Json
from ottla.showing import shown

ExpiresAfter: TypeAlias = Span | Literal["next", "never"]

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")
_VERSION: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})*\Z")


class DeclaresTasks(DeclaresHandlers, DeclaresOnApp):
    """The part of `App` that declares recurring tasks."""

    @explained("App.every")
    def every(
        self,
        times: str | Span,
        *,
        id: str,
        tz: str = "UTC",
        missed: Missed = "one",
        expires_after: ExpiresAfter = "next",
        version: int | str = 1,
        topic: str | None = None,
        schedule: str | None = None,
        **options: Unpack[TopicOptions],
    ) -> Callable[[F], F]:
        """Declare a recurring task: each due time is run once, over all processes of the app.

        `times` is a cron expression of five fields (minute, hour, day of month, month, day of week) for the clock of
        the time zone `tz`, or an interval of at least a second, as seconds or a timedelta. A run at a fixed time of day
        that the clock skips comes when the skipped hour ends, and one that the clock shows twice comes once. With ``*``
        in the minute or hour, a run comes whenever the clock shows the time.

        A scheduler writes a record for each run to `topic` (`<group>.<id>` if not given), in one transaction with the
        next due time. The function is the handler of that topic: it may take a `TaskRun`, or nothing, and `options` are
        those of `handler`. A run that fails is retried and becomes a dead letter as any record.

        `id` names the task in its group. `missed` says what to do with due times that passed while no scheduler ran:
        ``"one"`` runs the last of them, ``"all"`` each of them, ``"none"`` nothing. `expires_after` is how long after
        its due time a run may begin: until the ``"next"`` due time (with ``missed="all"``, any time), for a span, or
        ``"never"`` too late.

        A changed declaration replaces the earlier one when the app starts, unless its `version` is smaller: 2, or
        "1.10", compared number by number. While two versions of a service run, a larger number keeps the older one from
        putting its own back.

        The schedule is that of ``App(scheduler=...)``; one that other processes deliver is named by `schedule`.

        Raises `ConfigError` for what cannot work.
        """
        self._refuse_while_running("a recurring task")
        name = f"every({shown(times)}, id={shown(id)})"
        if not isinstance(id, str) or _ID.match(id) is None:
            raise ConfigError(
                f"every: id: found {shown(id)}, wanted 1 to 100 letters, digits, dots, hyphens and underscores"
            )
        for option in ("value", "batch", "columns", "to", "max_batch", "linger_ms"):
            if option in options:
                raise ConfigError(f"{name}: found {option}=, which a recurring task has not: its value is a TaskRun")
        group = options.get("group") or self.group
        definition = Definition(
            id=f"{group}/{id}",
            version=_version(name, version),
            topic=topic or f"{group}.{id}",
            missed=_missed(name, missed),
            expires_after_ms=_expires_after_ms(name, expires_after),
            cron=times if isinstance(times, str) else None,
            tz=tz,
            every_ms=None if isinstance(times, str) else _every_ms(name, times),
        )
        _check(name, definition)
        schedule_name = self._schedule_of(name, schedule)
        tasks = self._parts.tasks = self._parts.tasks or AppTasks(self)

        def decorate(function: F) -> F:
            if any(each.id == definition.id for each in tasks.definitions):
                raise ConfigError(f"{name}: group {group!r} has a task with this id already")
            self.handler(definition.topic, value=Json(TaskRun), **options)(function)
            tasks.add(schedule_name, definition)
            return function

        return decorate

    def _schedule_of(self, name: str, given: str | None) -> str:
        if given is not None:
            return checked_schedule(given)
        if self._parts.scheduler is None:
            raise ConfigError(
                f"{name}: found no scheduler, wanted App(..., scheduler=True), or schedule='default' where another "
                "process runs it (ottla schedule run)"
            )
        return self._parts.scheduler.schedule


def _check(name: str, definition: Definition) -> None:
    if definition.every_ms is not None and definition.tz != "UTC":
        raise ConfigError(f"{name}: found tz={shown(definition.tz)} with an interval, wanted it with a cron expression")
    if not isinstance(definition.tz, str):
        raise ConfigError(f"{name}: tz: found {shown(definition.tz)}, wanted a name: 'Europe/Berlin'")
    if len(definition.id) > MAX_ID:
        raise ConfigError(f"{name}: found {len(definition.id)} characters of group and id, wanted at most {MAX_ID}")
    if not isinstance(definition.topic, str) or (problem := topic_problem(definition.topic)) is not None:
        raise ConfigError(f"{name}: topic: {problem}; name one: topic='reports'")
    try:
        definition.due_times  # noqa: B018
    except InvalidTimes as error:
        raise ConfigError(f"{name}: {error}") from None


def _version(name: str, given: object) -> tuple[int, ...]:
    text = str(given) if isinstance(given, int | str) and not isinstance(given, bool) else ""
    if _VERSION.match(text) is None or text.count(".") >= MAX_VERSION:
        raise ConfigError(f"{name}: version: found {shown(given)}, wanted a number, or numbers with dots: '1.10'")
    return tuple(int(part) for part in text.split("."))


def _missed(name: str, given: object) -> Missed:
    for wanted in get_args(Missed):
        if given == wanted:
            return wanted  # type: ignore[no-any-return]
    raise ConfigError(f"{name}: missed: found {shown(given)}, wanted 'one', 'all' or 'none'")


def _expires_after_ms(name: str, given: object) -> int | None:
    if given == "next":
        return None
    if given == "never":
        return NEVER_EXPIRES
    if isinstance(given, str) or given is None:
        raise ConfigError(f"{name}: expires_after: found {shown(given)}, wanted 'next', 'never', or seconds")
    return round(seconds(name, "expires_after", given, above=0) * 1_000)


def _every_ms(name: str, given: object) -> int:
    seconds(name, "the interval", given, least=MIN_INTERVAL_MS / 1_000, most=MAX_INTERVAL_MS // 1_000)
    assert isinstance(given, int | float | timedelta)
    return milliseconds_of(given)
