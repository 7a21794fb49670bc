"""Plans carried out in tests: moves of a topic, runs that are interrupted or killed, and what is left behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from ottla.admin import Admin, ClusterFacts, Part, ReplicaMove, TopicSpec
from ottla.admin.placement.deciding import MoveState
from ottla.admin.placement.executor import Executor, RunOptions, RunOutcome
from ottla.admin.placement.journal import Journal
from ottla.admin.placement.modelling import model_of
from ottla.admin.placement.move_plan import Move
from ottla.admin.placement.move_progress import MoveProgress
from ottla.admin.placement.move_schedule import MovePace
from ottla.admin.placement.plan_file import load_plan, moves_of
from ottla.admin.placement.run_throttles import FOLLOWERS, LEADERS, RATES
from ottla.records import TopicPartition
from ottla.testing import wait_until

PARTS = (Part.TOPICS, Part.LOG_DIRS, Part.MOVES)


def filled_topic(
    admin: Admin,
    bootstrap_servers: str,
    name: str,
    *,
    on: tuple[int, ...] = (1, 2),
    partitions: int = 4,
    records: int = 50,
) -> str:
    """A topic with these replicas, led by the first, and records of 4,000 bytes in each partition."""
    admin.create_topics({name: TopicSpec(partitions=partitions, replication_factor=len(on))})
    places = [TopicPartition(name, number) for number in range(partitions)]
    wait_until(lambda: set(places) <= set(admin.facts((Part.TOPICS,)).by_partition), timeout_s=60)
    moves = [
        ReplicaMove(topic=name, partition=each.partition, old=each.replicas, new=on)
        for each in admin.describe_topics(name, parts=())[0].partitions
        if each.replicas != on
    ]
    admin.alter_replicas(moves)
    admin.elect_leaders(places)
    fill(bootstrap_servers, name, partitions=partitions, records=records)
    return name


def fill(bootstrap_servers: str, topic: str, *, partitions: int = 4, records: int = 50, size: int = 4_000) -> None:
    """Append records of `size` bytes to each partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 5})
    for number in range(partitions):
        for _ in range(records):
            producer.produce(topic, b"x" * size, partition=number)
            producer.poll(0)
    assert producer.flush(120) == 0


def plan_document(
    topic: str, new: tuple[int, ...], numbers: Iterable[int] = range(4), *, dirs: Iterable[str] = ()
) -> bytes:
    """A file that puts partitions of a topic on these brokers."""
    more = {"log_dirs": list(dirs)} if dirs else {}
    lines = [{"topic": topic, "partition": number, "replicas": list(new), **more} for number in numbers]
    return json.dumps({"version": 1, "partitions": lines}).encode()


def moves(
    admin: Admin,
    topic: str,
    new: tuple[int, ...] = (3, 2),
    numbers: Iterable[int] = range(4),
    *,
    dirs: Iterable[str] = (),
) -> tuple[Move, ...]:
    """The moves of such a plan."""
    file = load_plan(plan_document(topic, new, numbers, dirs=dirs))
    return moves_of(file, model_of(admin.facts(PARTS), dirs_are_disks=True))


def options(**changed: Any) -> RunOptions:
    """Options of a run that looks often, and moves two partitions to a disk at once, however small they are."""
    return RunOptions(
        **{
            "pace": MovePace(small=0),
            "poll_s": 0.05,
            "patience_s": 20,
            "max_fill": 1.0,
            "dirs_are_disks": True,
            **changed,
        }
    )


def run(admin: Admin, planned: tuple[Move, ...], path: Path, **changed: Any) -> RunOutcome:
    """Carry moves out, to the end."""
    with Journal(path) as book:
        return Executor(admin.carry_out, planned, book, options(**changed)).run()


def replicas(admin: Admin, topic: str) -> set[tuple[int, ...]]:
    """The replicas of a topic's partitions."""
    return {each.replicas for each in admin.describe_topics(topic, parts=())[0].partitions}


def leaders(admin: Admin, topic: str) -> set[int | None]:
    """What leads a topic's partitions."""
    return {each.leader for each in admin.describe_topics(topic, parts=())[0].partitions}


def throttles(admin: Admin, topic: str) -> dict[str, object]:
    """Everything that throttles, of the topic and of all brokers."""
    found: dict[str, object] = {name: admin.topic_settings(topic)[name].value for name in (LEADERS, FOLLOWERS)}
    for broker in sorted(admin.facts((Part.TOPICS,)).broker_ids):
        now = admin.broker_settings(broker)
        found |= {f"{broker}: {name}": (now[name].value, now[name].source) if name in now else None for name in RATES}
    return found


def moving(progress: MoveProgress) -> int:
    """How many moves are under way."""
    return sum(status.state is MoveState.MOVING for status in progress.statuses)


def interrupt_when(
    admin: Admin, planned: tuple[Move, ...], path: Path, condition: Callable[[MoveProgress], bool], **changed: Any
) -> None:
    """A run that is interrupted as by Ctrl-C when it has come so far. Its moves go on."""

    def report(progress: MoveProgress) -> None:
        if condition(progress):
            raise KeyboardInterrupt

    with Journal(path) as book, pytest.raises(KeyboardInterrupt):
        Executor(admin.carry_out, planned, book, options(**changed), report=report).run()


class Killed(BaseException):
    """As a kill: nothing of the tool's own code runs after it."""


class Dying(Journal):
    """Ends the tool when so many lines are on disk, before it acts on the last of them."""

    lines_left = 1_000

    def write(self, step: str, **content: Any) -> None:
        """Write, and die."""
        super().write(step, **content)
        self.lines_left -= 1
        if self.lines_left == 0:
            raise Killed


def paths(facts: ClusterFacts, broker: int) -> list[str]:
    """The log directories of a broker."""
    (found,) = (each for each in facts.brokers if each.id == broker)
    return sorted(log_dir.path for log_dir in found.log_dirs or ())


def where(facts: ClusterFacts, topic: str, broker: int) -> set[str]:
    """The directories in which a broker has a topic's replicas."""
    return {log_dir.path for each, log_dir, replica in facts.replicas() if each.id == broker and replica.topic == topic}
