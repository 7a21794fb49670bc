"""A scheduler that is stopped while no broker answers."""

from __future__ import annotations

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla.sync.serve.scheduler import Scheduler
from tests.kit.virtual_schedule import ALL


@pytest.mark.complete
def test_a_scheduler_that_is_stopped_does_not_wait_in_each_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[object] = []
    reset = Scheduler._reset_slot

    def stopped_at_the_first(self: Scheduler, place: object, *more: object) -> None:
        failed.append(place)
        self.stop()
        reset(self, place, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Scheduler, "_reset_slot", stopped_at_the_first)
    with EmbeddedCluster() as cluster:
        scheduler = Scheduler(cluster.bootstrap_servers, assigned=ALL)
        scheduler.start()
        scheduler.tick()
        assert len(scheduler.slots) > 1
        cluster.kill(1)
        scheduler.run()
    assert len(failed) == 1, "each slot waits for a broker that is away"
