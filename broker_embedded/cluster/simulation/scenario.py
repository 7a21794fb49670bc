"""The parameters of one simulation; those that are not given are drawn from the seed."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from ottla_wire.facts import fact

TOPIC = "orders"
COPIES = "invoices"
"""Topic of the copiers' output, written in transactions."""


@fact
class Scenario:
    """The shape of one run."""

    seed: int
    brokers: int
    minutes: float
    partitions: int
    replication_factor: int
    min_insync_replicas: int
    producers: int
    transactional: int
    """Transactional producers."""
    copiers: int
    """Consume, transform, produce."""
    consumers: int
    """Of which every second one reads committed records only."""
    batch_records: int
    """A producer's batches have up to so many records."""
    pause_s: float
    """Mean time between two batches of a producer."""
    fault_every_s: float
    """Mean time between two faults; 0 for none."""
    detects_deaths: bool
    """Otherwise a killed node is missed when its session ends, as in Kafka."""
    sharers: int = 0
    """Processes with members of a share group."""
    share_releases: float = 0.1
    """How many of the records that they lease they release, and how often they hold some for longer than the lock."""

    def describe(self) -> str:
        faults = f"a fault every {self.fault_every_s:.1f} s" if self.fault_every_s else "no faults"
        return (
            f"seed {self.seed}: {self.brokers} brokers, {self.minutes:g} min, {TOPIC} with {self.partitions} "
            f"partitions × {self.replication_factor} (min.insync.replicas {self.min_insync_replicas}), "
            f"{self.producers} producers, {self.transactional} transactional, "
            f"{self.copiers} copiers, {self.consumers} consumers, {self.sharers} sharers, {faults}, deaths are "
            f"{'noticed' if self.detects_deaths else 'waited for'}"
        )


def draw(seed: int, *, brokers: int = 3, minutes: float = 2.0) -> Scenario:
    """Draw the scenario of a seed."""
    random = Random(f"{seed}/scenario")
    factor = min(3, brokers)
    return Scenario(
        seed=seed,
        brokers=brokers,
        minutes=minutes,
        partitions=random.randint(1, 4),
        replication_factor=factor,
        min_insync_replicas=random.choice((1, factor - 1, factor - 1)) if factor > 1 else 1,
        producers=random.randint(1, 3),
        transactional=random.randint(0, 2),
        copiers=random.randint(0, 1),
        consumers=random.randint(1, 2),
        batch_records=random.choice((1, 3, 10)),
        pause_s=random.choice((0.1, 0.3, 1.0)),
        fault_every_s=random.choice((0.5, 1.0, 3.0, 8.0)),
        detects_deaths=random.random() < 0.7,
        sharers=random.randint(0, 2),
    )


def draw_share_groups(seed: int, *, brokers: int = 3, minutes: float = 0.1) -> Scenario:
    """Draw the scenario of a seed in which members of share groups are most of the clients."""
    drawn = draw(seed, brokers=brokers, minutes=minutes)
    return replace(drawn, producers=1, transactional=0, copiers=0, consumers=1, sharers=2, pause_s=0.1)


def idle(*, brokers: int = 3, minutes: float = 3.0) -> Scenario:
    """Return a scenario without load and faults."""
    drawn = draw(1, brokers=brokers, minutes=minutes)
    return replace(drawn, producers=0, transactional=0, copiers=0, consumers=0, sharers=0, fault_every_s=0.0)


def busy(*, brokers: int = 3, minutes: float = 0.5) -> Scenario:
    """Return all kinds of clients, each writer with some ten requests a second, and a fault every three seconds."""
    drawn = draw(1, brokers=brokers, minutes=minutes)
    crowd = replace(drawn, producers=2, transactional=1, copiers=1, consumers=2)
    return replace(crowd, partitions=3, pause_s=0.1, fault_every_s=3.0)


def reads_committed(consumer: str) -> bool:
    """Return whether a consumer reads committed records only: every second one does."""
    return int(consumer.rpartition("-")[2]) % 2 == 1
