"""Two members with the same `group.instance.id`: one of them ends and says so.

In threads only. aiokafka names the id when it joins and in no heartbeat, so that the coordinator cannot tell it that
another member took the id: there the two take the partitions from each other, with a `partitions_lost` each time.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ottla import App, FencedError


def make(kafka: Any, topic: str, group: str, **settings: Any) -> App:
    app = App(group, bootstrap_servers=kafka.bootstrap_servers, settings={"group.instance.id": "till-1", **settings})
    app.handler(topic)(lambda value: None)
    return app


def owns(app: App) -> bool:
    return bool(app.health().partitions)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_one_of_two_members_with_the_same_group_instance_id_ends_and_says_why(
    kafka: Any, kafka_topic: str, kafka_group: str, wait: Any, protocol: str
) -> None:
    """In a classic group the newer one takes over; under KIP-848 it is refused."""
    apps = [make(kafka, kafka_topic, kafka_group, **{"group.protocol": protocol}) for _ in range(2)]
    ended: list[tuple[App, BaseException]] = []

    def run(app: App) -> None:
        try:
            app.run(handle_signals=False)
        except BaseException as error:
            ended.append((app, error))

    threads = [threading.Thread(target=run, args=(app,)) for app in apps]
    try:
        threads[0].start()
        wait(lambda: owns(apps[0]), timeout_s=60)
        threads[1].start()
        wait(lambda: ended, timeout_s=60)
        ((gone, error),) = ended
        assert gone is apps[0 if protocol == "classic" else 1]
        assert isinstance(error, FencedError)
        assert "another member runs with the same group.instance.id" in str(error)
        (other,) = (app for app in apps if app is not gone)
        wait(lambda: owns(other) and other.health().is_ready, timeout_s=60)
    finally:
        for app in apps:
            app.stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join(60)
