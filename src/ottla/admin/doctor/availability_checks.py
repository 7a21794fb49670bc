"""AVL: what cannot be read or written now, or with the next broker that stops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.admin.doctor.check_registry import Check, CheckResult
from ottla.admin.doctor.finding import Evidence, Severity, some
from ottla.admin.facts.cluster_facts import Part

_QUORUM = 3
_FEW = 3
"""Partitions of one cause that are named one by one."""


@Check(
    "AVL01",
    Severity.ERROR,
    "A partition has no leader",
    reads={Part.TOPICS},
    why="Nobody can read or write it. It waits for a replica that was in sync when the last leader stopped: other"
    " replicas may have fewer records.",
    fix="start the broker that it waits for",
)
def no_leader(seen: Evidence) -> Iterator[CheckResult]:
    alive = {broker.id for broker in seen.live}
    waiting: dict[tuple[int, ...], list[str]] = {}
    for topic in seen.facts.topics:
        for each in topic.partitions:
            if each.leader is None:
                waiting.setdefault(tuple(sorted(each.in_sync)), []).append(f"{topic.name}-{each.partition}")
    for brokers, places in waiting.items():
        listed = ", ".join(f"broker {broker} ({'alive' if broker in alive else 'away'})" for broker in brokers)
        for subject, what, is_one in _by_cause(places, brokers):
            yield CheckResult(
                subject=subject,
                message=f"{what} {'has' if is_one else 'have'} no leader and {'waits' if is_one else 'wait'} for"
                f" {listed or 'a replica in sync'}",
            )


@Check(
    "AVL02",
    Severity.ERROR,
    "Too few replicas are in sync",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="Below min.insync.replicas every write with acks=all is refused. Above it, a follower that stays out of sync"
    " cannot take over without losing records.",
    fix="look at the brokers that lag: their logs, disks and network",
    covered_by=["AVL03", "AVL05", "AVL06"],
)
def out_of_sync(seen: Evidence) -> Iterator[CheckResult]:
    refused: dict[tuple[tuple[int, ...], int, int], list[str]] = {}
    behind: dict[tuple[tuple[int, ...], int, int], list[str]] = {}
    for topic in seen.facts.topics:
        least = topic.number("min.insync.replicas")
        for each in topic.partitions:
            if each.leader is None or len(each.in_sync) >= len(each.replicas):
                continue
            missing = tuple(sorted(broker for broker in each.replicas if broker not in each.in_sync))
            place = f"{topic.name}-{each.partition}"
            if least is not None and len(each.in_sync) < least:
                refused.setdefault((missing, len(each.in_sync), least), []).append(place)
            elif _was_behind(seen, topic.name, each.partition):
                behind.setdefault((missing, len(each.in_sync), len(each.replicas)), []).append(place)
    for (missing, in_sync, least), places in refused.items():
        for subject, what, is_one in _by_cause(places, missing):
            yield CheckResult(
                subject=subject,
                message=f"{what} {'has' if is_one else 'have'} {in_sync} replicas in sync and"
                f" min.insync.replicas {least}: acks=all writes are refused until brokers {_numbers(missing)} catch up",
                cause="refused writes",
            )
    for (missing, in_sync, copies), places in behind.items():
        for subject, what, _ in _by_cause(places, missing):
            yield CheckResult(
                subject=subject,
                severity=Severity.WARNING,
                message=f"{what}: brokers {_numbers(missing)} stay out of sync, {in_sync} of {copies} copies are left",
                cause=f"broker {_numbers(missing)}",
            )


def _by_cause(places: Sequence[str], brokers: Sequence[int]) -> Iterator[tuple[str, str, bool]]:
    """Yield (subject, what it is about, whether that is one partition): a few partitions one by one, many as one
    cause."""
    if len(places) <= _FEW:
        yield from ((place, place, True) for place in places)
    else:
        subject = f"broker{'s' if len(brokers) > 1 else ''} {_numbers(brokers)}" if brokers else "partitions"
        yield subject, f"{len(places):,} partitions ({some(places)})", False


def _numbers(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def _was_behind(seen: Evidence, topic: str, partition: int) -> bool:
    """Return whether it was behind in every earlier sample: a follower that restarts is behind for a moment."""
    for facts in seen.earlier:
        before = facts.by_topic.get(topic)
        found = next((each for each in before.partitions if each.partition == partition), None) if before else None
        if found is None or len(found.in_sync) >= len(found.replicas):
            return False
    return bool(seen.earlier)


@Check(
    "AVL03",
    Severity.ERROR,
    "A log directory is offline",
    reads={Part.LOG_DIRS},
    why="The broker got a disk error and took the directory offline. Its replicas are offline until the disk is"
    " repaired and the broker restarted.",
    fix="replace the disk and restart the broker",
)
def offline_dirs(seen: Evidence) -> Iterator[CheckResult]:
    for broker in seen.live:
        for log_dir in broker.log_dirs or ():
            if log_dir.error is not None:
                offline = sum(broker.id in each.offline for topic in seen.facts.topics for each in topic.partitions)
                yield CheckResult(
                    subject=f"broker {broker.id}: {log_dir.path}",
                    cause=f"broker {broker.id}",
                    message=f"broker {broker.id} took {log_dir.path} offline ({log_dir.error}); {offline} replicas of"
                    " it"
                    " are offline",
                )


@Check(
    "AVL04",
    Severity.ERROR,
    "The last replica in sync has lost its log",
    reads={Part.TOPICS, Part.LOG_DIRS},
    why="A broker restarted with an empty directory, and the metadata still lists it as the last replica in sync. If"
    " it becomes leader, the other replicas truncate their logs to match its empty log (KAFKA-3410).",
    fix="put the old log directory back before anything else is done to this partition",
)
def empty_leader(seen: Evidence) -> Iterator[CheckResult]:
    have = {(broker.id, replica.topic, replica.partition) for broker, _, replica in seen.facts.replicas()}
    read = {broker.id for broker in seen.live if broker.log_dirs is not None}
    lost: dict[int, list[str]] = {}
    for topic in seen.facts.topics:
        for each in topic.partitions:
            if len(each.in_sync) != 1 or len(each.replicas) < 2:
                continue
            (last,) = each.in_sync
            if last in read and (last, topic.name, each.partition) not in have:
                lost.setdefault(last, []).append(f"{topic.name}-{each.partition}")
    for last, places in lost.items():
        for subject, what, _ in _by_cause(places, [last]):
            yield CheckResult(
                subject=subject,
                message=f"{what}: broker {last} is the last in sync, is alive, and has no copy: it would lead with"
                " an empty log",
            )


@Check(
    "AVL05",
    Severity.ERROR,
    "Replicas are on brokers that do not exist",
    reads={Part.TOPICS},
    why="A partition keeps the ids of its brokers. A broker that restarts with another id counts as a new broker. For"
    " a removed one, the partition waits for ever.",
    fix="start the broker with its old node.id, or ottla plan remove-brokers OLD_ID -o FILE, then ottla plan run FILE",
)
def unknown_brokers(seen: Evidence) -> Iterator[CheckResult]:
    found: dict[int, list[str]] = {}
    for topic in seen.facts.topics:
        for each in topic.partitions:
            for broker in each.replicas:
                if broker not in seen.facts.broker_ids:
                    found.setdefault(broker, []).append(f"{topic.name}-{each.partition}")
    for broker, places in sorted(found.items()):
        yield CheckResult(
            subject=f"broker {broker}",
            message=f"{len(places)} replicas ({places[0]}, ...) are on broker {broker}, which is not registered: it is"
            " gone, or came back with another id",
        )


@Check(
    "AVL06",
    Severity.ERROR,
    "Clients are sent to an address that does not work",
    reads={Part.REACHED},
    why="A client asks one broker for the cluster's metadata, then connects to the advertised addresses in it. An"
    " address such as localhost works only on the broker's own machine.",
    fix="advertised.listeners in server.properties of that broker: an address that clients can reach",
)
def wrong_address(seen: Evidence) -> Iterator[CheckResult]:
    for broker in seen.live:
        place = f"{broker.host}:{broker.port}"
        if broker.unreachable is not None:
            yield CheckResult(
                subject=f"broker {broker.id}",
                message=f"clients of broker {broker.id} are sent to {place}: {broker.unreachable}",
            )
        elif broker.answers_as is not None and broker.answers_as != seen.facts.cluster_id:
            yield CheckResult(
                subject=f"broker {broker.id}",
                message=f"clients of broker {broker.id} are sent to {place}, where cluster {broker.answers_as!r}"
                " answers"
                f" and not {seen.facts.cluster_id!r}",
            )


@Check(
    "AVL07",
    Severity.WARNING,
    "The metadata quorum is weak",
    reads={Part.QUORUM, Part.FEATURES},
    why="Controllers elect a leader by majority: three of them survive the loss of one, and four do not survive more."
    " A voter that lags cannot take over. Features stay off until they are finalized.",
    fix="three or five controllers; kafka-features upgrade when all brokers run the new version",
)
def quorum(seen: Evidence) -> Iterator[CheckResult]:
    facts = seen.facts
    if facts.quorum is not None:
        voters, nodes = facts.quorum.voters, {node.node_id for node in facts.quorum.nodes}
        if len(nodes) >= _QUORUM and (len(voters) < _QUORUM or len(voters) % 2 == 0):
            yield CheckResult(
                subject="quorum",
                message=f"{len(voters)} voters on {len(nodes)} nodes survive the loss of"
                f" {max(0, (len(voters) - 1) // 2)}",
            )
        for voter in voters:
            behind = facts.quorum.high_watermark - voter.log_end_offset
            if behind > seen.limits.voter_lag:
                yield CheckResult(
                    subject=f"voter {voter.node_id}",
                    message=f"voter {voter.node_id} is {behind:,} records behind the metadata log",
                )
    for name, level in sorted(facts.finalized_features.items()):
        highest = min((broker.features[name][1] for broker in seen.live if name in broker.features), default=level)
        if level < highest:
            yield CheckResult(
                subject=name,
                severity=Severity.NOTE,
                message=f"{name} is finalized at {level}, and all brokers support {highest}",
                fix=f"kafka-features upgrade --feature {name}={highest}",
            )
