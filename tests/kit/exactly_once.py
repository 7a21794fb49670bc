"""Exactly-once consume-transform-produce: the service, what happens to it, and the oracle that judges what came out.

    trial = Trial(bootstrap_servers, "name")
    trial.fill()
    with trial.fleet(services=2) as fleet:
        ...                                 # kill services, brokers, coordinators
        trial.wait_until_done(fleet)
    trial.judge()

The service is a process of its own (`python exactly_once.py ...`), so that `kill -9` is one. It reads a batch, writes
each record to the same partition of the target, sends its offsets with them, and commits; what fails is aborted and
read again. The oracle: every input once in what a read_committed reader sees, in the order of its partition, once
no transaction is open any more.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from exactly_once_handlers import handlers_in_threads, handlers_on_asyncio, transactional_ids
from exactly_once_pulled import in_threads, on_asyncio
from warm_processes import WarmProcess

from ottla import BrokerUnavailable, FencedError, OttlaError, Producer

T = TypeVar("T")

WAIT_S = 100.0
FENCED_EXIT, UNAVAILABLE_EXIT = 3, 4

CRASH_POINTS = ("after the begin", "after a send", "after the records", "after the offsets", "after the commit")


# -- the service


def serve(options: argparse.Namespace) -> int:
    """The service's exit code; what ends it goes through the producer's block, which knows that records are lost."""
    parent = os.getppid()

    def reached(point: str, transactions: int) -> None:
        if point == options.crash_at and transactions == options.crash_in:
            signal.raise_signal(signal.SIGSTOP if options.stops else signal.SIGKILL)

    work = Work(
        options.servers,
        options.group,
        options.id,
        options.source,
        options.target,
        options.batch,
        options.crash_at,
        options.client,
    )
    try:
        # Without a parent nobody is left who would end this process.
        consume_transform_produce(work, reached=reached, is_over=lambda: os.getppid() != parent)
    except FencedError:
        return FENCED_EXIT
    except BrokerUnavailable:
        # librdkafka may wait for a group coordinator that has moved until its timeout. Start afresh.
        return UNAVAILABLE_EXIT
    return 1


class Work(NamedTuple):
    """What one service does, and under which names."""

    servers: str
    group: str
    transactional_id: str
    source: str
    target: str
    batch: int
    crash_at: str = ""
    client: str = "confluent"
    """Which consumer it has: one of `CLIENTS`."""


def consume_transform_produce(work: Work, *, reached: Callable[[str, int], None], is_over: Callable[[], bool]) -> None:
    """One transaction after the other, until it is over. `reached` is told each point of each transaction."""
    CLIENTS[work.client](work, reached=reached, is_over=is_over)


def with_confluents_consumer(work: Work, *, reached: Callable[[str, int], None], is_over: Callable[[], bool]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": work.servers,
            "group.id": work.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 2_000,
            "heartbeat.interval.ms": 200,
        }
    )
    consumer.subscribe([work.source])
    try:
        with Producer(work.servers, settings={"transactional.id": work.transactional_id}) as producer:
            for number, batch in enumerate(batches(consumer, work.batch, is_over), start=1):
                try:
                    one_transaction(work, producer, consumer, batch, _at(reached, number))
                except (FencedError, BrokerUnavailable):
                    raise
                except OttlaError:
                    rewind(consumer)
    finally:
        consumer.close()


def _there(part: T | None) -> T:
    """A part of a message without an error, which the client's types take for optional."""
    assert part is not None
    return part


def _at(reached: Callable[[str, int], None], number: int) -> Callable[[str], None]:
    return lambda point: reached(point, number)


CLIENTS = {
    "confluent": with_confluents_consumer,
    "threads": in_threads,
    "asyncio": on_asyncio,
    "handlers": handlers_in_threads,
    "async-handlers": handlers_on_asyncio,
}


def batches(consumer: Consumer, size: int, is_over: Callable[[], bool]) -> Iterator[list[Message]]:
    """What arrives in the partitions that the consumer has, until it is over."""
    while not is_over():
        batch = [message for message in consumer.consume(size, 0.1) if message.error() is None]
        owned = {(each.topic, each.partition) for each in consumer.assignment()}
        batch = [message for message in batch if (message.topic(), message.partition()) in owned]
        if batch:
            yield batch


def one_transaction(
    work: Work, producer: Producer, consumer: Consumer, batch: list[Message], reached: Callable[[str], None]
) -> None:
    with producer.transaction(timeout_s=15) as transaction:
        reached("after the begin")
        for message in batch:
            producer.send(work.target, message.value(), partition=message.partition())
            if work.crash_at == "after a send":
                producer.flush()
            reached("after a send")
        reached("after the records")
        offsets = {(each.topic(), each.partition()): _there(each.offset()) + 1 for each in batch}
        transaction.send_offsets(offsets, consumer)
        reached("after the offsets")
    reached("after the commit")


def rewind(consumer: Consumer) -> None:
    """Read again from what is committed: what an aborted transaction had read was not done."""
    try:
        for position in consumer.committed(consumer.assignment(), WAIT_S):
            if position.offset < 0:
                position.offset = OFFSET_BEGINNING
            consumer.seek(position)
    except KafkaException:
        pass  # the partitions were taken away meanwhile: whoever has them begins at what is committed


# -- the trial


class Service:
    """One process of the service."""

    def __init__(
        self,
        trial: Trial,
        number: int,
        *,
        crash_at: str = "",
        crash_in: int = 0,
        stops: bool = False,
        name: str | None = None,
    ) -> None:
        self.transactional_id = f"{name or trial.name}-{number}"
        if trial.client.endswith("handlers"):
            trial.transactional_ids.update(transactional_ids(trial.name, self.transactional_id))
        else:
            trial.transactional_ids.add(self.transactional_id)
        arguments = {
            "servers": trial.bootstrap_servers,
            "group": trial.name,
            "id": self.transactional_id,
            "source": trial.source,
            "target": trial.target,
            "batch": str(trial.batch),
            "crash-at": crash_at,
            "crash-in": str(crash_in),
            "client": trial.client,
        }
        command = ["--stops"] if stops else []
        for name, value in arguments.items():
            command += [f"--{name}", value]
        self.process = WarmProcess(Path(__file__), *command)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class InProcess(threading.Thread):
    """The service in a thread of the test, which need not wait for a process to start."""

    def __init__(self, trial: Trial, number: int) -> None:
        super().__init__(daemon=True)
        self.transactional_id = f"{trial.name}-{number}"
        trial.transactional_ids.add(self.transactional_id)
        self._work = Work(
            trial.bootstrap_servers, trial.name, self.transactional_id, trial.source, trial.target, trial.batch
        )
        self._is_over = threading.Event()
        self.failure: BaseException | None = None
        self.fresh_starts = 0

    def run(self) -> None:
        while not self._is_over.is_set():
            try:
                consume_transform_produce(self._work, reached=lambda *_: None, is_over=self._is_over.is_set)
            except BrokerUnavailable:
                self.fresh_starts += 1
            except BaseException as failure:
                self.failure = failure
                return

    def restart_what_ended(self) -> None:
        assert self.failure is None, self.failure

    def __enter__(self) -> InProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join(WAIT_S)
        assert not self.is_alive(), "the service does not end"


class Fleet:
    """The running services of a trial; each keeps its transactional id over its lives."""

    def __init__(self, trial: Trial, services: int) -> None:
        self._trial = trial
        self.services = [Service(trial, number) for number in range(services)]
        self.kills = 0

    def kill_and_restart(self, number: int) -> None:
        self.services[number].kill()
        self.kills += 1
        self.services[number] = Service(self._trial, number)

    def restart_what_ended(self) -> None:
        """A service that was fenced, or gave up, is started again, as an orchestrator does."""
        for number, service in enumerate(self.services):
            if service.process.poll() is not None:
                self.services[number] = Service(self._trial, number)

    def stop(self) -> None:
        for service in self.services:
            service.kill()


class Trial:
    """Inputs, their way through the service, and the judgement. Names are the trial's own."""

    def __init__(
        self, bootstrap_servers: str, name: str, *, partitions: int = 3, records: int = 600, batch: int = 20
    ) -> None:
        self.client = "confluent"
        """The consumer of its services."""
        self.bootstrap_servers = bootstrap_servers
        self.name = name
        self.source, self.target = f"{name}-in", f"{name}-out"
        self.partitions = partitions
        self.records = records
        self.batch = batch
        self.transactional_ids: set[str] = set()
        """Those of the services that were ever started."""
        self._observer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": name})

    def close(self) -> None:
        self._observer.close()

    def create_topics(self, *, replication_factor: int = 1, config: dict[str, str] | None = None) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        topics = [
            NewTopic(topic, self.partitions, replication_factor, config=config or {})
            for topic in (self.source, self.target)
        ]
        for future in admin.create_topics(topics, operation_timeout=WAIT_S).values():
            future.result(WAIT_S)

    def inputs(self, partition: int) -> list[bytes]:
        return [b"%d:%d" % (partition, number) for number in range(self.records // self.partitions)]

    def fill(self) -> None:
        with Producer(self.bootstrap_servers) as producer:
            for partition in range(self.partitions):
                for value in self.inputs(partition):
                    producer.send(self.source, value, partition=partition)

    def refill(self) -> None:
        """As many inputs again."""
        first = self.records // self.partitions
        self.records *= 2
        with Producer(self.bootstrap_servers) as producer:
            for partition in range(self.partitions):
                for value in self.inputs(partition)[first:]:
                    producer.send(self.source, value, partition=partition)

    @contextmanager
    def fleet(self, services: int) -> Iterator[Fleet]:
        fleet = Fleet(self, services)
        try:
            yield fleet
        finally:
            fleet.stop()

    def done(self) -> int:
        """How many inputs the group has committed."""
        wanted = [TopicPartition(self.source, number) for number in range(self.partitions)]
        try:
            committed = self._observer.committed(wanted, WAIT_S)
        except KafkaException:
            return 0  # a transaction is open, or the coordinator moves: ask again
        return sum(max(0, position.offset) for position in committed if position.error is None)

    def wait_until_done(self, fleet: Fleet | InProcess, *, inputs: int | None = None) -> None:
        """Until the group has committed so many inputs, by default all."""
        wanted = self.records if inputs is None else min(inputs, self.records)
        deadline = time.monotonic() + WAIT_S
        while (done := self.done()) < wanted:
            assert time.monotonic() < deadline, f"{done} of {wanted} inputs are done"
            fleet.restart_what_ended()
            time.sleep(0.02)

    def under(self, chaos: Callable[[Fleet, Random], None], *, blows: int, services: int, seed: int) -> None:
        """Let `chaos` strike while the inputs are worked on, spread over the whole of them."""
        random = Random(seed)
        with self.fleet(services) as fleet:
            for blow in range(blows):
                self.wait_until_done(fleet, inputs=self.records * (blow + 1) // (blows + 2))
                chaos(fleet, random)
            self.wait_until_done(fleet)

    # -- the oracle

    def end_transactions(self) -> None:
        """Fence the services: what one of them left open is aborted, what is decided is in every partition.

        A service that was killed may have a transaction open, before records that others have committed since; readers
        stop there until a successor, or the transaction's timeout, ends it.
        """
        for transactional_id in self.transactional_ids:
            settings = {"transactional.id": transactional_id}
            with Producer(self.bootstrap_servers, settings=settings) as successor, successor.transaction(WAIT_S):
                pass

    def outputs(self) -> dict[int, list[bytes]]:
        """What a read_committed reader sees, by partition."""
        reader = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": f"{self.name}-reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        found: dict[int, list[bytes]] = {number: [] for number in range(self.partitions)}
        reader.assign([TopicPartition(self.target, number, OFFSET_BEGINNING) for number in found])
        unread = set(found)
        deadline = time.monotonic() + WAIT_S
        while unread:
            assert time.monotonic() < deadline, f"partitions {unread} do not come to an end"
            message = reader.poll(0.1)
            if message is None:
                continue
            problem = message.error()
            if problem is None:
                found[_there(message.partition())].append(_there(message.value()))
            elif problem.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
        reader.close()
        return found

    def judge(self) -> None:
        """Every input is there once, in order."""
        self.end_transactions()
        outputs = self.outputs()
        for partition in range(self.partitions):
            wanted, found = self.inputs(partition), outputs[partition]
            lost = sorted(set(wanted) - set(found))
            repeated = sorted({value for value in found if found.count(value) > 1})
            assert not lost, f"partition {partition} has lost {lost[:5]}, {len(lost)} in all"
            assert not repeated, f"partition {partition} has {repeated[:5]} more than once, {len(repeated)} in all"
            assert found == wanted, f"partition {partition} is out of order"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("servers", "group", "id", "source", "target", "crash-at", "client"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--stops", action="store_true", help="stop at the crash point, to be continued")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--crash-in", type=int, required=True)
    sys.exit(serve(parser.parse_args()))
