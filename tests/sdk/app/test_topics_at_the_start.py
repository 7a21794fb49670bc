"""A topic that a service reads must exist: one rule for both shells, on a cluster that creates topics by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from ottla import App, AsyncConsumer, ConfigError, Consumer, Json, RetryTopics, TopicSpec, UnknownTopic
from ottla.admin import Admin
from ottla.testing.topics import create_topic, delete_topics

SHELLS = ["threads", "asyncio", "columns"]

Shapes = Callable[[], dict[str, tuple[int, int]]]


@pytest.fixture
def shapes(kafka: Any) -> Shapes:
    """Each topic of the cluster with its partitions and replicas."""

    def shapes() -> dict[str, tuple[int, int]]:
        with Admin(kafka.bootstrap_servers) as admin:
            topics = admin.list_topics(internal=True)
        return {each.name: (len(each.partitions), each.replication_factor) for each in topics}

    return shapes


@pytest.fixture
def events() -> Iterator[list[Any]]:
    with capture_logs() as captured:
        yield captured


def app_for(kafka: Any, *topics: str, **options: Any) -> App:
    app = App(kafka.fresh_name("billing"), bootstrap_servers=kafka.bootstrap_servers, **options)
    app.handler(*topics, value=Json())(lambda value: None)
    return app


def test_a_misspelt_topic_is_an_error_that_names_the_command_and_creates_nothing(
    shell: Any, kafka: Any, make_topic: Any, shapes: Shapes
) -> None:
    orders = make_topic("orders-of-the-shop")
    misspelt = orders.replace("shop", "shp")
    app = app_for(kafka, misspelt, topics_timeout_s=0)
    shell.start(app)
    error = shell.error_of(app)

    assert isinstance(error, UnknownTopic)
    assert f"does not have {misspelt}. Did you mean {orders!r}?" in str(error)
    assert f"`ottla topics create {misspelt} --bootstrap-servers {kafka.bootstrap_servers}`" in str(error)
    assert "does not create topics" not in str(error), "this cluster does; a consumer asks it not to"
    assert misspelt not in shapes()


@pytest.mark.representative("threads")
@pytest.mark.parametrize("shell", ["threads", "asyncio"], indirect=True)
def test_a_consumer_has_the_same_rule(shell: Any, kafka: Any, shapes: Shapes) -> None:
    missing = kafka.fresh_name("missing")
    options: dict[str, Any] = {"group": "billing", "bootstrap_servers": kafka.bootstrap_servers}

    async def poll() -> None:
        await AsyncConsumer(missing, **options).poll(0.1)

    with pytest.raises(UnknownTopic, match=f"ottla topics create {missing}"):
        Consumer(missing, **options).poll(0.1) if shell.name == "threads" else asyncio.run(poll())
    assert missing not in shapes()


@pytest.mark.parametrize("shell", ["threads", "asyncio"], indirect=True)
def test_a_consumer_creates_what_it_declares(shell: Any, kafka: Any, shapes: Shapes) -> None:
    name, dead = kafka.fresh_name("declared"), kafka.fresh_name("dead")
    options: dict[str, Any] = {
        "group": kafka.fresh_name("billing"),
        "bootstrap_servers": kafka.bootstrap_servers,
        "dead_letter_topic": dead,
        "create_topics": {name: 3, dead: TopicSpec(partitions=2)},
        "topics_timeout_s": 30,
    }

    async def start() -> None:
        async with AsyncConsumer(name, **options):
            pass

    if shell.name == "threads":
        with Consumer(name, **options):
            pass
    else:
        asyncio.run(start())
    assert {name: (3, 1), dead: (2, 1)}.items() <= shapes().items()


@pytest.mark.parametrize("make", [Consumer, AsyncConsumer])
def test_a_consumer_refuses_a_bad_declaration_where_it_is_made(make: Any) -> None:
    with pytest.raises(ConfigError, match="found 'many', wanted a number of partitions or a TopicSpec"):
        make("orders", group="billing", bootstrap_servers="localhost:1", create_topics={"orders": "many"})
    with pytest.raises(ConfigError, match="topics_timeout_s must not be negative, got -1"):
        make("orders", group="billing", bootstrap_servers="localhost:1", topics_timeout_s=-1)


@pytest.mark.parametrize("make", [Consumer, AsyncConsumer])
@pytest.mark.parametrize("given", ["^t.*", "orders of today", "", ["orders"], None])
def test_what_is_no_topic_name_is_refused_where_it_is_given(make: Any, given: Any) -> None:
    with pytest.raises(ConfigError, match="wanted a name of 1 to 249 letters"):
        make(given, group="billing", bootstrap_servers="localhost:1")


@pytest.mark.parametrize("shell", ["threads", "asyncio"], indirect=True)  # our own client has nothing created
def test_a_cluster_that_may_create_topics_does_when_the_service_asks_for_it(
    shell: Any, kafka: Any, shapes: Shapes, wait: Any
) -> None:
    name = kafka.fresh_name("wanted")
    app = app_for(kafka, name, settings={"allow.auto.create.topics": True})
    shell.start(app)
    wait(lambda: app._runner is not None and app.health().partitions, timeout_s=30)
    shell.stop(app)
    assert name in shapes()


@pytest.mark.representative("asyncio-retry topics")
@pytest.mark.parametrize("has_retry_topics", [False, True], ids=["plain", "retry topics"])
def test_topics_that_come_later_are_waited_for(
    shell: Any, kafka: Any, shapes: Shapes, wait: Any, events: list[Any], has_retry_topics: bool
) -> None:
    name = kafka.fresh_name("later")
    app = App(kafka.fresh_name("billing"), bootstrap_servers=kafka.bootstrap_servers, topics_timeout_s=60)
    seen: list[int] = []
    retry_topics = RetryTopics(delays_s=(1,)) if has_retry_topics else None
    app.handler(name, value=Json(), retry_topics=retry_topics)(lambda value: seen.append(value))
    shell.start(app)
    wait(lambda: [event for event in events if event["event"] == "topics_awaited"], timeout_s=30)
    kafka.create_topic(name, partitions=2)
    kafka.produce(name, [1], value=Json(), partition=1)
    wait(lambda: seen == [1], timeout_s=30)
    shell.stop(app)

    (awaited,) = [event for event in events if event["event"] == "topics_awaited"]
    assert awaited["topics"] == [name]
    if has_retry_topics:
        assert shapes()[f"{name}.{app.group}.retry.1"][0] == 2


@pytest.mark.representative("asyncio")
def test_a_stop_is_heard_while_topics_are_waited_for(shell: Any, kafka: Any, wait: Any, events: list[Any]) -> None:
    app = app_for(kafka, kafka.fresh_name("never"), topics_timeout_s=600)
    shell.start(app)
    wait(lambda: [event for event in events if event["event"] == "topics_awaited"], timeout_s=30)
    app.stop()

    assert isinstance(shell.error_of(app, 30), UnknownTopic)


def test_an_app_creates_what_it_uses(shell: Any, kafka: Any, shapes: Shapes, wait: Any) -> None:
    name, dead = kafka.fresh_name("created"), kafka.fresh_name("dead")
    app = app_for(kafka, name, create_topics=True, dead_letter_topic=dead)
    shell.start(app)
    wait(lambda: app._runner is not None and app.health().partitions, timeout_s=30)
    shell.stop(app)
    assert {name: (1, 1), dead: (1, 1)}.items() <= shapes().items()


def test_an_app_creates_what_it_declares_and_leaves_alone_what_exists(
    shell: Any, kafka: Any, make_topic: Any, shapes: Shapes, wait: Any, events: list[Any]
) -> None:
    existing, new = make_topic(partitions=2), kafka.fresh_name("declared")
    spec = TopicSpec(partitions=3, replication_factor=1, config={"retention.ms": 86_400_000})
    app = app_for(kafka, existing, new, create_topics={existing: 5, new: spec})
    shell.start(app)
    wait(lambda: app._runner is not None and len(app.health().partitions) == 5, timeout_s=30)
    shell.stop(app)

    assert shapes()[existing] == (2, 1)
    assert shapes()[new] == (3, 1)
    assert kafka.cluster is not None
    (differs,) = [event for event in events if event["event"] == "topic_differs"]
    assert (differs["topic"], differs["found_partitions"], differs["declared_partitions"]) == (existing, 2, 5)


def test_a_topic_that_the_cluster_refuses_to_create_is_named(shell: Any, kafka: Any) -> None:
    name = kafka.fresh_name("refused")
    app = app_for(kafka, name, create_topics={name: TopicSpec(replication_factor=7)})
    shell.start(app)
    error = shell.error_of(app)

    assert isinstance(error, ConfigError)
    assert f"topic {name} was not created" in str(error)


@pytest.mark.parametrize("given", ["orders", {"orders": 0}, {"^o": 1}, {"orders": True}, {"orders": "3"}])
def test_what_cannot_be_created_is_refused_where_it_is_declared(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"create_topics|TopicSpec"):
        App("billing", create_topics=given)


def test_a_topic_that_is_deleted_under_a_service_does_not_come_back(
    shell: Any, kafka: Any, shapes: Shapes, wait: Any
) -> None:
    name = kafka.fresh_name("deleted")
    create_topic(kafka.bootstrap_servers, name)
    app = app_for(kafka, name, settings={"metadata.max.age.ms": 100})
    shell.start(app)
    wait(lambda: app._runner is not None and app.health().partitions, timeout_s=30)
    asked = metadata_requests(kafka)
    delete_topics(kafka.bootstrap_servers, [name])
    wait(lambda: metadata_requests(kafka) >= asked + 10 or not app._runner, timeout_s=30)

    assert name not in shapes()
    app.stop()
    shell.error_of(app, 30)


def test_a_start_does_not_ask_for_all_topics_of_the_cluster(shell: Any, kafka: Any, make_topic: Any, wait: Any) -> None:
    """Of a cluster with thousands that takes seconds."""
    topics = [make_topic(), make_topic()]
    with (
        kafka.cluster.faults.add(api="METADATA", delay_ms=1, when=lambda request: request.topics is None) as of_all,
        kafka.cluster.faults.add(api="METADATA", delay_ms=1) as of_any,
    ):
        app = app_for(kafka, *topics)
        shell.start(app)
        wait(lambda: app._runner is not None and app.health().partitions, timeout_s=30)
        shell.stop(app)
        assert (of_all.hits, of_any.hits > 0) == (0, True)


def metadata_requests(kafka: Any) -> int:
    """How many the cluster has been asked, told by a fault that does nothing."""
    faults = kafka.cluster.faults
    counter = getattr(kafka, "_counter", None) or faults.add(api="METADATA", delay_ms=0)
    kafka._counter = counter
    return int(counter.hits)
