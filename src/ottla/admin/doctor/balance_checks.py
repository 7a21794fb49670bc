"""BAL and MOV: how data and work are spread over brokers, and moves that do not end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ottla.admin.doctor.check_registry import Check, CheckResult
from ottla.admin.doctor.finding import Evidence, Severity, disks_of, format_bytes, some
from ottla.admin.facts.cluster_facts import ClusterFacts, Part, whole_number
from ottla.schedule.headers import TOPIC_PREFIX
from ottla.topics import TopicPartition

_MOVE = "ottla plan rebalance -o FILE, then ottla plan run FILE"
_NO_RATE = (1 << 63) - 1


@Check(
    "BAL01",
    Severity.WARNING,
    "Bytes are spread unevenly over brokers",
    reads={Part.TOPICS, Part.LOG_DIRS},
    why="Kafka balances the number of partitions, not their bytes. One disk fills up while another stays empty.",
    fix=_MOVE,
)
def uneven(seen: Evidence) -> Iterator[CheckResult]:
    held = seen.bytes_of_broker
    total = sum(held.values())
    if len(held) < 2 or total < seen.limits.least_bytes:
        return
    parts = _parts(seen)
    largest = max(seen.facts.partition_bytes.values(), default=0)
    broker = max(held, key=lambda each: held[each] / max(parts[each], 1))
    reachable = max(parts[broker], largest)
    if held[broker] > reachable * seen.limits.skew:
        yield CheckResult(
            subject=f"broker {broker}",
            message=f"broker {broker} has {held[broker] / total:.0%} of the bytes ({format_bytes(held[broker])}); its"
            " part"
            f" would be {parts[broker] / total:.0%}",
        )


@Check(
    "BAL02",
    Severity.WARNING,
    "A broker is empty",
    reads={Part.TOPICS, Part.LOG_DIRS},
    why="Kafka moves no replicas to a new broker. It gets replicas of new topics only.",
    fix=_MOVE,
)
def empty_brokers(seen: Evidence) -> Iterator[CheckResult]:
    held = seen.bytes_of_broker
    if len(held) < 2 or sum(held.values()) < seen.limits.least_bytes:
        return
    parts = _parts(seen)
    for broker, count in held.items():
        if count < parts[broker] * seen.limits.empty_share:
            yield CheckResult(
                subject=f"broker {broker}",
                message=f"broker {broker} has {format_bytes(count)}, its fair share is {format_bytes(parts[broker])}:"
                " Kafka moves nothing to a broker by itself",
            )


@Check(
    "BAL03",
    Severity.WARNING,
    "A log directory is empty",
    reads={Part.LOG_DIRS},
    why="A disk that is added to a broker gets replicas of new partitions only. Existing replicas stay where they are.",
    fix="ottla plan dirs -o FILE, then ottla plan run FILE",
)
def empty_dirs(seen: Evidence) -> Iterator[CheckResult]:
    for broker in seen.live:
        good = [log_dir for log_dir in broker.log_dirs or () if log_dir.error is None and not log_dir.is_cordoned]
        total = sum(log_dir.replica_bytes for log_dir in good)
        if len(good) < 2 or total < seen.limits.least_bytes:
            continue
        part = total / len(good)
        for log_dir in good:
            if log_dir.replica_bytes < part * seen.limits.empty_share:
                yield CheckResult(
                    subject=f"broker {broker.id}: {log_dir.path}",
                    message=f"{log_dir.path} of broker {broker.id} has {format_bytes(log_dir.replica_bytes)},"
                    f" its fair share is {format_bytes(part)}",
                )


@Check(
    "BAL04",
    Severity.WARNING,
    "Leaders are not on their preferred replicas",
    reads={Part.TOPICS, Part.BROKER_SETTINGS},
    why="The first replica of a partition is its preferred leader. After a restart, leaders stay on other brokers"
    " until Kafka moves them back. By default Kafka does so every five minutes.",
    fix="ottla cluster elect; auto.leader.rebalance.enable=true in server.properties of every broker",
)
def astray(seen: Evidence) -> Iterator[CheckResult]:
    off = [
        broker for broker, each in seen.broker_setting("auto.leader.rebalance.enable").items() if each.value == "false"
    ]
    if off:
        yield CheckResult(
            subject="brokers",
            message=f"auto.leader.rebalance.enable is off on {len(off)} brokers: leaders stay where a restart put them",
            fix="auto.leader.rebalance.enable=true in server.properties of every broker",
        )
    led, elsewhere = 0, 0
    for topic in seen.facts.topics:
        for each in topic.partitions:
            if each.leader is not None and each.replicas:
                led += 1
                elsewhere += each.leader != each.replicas[0] and each.replicas[0] in each.in_sync
    if led and elsewhere / led > seen.limits.leader_share:
        yield CheckResult(
            subject="leaders",
            message=f"{elsewhere:,} of {led:,} partitions are not led by their preferred replica, which is in sync",
            fix="ottla cluster elect",
        )


@Check(
    "BAL05",
    Severity.WARNING,
    "One broker takes most writes",
    reads={Part.TOPICS, Part.OFFSETS, Part.LOG_DIRS},
    samples=2,
    why="A partition is written through its leader. Kafka balances the number of leaders, not their write rates, so"
    " one broker may lead all busy partitions of a topic.",
    fix="ottla plan leaders -o FILE, then ottla plan run FILE",
)
def busy_leader(seen: Evidence) -> Iterator[CheckResult]:
    rates = seen.rates
    if rates is None:
        return
    load = rates.leader_bytes_in(seen.facts)
    total = sum(load.values())
    if len(load) < 2 or total < seen.limits.least_rate:
        return
    broker = max(load, key=lambda each: load[each])
    reachable = max(total / len(load), max(rates.bytes_in.values(), default=0.0))
    if load[broker] > reachable * seen.limits.leader_skew:
        yield CheckResult(
            subject=f"broker {broker}",
            message=f"broker {broker} takes {load[broker] / total:.0%} of all writes, {format_bytes(load[broker])} of"
            f" {format_bytes(total)} per second",
        )


@Check(
    "BAL06",
    Severity.NOTE,
    "One partition is larger than a broker's share",
    reads={Part.TOPICS, Part.LOG_DIRS},
    why="A partition is on one disk. If it is larger than a broker's fair share of all bytes, no placement can balance"
    " the cluster.",
    fix="ottla topics add-partitions TOPIC N; from then on keys go to other partitions",
)
def giants(seen: Evidence) -> Iterator[CheckResult]:
    held = seen.bytes_of_broker
    total = sum(held.values())
    if len(held) < 2 or total < seen.limits.least_bytes:
        return
    for place, size in seen.facts.partition_bytes.items():
        fact = seen.facts.by_partition.get(place)
        if fact is not None and len(fact.replicas) < len(held) and size > total / len(held):
            yield CheckResult(
                subject=str(place),
                message=f"{place} has {format_bytes(size)}, and the fair share of a broker is"
                f" {format_bytes(total / len(held))}:"
                " no placement can balance this",
            )


@Check(
    "BAL07",
    Severity.NOTE,
    "A broker has very many partitions",
    reads={Part.TOPICS},
    why="Every replica costs open files, memory and time at start and when a leader moves. Kafka's documentation"
    " advises at most 4,000 for each broker.",
    fix="fewer partitions in new topics, or more brokers",
)
def crowded(seen: Evidence) -> Iterator[CheckResult]:
    count: Counter[int] = Counter()
    for topic in seen.facts.topics:
        for each in topic.partitions:
            count.update(each.replicas)
    for broker, replicas in sorted(count.items()):
        if replicas > seen.limits.replicas_per_broker:
            yield CheckResult(subject=f"broker {broker}", message=f"broker {broker} has {replicas:,} replicas")


@Check(
    "BAL08",
    Severity.WARNING,
    "Nearly all records are in one partition",
    reads={Part.TOPICS, Part.OFFSETS},
    why="One consumer of the group has all the work, and one broker all the writes. Most records have the same key, or"
    " a producer chooses the partition.",
    fix="keys that differ, or none; ottla consume TOPIC -p PARTITION shows them",
)
def one_partition(seen: Evidence) -> Iterator[CheckResult]:
    for topic in seen.facts.topics:
        if topic.is_internal or topic.name.startswith(TOPIC_PREFIX) or len(topic.partitions) < 2:
            continue
        counts = {each.partition: each.records for each in topic.partitions}
        known = {number: count for number, count in counts.items() if count is not None}
        total = sum(known.values())
        if len(known) < len(counts) or total < seen.limits.least_records:
            continue
        number = max(known, key=lambda each: known[each])
        if known[number] >= total * seen.limits.partition_share:
            yield CheckResult(
                subject=topic.name,
                message=f"{topic.name} has {known[number]:,} of its {total:,} records in partition {number}, one of"
                f" {len(known)}",
                fix=f"keys that differ, or none; ottla consume {topic.name} -p {number} shows them",
            )


@Check(
    "MOV01",
    Severity.WARNING,
    "A move makes no progress",
    reads={Part.MOVES, Part.LOG_DIRS},
    samples=2,
    why="A moving replica is copied from the leader. It never catches up if the throttle is below the partition's"
    " write rate, or if the target is full or fenced.",
    fix="ottla plan run FILE with a higher --throttle, room on the target, or ottla plan cancel FILE",
)
def stuck_moves(seen: Evidence) -> Iterator[CheckResult]:
    if seen.before is None or seen.facts.at_ms - seen.before.at_ms < seen.limits.stuck_move_ms:
        return
    now, then = _sizes(seen.facts), _sizes(seen.before)
    under_way = {TopicPartition(each.topic, each.partition) for each in seen.before.moves}
    for move in seen.facts.moves:
        place = TopicPartition(move.topic, move.partition)
        if place not in under_way:
            continue
        for broker in move.adding:
            size = now.get((broker, place), 0)
            if size <= then.get((broker, place), 0):
                yield CheckResult(
                    subject=str(place),
                    message=f"{place} moves to broker {broker} and copied nothing since the first sample"
                    f" ({format_bytes(size)} of {format_bytes(seen.facts.partition_bytes.get(place, 0))})",
                )


@Check(
    "MOV02",
    Severity.WARNING,
    "Throttles are set while nothing moves",
    reads={Part.MOVES, Part.TOPIC_SETTINGS, Part.BROKER_SETTINGS},
    why="A throttle stays after its move ends, unless the tool that set it removes it. Followers that fall behind"
    " later are limited to its rate.",
    fix="ottla plan throttle --clear",
)
def leftover_throttles(seen: Evidence) -> Iterator[CheckResult]:
    if seen.facts.moves:
        return
    names = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
    held = [
        topic.name
        for topic in seen.facts.topics
        if any(name in topic.settings and topic.settings[name].value for name in names)
    ]
    rates = {
        whole_number(each)
        for name in ("follower.replication.throttled.rate", "leader.replication.throttled.rate")
        for each in seen.broker_setting(name).values()
        if not each.is_default and whole_number(each) not in (None, _NO_RATE)
    }
    rate = f" at {format_bytes(min(each for each in rates if each is not None))} per second" if rates else ""
    if held:
        yield CheckResult(
            subject="throttles" if len(held) > 1 else held[0],
            message=f"replicas of {held[0] if len(held) == 1 else f'{len(held)} topics ({some(held)})'} are"
            f" throttled{rate}, and nothing moves",
        )


def _parts(seen: Evidence) -> dict[int, float]:
    """Return the bytes that each broker would have by its disks; the same for all if their sizes are unknown."""
    held = seen.bytes_of_broker
    room = {broker.id: sum(total for _, total, _ in disks_of(broker)) for broker in seen.live if broker.id in held}
    if not all(room.values()):
        room = dict.fromkeys(held, 1)
    return {broker: sum(held.values()) * share / sum(room.values()) for broker, share in room.items()}


def _sizes(facts: ClusterFacts) -> dict[tuple[int, TopicPartition], int]:
    return {
        (broker.id, TopicPartition(replica.topic, replica.partition)): replica.bytes
        for broker, _, replica in facts.replicas()
    }
