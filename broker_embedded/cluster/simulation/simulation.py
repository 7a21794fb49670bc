"""A whole cluster with its clients in one simulated world, from one seed, with invariants at every quiet moment."""

from __future__ import annotations

import asyncio
import gc
import time
import traceback
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from broker_embedded.cluster.simulation.clients.client import Client
from broker_embedded.cluster.simulation.clients.connection import NoAnswer
from broker_embedded.cluster.simulation.faults import FaultPlan
from broker_embedded.cluster.simulation.final_checks import check_everything, not_in_sync, still_open
from broker_embedded.cluster.simulation.invariants import Invariants
from broker_embedded.cluster.simulation.loop import NothingToDo, SimulatedClock, SimulatedLoop
from broker_embedded.cluster.simulation.network import SimulatedNetwork
from broker_embedded.cluster.simulation.nodes import SimulatedNode, bootstrap_of
from broker_embedded.cluster.simulation.population import Population
from broker_embedded.cluster.simulation.scenario import COPIES, TOPIC, Scenario
from broker_embedded.cluster.simulation.share_invariants import (
    SHARE_DELIVERIES,
    SHARE_GROUP,
    SHARE_LOCK_MS,
    ShareInvariants,
)
from broker_embedded.cluster.simulation.transcript import Transcript, TranscriptHandler
from broker_embedded.cluster.simulation.violation import InvariantViolated
from broker_embedded.cluster.simulation.workload import WorkloadProgress
from broker_embedded.common.types import GROUP_METADATA_TOPIC, NO_LEADER, TopicPartition
from broker_embedded.coordinator.runtime.partitioner import partition_for
from broker_embedded.metadata.image import newest
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey, ErrorCode

RECOVERY_S = 180.0
"""Time for the cluster to finish all pending work after all faults are healed."""

OFFSETS_PARTITIONS = 2

CLEAN_EVERY_S = 30.0
"""Garbage is collected at fixed moments of the simulated time, so that it is part of what the seed decides."""


def _settings(scenario: Scenario) -> dict[str, object]:
    """Return settings with few internal partitions, on as many nodes as the topic."""
    return {
        "auto.create.topics.enable": False,
        "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
        "offsets.topic.replication.factor": scenario.replication_factor,
        "transaction.state.log.num.partitions": 2,
        "transaction.state.log.replication.factor": scenario.replication_factor,
        "transaction.state.log.min.isr": scenario.min_insync_replicas,
        "peer.death.detection.enable": scenario.detects_deaths,
        "share.coordinator.state.topic.num.partitions": 2,
        "share.coordinator.state.topic.replication.factor": scenario.replication_factor,
        "share.coordinator.state.topic.min.isr": scenario.min_insync_replicas,
        "share.coordinator.state.topic.prune.interval.ms": 24 * 3_600_000,  # logs are compared from their start
        "group.share.min.record.lock.duration.ms": 1_000,
    }


@fact
class SimulationOutcome:
    """How a run ended."""

    scenario: Scenario
    failure: str | None
    lines: list[str]
    digest: str
    simulated_s: float
    wall_s: float
    faults: int
    acknowledged: int
    consumed: int
    checks: int

    @property
    def hours_per_second(self) -> float:
        return self.simulated_s / 3600 / max(self.wall_s, 1e-9)


class Simulation:
    """One run. `run` may be called once."""

    def __init__(self, scenario: Scenario, *, settings: Mapping[str, object] | None = None) -> None:
        self.scenario = scenario
        self.loop = SimulatedLoop()
        self.clock = SimulatedClock(self.loop)
        self.transcript = Transcript(self.loop)
        self.network = SimulatedNetwork(loop=self.loop, random=self._random("network"))
        self.invariants = Invariants(self.transcript)
        self.progress = WorkloadProgress()
        self.shares = ShareInvariants()
        self.nodes = [
            SimulatedNode(
                node_id,
                brokers=scenario.brokers,
                loop=self.loop,
                network=self.network,
                settings={**_settings(scenario), **(settings or {})},
                random=self._random(f"node-{node_id}"),
            )
            for node_id in range(1, scenario.brokers + 1)
        ]
        self.population = Population(
            scenario,
            loop=self.loop,
            network=self.network,
            invariants=self.invariants,
            progress=self.progress,
            shares=self.shares,
            is_settled=self._is_settled,
            random=self._random,
            coordinator_of=self._coordinator_of,
            on_failure=self.failed,
        )
        self._failure: BaseException | None = None
        self._faults = 0
        self._next_cleaning_ns = 0
        self.loop.on_quiet = self._on_quiet
        self.loop.set_exception_handler(self._on_unhandled)

    def run(self) -> SimulationOutcome:
        """Run the scenario; never raises for what the cluster did wrong."""
        started = time.perf_counter()
        was_collecting = gc.isenabled()
        gc.disable()
        failure: str | None = None
        try:
            with TranscriptHandler(self.transcript):
                try:
                    self.loop.run_until_complete(self._live())
                except InvariantViolated as error:
                    failure = str(error)
                except NothingToDo:
                    failure = "the cluster stands still: everybody waits and no timer is set"
                except Exception as error:
                    failure = f"{type(error).__name__}: {error}"
                    self.transcript.note("world", "".join(traceback.format_exception(error)))
                if failure is None and self.transcript.errors:
                    failure = f"the broker logged an error: {self.transcript.errors[0]}"
                if failure is not None:
                    self.transcript.note("world", f"FAILED: {failure}")
        finally:
            self.loop.close()
            if was_collecting:
                gc.enable()
        return SimulationOutcome(
            scenario=self.scenario,
            failure=failure,
            lines=self.transcript.lines,
            digest=f"{self.transcript.digest()}-{self.network.fingerprint:08x}",
            simulated_s=self.transcript.seconds(),
            wall_s=time.perf_counter() - started,
            faults=self._faults,
            acknowledged=self.progress.acknowledged,
            consumed=self.progress.consumed,
            checks=self.invariants.checks,
        )

    def failed(self, error: BaseException) -> None:
        """End the run with this error at the next quiet moment."""
        if self._failure is None and not isinstance(error, asyncio.CancelledError):
            self._failure = error

    # --- what faults do

    async def start_node(self, node: SimulatedNode) -> None:
        await node.start()

    async def stop_node(self, node: SimulatedNode) -> None:
        await node.stop()
        self.invariants.node_ended(node)

    def end_node(self, node: SimulatedNode, end: Callable[[], None]) -> None:
        end()
        self.invariants.node_ended(node)

    def is_dispensable(self, node: SimulatedNode) -> bool:
        """Return whether all that is committed is on another node that runs and that the controller counts as in
        sync."""
        controller = next(
            (each.node.controller for each in self.nodes if each.node and each.node.quorum.is_leader), None
        )
        if controller is None or node.broker is None:
            return False
        if any(broker.fenced for broker in controller.image.brokers.values()):
            return False
        for partition in node.broker.replicas.partitions():
            topic_partition = partition.topic_partition
            state = controller.image.partition(topic_partition)
            end_offset = self.invariants.committed(topic_partition).end_offset
            others = [
                other.broker.replicas.partition(topic_partition)
                for other in self.nodes
                if other is not node and other.broker is not None and state is not None and other.node_id in state.isr
            ]
            if not any(other is not None and other.log.log_end_offset >= end_offset for other in others):
                return False
        return True

    # --- a life

    async def _live(self) -> None:
        scenario = self.scenario
        self.transcript.note("world", scenario.describe())
        await asyncio.gather(*(self.start_node(node) for node in self.nodes))
        await self._create_topics()
        if scenario.sharers:
            await self._set_share_group()
        self.population.start()
        plan = FaultPlan(self, random=self._random("faults"), mean_gap_s=scenario.fault_every_s)
        await plan.run(self.loop.time() + 60 * scenario.minutes)
        self._faults = plan.count
        self.transcript.note("world", "everything works again; clients finish what they have begun")
        self.progress.is_ending = True
        await self._recover()
        check_everything(
            self.nodes,
            scenario,
            invariants=self.invariants,
            progress=self.progress,
            consumers=[name for name in self.population.names() if name.startswith("consumer")],
        )
        if scenario.sharers:
            places = [TopicPartition(TOPIC, number) for number in range(scenario.partitions)]
            self.shares.check_end({place: self.invariants.committed(place) for place in places})
        self.transcript.note("world", "stops")
        for node in self.nodes:
            await self.stop_node(node)

    async def _create_topics(self) -> None:
        scenario = self.scenario
        random = self._random("admin")
        client = Client(
            "admin", network=self.network.host("admin"), bootstrap=bootstrap_of(scenario.brokers), random=random
        )
        configs = {"min.insync.replicas": scenario.min_insync_replicas, "retention.ms": -1}
        topics = [
            {
                "name": name,
                "num_partitions": scenario.partitions,
                "replication_factor": scenario.replication_factor,
                "configs": [{"name": setting, "value": str(value)} for setting, value in configs.items()],
            }
            for name in (TOPIC, COPIES)
        ]

        async def attempt() -> None:
            body = {"topics": topics, "timeout_ms": 2_000, "validate_only": False}
            answer = await client.ask_any(ApiKey.CREATE_TOPICS, 5, body)
            for created in answer.topics:
                if created.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    raise NoAnswer(ErrorCode(created.error_code).name)

        await asyncio.wait_for(client.until_done(attempt), RECOVERY_S)
        client.close()

    async def _set_share_group(self) -> None:
        """Have the share group begin with the first record, and with short locks."""
        random = self._random("share-admin")
        client = Client(
            "admin", network=self.network.host("admin"), bootstrap=bootstrap_of(self.scenario.brokers), random=random
        )
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": str(SHARE_LOCK_MS),
            "share.delivery.count.limit": str(SHARE_DELIVERIES),
        }
        configs = [{"name": name, "config_operation": 0, "value": value} for name, value in settings.items()]
        resource = {"resource_type": 32, "resource_name": SHARE_GROUP, "configs": configs}

        async def attempt() -> None:
            answer = await client.ask_any(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}
            )
            if answer.responses[0].error_code:
                raise NoAnswer(ErrorCode(answer.responses[0].error_code).name)

        await asyncio.wait_for(client.until_done(attempt), RECOVERY_S)
        client.close()

    def _is_settled(self, partition: int) -> bool:
        place = TopicPartition(TOPIC, partition)
        return self.shares.is_settled(self.nodes, place, self.invariants.committed(place).end_offset)

    async def _recover(self) -> None:
        """Wait until every client has finished and every replica is in sync."""
        waiting = await self.population.wait(timeout_s=RECOVERY_S)
        if waiting:
            raise InvariantViolated(
                "a cluster that works again serves its clients",
                f"after {RECOVERY_S:g} s these still wait: {', '.join(waiting)}",
            )
        deadline = self.loop.time() + RECOVERY_S
        while problem := not_in_sync(self.nodes, self.scenario) or still_open(self.scenario, self.invariants):
            if self.loop.time() > deadline:
                raise InvariantViolated("a cluster that works again comes to rest", problem)
            await asyncio.sleep(0.5)

    # --- watching

    def _on_quiet(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.transcript.errors:
            raise InvariantViolated("the broker logs no error", self.transcript.errors[0])
        self.invariants.check(self.nodes)
        self.shares.check(self.nodes)
        if self.loop.now_ns >= self._next_cleaning_ns:
            self._next_cleaning_ns = self.loop.now_ns + int(CLEAN_EVERY_S * 1e9)
            gc.collect()

    def _on_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failed(error if isinstance(error, Exception) else RuntimeError(str(context.get("message"))))

    def _coordinator_of(self, group: str) -> int:
        image = newest(node.broker.metadata.image for node in self.nodes if node.broker is not None)
        number = partition_for(group, OFFSETS_PARTITIONS)
        state = image.partition(TopicPartition(GROUP_METADATA_TOPIC, number))
        return NO_LEADER if state is None else state.leader

    def _random(self, purpose: str) -> Random:
        """Return random numbers for one purpose, derived from the seed and independent of other purposes' numbers."""
        return Random(f"{self.scenario.seed}/{purpose}")
