"""A member that is asked to stop while it joins again: what it handled is committed all the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla import App, CommitPolicy, Producer
from ottla.consumer.model import events
from ottla.consumer.session import Session

SHELLS = ["threads", "asyncio", "columns"]


def make(kafka: Any, topic: str, group: str, handle: Callable[[bytes], object], client_id: str, **settings: Any) -> App:
    app = App(
        group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=CommitPolicy(every_s=600, every_records=1_000_000),  # nothing but the last commit
        settings={
            "partition.assignment.strategy": "cooperative-sticky",  # keeps its partitions while it joins
            "heartbeat.interval.ms": 100,
            "client.id": client_id,
            **settings,
        },
    )
    app.handler(topic)(lambda value: handle(value))
    return app


@pytest.mark.parametrize("shell", ["threads"], indirect=True)  # aiokafka gives up its partitions before it joins
def test_the_last_commit_waits_for_a_rebalance_that_is_under_way(shell: Any, wait: Any) -> None:
    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as kafka:
        kafka.create_topic("orders", partitions=2)
        handled: list[bytes] = []
        again: list[bytes] = []
        leaving = make(kafka, "orders", "billing", handled.append, "leaving")
        shell.start(leaving)
        with Producer(kafka.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number, key=b"%d" % number)
        wait(lambda: len(handled) == 20, timeout_s=60)

        late = kafka.faults.add(api="JOIN_GROUP", client_id="leaving", delay_ms=1_500, after_apply=True, count=1)
        with late:
            shell.start(make(kafka, "orders", "billing", again.append, "joining"))
            late.wait(hits=1)
            shell.stop(leaving, timeout_s=60)

        with Producer(kafka.bootstrap_servers) as producer:
            producer.send("orders", b"more", key=b"1", partition=0)
            producer.send("orders", b"more", key=b"1", partition=1)
        wait(lambda: again.count(b"more") == 2, timeout_s=60)
        shell.stop_all()
        assert again == [b"more", b"more"], "what was handled and committed does not come again"


@pytest.mark.parametrize("shell", ["threads"], indirect=True)
def test_a_rebalance_of_eager_members_takes_no_partition_before_its_last_commit(
    shell: Any, wait: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops, a handler still runs, and the group takes its partitions away: the client joins again as soon as the
    callback returns, and a commit that is sent after that names a generation that is over."""
    revoking, may_end, eager = threading.Event(), threading.Event(), {"partition.assignment.strategy": "range"}
    step = Session.step

    def noticed(session: Session, event: events.Event, now_ms: int) -> Any:
        if isinstance(event, events.Revoking):
            revoking.set()
        return step(session, event, now_ms)

    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as kafka:
        kafka.create_topic("orders", partitions=1)
        handled: list[bytes] = []
        again: list[bytes] = []

        def handle(value: bytes) -> None:
            handled.append(value)
            if len(handled) == 20:
                may_end.wait(60)

        leaving = make(kafka, "orders", "billing", handle, "leaving", **eager)
        shell.start(leaving)
        with Producer(kafka.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number)
        wait(lambda: len(handled) == 20, timeout_s=60)
        monkeypatch.setattr(Session, "step", noticed)
        leaving.stop()
        joining = make(kafka, "orders", "billing", again.append, "joining", **eager)
        shell.start(joining)
        assert revoking.wait(60)
        may_end.set()
        shell.stop(leaving, timeout_s=60)

        with Producer(kafka.bootstrap_servers) as producer:
            producer.send("orders", b"more")
        wait(lambda: b"more" in again, timeout_s=60)
        shell.stop_all()
        assert again == [b"more"], "what was handled before the partition went away does not come again"
