"""Every test that takes `shell` runs twice: in threads over confluent-kafka, and on an event loop over aiokafka.

A module with `SHELLS = ["threads", "asyncio", "columns"]` runs over our own wire client as well: handlers of records
get the records of fetched columns there.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import App
from ottla.columnar.serving.group_member import ColumnGroupMember
from ottla.testing import Kafka
from ottla.testing.kafka import running_kafka
from ottla.testing.waiting import wait_until


class Shell:
    """Runs apps in the shell under test, in a thread of their own, and stops what is left."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._running: list[tuple[App, threading.Thread, list[BaseException]]] = []

    def start(self, app: App, *, sink: Any = None) -> App:
        """Start the app beside the test. `sink` replaces the dead letter producer: `(letter) -> error or None`."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                if self.name in ("threads", "columns"):
                    self._run_threads(app, sink)
                else:
                    asyncio.run(self._serve(app, sink))
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name=f"app-{app.group}", daemon=True)
        thread.start()
        self._running.append((app, thread, errors))
        return app

    def stop(self, app: App, timeout_s: float = 20) -> None:
        """Stop gracefully; raises what ended the app."""
        for entry in self._running:
            running, thread, errors = entry
            if running is app:
                app.stop()
                thread.join(timeout_s)
                assert not thread.is_alive(), f"{app.group} did not stop: {app.health()}"
                self._running.remove(entry)
                if errors:
                    raise errors[0]
                return

    def ask(self, app: App, verb: Callable[[Any], Any]) -> Any:
        """Call a verb of the running app's runner where that shell wants it called, and give what it answers."""
        runner = app.runner
        if self.name in ("threads", "columns"):
            return verb(runner)

        async def on_the_loop() -> Any:
            answer = verb(runner)
            return await answer if inspect.isawaitable(answer) else answer

        return asyncio.run_coroutine_threadsafe(on_the_loop(), runner._loop).result(30)

    def has_ended(self, app: App) -> bool:
        """Whether the app ended by itself."""
        return any(running is app and not thread.is_alive() for running, thread, _ in self._running)

    def error_of(self, app: App, timeout_s: float = 20) -> BaseException | None:
        """Wait for the app to end by itself, and return what it raised."""
        for entry in self._running:
            running, thread, errors = entry
            if running is app:
                thread.join(timeout_s)
                assert not thread.is_alive(), f"{app.group} still runs: {app.health()}"
                self._running.remove(entry)
                return errors[0] if errors else None
        raise AssertionError("not started here")

    def stop_all(self) -> None:
        for app, _, _ in list(self._running):
            self.stop(app)

    def _run_threads(self, app: App, sink: Any) -> None:
        from ottla.sync.serve.runner import AppRunner

        member = ColumnGroupMember if self.name == "columns" else None
        if sink is None and member is None:
            app.run(handle_signals=False)
            return

        class Sink:
            def write(self, letter: Any, on_written: Callable[..., None]) -> None:
                # As a producer would: later, from another thread.
                threading.Thread(target=lambda: on_written(letter, sink(letter))).start()

            def close(self, timeout_s: float) -> None:
                return

        class Runner(AppRunner):
            _sink_type: Any = AppRunner._sink_type if sink is None else staticmethod(lambda *_: Sink())

            def _member_of(self, routes: Any) -> Any:
                return member or super()._member_of(routes)

            def _await_writable(self, *asked: Any) -> None:
                if sink is None:
                    super()._await_writable(*asked)

        runner = Runner(app)
        app._adopt(runner)
        try:
            runner.run(handle_signals=False)
        finally:
            app._release()

    async def _serve(self, app: App, sink: Any) -> None:
        from ottla.aio.serve.runner import AppRunner

        if sink is None:
            await app.serve()
            return

        class Sink:
            def write(self, letter: Any, on_written: Callable[..., None]) -> None:
                asyncio.get_running_loop().call_later(0.001, lambda: on_written(letter, sink(letter)))

            async def close(self, timeout_s: float) -> None:
                return

        class Runner(AppRunner):
            _sink_type: Any = staticmethod(lambda *_: Sink())

            async def _await_writable(self, *asked: Any) -> None:
                return

        runner = Runner(app)
        app._adopt(runner)
        try:
            await runner.serve(handle_signals=False)
        finally:
            app._release()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    named = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "shell" in metafunc.fixturenames and not any("shell" in names for names in named):
        metafunc.parametrize("shell", getattr(metafunc.module, "SHELLS", ["threads", "asyncio"]), indirect=True)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """A broker for the tests of a file. Each service asks for all topics when it starts: those of all files would take
    it longer than what is tested.

    Members of the new protocol ask the broker how often to call (5 s), and each turn of a hand-over waits for such a
    call. Those of the classic protocol have a setting of their own.
    """
    with running_kafka("embedded", config={"group.consumer.heartbeat.interval.ms": 200}) as running:
        yield running


@pytest.fixture
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    made = Shell(request.param)
    yield made
    made.stop_all()


@pytest.fixture
def committed(kafka: Any) -> Iterator[Callable[..., int]]:
    """The offset that a group has committed for a partition, -1001 when none."""
    from confluent_kafka import Consumer, TopicPartition

    clients: dict[str, Any] = {}

    def read(group: str, topic: str, partition: int = 0) -> int:
        if group not in clients:
            clients[group] = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "log_level": 0})
        found: int = clients[group].committed([TopicPartition(topic, partition)], timeout=10)[0].offset
        return found

    yield read
    for client in clients.values():
        client.close()


@pytest.fixture
def wait() -> Callable[..., None]:
    return wait_until


@pytest.fixture
def run() -> Iterator[Callable[[App], Callable[[], None]]]:
    """Starts an app by its own `run`; returns what stops it, and raises what ended it."""
    own = Shell("threads")

    def start(app: App) -> Callable[[], None]:
        own.start(app)
        return lambda: own.stop(app, timeout_s=60)

    yield start
    own.stop_all()
