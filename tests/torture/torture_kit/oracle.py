"""The judge of a round: what was read back, what members handled, what was committed, and what was done to them.

Each check returns sentences, one per violation; none means that the round kept every promise of
docs/explanation/guarantees.md:

- `out_of_order`      first occurrences of a key's records are in order in every topic, in one partition;
- `lost`              every input of a stage is in its output or, when that is its fate, in its dead letters;
- `sent_twice`        one send is in the log once, however often its connection was cut (idempotence);
- `unexplained`       a record was sent on twice only when its member was killed, cut off or thrown out in between,
                      and only what was in flight then, or finished since the last commit;
- `committed_again`   nothing is delivered again that was committed, or named as finished in a commit's metadata;
- `early`             nothing that was delayed is delivered before its time;
- `cancelled`         nothing comes whose cancel was acknowledged before its time;
- `expired`           nobody is given an expired record; it is a dead letter, or was handled before;
- `left_uncommitted`  after a graceful stop everything is committed that those who stopped had handled.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from ottla.consumer.commit.offset_metadata import decode_finished
from torture_kit.journal import Delivery, MemberEvent
from torture_kit.plan import Plan, StagePlan

SLACK_S = 3.0
"""What a loaded machine may add to a commit's way to the broker and back, and to a run that is in flight."""

AFTERMATH_S = 2.0
"""How long after connections were cut a commit may still fail: clients reconnect with backoff."""


class Sent(NamedTuple):
    """A record of the chain, as it is in a topic."""

    partition: int
    offset: int
    key: str
    sequence: int
    send_id: str


class DeadLetter(NamedTuple):
    """A dead letter, by what it was."""

    key: str
    sequence: int
    kind: str


class Committed(NamedTuple):
    at_s: float
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that was done to a member, or befell it."""

    kind: str
    member: str
    from_s: float
    until_s: float


@dataclass(slots=True, kw_only=True)
class Evidence:
    """All that is known of a round."""

    topics: dict[str, list[Sent]] = field(default_factory=dict)
    dead: dict[str, list[DeadLetter]] = field(default_factory=dict)
    """By stage."""
    commits: dict[tuple[str, str, int], list[Committed]] = field(default_factory=dict)
    """By group, topic and partition, in the order of the log."""
    log_ends: dict[tuple[str, int], int] = field(default_factory=dict)
    deliveries: dict[str, list[Delivery]] = field(default_factory=dict)
    """By stage."""
    retried: dict[tuple[str, int, int], list[float]] = field(default_factory=dict)
    """Stage, partition and offset → when it was put into a retry topic, in seconds."""
    incidents: list[Incident] = field(default_factory=list)
    due_s: dict[tuple[int, int], float] = field(default_factory=dict)
    """Partition and offset in the first topic → when it was due, of what was delayed."""
    cancelled: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Key → (when it was due, when its cancel was acknowledged)."""
    expired: list[MemberEvent] = field(default_factory=list)
    """Handlers that were given expired records."""

    def add_events(self, events: Iterable[MemberEvent], session_timeout_s: float) -> None:
        """Members that were thrown out without our doing: a starved machine does that."""
        for event in events:
            if event.event.startswith("expired_"):
                self.expired.append(event)
            if event.event == "partitions_lost":
                from_s = event.at_s - session_timeout_s - 1
                self.incidents.append(Incident(kind="lost", member=event.member, from_s=from_s, until_s=event.at_s))


def judge(plan: Plan, evidence: Evidence) -> list[str]:
    """Every violation, the clearest first."""
    found: list[str] = []
    for topic in (plan.stages[0].source, *(stage.target for stage in plan.stages)):
        found += out_of_order(topic, evidence.topics.get(topic, []))
        found += sent_twice(topic, evidence.topics.get(topic, []))
    found += inputs_lost(plan, evidence)
    found += early(plan, evidence)
    found += cancelled(plan, evidence)
    found += [f"{event.member} was given a record that had {event.event}" for event in evidence.expired]
    for stage in plan.stages:
        found += lost(plan, stage, evidence)
        found += unexplained(plan, stage, evidence)
        found += committed_again(stage, evidence)
        found += left_uncommitted(plan, stage, evidence)
    return found


def out_of_order(topic: str, records: Iterable[Sent]) -> Iterator[str]:
    latest: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    partition_of: dict[str, int] = {}
    for record in sorted(records, key=lambda record: (record.partition, record.offset)):
        where = f"{topic}-{record.partition} offset {record.offset}"
        if partition_of.setdefault(record.key, record.partition) != record.partition:
            yield f"{where}: {record.key} is also in partition {partition_of[record.key]}"
        if (record.key, record.sequence) in seen:
            continue
        seen.add((record.key, record.sequence))
        if record.sequence < latest.get(record.key, -1):
            yield (
                f"{where}: {record.key} {record.sequence} comes for the first time behind {latest[record.key]} "
                f"(sent by {record.send_id})"
            )
        latest[record.key] = max(record.sequence, latest.get(record.key, -1))


def sent_twice(topic: str, records: Iterable[Sent]) -> Iterator[str]:
    places: dict[str, list[Sent]] = defaultdict(list)
    for record in records:
        places[record.send_id].append(record)
    for send_id, copies in places.items():
        if len(copies) > 1:
            offsets = ", ".join(f"{topic}-{copy.partition} offset {copy.offset}" for copy in copies)
            what = f"{send_id} ({copies[0].key} {copies[0].sequence})"
            yield f"one send is in the log {len(copies)} times: {what}: {offsets}"


def inputs_lost(plan: Plan, evidence: Evidence) -> Iterator[str]:
    first = plan.stages[0]
    there = {(record.key, record.sequence) for record in evidence.topics.get(first.source, [])}
    for index in range(plan.records):
        key, sequence = plan.input_at(index)
        if (key, sequence) not in there:
            yield f"{first.source}: input {key} {sequence} was acknowledged and is not in the topic"


def early(plan: Plan, evidence: Evidence) -> Iterator[str]:
    first = plan.stages[0]
    late = [record for record in evidence.topics.get(first.source, []) if record.key.startswith("late-")]
    for record in late:
        if (record.partition, record.offset) not in evidence.due_s:
            yield f"{first.source}-{record.partition} offset {record.offset}: {record.key} does not say when it was due"
    for delivery in evidence.deliveries.get(first.name, []):
        due_s = evidence.due_s.get((delivery.partition, delivery.offset))
        if due_s is not None and delivery.at_s < due_s:
            yield f"{delivery.key} was given to {delivery.member} {due_s - delivery.at_s:.3f} s before it was due"


def cancelled(plan: Plan, evidence: Evidence) -> Iterator[str]:
    for record in evidence.topics.get(plan.stages[0].source, []):
        due_s, acknowledged_s = evidence.cancelled.get(record.key, (0.0, math.inf))
        if acknowledged_s < due_s:
            ahead_s = due_s - acknowledged_s
            yield f"{record.key} was delivered, although its cancel was acknowledged {ahead_s:.3f} s before it was due"


def lost(plan: Plan, stage: StagePlan, evidence: Evidence) -> Iterator[str]:
    out = {(record.key, record.sequence) for record in evidence.topics.get(stage.target, [])}
    dead = {(letter.key, letter.sequence): letter.kind for letter in evidence.dead.get(stage.name, [])}
    given = {(record.key, record.sequence): record for record in evidence.topics.get(stage.source, [])}
    for (key, sequence), record in given.items():
        fate = plan.last_stage_of(key, sequence)
        may_expire = stage is plan.stages[0] and plan.wish_of(key, sequence).expires_s is not None
        if may_expire and dead.get((key, sequence)) == "expired":
            continue  # it may have been handled before, and not have been committed
        place = f"{stage.source}-{record.partition} offset {record.offset} ({key} {sequence})"
        if fate is not None and fate[0] == stage.name:
            if (key, sequence) not in dead:
                yield f"{stage.name}: {place} should be a dead letter and is not"
            elif dead[key, sequence] != fate[1]:
                yield f"{stage.name}: {place} is dead as {dead[key, sequence]!r}, wanted {fate[1]!r}"
            if (key, sequence) in out:
                yield f"{stage.name}: {place} was sent on although it cannot be handled"
        elif (key, sequence) not in out:
            yield f"{stage.name}: {place} is lost: not in {stage.target}"
        elif (key, sequence) in dead:
            yield f"{stage.name}: {place} is a dead letter although it can be handled"
    for key, sequence in out - given.keys():
        yield f"{stage.target}: {key} {sequence} was never in {stage.source}"


def unexplained(plan: Plan, stage: StagePlan, evidence: Evidence) -> Iterator[str]:
    """Sent on twice without a reason, or with a reason that is too young for it."""
    sent_ids = {record.send_id for record in evidence.topics.get(stage.target, [])}
    bound_s = plan.commit_every_s + SLACK_S
    for (partition, offset), deliveries in _by_record(evidence.deliveries.get(stage.name, [])).items():
        effective = [delivery for delivery in deliveries if delivery.send_id in sent_ids]
        for first, second in pairwise(effective):
            again = next(delivery for delivery in deliveries if delivery.at_s > first.at_s or delivery is second)
            reasons = [
                incident
                for incident in evidence.incidents
                if _explains(incident, first, again, plan.session_timeout_ms / 1_000)
            ]
            what = (
                f"{stage.name}: {stage.source}-{partition} offset {offset} ({first.key} {first.sequence}) was sent on "
                f"by {first.send_id} at {first.at_s:.3f} and again by {second.send_id} at {second.at_s:.3f}"
            )
            copies = evidence.retried.get((stage.name, partition, offset), [])
            if _has_copy_of_a_disturbed_member(plan, stage, copies, evidence.incidents, bound_s):
                continue
            if not reasons:
                yield f"{what}, and nothing had happened to {first.member}"
            elif all(first.at_s < incident.from_s - bound_s for incident in reasons):
                nearest = max(reasons, key=lambda incident: -incident.from_s)
                yield (
                    f"{what}: that is {nearest.from_s - first.at_s:.1f} s before the {nearest.kind} of "
                    f"{nearest.member}; commits are every {plan.commit_every_s} s"
                )


def committed_again(stage: StagePlan, evidence: Evidence) -> Iterator[str]:
    for (partition, offset), deliveries in _by_record(evidence.deliveries.get(stage.name, [])).items():
        commits = evidence.commits.get((stage.group, stage.source, partition), [])
        times = [commit.at_s for commit in commits]
        retried_s = min(evidence.retried.get((stage.name, partition, offset), []), default=math.inf)
        for delivery in deliveries:
            if delivery.at_s >= retried_s:
                continue  # out of a retry topic: in its own one it was done when that took it
            # 5 ms: the clocks of broker and member are one clock, but each reads it at its own moment.
            index = bisect_left(times, delivery.at_s - 0.005) - 1
            if index < 0 or _is_cut_off(delivery, evidence.incidents):
                continue
            latest = commits[index]
            what = (
                f"{stage.name}: {stage.source}-{partition} offset {offset} ({delivery.key} {delivery.sequence}) was "
                f"delivered to {delivery.member} {delivery.at_s - latest.at_s:.3f} s after "
            )
            if offset < latest.offset:
                yield f"{what}{latest.offset} was committed"
            elif latest.metadata and offset in decode_finished(latest.metadata, latest.offset):
                yield f"{what}the commit of {latest.offset} named it as finished"


def left_uncommitted(plan: Plan, stage: StagePlan, evidence: Evidence) -> Iterator[str]:
    for (topic, partition), end in evidence.log_ends.items():
        if topic != stage.source or end == 0:
            continue
        commits = evidence.commits.get((stage.group, topic, partition), [])
        committed = commits[-1].offset if commits else None
        is_behind_markers = plan.has_wishes and committed is not None and committed > end  # of schedulers' transactions
        if (
            committed != end
            and not is_behind_markers
            and not _is_left_by_another(stage, evidence, partition, committed or 0)
        ):
            yield f"{stage.name}: stopped gracefully with {committed} of {end} committed in {topic}-{partition}"


def duplicates(plan: Plan, evidence: Evidence) -> dict[str, int]:
    """How many records each stage sent on more than once, and how often: for the account of a round."""
    extra: Counter[str] = Counter()
    for stage in plan.stages:
        sent_ids = {record.send_id for record in evidence.topics.get(stage.target, [])}
        for deliveries in _by_record(evidence.deliveries.get(stage.name, [])).values():
            extra[stage.name] += max(0, sum(delivery.send_id in sent_ids for delivery in deliveries) - 1)
    return dict(extra)


def _explains(incident: Incident, first: Delivery, again: Delivery, session_timeout_s: float) -> bool:
    """Whether what befell a member may have led to this second delivery."""
    if incident.from_s > again.at_s:
        return False
    if incident.kind == "kill":
        return incident.member == first.member and incident.until_s >= first.at_s
    if incident.member == first.member:
        return incident.until_s + AFTERMATH_S >= first.at_s
    # A member that was cut off goes on with what it has in flight until it hears that it was thrown out.
    return incident.member == again.member and incident.until_s + session_timeout_s + AFTERMATH_S >= again.at_s


def _has_copy_of_a_disturbed_member(
    plan: Plan, stage: StagePlan, copies: Iterable[float], incidents: Iterable[Incident], bound_s: float
) -> bool:
    """Whether a member put it into a retry topic, and may have ended before it committed that: the next owner has the
    record and the copy, and nothing need have happened to it."""
    after_s = plan.session_timeout_ms / 1_000 + AFTERMATH_S
    return any(
        incident.from_s - bound_s <= copy_s <= incident.until_s + after_s
        for copy_s in copies
        for incident in incidents
        if incident.member.startswith(f"{stage.name}-")
    )


def _is_left_by_another(stage: StagePlan, evidence: Evidence, partition: int, committed: int) -> bool:
    """Whether nobody who stopped gracefully had the first uncommitted record. The round ends when everything is
    through: what a killed member had sent on is, before its next owner has it again; and what comes a second time, from
    a member that had been cut off, nobody may have seen yet."""
    records = [record for record in evidence.topics.get(stage.source, []) if record.partition == partition]
    earlier = {(record.key, record.sequence) for record in records if record.offset < committed}
    delivered = _by_record(evidence.deliveries.get(stage.name, []))
    for record in sorted(records, key=lambda record: record.offset):
        if record.offset < committed:
            continue
        deliveries = delivered.get((partition, record.offset))
        if deliveries:
            last = deliveries[-1]
            return any(
                incident.member == last.member and incident.until_s + AFTERMATH_S >= last.at_s
                for incident in evidence.incidents
            )
        if (record.key, record.sequence) in earlier:
            return True
        earlier.add((record.key, record.sequence))
    members = {one.member for one in evidence.deliveries.get(stage.name, [])}  # what is left is dead without a delivery
    return any(incident.member in members for incident in evidence.incidents)


def _is_cut_off(delivery: Delivery, incidents: Iterable[Incident]) -> bool:
    return any(
        incident.member == delivery.member
        and incident.kind != "kill"
        and incident.from_s <= delivery.at_s <= incident.until_s + SLACK_S
        for incident in incidents
    )


def _by_record(deliveries: Iterable[Delivery]) -> dict[tuple[int, int], list[Delivery]]:
    table: dict[tuple[int, int], list[Delivery]] = defaultdict(list)
    for delivery in sorted(deliveries, key=lambda delivery: delivery.at_s):
        table[delivery.partition, delivery.offset].append(delivery)
    return table
