"""Members that stop while their group lets them in: nobody else waits for them until their sessions end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from structlog.testing import capture_logs

from broker_embedded.cluster import EmbeddedCluster
from ottla import App, AsyncConsumer, CommitPolicy, Consumer
from ottla.admin import Admin
from ottla.columnar import consume
from ottla.sync.consume import group_member, leaving
from ottla.testing import Kafka
from ottla.testing.topics import create_topic
from ottla.testing.waiting import wait_until

BROKER = {
    "offsets.topic.num.partitions": 1,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.heartbeat.interval.ms": 200,
}
BRISK = {"heartbeat.interval.ms": 200, "partition.assignment.strategy": "range"}
NEXT_GENERATION = {"group.protocol": "consumer"}

Made = Callable[[dict[str, Any]], Any]


class OnLoop:
    """An `AsyncConsumer` on an event loop of its own, as the other consumers are used."""

    def __init__(self, *topics: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._consumer = self._run(self._made(topics, options))

    @staticmethod
    async def _made(topics: tuple[str, ...], options: dict[str, Any]) -> AsyncConsumer[Any, Any]:
        return AsyncConsumer(*topics, **options)

    def start(self) -> OnLoop:
        self._run(self._consumer.start())
        return self

    @property
    def _is_closed(self) -> bool:
        return self._consumer._is_closed

    def close(self) -> None:
        self._run(self._consumer.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(60)


MADE: dict[str, Any] = {"threads": Consumer, "asyncio": OnLoop, "columns": consume}


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with EmbeddedCluster(config=BROKER) as cluster:
        create_topic(cluster.bootstrap_servers, "orders", partitions=4, replication_factor=1)
        yield Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)


@pytest.mark.representative("asyncio")
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("threads", BRISK),
        ("asyncio", BRISK),
        ("columns", BRISK),
        ("threads", NEXT_GENERATION),
        ("columns", NEXT_GENERATION),
    ],
    ids=["threads", "asyncio", "columns", "threads, next generation", "columns, next generation"],
)
def test_a_member_that_stops_while_it_is_let_in_keeps_nobody_waiting(
    kafka: Kafka, run: Any, kind: str, settings: dict[str, Any]
) -> None:
    seen: dict[str, list[int]] = {"first": [], "second": []}

    def app(name: str) -> App:
        made = App(
            "shop", bootstrap_servers=kafka.bootstrap_servers, commit=CommitPolicy(every_s=0.05), settings=settings
        )
        made.handler("orders", name="handle")(lambda value: seen[name].append(int(value)))
        return made

    def produced_and_seen_by(name: str) -> bool:
        for partition in range(4):
            kafka.produce("orders", [b"1"], partition=partition)
        return bool(seen[name])

    stop_first = run(app("first"))
    wait_until(lambda: produced_and_seen_by("first"), timeout_s=30, interval_s=0.1)

    api = "CONSUMER_GROUP_HEARTBEAT" if settings is NEXT_GENERATION else "JOIN_GROUP"
    own = {**settings, "client.id": "leaves"}
    with kafka.cluster.faults.add(api=api, client_id="leaves", hold=True, count=1) as held:
        leaves = MADE[kind]("orders", group="shop", bootstrap_servers=kafka.bootstrap_servers, settings=own).start()
        held.wait()
        closing = threading.Thread(target=leaves.close)
        closing.start()
        wait_until(lambda: leaves._is_closed)
    closing.join(30)
    assert not closing.is_alive()

    stop_second = run(app("second"))
    wait_until(lambda: produced_and_seen_by("second"), timeout_s=30, interval_s=0.1)
    stop_first()
    stop_second()


@pytest.mark.representative("threads")
@pytest.mark.parametrize("kind", MADE)
def test_a_member_that_stops_while_it_waits_for_another_is_gone(kafka: Kafka, kind: str) -> None:
    """Its goodbye must not wait behind its JoinGroup, which is answered when the other one has come."""
    servers = kafka.bootstrap_servers
    sleeper = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "shop", "log_level": 0, **BRISK})
    sleeper.subscribe(["orders"])
    wait_until(lambda: sleeper.poll(0.05) is None and sleeper.assignment(), timeout_s=30)

    with Admin(servers) as admin:

        def members() -> int:
            (group,) = admin.describe_groups("shop")
            return len(group.members or ())

        leaves = MADE[kind]("orders", group="shop", bootstrap_servers=servers, settings=BRISK).start()
        wait_until(lambda: members() == 2, timeout_s=30)  # the first one polls no more, so it does not join again
        leaves.close()
        wait_until(lambda: members() == 1, timeout_s=30)
    sleeper.close()


def test_a_client_that_is_left_to_itself_tells_nobody_how_it_ended(
    kafka: Kafka, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka gives up its last commit a session later, in the middle of whatever the process does by then."""
    monkeypatch.setattr(leaving, "LEAVE_S", 0.2)
    monkeypatch.setattr(group_member, "_LAST_COMMIT_MS", 200)
    seen: list[bytes] = []
    settings = {"session.timeout.ms": 1_000, "heartbeat.interval.ms": 200}
    app = App("shop", bootstrap_servers=kafka.bootstrap_servers, drain_s=0.2, settings=settings)
    app.handler("orders")(seen.append)
    stop = run(app)
    kafka.produce("orders", [b"1"], partition=0)
    wait_until(lambda: seen == [b"1"], timeout_s=30)
    with capture_logs() as logs:
        kafka.cluster.stop()
        stop()
        said = [each["event"] for each in logs]
        assert [event for event in said if event != "call_retried"][-2:] == ["client_close_abandoned", "app_stopped"]
        wait_until(lambda: "ottla-shop-close" not in {each.name for each in threading.enumerate()}, timeout_s=60)
        assert [each["event"] for each in logs if each["event"] != "call_retried"] == [
            event for event in said if event != "call_retried"
        ]  # but for the watch of its lag, which asks the brokers that are gone
