"""What the runners of both shells share: a member for each group, the verbs at run time, and what a start prepares.

A shell's runner adds what waits: starting and stopping in order, calling hooks, executing handlers.
"""

from __future__ import annotations

import gc
import importlib
from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from ottla.app.app import App, declarations_of
from ottla.app.declaration.group_settings import group_settings
from ottla.app.declaration.route import Route
from ottla.app.member.call_checks import check_assigned
from ottla.app.member.dead_letter_producer import DeadLetterProducer
from ottla.app.member.member_base import MakeMember, MemberOptions
from ottla.app.member.member_core import MemberCore
from ottla.app.once.exactly_once_invoker import AnyInvoker, TransactionOptions
from ottla.app.once.result_settings import ResultOptions
from ottla.app.runtime.stop_signals import say_what_is_waited_for
from ottla.config import Settings, TopicWait, dead_letter_arguments, producer_settings
from ottla.config.topic_specs import TopicSpec, warn_of_other_partitions
from ottla.consumer.readiness.health import Health
from ottla.current_task import is_being_cancelled
from ottla.errors import ConfigError
from ottla.failures.exceptions import described, stack_trace_of
from ottla.quantities import Span, timeout
from ottla.records import TopicPartition
from ottla.stepping import Steps
from ottla.telemetry import log_event

M = TypeVar("M", bound=MemberCore)


def member_options(app: App, group: str, routes: Sequence[Route]) -> MemberOptions:
    """Return the member of one of the app's groups."""
    settings = group_settings(group, routes, app.bootstrap_servers, app.settings)
    return MemberOptions(
        group=group,
        topics=sorted({topic for route in routes for topic in route.subscribed}),
        plans=[route.plan() for route in routes],
        settings=settings,
        # Where no limits were given, a handler of columns has room for the next batch beside its own.
        flow=app.flow.for_batches(max((route.most_records for route in routes if route.is_columnar), default=0)),
        commits=app.commit,
        drain_s=app.drain_s,
        start_timeout_s=app.start_timeout_s,
        topics_timeout_s=app.topics_timeout_s,
        unready_after_s=app.unready_after_s,
        hooks=app.hooks,
        stores={
            topic: route.once
            for route in routes
            if route.once is not None and route.offsets is not None
            for topic in route.topics
        },
        transactions=_transactions(app, group, routes, settings["isolation.level"]),
        results=_results(app, group, routes),
    )


def _results(app: App, group: str, routes: Sequence[Route]) -> ResultOptions | None:
    handlers = [route.results for route in routes if route.results is not None and route.exactly is None]
    if not handlers:
        return None
    return ResultOptions(
        handlers=handlers,
        group=group,
        bootstrap_servers=app.bootstrap_servers,
        producer_settings=app.producer_settings,
    )


def _transactions(app: App, group: str, routes: Sequence[Route], isolation_level: str) -> TransactionOptions | None:
    """Return the transactions of the handlers that have some. Raises `ConfigError` where they cannot share them."""
    routes = [route for route in routes if route.exactly is not None]
    handlers = [route.exactly for route in routes if route.exactly is not None]
    if not handlers:
        return None
    if isolation_level != "read_committed":
        raise ConfigError(
            f"{group}: isolation.level: found {isolation_level} with exactly_once=, wanted read_committed: records of "
            "aborted transactions must not be handled"
        )
    if len({(each.declared.instance, each.declared.transaction_timeout_s) for each in handlers}) > 1:
        names = ", ".join(each.name for each in handlers)
        raise ConfigError(
            f"{group}: {names}: the handlers of a group share their transactions: give them the same instance and "
            "transaction_timeout_s"
        )
    return TransactionOptions(
        handlers=handlers,
        topics=frozenset(topic for route in routes for topic in route.subscribed),
        group=group,
        bootstrap_servers=app.bootstrap_servers,
        producer_settings=app.producer_settings,
        hooks=app.hooks,
    )


class AppRunnerBase(ABC, Generic[M]):
    """A running app. Base of the runners of both shells, which add what waits and calls the clients."""

    _sink_type: ClassVar[type[DeadLetterProducer]]
    _queue_member: ClassVar[tuple[str, str]]
    """Module and name: only an app with queues needs what leases records."""

    def __init__(self, app: App) -> None:
        """Create the members."""
        self._app = app
        self._dead_letters = self._sink_type(app.bootstrap_servers, app.producer_settings)
        self._is_stop_asked = False
        self._owns_process = False
        """Whether the process belongs to this app, which then handles the signals."""
        self._is_opened = False
        """Whether start hooks may have opened what stop hooks close."""
        self._started: list[M] = []
        self.members: dict[str, M] = {}
        """By group."""
        for group, routes in declarations_of(app).routes_by_consumer_group().items():
            self._add(group, group, routes, self._member_of(routes))
        for route in declarations_of(app).queues:
            module, name = self._queue_member
            make = partial(getattr(importlib.import_module(module), name), queue=route.queue)
            key = route.group if route.group not in self.members else f"{route.group}/{route.name}"
            self._add(key, route.group, [route], make)

    def _add(self, key: str, group: str, routes: Sequence[Route], make: MakeMember[M]) -> None:
        self.members[key] = make(
            member_options(self._app, group, routes),
            execute=self._executors(routes),
            dead_letters=self._dead_letters,
            on_stop=self._wake_up,
        )

    @staticmethod
    @abstractmethod
    def _ensure_topics(settings: Settings, declared: Mapping[str, TopicSpec], /) -> Any:
        """Create the declared topics that are missing. On an event loop this is to be awaited."""

    @staticmethod
    @abstractmethod
    def _ensure_retry_topics(settings: Settings, lines: Mapping[str, tuple[str, ...]], wait: TopicWait, /) -> Any:
        """Create the missing retry topics. On an event loop this is to be awaited."""

    @abstractmethod
    def _member_of(self, routes: Sequence[Route]) -> MakeMember[M]:
        """Return the class or function that makes the group member of these handlers."""

    @abstractmethod
    def drain(self, timeout_s: Span) -> Any:
        """Take nothing new, and wait until everything fetched is done. On an event loop this is to be awaited."""

    def _drains(self, timeout_s: Span) -> list[Callable[[], Any]]:
        """Return the members' drains, to be called together."""
        limit_s = timeout("drain", timeout_s)
        return [partial(member.drain, limit_s) for member in self.members.values()]

    @abstractmethod
    def _wake_up(self) -> None:
        """Look for a reason to stop. From any thread."""

    @abstractmethod
    def _call(self, hook: Callable[[], Any]) -> Any:
        """Call a hook, and wait for it if it is async. On an event loop this is to be awaited."""

    @abstractmethod
    def _await_writable(self, settings: Settings, topics: TopicWait, what: str) -> Any:
        """Wait until dead letters, or results, can be written. On an event loop this is to be awaited."""

    @abstractmethod
    def _release(self) -> None:
        """End the threads that executed handlers, after the last hook."""

    @abstractmethod
    def _executor(self, invoker: AnyInvoker) -> Callable[..., Any]:
        """Return what runs a handler's code."""

    def _executors(self, routes: Sequence[Route]) -> dict[str, Callable[..., Any]]:
        middlewares = list(declarations_of(self._app).all_middlewares)
        return {route.name: self._executor(route.invoker(middlewares, self._app.state)) for route in routes}

    # Verbs at run time

    def pause(self, *partitions: TopicPartition) -> None:
        """Take no more records of these partitions (none named: of all)."""
        for member, own in self._owners("pause", partitions):
            member.pause(*own)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these partitions (none named: with all), also with those that stopped at a failure."""
        for member, own in self._owners("resume", partitions):
            member.resume(*own)

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Go on from `offset` in the group that has the partition."""
        for member, _ in self._owners("seek", [topic_partition]):
            member.seek(topic_partition, offset)

    # Procedures: a shell makes their calls

    def _starting(self) -> Steps[None]:
        for member in self.members.values():  # before hooks open what they need: without a broker nothing will run
            yield partial(member.reach, self._gives_up)
        yield from self._making_topics()
        for what, settings, topics in self._writes_to_check():
            yield partial(self._await_writable, settings, topics, what)
        self._is_opened = True
        for hook in declarations_of(self._app).start_hooks:
            yield partial(self._call, hook)
        for member in self.members.values():
            yield partial(member.start, self._gives_up)
            self._started.append(member)
        if self._owns_process:
            # Modules, classes and functions stay for good: a full collection that passes over them stops all threads
            # for 0.1 ms in place of 25, and a record with headers costs a seventh less.
            gc.freeze()
        log_event("app_started", "info", {"app": self._app.group, "groups": list(self.members)})

    def _making_topics(self) -> Steps[None]:
        declared = declarations_of(self._app).topics_to_create(self._app.create_topics)
        if declared:
            settings = next(iter(self.members.values())).settings
            before = yield partial(self._ensure_topics, settings, declared)
            warn_of_other_partitions(declared, before)
        for member, lines in self._retry_lines():
            wait = member.topics_awaited(lines, self._gives_up)
            yield partial(self._ensure_retry_topics, member.settings, lines, wait)

    def _stopping(self) -> Steps[BaseException | None]:
        """Stop everything. Returns what the first stop hook that failed raised."""
        say_what_is_waited_for(self._all_health(), group=self._app.group, drain_s=self._app.drain_s)
        for member in self._started:
            member.stop()
        for member in self._started:
            yield member.join
        problem: BaseException | None = None
        try:
            yield partial(self._dead_letters.close, self._app.drain_s)
        finally:
            for hook in declarations_of(self._app).stop_hooks if self._is_opened else ():
                try:
                    yield partial(self._call, hook)
                except (Exception, SystemExit, CancelledError) as error:
                    if isinstance(error, CancelledError) and is_being_cancelled():
                        raise
                    # Later hooks are called all the same: each releases something else.
                    problem = problem or error
                    name = getattr(hook, "__qualname__", repr(hook))
                    fields = {"error": described(error), "exception": stack_trace_of(error)}
                    log_event("stop_hook_failed", "error", {"app": self._app.group, "hook": name, **fields})
        self._release()
        log_event("app_stopped", "info", {"app": self._app.group})
        return problem

    # For the shells

    def _goes_on(self) -> bool:
        return not self._is_stop_asked and all(member.is_running for member in self._started)

    def _gives_up(self) -> bool:
        return self._is_stop_asked

    def _all_health(self) -> Health:
        writers = [*declarations_of(self._app).producers, self._dead_letters]
        refused = tuple(dict.fromkeys(problem for each in writers for problem in getattr(each, "_problems", ())))
        return Health.all_of(
            [
                *(member.health() for member in self.members.values()),
                *declarations_of(self._app).health_beside,
                Health(is_alive=True, is_ready=not refused, problems=refused),
            ]
        )

    def _raise_what_ended(self, stop_error: BaseException | None) -> None:
        """Raise what ended a member, or else what a stop hook raised."""
        for member in self._started:
            if member.error is not None:
                raise member.error
        if stop_error is not None:
            raise stop_error

    def _retry_lines(self) -> Iterator[tuple[M, dict[str, tuple[str, ...]]]]:
        """Yield the members whose retry topics are to be created, with these by topic."""
        for group, routes in declarations_of(self._app).routes_by_consumer_group().items():
            wanted = [route for route in routes if route.retry_topics is not None and route.retry_topics.create]
            lines = {topic: names for route in wanted for topic, names in route.retry_chains.items()}
            if lines:
                yield self.members[group], lines

    def _writes_to_check(self) -> Iterator[tuple[str, Settings, TopicWait]]:
        """Yield (what, the settings, the topics) of dead letters and results, which must be writable before anything is
        handled."""
        declared = declarations_of(self._app)
        for what, topics in (("dead letter", declared.dead_letter_topics), ("result", declared.result_topics)):
            if topics:
                arguments = dead_letter_arguments(self._app.producer_settings)
                settings = producer_settings(self._app.bootstrap_servers, **arguments)
                yield what, settings, next(iter(self.members.values())).topics_awaited(topics, self._gives_up)

    def _owners(self, verb: str, partitions: Sequence[TopicPartition]) -> list[tuple[M, Sequence[TopicPartition]]]:
        """Return the groups' members, each with its own partitions among the given ones; all its partitions if none is
        given."""
        if not partitions:
            return [(member, ()) for member in self.members.values()]
        assigned = {member: set(member.assignment()) for member in self.members.values()}
        everything = set().union(*assigned.values())
        check_assigned(verb, partitions, everything, group=", ".join(self.members))
        owned = [(member, [name for name in partitions if name in own]) for member, own in assigned.items()]
        return [(member, own) for member, own in owned if own]
