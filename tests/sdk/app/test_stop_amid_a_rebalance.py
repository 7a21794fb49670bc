"""A member that is asked to stop while it joins again: what it handled is committed all the same."""

from __future__ import annotations

from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla import App, CommitPolicy, Producer


def make(kafka: Any, topic: str, group: str, handled: list[bytes], client_id: str) -> App:
    app = App(
        group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=CommitPolicy(every_s=600, every_records=1_000_000),  # nothing but the last commit
        settings={
            "partition.assignment.strategy": "cooperative-sticky",  # keeps its partitions while it joins
            "heartbeat.interval.ms": 100,
            "client.id": client_id,
        },
    )
    app.handler(topic)(lambda value: handled.append(value))
    return app


@pytest.mark.parametrize("shell", ["threads"], indirect=True)  # aiokafka gives up its partitions before it joins
def test_the_last_commit_waits_for_a_rebalance_that_is_under_way(shell: Any, wait: Any) -> None:
    with EmbeddedCluster(config={"group.initial.rebalance.delay.ms": 0}) as kafka:
        kafka.create_topic("orders", partitions=2)
        handled: list[bytes] = []
        again: list[bytes] = []
        leaving = make(kafka, "orders", "billing", handled, "leaving")
        shell.start(leaving)
        with Producer(kafka.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("orders", b"%d" % number, key=b"%d" % number)
        wait(lambda: len(handled) == 20, timeout_s=60)

        late = kafka.faults.add(api="JOIN_GROUP", client_id="leaving", delay_ms=1_500, after_apply=True, count=1)
        with late:
            shell.start(make(kafka, "orders", "billing", again, "joining"))
            late.wait(hits=1)
            shell.stop(leaving, timeout_s=60)

        with Producer(kafka.bootstrap_servers) as producer:
            producer.send("orders", b"more", key=b"1", partition=0)
            producer.send("orders", b"more", key=b"1", partition=1)
        wait(lambda: again.count(b"more") == 2, timeout_s=60)
        shell.stop_all()
        assert again == [b"more", b"more"], "what was handled and committed does not come again"
