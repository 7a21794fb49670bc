"""A broker registers anew without a log directory that it had: its replicas there are empty, and lead nobody."""

from __future__ import annotations

import pytest

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.controller import brokers, elections
from broker_embedded.metadata.delta import image_after
from broker_embedded.metadata.image import (
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from broker_embedded.metadata.records import BrokerRegistrationChange, RegisterBroker

TOPIC_ID = bytes(15) + b"t"
STAYS, GOES = bytes(15) + b"s", bytes(15) + b"g"
CONFIG = BrokerConfig()


def image(*, log_dirs: tuple[bytes, ...], directory: bytes, replicas: tuple[int, ...] = (1, 2)) -> ClusterImage:
    """Broker 2 is all of the ISR of a partition that it has in `directory`."""
    members = {
        node: BrokerImage(
            broker_id=node,
            epoch=node,
            incarnation_id=bytes(16),
            host="h",
            port=1,
            fenced=node == 2,
            log_dirs=log_dirs if node == 2 else (),
        )
        for node in (1, 2)
    }
    state = PartitionImage(
        partition=0,
        replicas=replicas,
        isr=(2,),
        leader=-1,
        leader_epoch=3,
        partition_epoch=5,
        directories=tuple(directory if node == 2 else UNASSIGNED_DIRECTORY for node in replicas),
    )
    topic = TopicImage(name="t", topic_id=TOPIC_ID, partitions={0: state})
    return ClusterImage(cluster_id="c", brokers=members, topics={"t": topic}, topic_names={TOPIC_ID: "t"})


def back_with_one(before: ClusterImage) -> PartitionImage:
    """The partition when broker 2 is in the cluster again, with the directory that stays."""
    wanted = RegisterBroker(
        broker_id=2, incarnation_id=bytes(15) + b"2", broker_epoch=9, host="h", port=1, log_dirs=(STAYS,)
    )
    after = image_after(before, brokers.register(before, wanted, has_session=False, config=CONFIG))
    let_in = BrokerRegistrationChange(broker_id=2, broker_epoch=9, fenced=False)
    after = image_after(after, [let_in])
    after = image_after(after, elections.elect_for_leaderless(after, config=CONFIG))
    return after.topics["t"].partitions[0]


@pytest.mark.parametrize("known", [(STAYS, GOES), (STAYS,)], ids=["gone with the restart", "struck off before"])
def test_a_replica_in_it_leads_nobody_who_has_data(known: tuple[bytes, ...]) -> None:
    state = back_with_one(image(log_dirs=known, directory=GOES))
    assert state.directory_of(2) == LOST_DIRECTORY
    assert (state.leader, state.isr) == (-1, (2,))


@pytest.mark.parametrize(
    "directory", [STAYS, UNASSIGNED_DIRECTORY], ids=["in the one that stays", "nobody knows where"]
)
@pytest.mark.parametrize("known", [(STAYS, GOES), (STAYS,)])
def test_a_replica_that_is_not_in_it_leads_again(known: tuple[bytes, ...], directory: bytes) -> None:
    state = back_with_one(image(log_dirs=known, directory=directory))
    assert (state.leader, state.directory_of(2)) == (2, directory)


@pytest.mark.parametrize("known", [(STAYS, GOES), (STAYS,)])
def test_a_partition_that_nobody_else_has_is_not_marked(known: tuple[bytes, ...]) -> None:
    state = back_with_one(image(log_dirs=known, directory=GOES, replicas=(2,)))
    assert state.directory_of(2) == GOES
