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
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from ottla.app.background.app_producers import AppProducer, AppProducerOptions, AsyncAppProducer
from ottla.app.background.app_relay import AppRelay
from ottla.app.background.app_scheduler import AppScheduler
from ottla.app.declaration.declarations import Declarations
from ottla.app.declaration.event_topic import DeclaresEvents
from ottla.app.declaration.queue_decorator import DeclaresQueues
from ottla.app.declaration.recurring import DeclaresTasks
from ottla.app.declaration.route import DEFAULT_BATCH_RECORDS, DEFAULT_BATCH_ROWS, Route, ordering_of
from ottla.app.declaration.router import Router
from ottla.app.handler.event_handlers import EventHandlers
from ottla.app.handler.handler_function import refuse_generators
from ottla.app.handler.handler_options import (
    RENAMED_OPTIONS,
    FairBy,
    ForBatch,
    ForOne,
    HandlerOptions,
    OrderingName,
    TopicOptions,
    Value,
)
from ottla.app.handler.resources import Open
from ottla.app.running_apps import Runner, running_apps
from ottla.config import CreateTopics, declared_topics, settings_beside
from ottla.config.arguments import explained, missing_attribute
from ottla.config.chosen_address import address_in, say_which_of, without_address
from ottla.config.clients import mapping_of
from ottla.config.priorities import topics_of
from ottla.config.token_argument import TokenFunction, with_token
from ottla.consumer.commit.commits import AtMostOnce, CommitPolicy
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.handler_rate import Rate
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import plans_by_topic
from ottla.consumer.readiness.health import DEFAULT_UNREADY_AFTER_S, Health, unready_after_ms
from ottla.current_task import is_on_event_loop
from ottla.errors import ConfigError, LifecycleError
from ottla.failures.budget import DeadLetterBudget
from ottla.failures.exceptions import described, exception_entries
from ottla.failures.outcomes import Dead, Outcome, Skip
from ottla.failures.retry import NO_RETRY, RetryPolicy
from ottla.failures.retry_topics import RetryTopics
from ottla.once.exactly_once import ExactlyOnce
from ottla.once.inbox import Inbox
from ottla.outbox.outbox import Outbox
from ottla.outbox.relaying import without_needed
from ottla.producer.later import checked_schedule
from ottla.producer.signature import Key
from ottla.quantities import Span, count, optional_seconds, seconds, seconds_of
from ottla.records import TopicPartition
from ottla.schedule.headers import DEFAULT_NAME
from ottla.serdes.base import SerdeOf
from ottla.showing import shown
from ottla.stores.protocols import TransactionStore
from ottla.telemetry import Hooks
from ottla.topics import text_problem, topic_problem
from ottla.typevars import BytesLike

F = TypeVar("F", bound=Callable[..., Any])

_THREADS = "ottla.sync.serve.runner"
_ASYNCIO = "ottla.aio.serve.runner"
_MOST_CONCURRENT = 10_000


class App(DeclaresQueues, DeclaresEvents, DeclaresTasks):
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
        for name, value, kind in (
            ("retry", retry, RetryPolicy),
            ("budget", budget, DeadLetterBudget),
            ("flow", flow, FlowLimits),
        ):
            if value is not None and not isinstance(value, kind):
                raise ConfigError(f"App: {name} must be of type {kind.__name__}, got {shown(value)}")
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
            _refuse_redelivery("App", retry=retry, budget=budget)
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

    @overload
    def handler(
        self,
        *topics: str,
        value: type[bytes] | type[str] | type[int] | None = None,
        batch: bool = False,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[F], F]: ...

    @overload
    def handler(
        self, *topics: str, value: SerdeOf[Value], batch: Literal[False] = False, **options: Unpack[HandlerOptions]
    ) -> ForOne[Value]: ...

    @overload
    def handler(
        self, *topics: str, value: SerdeOf[Value], batch: Literal[True], **options: Unpack[HandlerOptions]
    ) -> ForBatch[Value]: ...

    @overload
    def handler(
        self, *topics: str, value: Any = None, columns: Literal[True] | Sequence[str], **options: Unpack[HandlerOptions]
    ) -> Callable[[F], F]: ...

    @explained("App.handler", renamed=RENAMED_OPTIONS)
    def handler(
        self,
        *topics: str,
        value: Any = None,
        key: Any = None,
        group: str | None = None,
        retry: RetryPolicy | None = None,
        retry_topics: RetryTopics | None = None,
        dead_letter_topic: str | None = None,
        on_error: Mapping[type[BaseException], Outcome] | None = None,
        concurrency: int = 1,
        ordering: Ordering | OrderingName = Ordering.PARTITION,
        batch: bool = False,
        columns: bool | Sequence[str] = False,
        to: str | None = None,
        max_batch: int | None = None,
        linger_ms: int = 0,
        max_records_per_turn: int | None = None,
        fair_by: FairBy = "records",
        weight_of: Callable[[TopicPartition], int] | None = None,
        max_rate: Rate | None = None,
        budget: DeadLetterBudget | None = None,
        ttl_s: Span | None = None,
        on_expired: Skip | Dead | None = None,
        expires_grace_s: Span = 0.0,
        reserve: Mapping[str, int] | None = None,
        inbox: Inbox | None = None,
        offsets: TransactionStore | None = None,
        exactly_once: ExactlyOnce | None = None,
        name: str | None = None,
    ) -> Callable[[F], F]:
        """Declare a handler for `topics`. Raises `ConfigError` at once for what cannot work; the page "Options of a
        handler" (reference/handler-options) has a table of what goes together.

        `concurrency` is how many runs may be handled at the same time; `ordering` what stays in order meanwhile:
        ``"partition"``, ``"key"`` or ``"unordered"``. With `batch` the handler gets lists, at most `max_batch` records
        of one partition, and may return one outcome per record; a batch that is not full waits `linger_ms` for more.
        With `columns` it gets them as an Arrow `RecordBatch` (or as what its annotation names: `polars.DataFrame`,
        `pandas.DataFrame`, `pyarrow.Table`), of at most `max_batch` rows (20,000 if not given), and may return
        `Outcomes` of single rows; ``columns=["key", "offset"]`` adds those columns to the value's own. Rows that it
        returns or yields are written to the topic `to` before their offsets are committed, or with them in one
        transaction.
        `max_records_per_turn` bounds a partition's turn when several have records: 128 if not given, 500 with `inbox`
        or `offsets`, fewer with a slow handler. With ``fair_by="bytes"`` it counts bytes instead of records.

        With ``max_rate=Rate(200)`` the handler gets at most 200 records per second in this process, each delivery of a
        record counted. What waits for that is ready and not late; its partition is paused once enough is buffered.

        `retry` is for retries in place, which hold the partition or key; `retry_topics` for those that do not: a record
        that failed goes through them when its retries in place are used up. With `retry_topics` and no `retry` there
        are none in place.

        A record that has expired is not handed to the handler. It expires at the time in its header
        `ottla-expires-at` (`send(expires_after=...)` writes it), and `ttl_s` seconds after its timestamp; the earlier
        counts, `expires_grace_s` is added. ``on_expired=Skip()``, the default, passes over it,
        ``on_expired=Dead("too old")`` writes it to the dead letter topic.

        With `Priorities` in place of topics, the highest priority that has records goes next, and each lower one at
        least as often as was declared. ``reserve={"urgent": 1}`` keeps one of the `concurrency` for that priority.

        With ``inbox=Inbox(store)`` a message that was handled before is not handled again, whichever offset its copy
        has. If the store is a database, a parameter named `transaction` is the open transaction in which it is marked.
        ``offsets=store`` keeps the partition's offset in that transaction: what the handler does through it happens
        exactly once per record, in order.

        With ``exactly_once=ExactlyOnce()`` a parameter named `out` sends records: they, the record's offset and a dead
        letter are written in one Kafka transaction. `read_committed` consumers see each result exactly once, in order.
        """
        for topic in topics:
            if not isinstance(topic, str):
                raise ConfigError(
                    f"handler: found {shown(topic)} for a topic, wanted names: @app.handler('orders', 'returns')"
                )
        if fair_by not in ("records", "bytes"):
            raise ConfigError(f"handler: fair_by must be 'records' or 'bytes', got {fair_by!r}")

        why = "each is a thread or a task, which is made when the app starts"
        count("handler", "concurrency", concurrency, most=_MOST_CONCURRENT, why=why)
        self._refuse_while_running("a handler")
        is_once = isinstance(self.commit, AtMostOnce)
        names, priorities = topics_of("handler", topics)

        def decorate(function: F) -> F:
            handler_name: str = name or getattr(function, "__name__", None) or type(function).__name__
            if is_once:
                _refuse_redelivery(handler_name, retry=retry, retry_topics=retry_topics, budget=budget)
            turn = _most_records(handler_name, batch, columns, max_batch, max_records_per_turn)
            if turn is None and exactly_once is not None:
                turn = getattr(exactly_once, "max_records", 1)
            route = Route(
                name=handler_name,
                handler=function,
                events=function if isinstance(function, EventHandlers) else None,
                topics=frozenset(names),
                group=group or self.group,
                value=value,
                key=key,
                retry=retry or (NO_RETRY if is_once or retry_topics is not None else self._retry),
                is_at_most_once=is_once,
                retry_topics=retry_topics,
                dead_letter_topic=dead_letter_topic or self.dead_letter_topic,
                on_error={**self._on_error, **exception_entries(on_error)},
                concurrency=concurrency,
                ordering=ordering_of(ordering, handler_name),
                is_batch=batch or columns is not False,
                columns=None if columns is False else () if columns is True else tuple(columns),
                to=to,
                linger_ms=linger_ms,
                max_records_per_turn=turn,
                is_fair_by_bytes=fair_by == "bytes",
                weight_of=weight_of,
                max_rate=max_rate,
                budget=budget or self._budget,
                ttl_s=ttl_s,
                on_expired=on_expired,
                expires_grace_s=expires_grace_s,
                priorities=priorities,
                reserve=reserve,
                inbox=inbox,
                offsets=offsets,
                exactly_once=exactly_once,
                hooks=self.hooks,
                resources=self._parts.resources,
            )
            self._add(route)
            return function

        return decorate

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

    @overload
    def producer(
        self, *, value: None = None, key: None = None, **options: Unpack[AppProducerOptions]
    ) -> AppProducer[BytesLike, BytesLike]: ...

    @overload
    def producer(
        self, *, value: SerdeOf[Value], key: None = None, **options: Unpack[AppProducerOptions]
    ) -> AppProducer[Value, BytesLike]: ...

    @overload
    def producer(
        self, *, value: None = None, key: SerdeOf[Key], **options: Unpack[AppProducerOptions]
    ) -> AppProducer[BytesLike, Key]: ...

    @overload
    def producer(
        self, *, value: SerdeOf[Value], key: SerdeOf[Key], **options: Unpack[AppProducerOptions]
    ) -> AppProducer[Value, Key]: ...

    @overload
    def producer(
        self, *, value: Any = None, key: Any = None, **options: Unpack[AppProducerOptions]
    ) -> AppProducer[Any, Any]: ...

    def producer(self, *, value: Any = None, key: Any = None, **options: Any) -> AppProducer[Any, Any]:
        """Return a producer for handlers and hooks: open while the app runs, closed when it has stopped. It takes the
        options of `Producer`, and has the app's address and `producer_settings`, with `settings` on top. Async handlers
        await the sends of `async_producer`.

        `topics` are those that it sends to, for the app's AsyncAPI document (`ottla asyncapi`). Sends to others are not
        refused."""
        self._refuse_while_running("a producer")
        producer: AppProducer[Any, Any] = AppProducer(self, {"value": value, "key": key, **options})
        self._parts.producers.append(producer)
        return producer

    @overload
    def async_producer(
        self, *, value: None = None, key: None = None, **options: Unpack[AppProducerOptions]
    ) -> AsyncAppProducer[BytesLike, BytesLike]: ...

    @overload
    def async_producer(
        self, *, value: SerdeOf[Value], key: None = None, **options: Unpack[AppProducerOptions]
    ) -> AsyncAppProducer[Value, BytesLike]: ...

    @overload
    def async_producer(
        self, *, value: None = None, key: SerdeOf[Key], **options: Unpack[AppProducerOptions]
    ) -> AsyncAppProducer[BytesLike, Key]: ...

    @overload
    def async_producer(
        self, *, value: SerdeOf[Value], key: SerdeOf[Key], **options: Unpack[AppProducerOptions]
    ) -> AsyncAppProducer[Value, Key]: ...

    @overload
    def async_producer(
        self, *, value: Any = None, key: Any = None, **options: Unpack[AppProducerOptions]
    ) -> AsyncAppProducer[Any, Any]: ...

    def async_producer(self, *, value: Any = None, key: Any = None, **options: Any) -> AsyncAppProducer[Any, Any]:
        """Return the same for async handlers. Options are `AsyncProducer`'s."""
        self._refuse_while_running("a producer")
        producer: AsyncAppProducer[Any, Any] = AsyncAppProducer(self, {"value": value, "key": key, **options})
        self._parts.producers.append(producer)
        return producer

    def relay(
        self,
        outbox: Outbox,
        *,
        interval_s: Span = 0.1,
        batch_rows: int = 500,
        batch_bytes: int = 4 * 1024 * 1024,
        lease_s: Span = 10.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Relay the records of `outbox` to Kafka while the app runs, in a thread of its own.

        Of several relays of one outbox, in any number of processes, one works; another one takes over at once when it
        stops, and after `lease_s` when it died. `interval_s` is how often the database is asked while nothing waits;
        at most `batch_rows` rows of `batch_bytes` together are read at a time. `settings` are a producer's, beside the
        app's `producer_settings`. The app is not ready once rows have waited for `unready_after_s`.
        """
        self._refuse_while_running("a relay")
        self._parts.relays.append(
            AppRelay(
                self,
                outbox,
                {
                    "interval_s": interval_s,
                    "batch_rows": batch_rows,
                    "batch_bytes": batch_bytes,
                    "lease_s": lease_s,
                    "settings": {**without_needed(self.producer_settings), **(settings or {})},
                    "unready_after_s": self.unready_after_s,
                    "drain_s": self.drain_s,
                    "hooks": self.hooks,
                },
            )
        )

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

    def _handle(self, topic: str, value: Any, options: TopicOptions, function: Callable[..., Any]) -> None:
        """Declare the handler of a recurring task."""
        declare: Callable[[Any], Any] = self.handler(topic, value=value, **options)
        declare(function)

    def _declare_events(
        self, old: Route | None, events: EventHandlers, topics: tuple[str, ...], options: TopicOptions
    ) -> Route:
        """Declare the handlers of event types as one handler, replacing their earlier declaration."""

        def add() -> Route:
            declare: Callable[[Any], Any] = self.handler(*topics, **options)
            declare(events)
            return self._parts.routes[-1]

        return self._parts.replace(old, add)

    def _add(self, route: Route) -> None:
        same_group = [other for other in self._parts.routes if other.group == route.group]
        if any((other.queue is None) != (route.queue is None) for other in same_group):
            raise ConfigError(
                f"{route.name}: group {route.group!r} has handlers and a queue, and a share group cannot have the name "
                f"of a consumer group; give the queue a group of its own: group={route.group + '.queue'!r}"
            )
        if any(other.name == route.name for other in same_group):
            raise ConfigError(f"group {route.group!r} has a handler named {route.name!r} already; give one a name=")
        plans_by_topic([other.plan() for other in [*same_group, route]])
        self._parts.routes.append(route)

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


def _most_records(
    name: str, batch: bool, columns: bool | Sequence[str], max_batch: int | None, per_turn: int | None
) -> int | None:
    """Return how many records a handler gets at a time; None: as its route says."""
    if columns is False and not batch:
        if max_batch is not None:
            raise ConfigError(
                f"{name}: found max_batch={shown(max_batch)} for a handler of single records, wanted batch=True or "
                "columns=True beside it, or max_records_per_turn= for the length of a turn"
            )
        return per_turn
    if per_turn is not None:
        raise ConfigError(
            f"{name}: found max_records_per_turn={shown(per_turn)} for a handler of batches, wanted "
            f"max_batch={shown(per_turn)}: a turn of it is a batch"
        )
    if max_batch is not None:
        return max_batch
    return DEFAULT_BATCH_ROWS if columns is not False else DEFAULT_BATCH_RECORDS


def _refuse_redelivery(place: str, **given: object) -> None:
    """Refuse what delivers a record again, where records are delivered at most once."""
    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"{place}: {name}= delivers a record again, and commit=AtMostOnce() never does")


def use_address(app: App, servers: str) -> None:
    """Have the app reach Kafka at the address that was given on the command line."""
    app._use_address(servers)


def ended_early(app: App, error: BaseException | None) -> None:
    """Keep what ended the app, as the reason for which it is not ready."""
    app._ended_by = error


def declarations_of(app: App) -> Declarations:
    """Return what was declared on the app, for what runs, tests or examines it."""
    return app._parts
