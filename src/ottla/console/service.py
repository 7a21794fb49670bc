"""The page of one service: `ottla run --console-port`. It shows the state of the process and the contract of the app,
sends no request to the cluster, and can pause and resume if that is allowed."""

from __future__ import annotations

import asyncio
import importlib.metadata
import inspect
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from ottla.app import App
from ottla.browse.human_amounts import moment
from ottla.console.guard import Rules, hosts_of
from ottla.console.query import Query
from ottla.console.server import Server, app_of
from ottla.errors import ConfigError, InputError, LifecycleError
from ottla.records import TopicPartition
from ottla.telemetry.metrics.hooks import Hooks
from ottla.telemetry.metrics.measurements import MemberMeasure, PartitionMeasure

_MOST_SHOWN: Final = 1_000
_MOST_RETRIES: Final = 200
_VERB_S: Final = 15.0


class MemberWatch(Hooks):
    """Remembers how members stand, and passes everything on to the app's own hooks."""

    def __init__(self, own: Hooks | None) -> None:
        self.own = own
        self._lock = threading.Lock()
        self._members: dict[tuple[str, str], MemberMeasure] = {}

    def measured(self, *, group: str, member: str, measure: MemberMeasure) -> None:
        with self._lock:
            if measure.partitions or measure.runs_in_flight or measure.leases:
                self._members[group, member] = measure
            else:
                self._members.pop((group, member), None)
        if self.own is not None:
            self.own.measured(group=group, member=member, measure=measure)

    def members(self) -> list[tuple[str, MemberMeasure]]:
        """Group and measure of each member."""
        with self._lock:
            return [(group, measure) for (group, _), measure in sorted(self._members.items())]


def _passing_on(name: str) -> Callable[..., None]:
    def call(self: MemberWatch, **fields: Any) -> None:
        if self.own is not None:
            getattr(self.own, name)(**fields)

    return call


for _name, _method in vars(Hooks).items():
    if inspect.isfunction(_method) and not _name.startswith("_") and _name != "measured":
        setattr(MemberWatch, _name, _passing_on(_name))


class ServiceConsole:
    """Serves the page of an app from before it runs until `close`."""

    def __init__(self, app: App, *, host: str, port: int, token: str, may_write: bool, on_event_loop: bool) -> None:
        """Create the console of a service. `on_event_loop`: how the app will run. Raises `ConfigError` if the port is
        taken."""
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_event_loop = on_event_loop
        self._watching = MemberWatch(app.hooks)
        app.hooks = self._watching
        if on_event_loop:

            async def remember_loop() -> None:
                self._loop = asyncio.get_running_loop()

            app.on_start(remember_loop)

        def make(bound: int) -> Any:
            rules = Rules(
                hosts=hosts_of({host, "127.0.0.1", "localhost"}, bound),
                token=token,
                may_write=may_write,
                cookie=f"ottla_console_{bound}",
            )
            return app_of(
                rules,
                reads={
                    "session": lambda query: self._session(rules, query),
                    "service": self.state,
                    "service/asyncapi": self.asyncapi,
                },
                writes={"service/pause": self.pause, "service/resume": self.resume},
                streams={},
                title="Ottla service",
                script="service.js",
                documents={"service/contract": self.contract},
            )

        self._server = Server(make, host=host, port=port)
        self.port = self._server.port
        self._server.start()

    def close(self) -> None:
        self._server.close()

    def _session(self, rules: Rules, query: Query) -> dict[str, Any]:
        query.done()
        return {
            "schema": "ottla.console.session/1",
            "version": importlib.metadata.version("ottla"),
            "name": self._app.group,
            "may_write": rules.may_write,
            "write_token": rules.write_token if rules.may_write else None,
            "every_ms": 1_000,
        }

    def state(self, query: Query) -> dict[str, Any]:
        """Return health and measures. The measures are at most a second old."""
        query.done()
        health = self._app.health()
        members = self._watching.members()
        measures = {each.topic_partition: (group, each) for group, member in members for each in member.partitions}
        handlers: dict[tuple[str, str], dict[str, Any]] = {}
        for group, member in members:
            for name, runs in member.runs_in_flight.items():
                item = handlers.setdefault((group, name), {"group": group, "handler": name, "runs": 0, "budget": None})
                item["runs"] += runs
            for name, tokens in member.budget_tokens.items():
                item = handlers.setdefault((group, name), {"group": group, "handler": name, "runs": 0, "budget": None})
                item["budget"] = round((item["budget"] or 0) + tokens, 1)
        leases: dict[str, dict[str, Any]] = {}
        for group, member in members:
            if member.leases is not None:
                item = leases.setdefault(group, {"group": group, "in_flight": 0, "oldest_age_ms": 0})
                item["in_flight"] += member.leases.in_flight
                item["oldest_age_ms"] = max(item["oldest_age_ms"], round(member.leases.oldest_s * 1_000))
        now_ms = time.time_ns() // 1_000_000
        retries = [
            {
                "topic": each.topic_partition.topic,
                "partition": each.topic_partition.partition,
                "offset": retry.offset,
                "records": retry.records,
                "attempts": retry.attempts,
                "due": moment(retry.due_ms),
                "due_in_ms": retry.due_ms - now_ms,
            }
            for _, member in members
            for each in member.partitions
            for retry in each.retries
        ]
        retries.sort(key=lambda item: (item["due_in_ms"], item["topic"], item["partition"], item["offset"]))
        partitions = []
        for each in health.partitions[:_MOST_SHOWN]:
            found = measures.get(each.topic_partition)
            partitions.append(
                {
                    "topic": each.topic_partition.topic,
                    "partition": each.topic_partition.partition,
                    "group": None if found is None else found[0],
                    "oldest_unfinished_age_ms": each.oldest_unfinished_age_ms,
                    "oldest_unfinished_offset": each.oldest_unfinished_offset,
                    "buffered_records": each.buffered_records,
                    "stopped": each.stopped,
                    **_measured(None if found is None else found[1]),
                }
            )
        return {
            "schema": "ottla.console.service/1",
            "group": self._app.group,
            "ready": health.is_ready,
            "alive": health.is_alive,
            "problems": list(health.problems),
            "handlers": list(handlers.values()),
            "leases": list(leases.values()),
            "retries": retries[:_MOST_RETRIES],
            "retries_waiting": sum(each.retries_waiting for _, member in members for each in member.partitions),
            "partitions": partitions,
            "left_out": max(0, len(health.partitions) - _MOST_SHOWN),
        }

    def asyncapi(self, query: Query) -> dict[str, Any]:
        """Return the AsyncAPI document of the app. Raises `ConfigError` for a type that has no JSON Schema."""
        from ottla.asyncapi import document_of  # with all serdes, for those who look

        query.done()
        return document_of(self._app)

    def contract(self, query: Query) -> str:
        """Return the AsyncAPI document as a page, or a page that says why there is none."""
        from ottla.asyncapi import document_of, page_of, page_of_problem

        query.done()
        try:
            return page_of(document_of(self._app))
        except ConfigError as error:
            return page_of_problem(self._app.group, str(error))

    def pause(self, query: Query) -> dict[str, Any]:
        """Take no more records of a partition, or of all."""
        return self._act("pause", query)

    def resume(self, query: Query) -> dict[str, Any]:
        """Go on with a partition, or with all, also where it stopped at a failure."""
        return self._act("resume", query)

    def _act(self, verb: str, query: Query) -> dict[str, Any]:
        topic = query.text("topic", most=300)
        partition = query.number("partition", None, least=0, most=2**31 - 1)
        query.done()
        if (topic is None) != (partition is None):
            raise InputError("found one of topic and partition, wanted both, or neither for all")
        places = () if topic is None or partition is None else (TopicPartition(topic, partition),)
        try:
            act = getattr(self._app.runner, verb)
            if self._on_event_loop:
                self._on_the_loop(act, places)
            else:
                act(*places)
        except (LifecycleError, ValueError, LookupError) as error:
            raise InputError(str(error)) from None
        return {"schema": "ottla.console.acted/1", "verb": verb, "partitions": [str(each) for each in places]}

    def _on_the_loop(self, act: Callable[..., Any], places: tuple[TopicPartition, ...]) -> None:
        loop = self._loop
        if loop is None:
            raise InputError("the app has not started yet")

        async def on_the_loop() -> None:
            act(*places)

        asyncio.run_coroutine_threadsafe(on_the_loop(), loop).result(_VERB_S)


def _measured(measure: PartitionMeasure | None) -> dict[str, Any]:
    if measure is None:
        return {
            "handler": None,
            "lag": None,
            "lag_s": None,
            "buffered_bytes": None,
            "retries_waiting": 0,
            "paused_for": [],
        }
    return {
        "handler": measure.handler,
        "lag": measure.lag_records,
        "lag_s": None if measure.lag_s is None else round(measure.lag_s, 1),
        "buffered_bytes": measure.buffered_bytes,
        "retries_waiting": measure.retries_waiting,
        "paused_for": list(measure.paused_for),
    }


def start_console(
    app: App, *, host: str, port: int, token: str | None, may_write: bool, on_event_loop: bool
) -> tuple[ServiceConsole, str]:
    """Return the page and the address to open. `token` comes from the environment."""
    from ottla.console.address import token_of

    chosen = token_of(token)
    console = ServiceConsole(app, host=host, port=port, token=chosen, may_write=may_write, on_event_loop=on_event_loop)
    return console, f"http://{host}:{console.port}/#token={chosen}"
