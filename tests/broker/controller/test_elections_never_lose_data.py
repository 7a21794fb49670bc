"""Brokers die, return, shut down and fall behind at random, replicas move: what holds for every partition always."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.controller import brokers, elections, placement, reassignment, topics
from broker_embedded.controller.isr_changes import IsrChange, change_isr
from broker_embedded.controller.partition_change import Election
from broker_embedded.controller.reassignment import Reassignment
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage, PartitionImage
from broker_embedded.metadata.records import CreateTopic, LeaderRecoveryState, MetadataRecord, RegisterBroker
from ottla_wire.protocol import ErrorCode

NODES = (1, 2, 3, 4)
PARTITIONS = 3
TOPIC_ID = bytes(15) + b"t"
nodes = st.sampled_from(NODES)
numbers = st.integers(0, PARTITIONS - 1)


class ClusterOfChance(RuleBasedStateMachine):
    """A controller's image under random events; `config` says whether elections may be unclean."""

    config = BrokerConfig()

    def __init__(self) -> None:
        super().__init__()
        self.image = ClusterImage(cluster_id="c")
        self.leaders: dict[tuple[int, int], int] = {}
        self.incarnations = 0
        self.vouched_for: tuple[int, ...] = ()
        """Whom a leader has just said to be in sync."""

    @initialize()
    def begin(self) -> None:
        for node in NODES:
            self.commit(brokers.register(self.image, self.registration(node), has_session=False, config=self.config))
            self.commit(brokers.unfence(self.image, node, config=self.config))
        self.commit([CreateTopic(name="t", topic_id=TOPIC_ID)])
        placed = placement.place(self.image, partitions=PARTITIONS, replication_factor=3)
        self.commit([topics.new_partition(self.image, TOPIC_ID, number, each) for number, each in enumerate(placed)])

    def registration(self, node: int, *, lost_its_disk: bool = False) -> RegisterBroker:
        self.incarnations += 1
        directory = self.incarnations if lost_its_disk else 0
        return RegisterBroker(
            broker_id=node,
            incarnation_id=self.incarnations.to_bytes(16, "big"),
            broker_epoch=self.image.offset + 1,
            host="h",
            port=node,
            log_dirs=(node.to_bytes(4, "big") + directory.to_bytes(12, "big"),),
        )

    def commit(self, records: list[MetadataRecord]) -> None:
        """Apply a change and look at every step from one state of a partition to the next."""
        if not records:
            return
        before = self.states()
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(offset=self.image.offset + len(records), epoch=1, controller_id=1)
        for number, state in self.states().items():
            if number in before:
                self.check_step(before[number], state)
            if state.leader >= 0:
                known = self.leaders.setdefault((number, state.leader_epoch), state.leader)
                assert known == state.leader, "two leaders in one epoch"

    def states(self) -> dict[int, PartitionImage]:
        topic = self.image.topics.get("t")
        return {} if topic is None else dict(topic.partitions)

    def check_step(self, before: PartitionImage, after: PartitionImage) -> None:
        assert after.leader_epoch >= before.leader_epoch
        assert after.partition_epoch >= before.partition_epoch
        if after != before:
            assert after.partition_epoch > before.partition_epoch
        if after.leader != before.leader:
            assert after.leader_epoch > before.leader_epoch
            is_clean = after.leader_recovery_state is LeaderRecoveryState.RECOVERED
            was_in_sync = after.leader in before.isr or after.leader in self.vouched_for
            assert after.leader == -1 or was_in_sync or not is_clean

    # --- events

    @rule(node=nodes)
    def a_broker_dies(self, node: int) -> None:
        if node in self.image.brokers:
            self.commit(brokers.fence(self.image, [node], config=self.config))

    @rule(node=nodes)
    def a_broker_is_heard_of_again(self, node: int) -> None:
        broker = self.image.brokers.get(node)
        if broker is not None and broker.fenced and not broker.in_controlled_shutdown:
            self.commit(brokers.unfence(self.image, node, config=self.config))

    @rule(node=nodes, lost_its_disk=st.booleans())
    def a_broker_restarts(self, node: int, lost_its_disk: bool) -> None:
        registration = self.registration(node, lost_its_disk=lost_its_disk)
        self.commit(brokers.register(self.image, registration, has_session=False, config=self.config))
        assert self.image.brokers[node].fenced
        self.commit(brokers.unfence(self.image, node, config=self.config))

    @rule(node=nodes)
    def a_broker_begins_to_shut_down(self, node: int) -> None:
        if node in self.image.brokers and self.image.is_active(node):
            self.commit(brokers.begin_shutdown(self.image, node, config=self.config))
            assert not elections.leads_anything(self.image, node)

    @rule(node=nodes)
    def a_broker_is_forgotten(self, node: int) -> None:
        if node in self.image.brokers:
            self.commit(brokers.unregister(self.image, node, config=self.config))

    @rule(number=numbers, members=st.sets(nodes, min_size=1))
    def a_leader_changes_its_isr(self, number: int, members: set[int]) -> None:
        state = self.states()[number]
        isr = tuple(node for node in state.replicas if node in members or node == state.leader)
        wanted = IsrChange(
            topic_id=TOPIC_ID,
            partition=number,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=[(node, -1) for node in isr],
        )
        records, result = change_isr(self.image, state.leader, wanted, config=self.config)
        if state.leader < 0:
            assert result.error is not ErrorCode.NONE
        self.vouched_for = isr
        self.commit(records)
        self.vouched_for = ()

    @rule(number=numbers, election=st.sampled_from([Election.PREFERRED, Election.ONLINE]))
    def somebody_asks_for_an_election(self, number: int, election: Election) -> None:
        try:
            self.commit([elections.elect(self.image, TopicPartition("t", number), election)])
        except BrokerError:
            pass  # not needed, or nobody can lead: nothing has changed

    @rule()
    def leaders_are_balanced(self) -> None:
        self.commit(list(elections.rebalance(self.image, percentage=0)))

    @rule(number=numbers, replicas=st.none() | st.lists(nodes, min_size=1, max_size=4, unique=True).map(tuple))
    def replicas_are_moved(self, number: int, replicas: tuple[int, ...] | None) -> None:
        wanted = Reassignment(topic="t", partition=number, replicas=replicas)
        try:
            records = reassignment.reassign(self.image, wanted, allow_factor_change=True, config=self.config)
        except BrokerError:
            return
        self.commit(records)

    # --- what holds after each of them

    @invariant()
    def a_leader_is_alive_in_sync_and_a_replica(self) -> None:
        for state in self.states().values():
            if state.leader >= 0:
                assert self.image.is_active(state.leader)
                assert state.leader in state.isr
                assert state.leader in state.replicas

    @invariant()
    def the_isr_is_never_empty_and_holds_replicas_only(self) -> None:
        for state in self.states().values():
            assert state.isr
            assert set(state.isr) <= set(state.replicas)
            assert len(set(state.replicas)) == len(state.replicas)

    @invariant()
    def who_moves_is_a_replica(self) -> None:
        for state in self.states().values():
            assert set(state.adding_replicas) <= set(state.replicas)
            assert set(state.removing_replicas) < set(state.replicas) or not state.removing_replicas

    @invariant()
    def a_partition_with_a_live_in_sync_replica_has_a_leader(self) -> None:
        for state in self.states().values():
            able = [
                node
                for node in state.isr
                if self.image.is_active(node) and self.image.brokers[node].has_directory(state.directory_of(node))
            ]
            assert state.has_leader or not able


class CleanClusterOfChance(ClusterOfChance):
    @invariant()
    def nobody_was_elected_uncleanly(self) -> None:
        for state in self.states().values():
            assert state.leader_recovery_state is LeaderRecoveryState.RECOVERED


class UncleanClusterOfChance(ClusterOfChance):
    config = replace(BrokerConfig(), unclean_leader_election_enable=True)

    @precondition(lambda self: self.states())
    @invariant()
    def a_partition_with_a_live_replica_has_a_leader(self) -> None:
        for state in self.states().values():
            assert state.has_leader or not any(self.image.is_active(node) for node in state.replicas)


TestCleanElections = CleanClusterOfChance.TestCase
TestUncleanElections = UncleanClusterOfChance.TestCase
TestCleanElections.settings = TestUncleanElections.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
