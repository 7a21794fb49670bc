"""What the runners of both shells share: a member for each group, the verbs at run time, and what a start prepares.

A shell's runner adds what waits: starting and stopping in order, calling hooks, executing handlers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from ottla.app.app import App
from ottla.app.exactly_once import AnyInvoker, TransactionOptions
from ottla.app.member import Member, MemberOptions
from ottla.app.options import Route
from ottla.app.retry_settings import group_settings
from ottla.config import Settings, TopicWait, dead_letter_arguments, producer_settings
from ottla.consumer.member.verbs import check_assigned
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.readiness.health import Health
from ottla.records import TopicPartition

M = TypeVar("M", bound=Member)


def member_options(app: App, group: str, routes: Sequence[Route]) -> MemberOptions:
    """The member of one of the app's groups."""
    return MemberOptions(
        group=group,
        topics=sorted({topic for route in routes for topic in route.subscribed}),
        plans=[route.plan() for route in routes],
        settings=group_settings(app, group, routes),
        flow=_flow_of(app.flow, routes),
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
        transactions=_transactions(app, group, routes),
    )


def _transactions(app: App, group: str, routes: Sequence[Route]) -> TransactionOptions | None:
    handlers = [route for route in routes if route.exactly is not None]
    if not handlers:
        return None
    return TransactionOptions.of(
        [route.exactly for route in handlers if route.exactly is not None],
        topics=frozenset(topic for route in handlers for topic in route.subscribed),
        group=group,
        bootstrap_servers=app.bootstrap_servers,
        producer_settings=app.producer_settings,
        hooks=app.hooks,
        isolation_level=group_settings(app, group, routes)["isolation.level"],
    )


def _flow_of(flow: FlowLimits, routes: Sequence[Route]) -> FlowLimits:
    """The limits that were given; where none were, a handler of columns has room for the next batch beside its own."""
    most = max((route.quantum for route in routes if route.is_columnar), default=0)
    if most == 0 or flow != FlowLimits():
        return flow
    high = max(flow.high_records, 2 * most)
    return replace(
        flow,
        high_records=high,
        low_records=max(flow.low_records, most),
        most_records=max(flow.most_records, high),
        total_records=max(flow.total_records, 10 * high),
    )


class Serving(ABC, Generic[M]):
    """A running app, but for what its shell does in its own way. The runners subclass it."""

    engines: dict[str, M]
    """By group."""

    def __init__(self, app: App, *, has_own_sink: bool) -> None:
        self._app = app
        self._has_own_sink = has_own_sink
        self._is_stop_asked = False

    @abstractmethod
    def _executor(self, invoker: AnyInvoker) -> Callable[..., Any]:
        """What runs a handler's code."""

    def _executors(self, routes: Sequence[Route]) -> dict[str, Callable[..., Any]]:
        middlewares = list(self._app.middlewares)
        return {route.name: self._executor(route.invoker(middlewares, self._app.state)) for route in routes}

    # Verbs at run time

    def pause(self, *partitions: TopicPartition) -> None:
        """Take no more records of these partitions (none named: of all)."""
        for engine, own in self._owners("pause", partitions):
            engine.pause(*own)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these partitions (none named: with all), also with those that stopped at a failure."""
        for engine, own in self._owners("resume", partitions):
            engine.resume(*own)

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Go on from `offset` in the group that has the partition."""
        for engine, _ in self._owners("seek", [topic_partition]):
            engine.seek(topic_partition, offset)

    # For the shells

    def _gives_up(self) -> bool:
        return self._is_stop_asked

    def _all_health(self) -> Health:
        return Health.all_of([engine.health() for engine in self.engines.values()])

    def _raise_what_ended(self, started: Sequence[M], stop_error: BaseException | None) -> None:
        """Raise what ended a member, or else what a stop hook raised."""
        for engine in started:
            if engine.error is not None:
                raise engine.error
        if stop_error is not None:
            raise stop_error

    def _retry_lines(self) -> Iterator[tuple[M, dict[str, tuple[str, ...]]]]:
        """The members whose retry topics are to be created, with these by topic."""
        for group, routes in self._app.routes_by_group().items():
            wanted = [route for route in routes if route.retry_topics is not None and route.retry_topics.create]
            lines = {topic: names for route in wanted for topic, names in route.retry_lines.items()}
            if lines:
                yield self.engines[group], lines

    def _letters_to_check(self) -> tuple[Settings, TopicWait] | None:
        """The settings and topics of dead letters, which must be writable before anything is handled; None without."""
        topics = self._app.dead_letter_topics
        if not topics or self._has_own_sink:
            return None
        arguments = dead_letter_arguments(self._app.producer_settings)
        settings = producer_settings(self._app.bootstrap_servers, **arguments)
        return settings, next(iter(self.engines.values())).topics_awaited(topics)

    def _owners(self, verb: str, partitions: Sequence[TopicPartition]) -> list[tuple[M, Sequence[TopicPartition]]]:
        """The groups' members, each with those of the partitions that it has; with all of them when none is named."""
        if not partitions:
            return [(engine, ()) for engine in self.engines.values()]
        assigned = {engine: set(engine.assignment()) for engine in self.engines.values()}
        everything = set().union(*assigned.values())
        check_assigned(verb, partitions, everything, group=", ".join(self.engines))
        owned = [(engine, [name for name in partitions if name in own]) for engine, own in assigned.items()]
        return [(engine, own) for engine, own in owned if own]
