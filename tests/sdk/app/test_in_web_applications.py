"""An app in a web application: it starts and stops with it, and one that ends makes the web application unready."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla import App, BrokerUnavailable, CommitPolicy, ConfigError, Consumer, Int64
from ottla.testing import Kafka, wait_until

why = "Starlette and uvicorn are not installed: pip install 'ottla[console]'"
uvicorn = pytest.importorskip("uvicorn", reason=why)
applications = pytest.importorskip("starlette.applications", reason=why)


class Served:
    """A web application on a port, served in a thread by uvicorn."""

    def __init__(self, web: Any) -> None:
        self.server = uvicorn.Server(uvicorn.Config(web, port=0, log_level="critical", lifespan="on"))
        self.thread = threading.Thread(target=self.server.run, daemon=True)

    def start(self) -> Served:
        self.thread.start()
        wait_until(lambda: self.server.started or not self.thread.is_alive(), 30, what="the web server")
        return self

    def get(self, path: str) -> tuple[int, Any]:
        port = self.server.servers[0].sockets[0].getsockname()[1]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def served() -> Iterator[Callable[[Any], Served]]:
    running: list[Served] = []

    def serve(web: Any) -> Served:
        running.append(Served(web))
        return running[-1].start()

    yield serve
    for each in running:
        each.stop()


def web_of(framework: str, app: App, lifespan: Any, **routes: Any) -> Any:
    if framework == "fastapi":
        web = pytest.importorskip("fastapi", reason="FastAPI is not installed").FastAPI(lifespan=lifespan)
    else:
        web = applications.Starlette(lifespan=lifespan)
    web.mount("/kafka", app.health_asgi)
    for path, handler in routes.items():
        web.router.add_route(f"/{path}", handler)
    return web


@pytest.mark.parametrize("framework", ["starlette", "fastapi"])
@pytest.mark.parametrize("is_composed", [False, True])
def test_an_app_starts_handles_and_stops_with_the_web_application(
    framework: str,
    is_composed: bool,
    kafka: Kafka,
    make_topic: Callable[..., str],
    kafka_group: str,
    committed: Any,
    served: Callable[[Any], Served],
) -> None:
    from starlette.responses import PlainTextResponse

    topic = make_topic("orders")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=CommitPolicy(every_s=60))
    orders = app.async_producer(value=Int64())
    seen: list[Any] = []

    @app.handler(topic, value=Int64())
    async def handle(number: int) -> None:
        seen.append(number)

    app.on_stop(lambda: seen.append("stopped"))

    async def send(request: Any) -> Any:
        delivery = await orders.send(topic, 7)
        return PlainTextResponse(str(delivery.offset))

    @asynccontextmanager
    async def own(web: Any) -> AsyncIterator[None]:
        seen.append("own begins")
        async with app.lifespan():
            yield
        seen.append("own ends")

    web = served(web_of(framework, app, own if is_composed else app.lifespan, send=send))
    assert web.get("/send") == (200, b"0")
    wait_until(lambda: 7 in seen, 30)
    status, body = web.get("/kafka/health/ready")
    assert (status, json.loads(body)["ready"]) == (200, True)
    assert web.get("/kafka/health/live")[0] == 200
    assert web.get("/kafka/nothing")[0] == 404
    assert web.get("/kafka/metrics")[0] == 200
    web.stop()
    assert seen == (["own begins", 7, "stopped", "own ends"] if is_composed else [7, "stopped"])
    assert committed(kafka_group, topic) == 1, "drained and committed"


def test_an_app_that_ends_makes_the_web_application_unready_and_says_why(
    kafka: Kafka, make_topic: Callable[..., str], kafka_group: str, served: Callable[[Any], Served]
) -> None:
    topic = make_topic("orders")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)
    ended: list[BaseException] = []

    @app.handler(topic)
    async def handle(value: bytes) -> None: ...

    @asynccontextmanager
    async def own(web: Any) -> AsyncIterator[None]:
        try:
            async with app.lifespan():
                yield
        except ConfigError as error:
            ended.append(error)

    # Its group runs in threads, and refuses the assignor of asyncio.
    with Consumer(topic, group=kafka_group, bootstrap_servers=kafka.bootstrap_servers) as other:
        wait_until(lambda: bool(other.poll(0.1) or other.assignment), 30, what="the member of threads")
        web = served(web_of("starlette", app, own))
        wait_until(lambda: web.get("/kafka/health/live")[0] == 503, 30, what="the end of the app")

    def problems() -> str:
        return str(json.loads(web.get("/kafka/health/ready")[1])["problems"])

    wait_until(lambda: "the app ended: ConfigError" in problems(), 30)
    assert "partition.assignment.strategy" in problems()
    assert web.get("/kafka/health/ready")[0] == 503
    web.stop()
    assert "partition.assignment.strategy" in str(ended[0]), "it is raised where the web application ends"


def test_a_sub_application_whose_lifespan_is_not_run_is_unready_and_the_outer_one_runs_it(
    kafka: Kafka, make_topic: Callable[..., str], kafka_group: str, served: Callable[[Any], Served]
) -> None:
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)
    app.handler(make_topic("orders"))(lambda value: None)

    outer = applications.Starlette()
    outer.mount("/shop", web_of("starlette", app, app.lifespan))
    web = served(outer)
    status, body = web.get("/shop/kafka/health/ready")
    assert (status, json.loads(body)["problems"]) == (503, ["the app is not running"])
    web.stop()

    outer = applications.Starlette(lifespan=app.lifespan)
    outer.mount("/shop", web_of("starlette", app, None))
    web = served(outer)
    wait_until(lambda: web.get("/shop/kafka/health/ready")[0] == 200, 30, what="readiness")
    web.stop()


def test_a_web_application_does_not_start_without_its_app() -> None:
    app = App("billing", bootstrap_servers="127.0.0.1:1", start_timeout_s=0)
    app.handler("orders")(lambda value: None)

    async def start() -> None:
        async with app.lifespan():
            raise AssertionError("it has started")

    with pytest.raises(BrokerUnavailable):
        asyncio.run(start())
    assert "BrokerUnavailable" in app.health().problems[0]


def test_an_app_can_run_again_after_it_was_stopped(
    kafka: Kafka, make_topic: Callable[..., str], kafka_group: str
) -> None:
    topic = make_topic("orders")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)
    seen: list[bytes] = []
    app.handler(topic)(seen.append)

    async def run_twice() -> None:
        async with app.lifespan():
            app.stop()
            await asyncio.to_thread(wait_until, lambda: app.health().problems == ("the app is not running",), 30)
        async with app.lifespan():
            kafka.produce(topic, [b"1"])
            await asyncio.to_thread(wait_until, lambda: seen == [b"1"], 30)

    asyncio.run(run_twice())


def test_health_alone_is_an_application() -> None:
    """Without a mount, and for methods that are none of a probe."""
    app = App("billing")
    sent: list[Any] = []

    async def ask(method: str, path: str, root: str = "") -> tuple[int, bytes]:
        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request"}

        sent.clear()
        scope = {"type": "http", "method": method, "path": path, "root_path": root}
        await app.health_asgi(scope, receive, send)
        return sent[0]["status"], sent[1]["body"]

    async def scenario() -> None:
        status, body = await ask("GET", "/health")
        assert (status, json.loads(body)["problems"]) == (503, ["the app is not running"])
        assert (await ask("GET", "/web/kafka/health/live", "/web/kafka"))[0] == 503
        assert await ask("HEAD", "/health/live") == (503, b"")
        assert (await ask("POST", "/health"))[0] == 405

        events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def next_event() -> Any:
            return next(events)

        async def send(message: Any) -> None:
            sent.append(message["type"])

        sent.clear()
        await app.health_asgi({"type": "lifespan"}, next_event, send)
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    asyncio.run(scenario())
