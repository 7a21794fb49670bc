"""`App`: handlers by decorator, and one call that runs them.

    app = App("billing", bootstrap_servers="localhost:9092", dead_letter_topic="orders.dead-letters")

    @app.handler("orders", value=Avro(Order), key=Str())
    def on_order(order: Order) -> None: ...

    app.run()                # threads; blocks until SIGTERM, SIGINT or app.stop()
    await app.serve()        # asyncio, the same handlers

The app only collects declarations. What runs them is a runner of `ottla.sync` or `ottla.aio`, found by name when it is
started: declaring handlers imports no Kafka client.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any

from ottla.app.background.app_scheduler import AppScheduler
from ottla.app.declaration.background_work import DeclaresBackground
from ottla.app.declaration.declarations import Declarations
from ottla.app.declaration.declaring import DeclaresOnApp, F
from ottla.app.declaration.event_topic import DeclaresEvents
from ottla.app.declaration.handler_decorator import refuse_redelivery
from ottla.app.declaration.queue_decorator import DeclaresQueues
from ottla.app.declaration.recurring import DeclaresTasks
from ottla.app.declaration.route import Route
from ottla.app.declaration.router import Router
from ottla.app.handler.event_handlers import EventHandlers
from ottla.app.handler.handler_function import refuse_generators
from ottla.app.handler.handler_options import (
    TopicOptions,
)
from ottla.app.handler.resources import Open
from ottla.app.running_apps import Runner, running_apps
from ottla.config import CreateTopics, declared_topics, settings_beside
from ottla.config.arguments import explained, missing_attribute
from ottla.config.chosen_address import address_in, say_which_of, without_address
from ottla.config.clients import mapping_of
from ottla.config.token_argument import TokenFunction, with_token
from ottla.consumer.commit.commits import AtMostOnce, CommitPolicy
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.readiness.health import DEFAULT_UNREADY_AFTER_S, Health, unready_after_ms
from ottla.current_task import is_on_event_loop
from ottla.errors import ConfigError, LifecycleError
from ottla.failures.budget import DeadLetterBudget
from ottla.failures.exceptions import described, exception_entries
from ottla.failures.outcomes import Outcome
from ottla.failures.retry import RetryPolicy
from ottla.producer.later import checked_schedule
from ottla.quantities import Span, check_kinds, optional_seconds, seconds, seconds_of
from ottla.schedule.headers import DEFAULT_NAME
from ottla.showing import shown
from ottla.telemetry import Hooks
from ottla.topics import text_problem, topic_problem

_THREADS = "ottla.sync.serve.runner"
_ASYNCIO = "ottla.aio.serve.runner"


class App(DeclaresQueues, DeclaresTasks, DeclaresBackground, DeclaresEvents):
    """A consuming service: its group, its handlers and what they share.

    `group` is the consumer group and the name in logs. What is given here is the default for every handler; a handler
    may override it. `settings` are Kafka's dotted names, for the consumer; `producer_settings` for the producer that
    writes dead letters, which has the consumer's security settings unless it is given its own. `token` is a function,
    sync or async, that returns an `ottla.tokens.Token` for SASL OAUTHBEARER. `drain_s` bounds how long in-flight work
    may take when partitions are revoked or the app stops. `start_timeout_s` (10 if not given) bounds how long it waits,
    when it starts, for a broker to listen at the address; with 0 a refused connection is `BrokerUnavailable` at once.
    `unready_after_s`: how long a record may be with its handler before the app is not ready; more than the slowest
    record, or batch, takes. Spans are seconds or timedeltas.

    The topics of the handlers must exist: `topics_timeout_s` (3 if not given) bounds how long missing ones are waited
    for before `UnknownTopic`. With ``create_topics=True`` the app creates what is missing of them and of its dead
    letter topics as it starts, as the cluster's defaults say; ``create_topics={"orders": 3}``, or with a `TopicSpec`
    instead of the number of partitions, says which and how. A topic that exists is not changed.

    With ``scheduler=True`` the app also delivers delayed messages while it runs, in a thread of its own; a name in
    place of True is that of another schedule. The apps that do share the work. `session.timeout.ms` of `settings` also
    says how soon the others take over from one that was killed.

    Raises `ConfigError` for what cannot work.
    """

    @explained("App")
    def __init__(
        self,
        group: str,
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        dead_letter_topic: str | None = None,
        retry: RetryPolicy | None = None,
        on_error: Mapping[type[BaseException], Outcome] | None = None,
        budget: DeadLetterBudget | None = None,
        commit: CommitPolicy | AtMostOnce | None = None,
        flow: FlowLimits | None = None,
        drain_s: Span = 10.0,
        start_timeout_s: Span | None = None,
        topics_timeout_s: Span | None = None,
        create_topics: CreateTopics = False,
        unready_after_s: Span = DEFAULT_UNREADY_AFTER_S,
        settings: Mapping[str, Any] | None = None,
        token: TokenFunction | None = None,
        producer_settings: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
        scheduler: bool | str = False,
    ) -> None:
        if not isinstance(group, str):
            raise ConfigError(f"App: group: found {shown(group)}, wanted text; settings are given as settings={{...}}")
        if not group:
            raise ConfigError("App: the group must not be empty; services that share a group share its records")
        if (problem := text_problem(group)) is not None:
            raise ConfigError(f"App: group: {problem}")
        if dead_letter_topic is not None and (problem := topic_problem(dead_letter_topic)) is not None:
            raise ConfigError(f"App: dead_letter_topic: {problem}")
        check_kinds("App", retry=(retry, RetryPolicy), budget=(budget, DeadLetterBudget), flow=(flow, FlowLimits))
        declared_topics(create_topics, used=())
        self.group = group
        self.bootstrap_servers = bootstrap_servers
        self.dead_letter_topic = dead_letter_topic
        self.commit: CommitPolicy | AtMostOnce = commit or CommitPolicy()
        if not isinstance(self.commit, CommitPolicy | AtMostOnce):
            raise ConfigError(
                f"App: commit= takes a CommitPolicy or AtMostOnce(), found {commit!r}; InTransactions() is for a "
                "pulled Consumer or AsyncConsumer"
            )
        if isinstance(commit, AtMostOnce):
            refuse_redelivery("App", retry=retry, budget=budget)
        self.flow = flow or FlowLimits()
        self.drain_s = seconds("App", "drain_s", drain_s)
        self.start_timeout_s = optional_seconds("App", "start_timeout_s", start_timeout_s)
        self.topics_timeout_s = optional_seconds("App", "topics_timeout_s", topics_timeout_s)
        self.create_topics = create_topics
        unready_after_ms(unready_after_s)
        self.unready_after_s = seconds_of(unready_after_s)
        settings = with_token("App", settings, token)
        self.settings = dict(mapping_of("settings", settings))
        self.producer_settings = settings_beside(settings, producer_settings)
        self.hooks = hooks
        self.state: dict[str, Any] = {}
        self._retry = retry or RetryPolicy()
        self._on_error = dict(exception_entries(on_error))
        self._budget = budget
        self._parts = Declarations()
        if scheduler:
            name = DEFAULT_NAME if scheduler is True else checked_schedule(scheduler)
            self._parts.scheduler = AppScheduler(name, bootstrap_servers, self.settings, hooks)
        self._lock = threading.Lock()
        self._runner: Runner | None = None
        self._is_stop_asked = False
        self._ended_by: BaseException | None = None
        """What ended it beside a web application."""

    # Declaring

    def override(self, instead: Mapping[Open, Open]) -> AbstractContextManager[None]:
        """Open other resources for a while, in tests: ``with app.override({open_session: open_fake}): ...``."""
        return self._parts.resources.override(instead)

    def include(self, router: Router) -> None:
        """Declare what a `Router` has collected, in the order in which it was declared there.

        Raises `ConfigError` for what cannot work here: a topic with two handlers, or a name that is taken.
        """
        if not isinstance(router, Router):
            raise ConfigError(f"include: found {shown(router)}, wanted a Router")
        self._refuse_while_running("a router")
        router._declare_on(self)

    def middleware(self, function: F) -> F:
        """Declare a middleware: `(record, context, call_next) -> outcome`, around every handler, first is outermost."""
        self._refuse_while_running("a middleware")
        refuse_generators(function, "middleware")
        self._parts.middlewares.append(function)
        return function

    def on_start(self, function: F) -> F:
        """Call `function` before the first record is handled. May be `async def` under `serve`."""
        self._refuse_while_running("an on_start hook")
        refuse_generators(function, "on_start")
        self._parts.on_start.append(function)
        return function

    def on_stop(self, function: F) -> F:
        """Call `function` after the last record was handled and committed."""
        refuse_generators(function, "on_stop")
        self._parts.on_stop.append(function)
        return function

    # Running

    def run(self, *, handle_signals: bool = True) -> None:
        """Handle records in threads until SIGTERM, SIGINT or `stop()`; then drain, commit and leave the group.

        Raises `ConfigError` on an event loop, which it would block: await `serve()` there.
        """
        if is_on_event_loop():
            raise ConfigError(
                "App.run: found an event loop that runs in this thread, which run() would block; wanted "
                "`await app.serve()`"
            )
        runner = importlib.import_module(_THREADS).AppRunner(self)
        self._adopt(runner)
        try:
            runner.run(handle_signals=handle_signals)
        finally:
            self._release()

    async def serve(self, *, handle_signals: bool | None = None) -> None:
        """Handle records on the running event loop until cancelled or `stop()`; then drain, commit, leave the group.

        SIGTERM and SIGINT stop it as they stop `run` where it is what the program waits for:
        ``asyncio.run(app.serve())``, or awaited by the coroutine that `asyncio.run` was given. They are left alone in
        other tasks and threads, and where the program or a server (uvicorn) has handlers of its own; the log event
        `signals_not_handled` says so. True takes the signals (`ConfigError` outside of the main thread), False leaves
        them alone without a word.
        """
        runner = importlib.import_module(_ASYNCIO).AppRunner(self)
        self._adopt(runner)
        try:
            await runner.serve(handle_signals=handle_signals)
        finally:
            self._release()

    def lifespan(self, web_app: object = None) -> AbstractAsyncContextManager[None]:
        """Return a context manager that runs the app beside a web application, on its event loop:
        ``FastAPI(lifespan=app.lifespan)``, or ``async with app.lifespan():`` in a lifespan of your own.

        It is entered when the app has started, raises what keeps it from that, and stops it gracefully. Signals belong
        to the web server. What ends the app meanwhile makes it unready with the reason, and is raised at the end.
        """
        run_beside: Callable[[App], AbstractAsyncContextManager[None]]
        run_beside = importlib.import_module("ottla.aio.serve.lifespan").lifespan
        return run_beside(self)

    @property
    def health_asgi(self) -> Any:
        """Return health and metrics as an ASGI application, for a web application to mount."""
        return importlib.import_module("ottla.app.runtime.health_asgi").HealthASGI(self)

    def stop(self) -> None:
        """Ask the running app to stop gracefully. From any thread, any number of times; returns at once.

        Asked while the app does not run, it ends the next run as soon as that begins.
        """
        with self._lock:
            runner = self._runner
            self._is_stop_asked = runner is None  # asked before the start; the next run is not to end at once
        if runner is not None:
            runner.stop()

    @property
    def runner(self) -> Runner:
        """Return the `Runner` of the app that runs now, with `pause`, `resume`, `seek` and `drain`. Raises
        `LifecycleError` when it does not run."""
        if self._runner is None:
            raise LifecycleError("the app is not running")
        return self._runner

    def health(self) -> Health:
        """Return how the app is: alive, ready, and why not."""
        runner = self._runner
        if runner is None:
            error = self._ended_by
            problem = "the app is not running" if error is None else f"the app ended: {described(error)}"
            return Health(is_alive=False, is_ready=False, problems=(problem,))
        return runner.health()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("app", self, name)

    def _use_address(self, servers: str) -> None:
        """Take this address, which was given on the command line, in place of the one in the code."""
        own = self.bootstrap_servers or address_in(self.settings) or address_in(self.producer_settings)
        if own is not None:
            of_code = own if isinstance(own, str) else ",".join(map(str, own)) if isinstance(own, list | tuple) else ""
            say_which_of(servers, "the command line", {"the code": of_code} if of_code else {})
        self.bootstrap_servers = servers
        self.settings = without_address(self.settings)
        self.producer_settings = without_address(self.producer_settings)
        if self._parts.scheduler is not None:
            self._parts.scheduler.bootstrap_servers = servers

    def _refuse_while_running(self, what: str) -> None:
        """Raise `LifecycleError` while the app runs: what is declared then would do nothing until the next start."""
        if self._runner is not None:
            raise LifecycleError(f"app {self.group!r} runs already: declare {what} before run() or serve()")

    def _declare(self, what: str, add: Callable[[DeclaresOnApp, F], object]) -> Callable[[F], F]:
        self._refuse_while_running(what)

        def decorate(function: F) -> F:
            add(self, function)
            return function

        return decorate

    def _declare_events(
        self, old: Route | None, events: EventHandlers, topics: tuple[str, ...], options: TopicOptions
    ) -> Route:
        """Declare the handlers of event types as one handler, replacing their earlier declaration."""

        def add() -> Route:
            declare: Callable[[Any], Any] = self.handler(*topics, **options)
            declare(events)
            return self._parts.routes[-1]

        return self._parts.replace(old, add)

    def _adopt(self, runner: Runner) -> None:
        for check in self._parts.start_checks:
            check()
        if not self._parts.routes:
            raise ConfigError(
                f"app {self.group!r} has no handlers: decorate a function with @app.handler('topic') or "
                "@app.queue('topic')"
            )
        with self._lock:
            if self._runner is not None:
                raise LifecycleError(f"app {self.group!r} is running already")
            self._runner = runner
            running_apps.add(self)
            is_stop_asked, self._is_stop_asked = self._is_stop_asked, False
        if is_stop_asked:
            runner.stop()

    def _release(self) -> None:
        with self._lock:
            self._runner = None
            running_apps.discard(self)


def use_address(app: App, servers: str) -> None:
    """Have the app reach Kafka at the address that was given on the command line."""
    app._use_address(servers)


def ended_early(app: App, error: BaseException | None) -> None:
    """Keep what ended the app, as the reason for which it is not ready."""
    app._ended_by = error


def declarations_of(app: App) -> Declarations:
    """Return what was declared on the app, for what runs, tests or examines it."""
    return app._parts
