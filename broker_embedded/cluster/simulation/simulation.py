"""A whole cluster with its clients in one simulated world, from one seed, with invariants at every quiet moment."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from broker_embedded.cluster.simulation.clients.client import Client
from broker_embedded.cluster.simulation.clients.connection import NoAnswer
from broker_embedded.cluster.simulation.faults import FaultPlan
from broker_embedded.cluster.simulation.invariants import Invariants
from broker_embedded.cluster.simulation.loop import NothingToDo, SimulatedClock, SimulatedLoop
from broker_embedded.cluster.simulation.network import SimulatedNetwork
from broker_embedded.cluster.simulation.nodes import PORT, SimulatedNode
from broker_embedded.cluster.simulation.process import Process
from broker_embedded.cluster.simulation.scenario import TOPIC, Scenario
from broker_embedded.cluster.simulation.transactions import check_transactions
from broker_embedded.cluster.simulation.transcript import Transcript, TranscriptHandler
from broker_embedded.cluster.simulation.violation import InvariantViolated
from broker_embedded.cluster.simulation.workload import (
    ConsumerLife,
    ProducerLife,
    Progress,
    TransactionalLife,
)
from broker_embedded.common.facts import fact
from broker_embedded.common.types import TopicPartition
from ottla_wire.protocol import ApiKey, ErrorCode

RECOVERY_S = 180.0
"""When everything works again, the cluster has so long until nobody waits any more."""

CLEAN_EVERY_S = 30.0
"""Garbage is collected at fixed moments of the simulated time, so that it is part of what the seed decides."""


def _settings(scenario: Scenario) -> dict[str, object]:
    """Few internal partitions, on as many nodes as the topic."""
    return {
        "auto.create.topics.enable": False,
        "offsets.topic.num.partitions": 2,
        "offsets.topic.replication.factor": scenario.replication_factor,
        "transaction.state.log.num.partitions": 2,
        "transaction.state.log.replication.factor": scenario.replication_factor,
        "transaction.state.log.min.isr": scenario.min_insync_replicas,
    }


@fact
class Outcome:
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
        self.progress = Progress()
        self.nodes = [
            SimulatedNode(
                node_id,
                loop=self.loop,
                network=self.network,
                settings={**_settings(scenario), **(settings or {})},
                random=self._random(f"node-{node_id}"),
            )
            for node_id in range(1, scenario.brokers + 1)
        ]
        self._clients: dict[str, Process] = {}
        self._lives: dict[str, int] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._failure: BaseException | None = None
        self._faults = 0
        self._next_cleaning_ns = 0
        self.loop.on_quiet = self._on_quiet
        self.loop.set_exception_handler(self._on_unhandled)

    def run(self) -> Outcome:
        """Live through it; never raises for what the cluster did wrong."""
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
                    if self._failure is error or isinstance(error, AssertionError):
                        raise
                if failure is None and self.transcript.errors:
                    failure = f"the broker logged an error: {self.transcript.errors[0]}"
                if failure is not None:
                    self.transcript.note("world", f"FAILED: {failure}")
        finally:
            self.loop.close()
            if was_collecting:
                gc.enable()
        return Outcome(
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
        """Whether all that is committed is on another node that runs and is in sync."""
        assert node.broker is not None
        for partition in node.broker.replicas.partitions():
            topic_partition = partition.topic_partition
            state = node.broker.metadata.image.partition(topic_partition)
            end_offset = self.invariants.committed(topic_partition).end_offset
            others = [
                other.broker.replicas.partition(topic_partition)
                for other in self.nodes
                if other is not node and other.broker is not None and state is not None and other.node_id in state.isr
            ]
            if not any(other is not None and other.log.log_end_offset >= end_offset for other in others):
                return False
        return True

    def client_names(self) -> list[str]:
        return list(self._clients)

    def kill_client(self, name: str) -> None:
        self._running.pop(name, None)
        self._clients[name].kill()
        self.network.host_died(name, is_silent=False)

    def replace_client(self, name: str) -> Process:
        """Pause a client and start another one under its name. Returns the one that sleeps."""
        sleeper = self._clients[name]
        sleeper.pause()
        self.start_client(name)
        return sleeper

    def start_client(self, name: str) -> None:
        """Begin the next life of a client."""
        life = self._lives[name] = self._lives.get(name, 0) + 1
        random = self._random(f"{name}/{life}")
        process = self._clients[name] = Process(name)
        client = Client(
            name,
            network=self.network.host(name),
            bootstrap=[(node.name, PORT) for node in self.nodes],
            random=random,
        )
        common: dict[str, Any] = {"scenario": self.scenario, "random": random, "progress": self.progress}
        label = f"{name}.{life}"
        runner: ProducerLife | ConsumerLife | TransactionalLife
        if name.startswith("producer"):
            runner = ProducerLife(client, label=label, clock=self.clock, invariants=self.invariants, **common)
        elif name.startswith("transact"):
            runner = TransactionalLife(
                client,
                transactional_id=name,
                label=label,
                clock=self.clock,
                is_latest=lambda: self._lives[name] == life,
                **common,
            )
        else:
            runner = ConsumerLife(
                client,
                group=f"group-of-{name}",
                is_done=self._is_read,
                invariants=self.invariants,
                is_read_committed=self._reads_committed(name),
                **common,
            )
        task = process.spawn(self.loop, runner.run(), name="run")
        task.add_done_callback(self._client_ended)
        self._running[name] = task

    # --- a life

    async def _live(self) -> None:
        scenario = self.scenario
        self.transcript.note("world", scenario.describe())
        await asyncio.gather(*(self.start_node(node) for node in self.nodes))
        await self._create_topic()
        for number in range(1, scenario.producers + 1):
            self.start_client(f"producer-{number}")
        for number in range(1, scenario.transactional + 1):
            self.start_client(f"transact-{number}")
        for number in range(1, scenario.consumers + 1):
            self.start_client(f"consumer-{number}")
        plan = FaultPlan(self, random=self._random("faults"), mean_gap_s=scenario.fault_every_s)
        await plan.run(self.loop.time() + 60 * scenario.minutes)
        await self._until(60 * scenario.minutes)
        self._faults = plan.count
        self.transcript.note("world", "everything works again; clients finish what they have begun")
        self.progress.is_ending = True
        await self._recover()
        self._compare_replicas()
        self._everything_was_read()
        check_transactions(
            self.progress.transactions, lambda partition: self.invariants.committed(TopicPartition(TOPIC, partition))
        )
        self.transcript.note("world", "stops")
        for node in self.nodes:
            await self.stop_node(node)

    async def _until(self, seconds: float) -> None:
        left = seconds - self.transcript.seconds()
        if left > 0:
            await asyncio.sleep(left)

    async def _create_topic(self) -> None:
        scenario = self.scenario
        random = self._random("admin")
        bootstrap = [(node.name, PORT) for node in self.nodes]
        client = Client("admin", network=self.network.host("admin"), bootstrap=bootstrap, random=random)
        configs = {"min.insync.replicas": scenario.min_insync_replicas, "retention.ms": -1}
        topic = {
            "name": TOPIC,
            "num_partitions": scenario.partitions,
            "replication_factor": scenario.replication_factor,
            "configs": [{"name": name, "value": str(value)} for name, value in configs.items()],
        }

        async def attempt() -> None:
            body = {"topics": [topic], "timeout_ms": 2_000, "validate_only": False}
            answer = await client.ask_any(ApiKey.CREATE_TOPICS, 5, body)
            code = answer.topics[0].error_code
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise NoAnswer(ErrorCode(code).name)

        await asyncio.wait_for(client.until_done(attempt), RECOVERY_S)
        client.close()

    async def _recover(self) -> None:
        """Wait until every client has finished and every replica is in sync."""
        waiting = list(self._running.values())
        _, pending = await asyncio.wait(waiting, timeout=RECOVERY_S) if waiting else (set(), set())
        if pending:
            names = sorted(name for name, task in self._running.items() if not task.done())
            raise InvariantViolated(
                "a cluster that works again serves its clients",
                f"after {RECOVERY_S:g} s these still wait: {', '.join(names)}",
            )
        deadline = self.loop.time() + RECOVERY_S
        while problem := self._not_in_sync():
            if self.loop.time() > deadline:
                raise InvariantViolated("replicas come back into sync", problem)
            await asyncio.sleep(0.5)

    def _is_read(self, partition: int, position: int) -> bool:
        """Whether a consumer may end: nobody writes any more and it has seen everything."""
        is_written = all(task.done() for name, task in self._running.items() if not name.startswith("consumer"))
        end_offset = self.invariants.committed(TopicPartition(TOPIC, partition)).end_offset
        return self.progress.is_ending and is_written and position >= end_offset

    def _not_in_sync(self) -> str | None:
        for number in range(self.scenario.partitions):
            topic_partition = TopicPartition(TOPIC, number)
            replicas = [
                partition
                for node in self.nodes
                if node.broker is not None and (partition := node.broker.replicas.partition(topic_partition))
            ]
            leaders = [partition for partition in replicas if partition.is_leader]
            ends = [partition.log.log_end_offset for partition in replicas]
            if len(leaders) != 1:
                return f"{topic_partition} has {len(leaders)} leaders"
            if len(leaders[0].isr) < self.scenario.replication_factor:
                return f"{topic_partition}: only {list(leaders[0].isr)} are in sync"
            if len(set(ends)) > 1 or leaders[0].log.high_watermark != ends[0]:
                return f"{topic_partition}: the replicas end at {ends}, high watermark {leaders[0].log.high_watermark}"
        return None

    def _compare_replicas(self) -> None:
        """At the end, from the first record to the last."""
        for node in self.nodes:
            assert node.broker is not None
            for partition in node.broker.replicas.partitions():
                committed = self.invariants.committed(partition.topic_partition)
                found = committed.compare(partition.log, start=0, end=committed.end_offset, node=node.name)
                if partition.topic_partition.topic == TOPIC and found < committed.end_offset:
                    raise InvariantViolated(
                        "what is committed is not lost",
                        f"{partition.topic_partition}: {node.name} has it up to {found} of {committed.end_offset}",
                    )

    def _everything_was_read(self) -> None:
        """Each group has seen each record that it may see: nothing was jumped over."""
        for name in self._clients:
            if not name.startswith("consumer"):
                continue
            unseen = ("ABORT",) if self._reads_committed(name) else ()
            for partition in range(self.scenario.partitions):
                committed = self.invariants.committed(TopicPartition(TOPIC, partition))
                wanted = {offset for offset in committed.values if committed.decision(offset) not in unseen}
                missed = wanted - self.progress.read.get((f"group-of-{name}", partition), set())
                if missed:
                    raise InvariantViolated(
                        "a group sees every record", f"{name} missed {sorted(missed)[:10]} of {TOPIC}-{partition}"
                    )

    def _reads_committed(self, consumer: str) -> bool:
        return int(consumer.rpartition("-")[2]) % 2 == 1

    # --- watching

    def _on_quiet(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.transcript.errors:
            raise InvariantViolated("the broker logs no error", self.transcript.errors[0])
        self.invariants.check(self.nodes)
        if self.loop.now_ns >= self._next_cleaning_ns:
            self._next_cleaning_ns = self.loop.now_ns + int(CLEAN_EVERY_S * 1e9)
            gc.collect()

    def _client_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed(error)

    def _on_unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failed(error if isinstance(error, Exception) else RuntimeError(str(context.get("message"))))

    def _random(self, purpose: str) -> Random:
        """One seed, and for each purpose numbers of its own: what one asks for does not change what another gets."""
        return Random(f"{self.scenario.seed}/{purpose}")
