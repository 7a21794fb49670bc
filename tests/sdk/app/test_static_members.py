"""Two members with the same `group.instance.id`: one of them ends and says so, in all shells.

librdkafka and our own client are told so by the coordinator. aiokafka is not, because its heartbeats do not carry the
id: there it is seen from the id being taken away again and again.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer as Client

from broker_embedded.cluster import EmbeddedCluster
from ottla import App, FencedError
from ottla.app.member.static_members import SharedInstanceId


def make(kafka: Any, topic: str, group: str, **settings: Any) -> App:
    app = App(group, bootstrap_servers=kafka.bootstrap_servers, settings={"group.instance.id": "till-1", **settings})
    app.handler(topic)(lambda value: None)
    return app


def owns(app: App) -> bool:
    return app._runner is not None and bool(app.health().partitions)


@pytest.mark.parametrize(
    ("shell", "protocol"),
    [
        ("threads", "classic"),
        ("threads", "consumer"),
        ("asyncio", "classic"),
        ("columns", "classic"),
        ("columns", "consumer"),
    ],
    indirect=["shell"],
)
def test_one_of_two_members_with_the_same_group_instance_id_ends_and_says_why(
    kafka: Any, kafka_topic: str, kafka_group: str, shell: Any, wait: Any, protocol: str
) -> None:
    """In a classic group the newer one takes over; under KIP-848 it is refused. Two on aiokafka take the id from each
    other in turn: either may be the first to be sure.
    """
    settings = {"heartbeat.interval.ms": 200} if protocol == "classic" else {}
    apps = [make(kafka, kafka_topic, kafka_group, **{"group.protocol": protocol, **settings}) for _ in range(2)]
    gone, other = apps if protocol == "classic" else reversed(apps)
    shell.start(apps[0])
    wait(lambda: owns(apps[0]), timeout_s=60)
    shell.start(apps[1])
    if shell.name == "asyncio":
        wait(lambda: any(shell.has_ended(app) for app in apps), timeout_s=60)
        gone, other = sorted(apps, key=shell.has_ended, reverse=True)

    error = shell.error_of(gone, timeout_s=60)
    assert isinstance(error, FencedError)
    assert "another member runs with the same group.instance.id" in str(error)
    wait(lambda: owns(other) and other.health().is_ready, timeout_s=60)


@pytest.mark.parametrize("shell", ["asyncio"], indirect=True)
def test_a_member_that_is_told_so_as_it_joins_says_why(
    kafka_topic: str, kafka_group: str, shell: Any, wait: Any
) -> None:
    """Seldom on aiokafka: its id was taken between two heartbeats, in which it learned that the group rebalances."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic(kafka_topic)
        settings = {"group.protocol": "classic", "heartbeat.interval.ms": 200, "client.id": "till-1"}
        app = shell.start(make(cluster, kafka_topic, kafka_group, **settings))
        wait(lambda: owns(app), timeout_s=60)
        with cluster.faults.add(api="JOIN_GROUP", error="FENCED_INSTANCE_ID", client_id="till-1") as fault:
            newcomer = Client({"bootstrap.servers": cluster.bootstrap_servers, "group.id": kafka_group})
            with closing(newcomer):
                newcomer.subscribe([kafka_topic])
                wait(lambda: newcomer.poll(0) or fault.hits, timeout_s=60)
                error = shell.error_of(app, timeout_s=60)
    assert isinstance(error, FencedError)
    assert "another member runs with the same group.instance.id" in str(error)


class TestToldFromASlowMember:
    SESSION_MS = 45_000

    def lost_after(self, *held_ms: int) -> list[bool]:
        watch, now_ms, ends = SharedInstanceId("till-1", session_timeout_ms=self.SESSION_MS), 0, []
        for held in held_ms:
            watch.assigned(now_ms)
            now_ms += held
            ends.append(watch.lost(now_ms) is not None)
            now_ms += 1_000
        return ends

    def test_three_losses_in_a_row_sooner_than_a_session_can_end_are_another_member(self) -> None:
        assert self.lost_after(3_000, 3_000, self.SESSION_MS - 1) == [False, False, True]

    def test_a_session_that_may_have_expired_begins_the_count_anew(self) -> None:
        assert self.lost_after(3_000, 3_000, self.SESSION_MS, 3_000, 3_000) == [False] * 5

    def test_what_was_never_assigned_cannot_be_taken(self) -> None:
        watch = SharedInstanceId("till-1", session_timeout_ms=self.SESSION_MS)
        assert [watch.lost(now_ms) for now_ms in range(10)] == [None] * 10

    def test_the_error_names_the_id_and_how_it_was_seen(self) -> None:
        watch = SharedInstanceId("till-1", session_timeout_ms=self.SESSION_MS)
        for now_ms in (0, 1_000, 2_000):
            watch.assigned(now_ms)
            error = watch.lost(now_ms + 500)
        assert "'till-1' was taken from this member 3 times in a row" in str(error)
        assert "session.timeout.ms=45000" in str(error)
