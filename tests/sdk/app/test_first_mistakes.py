"""What is typed first, and by whom comes from another client: the error names the public call and the way."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ottla import (
    App,
    AsyncConsumer,
    AsyncProducer,
    CommitPolicy,
    ConfigError,
    Consumer,
    Context,
    DeadLetterBudget,
    ExactlyOnce,
    FlowLimits,
    Inbox,
    Json,
    LifecycleError,
    Producer,
    Retry,
    RetryPolicy,
    RetryTopics,
)
from ottla.admin import Admin, AsyncAdmin
from ottla.config.arguments import OTHER_METHODS

SERVERS = "localhost:1"


def columns(**options: Any) -> Any:
    return pytest.importorskip("ottla.columnar").consume("orders", **options)


def handler(*topics: str, **options: Any) -> Any:
    return App("g").handler(*topics, **options)


ARGUMENTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: Producer(SERVERS, acks="all"), 'Producer: found acks=, wanted settings={"acks": ...}'),
    (
        lambda: AsyncProducer(SERVERS, linger_ms=5),
        'AsyncProducer: found linger_ms=, wanted settings={"linger.ms": ...}',
    ),
    (lambda: Producer(servers=SERVERS), "Producer: found servers=, wanted bootstrap_servers="),
    (lambda: Producer(config={}), "Producer: found config=, wanted settings="),
    (lambda: Producer(value_serializer=str), "Producer: found value_serializer=, wanted a serde: value=Json(Order)"),
    (lambda: AsyncProducer(key_serializer=str), "AsyncProducer: found key_serializer=, wanted a serde: key=Str()"),
    (lambda: AsyncProducer(loop=None), "AsyncProducer: found loop=, wanted nothing: it belongs to the event loop"),
    (lambda: Consumer("orders", group_id="g"), "Consumer: found group_id=, wanted group="),
    (lambda: AsyncConsumer("orders", group_id="g"), "AsyncConsumer: found group_id=, wanted group="),
    (lambda: Consumer("orders"), "Consumer: found no group=, wanted one"),
    (lambda: Consumer({"group.id": "g"}), "found no group=, wanted one; settings are given as settings={...}"),
    (
        lambda: Consumer("orders", group="g", auto_offset_reset="latest"),
        'Consumer: found auto_offset_reset=, wanted settings={"auto.offset.reset": ...}',
    ),
    (
        lambda: App("g", SERVERS),
        "App: found 'localhost:1' by position, wanted it by name: bootstrap_servers='localhost:1'",
    ),
    (lambda: App(), "App: found no group=, wanted one"),
    (
        lambda: App({"group.id": "g"}),
        "App: group: found a dict of 1, wanted text; settings are given as settings={...}",
    ),
    (lambda: App("g", drain=5), "App: found drain=, wanted drain_s="),
    (lambda: handler("orders", group_id="g"), "App.handler: found group_id=, wanted group="),
    (lambda: handler("orders", batch_size=5), "App.handler: found batch_size=, wanted max_batch="),
    (lambda: handler("orders", dlq="dead"), "App.handler: found dlq=, wanted dead_letter_topic="),
    (lambda: handler(topics=["orders"]), "App.handler: found topics=, wanted the topics by position"),
    (
        lambda: handler("orders", auto_offset_reset="latest"),
        "App.handler: found auto_offset_reset=, wanted it where the",
    ),
    (lambda: App("g").relay(), "App.relay: found no outbox=, wanted one"),
    (lambda: columns(group_id="g"), "consume: found group_id=, wanted group="),
    (lambda: Admin(servers=SERVERS), "Admin: found servers=, wanted bootstrap_servers="),
    (lambda: AsyncAdmin(servers=SERVERS), "AsyncAdmin: found servers=, wanted bootstrap_servers="),
    (lambda: RetryTopics([1, 10]), "RetryTopics: found [1, 10] by position, wanted it by name: delays_s=[1, 10]"),
    (lambda: RetryTopics(delays=[1]), "RetryTopics: found delays=, wanted delays_s="),
    (lambda: RetryPolicy(3), "RetryPolicy: found 3 by position, wanted it by name: max_attempts=3"),
    (lambda: RetryPolicy(retries=3), "RetryPolicy: found retries=, wanted max_attempts="),
    (lambda: DeadLetterBudget(5), "DeadLetterBudget: found 5 by position, wanted it by name: burst=5"),
    (lambda: CommitPolicy(100), "CommitPolicy: found 100 by position, wanted it by name: every_records=100"),
    (lambda: FlowLimits(100), "FlowLimits: found 100 by position, wanted it by name: high_records=100"),
    (lambda: ExactlyOnce(max_batch=1), "ExactlyOnce: found max_batch=, wanted"),
    (lambda: Inbox(), "Inbox: found no store=, wanted one"),
    (lambda: Retry(after=timedelta(seconds=1)), "Retry: found after=, wanted after_s="),
]


@pytest.mark.parametrize(("call", "message"), ARGUMENTS, ids=[message for _, message in ARGUMENTS])
def test_a_wrong_argument_is_said_with_the_right_one(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)) as raised:
        call() if not message.startswith("App: group") else raise_as_type_error(call)

    assert "Core" not in str(raised.value)
    assert "Pulled" not in str(raised.value)


def raise_as_type_error(call: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        call()
    raise TypeError(str(raised.value))


METHODS: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: Producer(SERVERS), "produce", "wanted send(topic, value, key=...)"),
    (lambda: Producer(SERVERS), "poll", "wanted nothing"),
    (lambda: AsyncProducer(SERVERS), "send_and_wait", "wanted send(topic, value)"),
    (lambda: AsyncProducer(SERVERS), "begin_transaction", "wanted with producer.transaction()"),
    (lambda: Consumer("orders", group="g", bootstrap_servers=SERVERS), "subscribe", "wanted the topics by position"),
    (lambda: AsyncConsumer("orders", group="g", bootstrap_servers=SERVERS), "getone", "wanted a loop"),
    (lambda: App("g"), "subscriber", "wanted @app.handler('orders', value=Json(Order))"),
    (lambda: App("g"), "publisher", "wanted producer = app.producer("),
    (lambda: App("g"), "after_startup", "wanted @app.on_start"),
    (lambda: App("g"), "handlr", "'App' object has no attribute 'handlr'"),
]


@pytest.mark.parametrize(("make", "name", "message"), METHODS, ids=[name for _, name, _ in METHODS])
def test_a_method_of_another_client_is_said_with_the_one_of_this(
    make: Callable[[], Any], name: str, message: str
) -> None:
    made = make()
    with pytest.raises(AttributeError, match=re.escape(message)):
        getattr(made, name)
    assert not hasattr(made, name)
    if isinstance(made, Producer):
        made.close()


def test_no_method_that_an_app_has_is_said_to_be_of_another_client() -> None:
    assert [name for name in OTHER_METHODS["app"] if hasattr(App("g"), name)] == []


def test_signatures_are_those_of_what_is_called() -> None:
    assert list(inspect.signature(App).parameters)[:2] == ["group", "bootstrap_servers"]
    assert "delays_s" in inspect.signature(RetryTopics).parameters
    assert "concurrency" in inspect.signature(App.handler).parameters


class TestSaidAtOnce:
    async def test_run_on_an_event_loop(self) -> None:
        app = App("g", bootstrap_servers=SERVERS)
        app.handler("orders")(lambda value: None)

        with pytest.raises(ConfigError, match=r"which run\(\) would block; wanted `await app.serve\(\)`"):
            app.run()

    @pytest.mark.parametrize("what", ["handler", "middleware", "on_start", "producer", "async_producer"])
    def test_a_declaration_while_the_app_runs(self, kafka: Any, kafka_topic: str, what: str) -> None:
        app = App("g", bootstrap_servers=kafka.bootstrap_servers)
        refused: list[Exception] = []
        declare: dict[str, Callable[[], Any]] = {
            "handler": lambda: app.handler("others", name="late")(lambda value: None),
            "middleware": lambda: app.middleware(lambda record, context, call_next: call_next()),
            "on_start": lambda: app.on_start(lambda: None),
            "producer": app.producer,
            "async_producer": app.async_producer,
        }

        @app.handler(kafka_topic)
        def on_order(value: bytes) -> None:
            try:
                declare[what]()
            except LifecycleError as error:
                refused.append(error)
            app.stop()

        kafka.produce(kafka_topic, [b"1"])
        app.run(handle_signals=False)

        assert "runs already: declare" in str(refused[0])

    @pytest.mark.parametrize("declare", ["handler", "middleware", "on_start", "on_stop"])
    def test_a_class_is_no_function(self, declare: str) -> None:
        class Billing:
            def __init__(self, value: bytes) -> None: ...

        app = App("g")
        decorate = app.handler("orders") if declare == "handler" else getattr(app, declare)
        with pytest.raises(ConfigError, match=r"Billing: found a class, .* wanted a function, or an object"):
            decorate(Billing)
        with pytest.raises(ConfigError, match=r"wanted a function|is a function"):
            decorate(5)

    def test_an_object_that_can_be_called_is_one(self) -> None:
        class Billing:
            def __call__(self, value: bytes, context: Context) -> None: ...

        App("g").handler("orders")(Billing())

    @pytest.mark.representative("asyncio-True")
    @pytest.mark.parametrize("batch", [False, True])
    def test_a_coroutine_of_a_plain_handler_is_a_dead_letter_at_the_first_delivery(
        self, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any, batch: bool
    ) -> None:
        topic, dead_letters = make_topic("orders"), make_topic("dead")
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, dead_letter_topic=dead_letters)
        calls: list[Any] = []

        async def work(value: Any) -> None:
            await asyncio.sleep(0)

        @app.handler(topic, value=Json(), batch=batch)
        def on_order(given: Any) -> Any:
            calls.append(given)
            return work(given)

        kafka.produce(topic, [1], value=Json())
        shell.start(app)
        wait(lambda: committed(app.group, topic) == 1)

        [letter] = kafka.consume_all(dead_letters)
        message = dict(letter.headers)["ottla-dlq-error-message"]
        assert b"which nothing awaits: declare the handler with async def" in message
        assert len(calls) == 1
