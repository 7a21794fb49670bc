"""What a seed means. Everything random about a round is drawn here, or is a pure function of the seed.

Timing is the machine's own, so that two runs of one seed are not the same to the microsecond; what fails, how often,
and which fault comes after how many records is.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum
from random import Random

SHELLS = ("threads", "asyncio", "columns")


class Fate(Enum):
    """What becomes of a record at one stage."""

    FINE = "fine"
    FLAKY = "flaky"
    """The handler fails at the first one or two deliveries."""
    INVALID = "invalid"
    """The handler raises InvalidRecord: dead at the first failure."""
    BROKEN = "broken"
    """The handler fails at each delivery: dead when the attempts are used up."""


MALFORMED_ONE_IN = 150
"""So many inputs are not decodable at all. The first stage must dead-letter them."""

SCHEDULE = "torture"
"""The schedule of delayed inputs: the services of the chain run its schedulers."""

URGENT = ".urgent"
URGENT_PARTITIONS = 1_000
"""In the evidence, the urgent topic's partitions are the source's own from this number on."""

DEAD_KINDS = {Fate.INVALID: "invalid", Fate.BROKEN: "failed"}


def _number(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


def fate_of(seed: int, stage: str, key: str, sequence: int) -> tuple[Fate, int]:
    """The record's fate at a stage, and at how many deliveries a flaky one fails."""
    drawn = _number(seed, stage, key, sequence)
    dice = drawn % 1_000
    if dice < 3:
        return Fate.INVALID, 0
    if dice < 5:
        return Fate.BROKEN, 0
    if dice < 25:
        return Fate.FLAKY, 1 + (drawn >> 32) % 2
    return Fate.FINE, 0


def work_s(seed: int, stage: str, key: str, sequence: int) -> float:
    """How long the handler is at it: half a millisecond to three."""
    return 0.0005 * (1 + _number(seed, "work", stage, key, sequence) % 6)


@dataclass(frozen=True, slots=True)
class Wish:
    """What an input is sent with."""

    delay_s: float | None = None
    expires_s: float | None = None
    is_urgent: bool = False


def is_malformed(seed: int, key: str, sequence: int) -> bool:
    return _number(seed, "malformed", key, sequence) % MALFORMED_ONE_IN == 0


class Kind(Enum):
    """The faults."""

    JOIN = "join"
    """One more member of a stage."""
    REPLACE = "replace"
    """SIGTERM to a member, and another one starts at the same moment: a rolling restart."""
    KILL = "kill"
    """SIGKILL to a member, and another one starts at the same moment."""
    CUT = "cut"
    """All TCP connections of a member are reset."""
    DEAF = "deaf"
    """The brokers hear a member but their answers are swallowed, then its connections are reset."""
    STALL = "stall"
    """Nothing passes between a member and the brokers for a while; longer than the session, sometimes."""


_OF_CONNECTIONS = frozenset({Kind.CUT, Kind.DEAF, Kind.STALL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: comes when so many records are through the chain."""

    at_records: int
    kind: Kind
    stage: str
    choice: int
    """Which member of the stage, modulo their number."""
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """One service of the chain."""

    name: str
    source: str
    target: str
    ordering: str
    concurrency: int
    is_batch: bool
    retry_delays_s: tuple[float, ...] = ()
    """Of its retry topics; without them a record is tried again in place."""

    @property
    def group(self) -> str:
        return f"stage-{self.name}"

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.name}.dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole round."""

    seed: int
    shell: str
    records: int
    keys: tuple[str, ...]
    partitions: int
    window: int
    stages: tuple[StagePlan, ...]
    shells: tuple[str, ...]
    """Members that start take turns among them. Each stage begins with a member of each."""
    consumer_settings: dict[str, object]
    faults: tuple[Fault, ...]
    commit_every_s: float = 0.25
    records_per_s: int = 400
    """Slow enough that members start and leave while records flow, fast enough that there is work in flight."""
    session_timeout_ms: int = 3_000
    drain_s: float = 8.0
    has_wishes: bool = False
    """Inputs are delayed, expire and are urgent, as their number says."""

    @classmethod
    def draw(
        cls,
        *,
        seed: int,
        shell: str,
        records: int,
        faults: int,
        has_retry_topics: bool = False,
        has_wishes: bool = False,
    ) -> Plan:
        """The round of a seed in a shell (``"threads"``, ``"asyncio"``, ``"columns"``), or in all of them together
        (``"mixed"``): then members of each are in the group of each stage.

        With `has_retry_topics` what fails in a stage goes through two retry topics; batches are tried again in place.
        With `has_wishes` inputs are delayed, some of them are cancelled, others expire, and keys are urgent or not.
        """
        random = Random(f"{seed}/{shell}")
        names = ("enrich", "total", "report")
        topics = ("orders", "enriched", "totals", "reports")
        shapes = [("partition", 1, False), ("key", 4, False), ("partition", 2, random.random() < 0.6)]
        random.shuffle(shapes)
        shells = tuple(SHELLS) if shell == "mixed" else (shell,)
        stages = tuple(
            StagePlan(
                name=name,
                source=topics[index],
                target=topics[index + 1],
                ordering=shapes[index][0],
                concurrency=shapes[index][1],
                is_batch=shapes[index][2],
                retry_delays_s=(0.2, 0.5) if has_retry_topics and not shapes[index][2] else (),
            )
            for index, name in enumerate(names)
        )
        settings: dict[str, object] = {}
        if shell == "mixed":
            settings["partition.assignment.strategy"] = "range"  # which all three clients have
        elif shell != "asyncio":
            protocol = random.choice(["cooperative-sticky", "range", "consumer"])
            if protocol == "consumer":
                if not has_wishes:  # schedulers take the session timeout of their app, which this protocol lacks
                    settings["group.protocol"] = "consumer"
            elif not has_retry_topics:  # these come with the range assignor, which the app sets itself
                settings["partition.assignment.strategy"] = protocol
        # Every kind once before any comes twice: a short round has seen them all.
        kinds: list[Kind] = []
        while len(kinds) < faults:
            more = list(Kind)
            random.shuffle(more)
            kinds += more
        gap = records / (faults + 1)
        drawn = tuple(
            Fault(
                at_records=round(gap * (index + 0.5 + random.random() / 2)),
                kind=kind,
                stage=random.choice((*names, "feed") if kind in _OF_CONNECTIONS else names),
                choice=random.randrange(1_000),
                duration_s=_duration_s(kind, random),
            )
            for index, kind in enumerate(kinds[:faults])
        )
        return cls(
            seed=seed,
            shell=shell,
            records=records,
            keys=tuple(f"key-{number}" for number in range(random.choice([7, 24, 60]))),
            partitions=random.choice([2, 3, 6]),
            window=min(400, max(100, records // 4)),
            stages=stages,
            shells=shells,
            consumer_settings=settings,
            faults=drawn,
            has_wishes=has_wishes,
        )

    def stage(self, name: str) -> StagePlan:
        return next(stage for stage in self.stages if stage.name == name)

    def input_at(self, index: int) -> tuple[str, int]:
        """The key and the number within its key of the input at `index`: keys take turns, unevenly."""
        if self.has_wishes and index % 5 == 1:
            return f"late-{index}", 0  # delayed ones have no order, so each has a key of its own
        count = len(self.keys)
        lap, position = divmod(index, count)
        return self.keys[(position * 5 + lap) % count if count % 5 else position], lap

    def wish_of(self, key: str, sequence: int) -> Wish:
        """How an input is sent: the same for all inputs of a key, but for the time to live."""
        if not self.has_wishes:
            return Wish()
        drawn = _number(self.seed, "wish", key)
        is_late = key.startswith("late-")
        expires = _number(self.seed, "expiry", key, sequence) % 4 == 0
        return Wish(
            delay_s=0.2 + drawn % 20 / 10 if is_late else None,
            expires_s=1.0 if expires else None,
            is_urgent=drawn % 3 == 0,
        )

    def is_followed_by_a_cancelled_one(self, index: int) -> bool:
        """Whether a message is scheduled and cancelled at once when this input is fed."""
        return self.has_wishes and index % 80 == 3

    def last_stage_of(self, key: str, sequence: int) -> tuple[str, str] | None:
        """The stage that dead-letters this input and the kind it gives, or None when it gets through."""
        if is_malformed(self.seed, key, sequence):
            return self.stages[0].name, "malformed"
        for stage in self.stages:
            fate, _ = fate_of(self.seed, stage.name, key, sequence)
            if fate in DEAD_KINDS:
                return stage.name, DEAD_KINDS[fate]
        return None

    def __str__(self) -> str:
        stages = ", ".join(
            f"{stage.name} (ordering {stage.ordering}, concurrency {stage.concurrency}{', batches' * stage.is_batch}"
            f"{', retry topics' * bool(stage.retry_delays_s)})"
            for stage in self.stages
        )
        faults = "\n".join(
            f"  after {fault.at_records:>6} records: {fault.kind.value} {fault.stage}"
            + (f" for {fault.duration_s:.2f} s" if fault.duration_s else "")
            for fault in self.faults
        )
        wishes = "delays, expiry and priorities, " * self.has_wishes
        return (
            f"seed {self.seed}, {self.shell}: {wishes}{self.records} records, {len(self.keys)} keys, "
            f"{self.partitions} partitions; {stages}; {self.consumer_settings or 'defaults'}\n{faults}"
        )


def _duration_s(kind: Kind, random: Random) -> float:
    if kind is Kind.DEAF:
        return random.uniform(0.05, 0.4)
    if kind is Kind.STALL:
        return random.choice([0.3, 0.8, 4.5])
    return 0.0
