"""Groups that are read from a compacted log: the last record of each key, in the order of the log."""

from __future__ import annotations

from typing import Any

import pytest

from broker_embedded.coordinator.group.heartbeats import HeartbeatRequest
from ottla_wire.protocol import ErrorCode


@pytest.fixture
def world(make_shard):
    shard = make_shard()
    shard.set_topics(t=4, u=1)
    return shard


def compacted(world):
    """The broker compacts the log, and stops; another shard replays what is left."""
    records = world.log.records
    last = {record.key: at for at, record in enumerate(records)}
    world.log.records = [record for at, record in enumerate(records) if last[record.key] == at]
    after = world.restart()
    after.image = world.image
    return after


def share(world, member_id: str, epoch: int, **fields: Any) -> Any:
    reply = world.reply()
    world.shard.share_heartbeat(
        HeartbeatRequest(group_id="s", member_id=member_id, member_epoch=epoch, **fields), reply
    )
    return world.answer(reply)


def test_a_member_that_moved_to_another_host_still_owns_its_partitions(world):
    world.enter("m1")
    assert world.beat("m1", 1, client_host="/10.0.0.2").error is ErrorCode.NONE
    before = world.shard.consumer.get("g")
    world = compacted(world)
    after = world.shard.consumer.get("g")
    assert (after.members, after.targets, after._owners) == (before.members, before.targets, before._owners)
    assert world.named(world.enter("m2").assignment) == {}, "m1 has not given anything back"


def test_a_member_of_a_share_group_that_moved_to_another_host_still_has_its_target(world):
    share(world, "m1", 0, topic_names=frozenset({"t"}))
    share(world, "m1", 1, client_host="/10.0.0.2")
    share(world, "m2", 0, topic_names=frozenset({"u"}))
    before = world.shard.share.get("s")
    world = compacted(world)
    after = world.shard.share.get("s")
    assert (after.members, after.targets, after.epoch) == (before.members, before.targets, before.epoch)
    assert world.named(share(world, "m1", 0, topic_names=frozenset({"t"})).assignment) == {"t": [0, 1, 2, 3]}
