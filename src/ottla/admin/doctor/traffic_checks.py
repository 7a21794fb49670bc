"""MSG, TXN, DLQ, QUO, SEC: sizes that disagree, transactions that hold readers, dead letters, quotas, and rights."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ottla.admin.doctor.check_registry import Check, CheckResult
from ottla.admin.doctor.finding import Evidence, Severity, format_duration
from ottla.admin.doctor.origins import merge_inherited
from ottla.admin.facts.cluster_facts import Part, TopicInfo, whole_number
from ottla.admin.facts.facts_reader import is_dead_letter_name

_BATCH_OVERHEAD = 12
"""Difference of message.max.bytes and replica.fetch.max.bytes in Kafka's defaults."""

_LEAST_QUOTAS = {
    "producer_byte_rate": 10_240.0,
    "consumer_byte_rate": 10_240.0,
    "request_percentage": 1.0,
    "controller_mutation_rate": 0.1,
    "connection_creation_rate": 0.1,
}
"""Bytes a second, percent of a thread, partitions a second, connections a second."""

_FETCH_MORE = "replica.fetch.max.bytes in server.properties of every broker, at least the largest max.message.bytes"

_ENDINGS = ("dead-letters", "dead-letter", "dead_letters", "dead_letter", "deadletters", "dlq", "dlt")


@Check(
    "MSG01",
    Severity.ERROR,
    "Size limits of records differ",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS, Part.BROKER_SETTINGS},
    why="The broker's limit, the followers' fetch size and the topic's limit are three settings. If brokers have"
    " different values, the current leader decides whether a record is accepted.",
    fix="ottla cluster set all message.max.bytes=BYTES",
)
def sizes(seen: Evidence) -> Iterator[CheckResult]:
    settings = seen.broker_setting("message.max.bytes")
    limits = {broker: whole_number(each) for broker, each in settings.items()}
    if len(set(limits.values())) > 1:
        listed = ", ".join(f"{limit} on broker {broker}" for broker, limit in sorted(limits.items()))
        own = [broker for broker, each in sorted(settings.items()) if each.source == "DYNAMIC_BROKER_CONFIG"]
        yield CheckResult(
            subject="brokers",
            message=f"message.max.bytes is {listed}: the leader of a partition decides what is accepted",
            fix=f"ottla cluster unset {own[0]} message.max.bytes"  # what one broker has of its own wins over all
            if own
            else f"ottla cluster set all message.max.bytes={max(each or 0 for each in limits.values())}",
        )
    fetched = [whole_number(each) for each in seen.broker_setting("replica.fetch.max.bytes").values()]
    least = min((each for each in fetched if each is not None), default=None)
    larger = []
    for topic in seen.facts.topics:
        limit = topic.number("max.message.bytes")
        is_copied = topic.replication_factor > 1
        if least is not None and limit is not None and limit > least + _BATCH_OVERHEAD and is_copied:
            much = CheckResult(
                subject=topic.name,
                severity=Severity.WARNING,
                message=f"{topic.name} allows batches of {limit:,} bytes (max.message.bytes) and followers fetch"
                f" {least:,} of a partition (replica.fetch.max.bytes): a larger batch is fetched alone",
                fix=_FETCH_MORE,
            )
            larger.append((topic, much))
    for each in merge_inherited(larger, "max.message.bytes", ""):
        yield replace(each, fix=_FETCH_MORE)


@Check(
    "MSG02",
    Severity.WARNING,
    "Dead letters are larger than their topic allows",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="A dead letter contains the record and the error, so it is larger than the record. A dead letter that does not"
    " fit stops its partition.",
    fix="ottla topics set DEAD-LETTER-TOPIC max.message.bytes=BYTES",
)
def letters_fit(seen: Evidence) -> Iterator[CheckResult]:
    for letters, origin in origins(seen).items():
        allowed, needed = _number(seen, letters, "max.message.bytes"), _number(seen, origin, "max.message.bytes")
        if allowed is not None and needed is not None and allowed < needed:
            yield CheckResult(
                subject=letters,
                message=f"{letters} allows {allowed:,} bytes and {origin} {needed:,}: the largest records cannot be"
                " dead-lettered",
                fix=f"ottla topics set {letters} max.message.bytes={needed + 65_536}",
            )


@Check(
    "TXN01",
    Severity.WARNING,
    "A transaction is open for too long",
    reads={Part.TRANSACTIONS, Part.OFFSETS},
    why="Readers with isolation.level=read_committed wait at the first record of the oldest open transaction of a"
    " partition, even if later ones are committed.",
    fix="stop the producer of that transactional id, or abort with kafka-transactions if it is gone",
)
def open_transactions(seen: Evidence) -> Iterator[CheckResult]:
    for each in seen.facts.transactions:
        if each.started_ms is None:
            continue
        age_ms = seen.facts.at_ms - each.started_ms
        if age_ms <= min(each.timeout_ms, seen.limits.transaction_ms):
            continue
        held = []
        for place in each.partitions:
            fact = seen.facts.by_partition.get(place)
            if fact is not None and fact.last_stable_offset is not None:
                held.append(f"{place} at {fact.last_stable_offset}")
        readers = f": readers of {', '.join(held[:3])} wait" if held else ""
        yield CheckResult(
            subject=each.transactional_id,
            message=f"transaction {each.transactional_id!r} ({each.state}) is open for {format_duration(age_ms)}, its"
            " timeout is"
            f" {format_duration(each.timeout_ms)}{readers}",
        )


@Check(
    "DLQ01",
    Severity.WARNING,
    "Dead letters arrived in the last hour",
    reads={Part.LAST_HOUR},
    why="Each of these records failed and waits for a decision. The doctor recognizes dead letter topics by their"
    " names.",
    fix="ottla dlq list TOPIC",
)
def fresh_letters(seen: Evidence) -> Iterator[CheckResult]:
    for topic in seen.facts.topics:
        fresh = sum(
            max(0, each.high_watermark - each.hour_ago_offset)
            for each in topic.partitions
            if each.high_watermark is not None and each.hour_ago_offset is not None
        )
        if fresh:
            yield CheckResult(
                subject=topic.name,
                message=f"{topic.name} has {fresh:,} dead letters of the last hour",
                fix=f"ottla dlq list {topic.name}",
            )


@Check(
    "DLQ02",
    Severity.WARNING,
    "Dead letters are kept no longer than records",
    reads={Part.TOPICS, Part.TOPIC_SETTINGS},
    why="People look at dead letters days later. With the retention of the origin topic, a dead letter may be deleted"
    " before that.",
    fix="ottla topics set DEAD-LETTER-TOPIC retention.ms=2592000000",
)
def letters_kept(seen: Evidence) -> Iterator[CheckResult]:
    for letters, origin in origins(seen).items():
        kept, needed = _number(seen, letters, "retention.ms"), _number(seen, origin, "retention.ms")
        if kept is not None and needed is not None and kept >= 0 and (needed < 0 or kept <= needed):
            longer = "for ever" if needed < 0 else f"for {format_duration(needed)}"
            yield CheckResult(
                subject=letters,
                message=f"{letters} keeps letters for {format_duration(kept)} and {origin} its records {longer}:"
                " dead letters may be deleted before people look at them",
                fix=f"ottla topics set {letters} retention.ms={-1 if needed < 0 else max(needed * 4, 2_592_000_000)}",
            )


@Check(
    "QUO01",
    Severity.WARNING,
    "A quota is close to nothing",
    reads={Part.QUOTAS},
    why="A client above its quota is throttled: its requests are answered late, up to a window of the quota each time."
    " A quota in another unit than was meant (kilobytes for bytes) stops its clients, and looks like a slow cluster.",
    fix="ottla quotas set NAME=VALUE, or ottla quotas remove",
)
def tiny_quotas(seen: Evidence) -> Iterator[CheckResult]:
    for quota in seen.facts.quotas or ():
        least = _LEAST_QUOTAS.get(quota.name)
        if least is not None and quota.value < least:
            entity = sorted(quota.entity.items())
            whose = ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)
            options = " ".join(
                f"--{kind.removesuffix('-id')}-defaults" if name is None else f"--{kind} {shlex.quote(name)}"
                for kind, name in entity
            )
            yield CheckResult(
                subject=f"{whose}: {quota.name}",
                message=f"{whose} has {quota.name}={quota.value:g}: clients that use it stand nearly still",
                fix=f"ottla quotas remove {quota.name} {options}",
            )


@Check(
    "SEC01",
    Severity.NOTE,
    "Every client may do everything",
    reads={Part.BROKER_SETTINGS, Part.ACLS},
    why="Without an authorizer every client that reaches a broker may delete topics. An ACL for User:* on everything"
    " has the same effect.",
    fix="authorizer.class.name in server.properties, then ottla acls create",
)
def open_doors(seen: Evidence) -> Iterator[CheckResult]:
    without = [broker for broker, each in seen.broker_setting("authorizer.class.name").items() if not each.value]
    if without:
        yield CheckResult(
            subject="brokers", message=f"{len(without)} brokers have no authorizer: every client may do everything"
        )
    for acl in seen.facts.acls or ():
        is_all = acl.operation == "all" and acl.permission == "allow" and acl.name in ("*", "kafka-cluster")
        if is_all and acl.principal == "User:*":
            yield CheckResult(
                subject=f"{acl.resource} {acl.name}",
                message=f"an ACL allows User:* everything on {acl.resource} {acl.name}",
                fix=f"ottla acls delete --{acl.resource} '{acl.name}' --allow-principal 'User:*'",
            )


def origins(seen: Evidence) -> Mapping[str, str]:
    """Return dead letter topic → the topic its records come from, as a service declares it, or else by their names."""
    found: dict[str, str] = {}
    for topic in seen.facts.topics:
        if is_dead_letter_name(topic.name):
            ending = next((each for each in _ENDINGS if topic.name.lower().endswith(each)), None)
            origin = topic.name[: -len(ending)].rstrip(".-_") if ending is not None else ""
            if origin in seen.facts.by_topic:
                found[topic.name] = origin
    for used in seen.app.topics if seen.app is not None else ():
        if used.use == "dead letters" and {used.topic, used.of} <= seen.facts.by_topic.keys():
            found[used.topic] = used.of
    return found


def _number(seen: Evidence, topic: str, setting: str) -> int | None:
    fact: TopicInfo | None = seen.facts.by_topic.get(topic)
    return None if fact is None else fact.number(setting)
