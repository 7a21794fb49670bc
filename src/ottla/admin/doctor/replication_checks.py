"""REP: how many copies there are, and what it takes to lose them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ottla.admin.doctor.check_registry import Check, CheckResult
from ottla.admin.doctor.finding import Evidence, Severity, is_own, some
from ottla.admin.doctor.origins import merge_inherited
from ottla.admin.facts.cluster_facts import Part, TopicInfo, is_true, whole_number

_FEW = 5
"""Topics that differ are few while there are this many times more of the others."""
_SAFE = 3
_COPIES = "ottla topics set-replicas {topic} {count}"
_INTERNAL = {
    "__consumer_offsets": "groups lose their offsets and stop",
    "__transaction_state": "transactions stop",
}


@Check(
    "REP01",
    Severity.ERROR,
    "A topic has one replica",
    reads={Part.TOPICS},
    why="Each of its partitions is on one broker. While that broker is down, the partition can be neither read nor"
    " written. If its disk is lost, the records are lost.",
    fix=_COPIES.format(count=_SAFE, topic="TOPIC"),
    covered_by=["REP07"],
)
def one_replica(seen: Evidence) -> Iterator[CheckResult]:
    count = len(seen.facts.brokers)
    if count < 2:
        return
    for topic in seen.facts.topics:
        if topic.replication_factor == 1:
            least = topic.number("min.insync.replicas") or 1
            refused = f"; acks=all writes are refused (min.insync.replicas {least})" if least > 1 else ""
            yield CheckResult(
                subject=topic.name,
                message=f"{topic.name} has 1 replica on a cluster of {count} brokers:"
                f" the loss of one broker loses its data{refused}",
                fix=_COPIES.format(count=min(_SAFE, count), topic=topic.name),
            )


@Check(
    "REP02",
    Severity.ERROR,
    "Topics are created by accident, with one replica",
    reads={Part.BROKER_SETTINGS},
    why="With auto.create.topics.enable, a write to a topic that does not exist creates it, also when its name is"
    " misspelt. default.replication.factor is 1, so the topic has one copy.",
    fix="auto.create.topics.enable=false and default.replication.factor=3 in server.properties of every broker",
)
def accidental_topics(seen: Evidence) -> Iterator[CheckResult]:
    if len(seen.facts.brokers) < 2:
        return
    factors = seen.broker_setting("default.replication.factor")
    guilty = [
        broker
        for broker, setting in seen.broker_setting("auto.create.topics.enable").items()
        if is_true(setting) and whole_number(factors.get(broker)) == 1
    ]
    if guilty:
        yield CheckResult(
            subject="brokers",
            message=f"brokers {_list(guilty)} have auto.create.topics.enable=true and default.replication.factor=1: a"
            " write before the topic exists creates it with one copy",
        )


@Check(
    "REP03",
    Severity.WARNING,
    "A topic has fewer replicas than the others, and only default settings",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="Most topics of a cluster have the same replication factor. The few that have fewer replicas, and only default"
    " settings, were most likely created by a client with auto.create.topics.enable.",
    fix=_COPIES.format(count=_SAFE, topic="TOPIC"),
    covered_by=["REP01"],
)
def odd_factor(seen: Evidence) -> Iterator[CheckResult]:
    usual, others = _usual(seen)
    few = [topic for topic in others if topic.replication_factor < usual]
    total = sum(1 for topic in seen.facts.topics if not topic.is_internal)
    if not few or len(few) * _FEW > total - len(few):
        return
    for topic in few:
        if not any(each.source == "DYNAMIC_TOPIC_CONFIG" for each in topic.settings.values()):
            yield CheckResult(
                subject=topic.name,
                message=f"{topic.name} has replication factor {topic.replication_factor} where others have {usual}, and"
                " only default settings: it looks auto-created",
                fix=_COPIES.format(count=usual, topic=topic.name),
            )


@Check(
    "REP04",
    Severity.ERROR,
    "min.insync.replicas is as large as the replication factor",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="A write with acks=all needs min.insync.replicas copies. If that is all replicas, every restart of a broker"
    " stops writes to its partitions.",
    fix="ottla topics set TOPIC min.insync.replicas=2",
    covered_by=["REP01"],
)
def no_room(seen: Evidence) -> Iterator[CheckResult]:
    found = []
    for topic in seen.facts.topics:
        least, factor = topic.number("min.insync.replicas"), topic.replication_factor
        if least is not None and least >= factor and (factor > 1 or least > 1):
            result = CheckResult(
                subject=topic.name,
                message=f"{topic.name} has min.insync.replicas {least} and replication factor {factor}: the first"
                " broker"
                " that stops, stops all acks=all writes",
                fix=f"ottla topics set {topic.name} min.insync.replicas={max(1, factor - 1)}"
                if factor >= _SAFE or least >= _SAFE or len(seen.facts.brokers) < _SAFE
                else _COPIES.format(count=_SAFE, topic=topic.name),
            )
            found.append((topic, result))
    enough = [(topic, each) for topic, each in found if topic.replication_factor >= _SAFE]
    yield from (each for topic, each in found if topic.replication_factor < _SAFE)  # they need more replicas
    yield from merge_inherited(enough, "min.insync.replicas", str(_SAFE - 1))


@Check(
    "REP05",
    Severity.WARNING,
    "acks=all may store only one copy",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="With min.insync.replicas 1 a write with acks=all is acknowledged by the leader alone while the followers lag."
    " If that leader is lost, acknowledged records are lost.",
    fix="ottla topics set TOPIC min.insync.replicas=2",
)
def lone_leader(seen: Evidence) -> Iterator[CheckResult]:
    name = "min.insync.replicas"
    inherited = []
    for topic in seen.facts.topics:
        if topic.number(name) != 1 or topic.replication_factor < _SAFE or topic.is_internal:
            continue
        if not is_own(topic, name):
            inherited.append(topic)
            continue
        yield _lone(topic)
    if len(inherited) < 2:
        yield from map(_lone, inherited)
        return
    fewer = [
        topic.name for topic in seen.facts.topics if topic.replication_factor < 2 and not is_own(topic, name)
    ]  # with two replicas in sync wanted, nothing could be written to them
    yield CheckResult(
        subject=name,
        message=f"{len(inherited)} topics ({some([topic.name for topic in inherited])}) have the brokers'"
        f" min.insync.replicas 1: acks=all may mean one copy",
        fix="ottla cluster set all min.insync.replicas=2"
        if not fewer
        else f"ottla topics set TOPIC min.insync.replicas=2; for all at once (ottla cluster set all) once {some(fewer)}"
        f" {'has' if len(fewer) == 1 else 'have'} more than one replica",
    )


def _lone(topic: TopicInfo) -> CheckResult:
    return CheckResult(
        subject=topic.name,
        message=f"{topic.name} has {topic.replication_factor} replicas and min.insync.replicas 1: acks=all may"
        " mean one copy",
        fix=f"ottla topics set {topic.name} min.insync.replicas=2",
    )


@Check(
    "REP06",
    Severity.ERROR,
    "An out-of-sync replica may become leader",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="With unclean.leader.election.enable a replica that is not in sync becomes leader when no other is left."
    " Records that it does not have are lost, and their offsets are assigned again.",
    fix="ottla topics unset TOPIC unclean.leader.election.enable",
)
def unclean(seen: Evidence) -> Iterator[CheckResult]:
    name = "unclean.leader.election.enable"
    inherited = []
    for topic in seen.facts.topics:
        if not is_true(topic.settings.get(name)):
            continue
        if is_own(topic, name):
            yield CheckResult(
                subject=topic.name,
                message=f"{topic.name} has {name}=true ({topic.settings[name].source}): an"
                " out-of-sync replica may become leader, and newer records are lost",
                fix=f"ottla topics unset {topic.name} {name}",
            )
        else:
            inherited.append(topic.name)
    if inherited:
        yield CheckResult(
            subject=name,
            message=f"{len(inherited)} topics ({some(inherited)}) have the brokers' {name}=true: an out-of-sync replica"
            " may become leader, and newer records are lost",
            fix=f"ottla cluster set all {name}=false",
        )


@Check(
    "REP07",
    Severity.WARNING,
    "Internal topics have fewer replicas than the others",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS, Part.BROKER_SETTINGS},
    why="Kafka stores group offsets and transaction states in topics. With fewer replicas than other topics, groups"
    " and transactions stop when one broker stops, while everything else continues.",
    fix="offsets.topic.replication.factor=3 and transaction.state.log.replication.factor=3 in server.properties, before"
    " the topics are created; ottla topics set-replicas after",
)
def internal_topics(seen: Evidence) -> Iterator[CheckResult]:
    wanted = min(_SAFE, len(seen.facts.brokers))
    if wanted < 2:
        return
    for name, harm in _INTERNAL.items():
        topic = seen.facts.by_topic.get(name)
        if topic is None:
            setting = "offsets.topic" if name == "__consumer_offsets" else "transaction.state.log"
            factors = seen.broker_setting(f"{setting}.replication.factor")
            low = [broker for broker, each in factors.items() if (whole_number(each) or wanted) < wanted]
            if low:
                yield CheckResult(
                    subject=name,
                    message=f"{setting}.replication.factor is below {wanted} on brokers {_list(low)}: when {name} is"
                    f" created, {harm} with one broker",
                )
        elif topic.replication_factor < wanted:
            yield CheckResult(
                subject=name,
                severity=Severity.ERROR if topic.replication_factor == 1 else Severity.WARNING,
                message=f"{name} has {topic.replication_factor} replicas on a cluster of {len(seen.facts.brokers)}"
                f" brokers: {harm} with one broker",
                fix=_COPIES.format(count=wanted, topic=name),
            )


@Check(
    "REP08",
    Severity.WARNING,
    "Replicas share a rack",
    reads={Part.TOPICS},
    why="broker.rack names the rack (or zone) of a broker, and Kafka spreads the replicas of a partition over racks."
    " Kafka does so only for new partitions, and only if all brokers set it.",
    fix="broker.rack in server.properties of every broker; then ottla plan rebalance -o FILE, ottla plan run FILE",
)
def racks(seen: Evidence) -> Iterator[CheckResult]:
    rack_of = {broker.id: broker.rack for broker in seen.facts.brokers}
    named = {rack for rack in rack_of.values() if rack}
    unnamed = [broker for broker, rack in rack_of.items() if not rack]
    if named and unnamed:
        yield CheckResult(
            subject="brokers",
            message=f"brokers {_list(unnamed)} have no broker.rack and others do: Kafka does not spread"
            " replicas over racks",
        )
    if len(named) < 2:
        return
    for topic in seen.facts.topics:
        together = [
            each.partition
            for each in topic.partitions
            if len(each.replicas) > 1 and len({rack_of.get(broker) for broker in each.replicas}) == 1
        ]
        if together:
            yield CheckResult(
                subject=topic.name,
                message=f"{topic.name}: all replicas of partitions {_list(together)} are in one rack:"
                " the loss of that rack loses their data",
            )


def _usual(seen: Evidence) -> tuple[int, list[TopicInfo]]:
    """Return the replication factor that most topics have, and the topics that have another."""
    topics = [topic for topic in seen.facts.topics if not topic.is_internal]
    if not topics:
        return 0, []
    ((usual, _),) = Counter(topic.replication_factor for topic in topics).most_common(1)
    return usual, [topic for topic in topics if topic.replication_factor != usual]


def _list(numbers: list[int], most: int = 5) -> str:
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return ", ".join(map(str, numbers[:most])) + more
