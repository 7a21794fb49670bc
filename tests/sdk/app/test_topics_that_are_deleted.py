"""One of a service's topics is deleted while it runs, and made again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla import App, CommitPolicy, Json, UnknownTopic
from ottla.telemetry import Hooks
from ottla.testing.topics import create_topic

SHELLS = ["threads", "asyncio", "columns"]


class Told(Hooks):
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, *, group: str, event: str) -> None:
        self.events.append(event)


def counting(kafka: Any, group: str, topics: list[str], **settings: Any) -> tuple[App, Told, dict[str, list[int]]]:
    told, seen = Told(), {name: [] for name in topics}
    app = App(
        group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=CommitPolicy(every_s=0.05),
        hooks=told,
        topics_timeout_s=0.5,
        settings=settings,
    )
    for name in topics:

        def handle(value: int, found: list[int] = seen[name]) -> None:
            found.append(value)

        app.handler(name, value=Json(), name=name)(_only_value(handle))
    return app, told, seen


def _only_value(handle: Callable[[int], None]) -> Callable[[int], None]:
    def handler(value: int) -> None:
        handle(value)

    return handler


@pytest.mark.representative("columns-settings7")
@pytest.mark.parametrize(
    ("shell", "settings"),
    [
        ("threads", {}),
        ("threads", {"auto.offset.reset": "latest"}),
        ("threads", {"group.protocol": "consumer"}),
        ("asyncio", {}),
        ("asyncio", {"auto.offset.reset": "latest"}),
        ("columns", {}),
        ("columns", {"auto.offset.reset": "latest"}),
        ("columns", {"group.protocol": "consumer"}),
    ],
    indirect=["shell"],
)
def test_a_service_goes_on_with_its_other_topics_and_reads_the_deleted_one_when_it_is_there_again(
    shell: Any, settings: dict[str, Any], kafka: Any, kafka_group: str, wait: Callable[..., None], committed: Any
) -> None:
    stays = kafka.fresh_name("orders")
    deleted = f"{stays}.late"  # a name inside the other one
    for name in (stays, deleted):
        create_topic(kafka.bootstrap_servers, name)
    app, told, seen = counting(kafka, kafka_group, [stays, deleted], **settings)
    shell.start(app)
    wait(lambda: app._runner is not None and len(app.health().partitions) == 2, timeout_s=30)
    wait(lambda: looked_at(app, 2), timeout_s=30)
    for name in (stays, deleted):
        kafka.produce(name, range(5), value=Json())
    wait(lambda: [len(found) for found in seen.values()] == [5, 5], timeout_s=30)
    wait(lambda: committed(kafka_group, deleted) == 5)
    assert app.health().is_ready

    kafka.delete_topics([deleted])
    wait(lambda: not app.health().is_ready, timeout_s=30)
    (problem,) = app.health().problems
    assert problem.startswith(f"topic {deleted} does not exist")
    kafka.produce(stays, range(5, 10), value=Json())
    wait(lambda: len(seen[stays]) == 10, timeout_s=30)

    create_topic(kafka.bootstrap_servers, deleted)
    kafka.produce(deleted, range(100, 105), value=Json())
    wait(lambda: seen[deleted][5:] == [*range(100, 105)], timeout_s=30)
    wait(lambda: app.health().is_ready, timeout_s=30)
    wait(lambda: "topic_recreated" in told.events, timeout_s=30)
    kafka.produce(stays, [10], value=Json())
    kafka.produce(deleted, [105], value=Json())
    wait(lambda: seen[stays] == [*range(11)] and seen[deleted][-1] == 105, timeout_s=30)
    shell.stop(app)
    assert told.events.count("topic_missing") == told.events.count("topic_found") == 1


def looked_at(app: App, partitions: int) -> bool:
    """A topic that is gone before the first look at its log cannot be told apart."""
    (member,) = app.runner.members.values()
    states = member._session._partitions.values()
    return len(states) == partitions and all(state.log.topic_id is not None for state in states)


def test_a_start_without_one_of_several_topics_names_that_one_only(shell: Any, kafka: Any, kafka_group: str) -> None:
    there = kafka.fresh_name("orders")
    create_topic(kafka.bootstrap_servers, there)
    app, _, _ = counting(kafka, kafka_group, [there, f"{there}.dead-letters"])
    shell.start(app)
    error = shell.error_of(app, 30)

    assert isinstance(error, UnknownTopic)
    assert f"does not have {there}.dead-letters. " in str(error)
