"""The declarations of an app, for runners, tests and the doctor. No part of the interface of `App`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from ottla.app.background.app_producers import AppProducer, AsyncAppProducer
from ottla.app.background.app_relay import AppRelay
from ottla.app.background.app_scheduler import AppScheduler
from ottla.app.background.app_tasks import AppTasks
from ottla.app.declaration.route import Route
from ottla.app.handler.middleware import Middleware
from ottla.app.handler.resources import Resources
from ottla.config import CreateTopics, TopicSpec, declared_topics
from ottla.consumer.readiness.health import Health


class Declarations:
    """Handlers, middlewares, hooks, and what runs beside the handlers."""

    def __init__(self) -> None:
        self.routes: list[Route] = []
        """The declared handlers, in order of declaration."""
        self.start_checks: list[Callable[[], None]] = []
        """Each raises `ConfigError` for what was declared in part."""
        self.middlewares: list[Middleware] = []
        """The declared middlewares, the outermost first."""
        self.outermost: Middleware | None = None
        """A middleware around all others: the test kit's, which watches an app from its start to its end."""
        self.on_start: list[Callable[[], Any]] = []
        self.on_stop: list[Callable[[], Any]] = []
        self.producers: list[AppProducer[Any, Any] | AsyncAppProducer[Any, Any]] = []
        """The producers that `producer` and `async_producer` made."""
        self.relays: list[AppRelay] = []
        self.resources = Resources()
        """Opens what handlers are given by `Provide`."""
        self.scheduler: AppScheduler | None = None
        self.tasks: AppTasks | None = None
        """The recurring tasks, once one was declared."""

    def replace(self, old: Route | None, new: Callable[[], Route]) -> Route:
        """Put what `new` makes and declares in the place of `old`, which stays where that raises."""
        routes = list(self.routes)
        try:
            self.routes = [route for route in routes if route is not old]
            return new()
        except BaseException:
            self.routes = routes
            raise

    @property
    def all_middlewares(self) -> Sequence[Middleware]:
        """All middlewares, the outermost first."""
        return (*(() if self.outermost is None else (self.outermost,)), *self.middlewares)

    @property
    def start_hooks(self) -> Sequence[Callable[[], Any]]:
        """Return what runs before the first record, in order."""
        tasks = () if self.tasks is None else (self.tasks.register,)  # the scheduler finds their topic at once
        own = (*tasks, *(() if self.scheduler is None else (self.scheduler.open,)))
        relays = (relay.open for relay in self.relays)
        producers = (producer.open for producer in self.producers)
        return (*own, *relays, *self._stores("open"), *producers, *self.on_start)

    @property
    def stop_hooks(self) -> Sequence[Callable[[], Any]]:
        """Return what runs after the last commit, in order."""
        own = () if self.scheduler is None else (self.scheduler.close,)
        relays = (relay.close for relay in self.relays)
        producers = (producer.close for producer in self.producers)
        return (*self.on_stop, self.resources.close_all, *producers, *self._stores("close"), *relays, *own)

    def _stores(self, verb: Literal["open", "close"]) -> list[Callable[[], Any]]:
        return [
            partial(getattr(route.once, verb), is_async=route.is_async(self.all_middlewares))
            for route in self.routes
            if route.once is not None
        ]

    @property
    def health_beside(self) -> Sequence[Health]:
        """Return the health of the background tasks."""
        own = () if self.scheduler is None else (self.scheduler.health(),)
        return (*own, *(relay.health() for relay in self.relays))

    def topics_to_create(self, create_topics: CreateTopics) -> dict[str, TopicSpec]:
        """Return name → how to create it, for those that the app's `create_topics` means."""
        used = {topic for route in self.routes for topic in route.topics}
        used |= {*self.dead_letter_topics, *self.result_topics}
        return declared_topics(create_topics, used=used)

    @property
    def dead_letter_topics(self) -> list[str]:
        """All topics that dead letters may be written to."""
        return sorted({route.dead_letter_topic for route in self.routes if route.dead_letter_topic is not None})

    @property
    def result_topics(self) -> list[str]:
        """All topics that the rows of handlers of columns are written to."""
        return sorted({route.to for route in self.routes if route.to is not None})

    @property
    def queues(self) -> list[Route]:
        """The handlers whose records are leased one by one: a member each."""
        return [route for route in self.routes if route.queue is not None]

    def routes_by_consumer_group(self) -> dict[str, list[Route]]:
        """Group → its handlers, of those that are consumer groups."""
        return {group: routes for group, routes in self.routes_by_group().items() if routes[0].queue is None}

    def routes_by_group(self) -> dict[str, list[Route]]:
        """Group → its handlers: one client each."""
        table: dict[str, list[Route]] = {}
        for route in self.routes:
            table.setdefault(route.group, []).append(route)
        return table
