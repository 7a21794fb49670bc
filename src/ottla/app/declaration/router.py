"""`Router`: handlers of one module, without importing the app.

# orders.py
router = Router()

@router.handler("orders", value=Json(Order))
def on_order(order: Order) -> None: ...

# service.py
app = App("billing")
app.include(orders.router)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.app.declaration.declarations import Declarations
from ottla.app.declaration.declaring import F
from ottla.app.declaration.event_topic import DeclaresEvents
from ottla.app.declaration.handler_decorator import DeclaresHandlers
from ottla.app.declaration.queue_decorator import DeclaresQueues
from ottla.app.handler.event_handlers import EventHandlers
from ottla.app.handler.handler_options import TopicOptions
from ottla.errors import ConfigError
from ottla.quantities import Span


class Router(DeclaresHandlers, DeclaresQueues, DeclaresEvents):
    """Collects handlers, queues, topics of event types, middlewares and hooks, for `App.include`.

    Its methods take what those of `App` take, and declare when the router is included: an error that depends on the app
    (no dead letter topic, a second handler of a topic) is raised there.
    """

    def __init__(self) -> None:
        self._parts = Declarations()
        self._declared: list[Callable[[Any], object]] = []
        self._included_by: str | None = None

    def every(self, times: str | Span, **options: Any) -> Callable[[F], F]:
        """Declare a recurring task, as `App.every` does."""
        return self._declare("a task", lambda app, function: app.every(times, **options)(function))

    def middleware(self, function: F) -> F:
        """Declare a middleware, as `App.middleware` does: around every handler of the app."""
        return self._declare("a middleware", lambda app, each: app.middleware(each))(function)

    def on_start(self, function: F) -> F:
        """Declare what is called before the first record, as `App.on_start` does."""
        return self._declare("an on_start hook", lambda app, each: app.on_start(each))(function)

    def on_stop(self, function: F) -> F:
        """Declare what is called after the last record, as `App.on_stop` does."""
        return self._declare("an on_stop hook", lambda app, each: app.on_stop(each))(function)

    def _declare(self, what: str, add: Callable[[Any, F], object]) -> Callable[[F], F]:
        def decorate(function: F) -> F:
            self._refuse_while_running(what)
            self._declared.append(lambda app: add(app, function))
            return function

        return decorate

    def _declare_events(self, old: Any, events: EventHandlers, topics: tuple[str, ...], options: TopicOptions) -> Any:
        """Keep the table with one more type; the latest one is declared."""
        self._refuse_while_running("a handler")
        place: list[EventHandlers] = [] if old is None else old
        if old is None:
            self._declared.append(lambda app: _declare_table(app, place[-1], topics, options))
        place.append(events)
        return place

    def _refuse_while_running(self, what: str) -> None:
        if self._included_by is not None:
            raise ConfigError(
                f"Router: found {what} after app {self._included_by!r} had included the router, which would not run; "
                "wanted include() after the last declaration"
            )

    def _declare_on(self, app: Any) -> None:
        """Declare all on an `App`, which calls this."""
        self._refuse_while_running("another include")
        for check in self._parts.start_checks:
            check()
        for declare in self._declared:
            declare(app)
        self._included_by = app.group


def _declare_table(app: Any, events: EventHandlers, topics: tuple[str, ...], options: TopicOptions) -> None:
    app._declare_events(None, events.within(app._parts.resources), topics, options)
