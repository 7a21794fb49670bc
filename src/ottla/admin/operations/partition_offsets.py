"""Offsets of partitions, asked of their leaders."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from ottla.admin.facts.admin_operation import AdminOperation, AdminRequest, problem_of, reading, until
from ottla.admin.facts.facts_reader import offsets_ask
from ottla.admin.facts.protocol_names import LATEST
from ottla.errors import OttlaError, RetriableError, UnknownTopic
from ottla.topics import TopicPartition
from ottla.wire_client.errors import PartitionUnavailable
from ottla.wire_client.fetching.position_lookup import parse_position_to_change
from ottla_wire.protocol import ApiKey, ErrorCode

T = TypeVar("T")


def partitions_of(topics: Collection[str]) -> AdminOperation[dict[str, dict[int, int]]]:
    """Return the leader of each partition (-1 while there is none) of these topics. UnknownTopic where one does not
    exist."""
    found = yield from existing_partitions(topics)
    for name in topics:
        if name not in found:
            raise UnknownTopic(f"{name}: the cluster has no such topic")
    return found


def existing_partitions(
    topics: Collection[str], *, unseen: set[str] | None = None
) -> AdminOperation[dict[str, dict[int, int]]]:
    """Return `partitions_of` without topics that do not exist. `unseen` gets the topics that may not be described,
    which are an error without it."""
    body = {"topics": [{"name": name} for name in dict.fromkeys(topics)], "allow_auto_topic_creation": False}
    answer = yield from reading(AdminRequest(api=ApiKey.METADATA, body=body))
    found: dict[str, dict[int, int]] = {}
    for topic in answer.topics:
        problem = problem_of(f"topic {topic.name}", topic.error_code)
        if topic.partitions:
            found[topic.name] = {each.partition_index: each.leader_id for each in topic.partitions}
        elif topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            continue
        elif unseen is not None and topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            unseen.add(topic.name)
        elif problem is not None and not isinstance(problem, RetriableError):
            raise problem
    return found


def list_offsets(
    wanted: Mapping[TopicPartition, int], *, stable: bool = False
) -> AdminOperation[dict[TopicPartition, int]]:
    """Return the offset of EARLIEST, LATEST (`stable`: the last stable offset) or a time in milliseconds in each
    partition.

    -1 where no record is that young. Waits for leaders.
    """
    return (
        yield from ask_leaders(
            wanted,
            lambda broker, places: offsets_ask(broker, {each: wanted[each] for each in places}, stable=stable),
            lambda answer: (
                (TopicPartition(topic.name, each.partition_index), each.error_code, each.offset)
                for topic in answer.topics
                for each in topic.partitions
            ),
            what="offsets of",
        )
    )


def ask_leaders(
    places: Iterable[TopicPartition],
    ask: Callable[[int, list[TopicPartition]], AdminRequest],
    read: Callable[[Any], Iterable[tuple[TopicPartition, int, T]]],
    *,
    what: str,
    passing: Collection[ErrorCode] = (),
) -> AdminOperation[dict[TopicPartition, T]]:
    """Ask the leader of each partition, and again where it has moved. For what may be asked twice.

    `passing` are further codes that a later try may not meet.
    """
    wanted = dict.fromkeys(places)
    found: dict[TopicPartition, T] = {}

    def attempt() -> AdminOperation[dict[TopicPartition, T] | RetriableError]:
        left = [place for place in wanted if place not in found]
        if not left:
            return found
        leaders = yield from partitions_of([place.topic for place in left])
        by_leader: dict[int, list[TopicPartition]] = {}
        later: RetriableError | None = None
        for place in left:
            leader = leaders[place.topic].get(place.partition)
            if leader is None:
                raise UnknownTopic(
                    f"{place}: the topic has {len(leaders[place.topic])} partitions, and no such partition"
                )
            if leader < 0:
                later = PartitionUnavailable(f"{place} has no leader")
            else:
                by_leader.setdefault(leader, []).append(place)
        answers = yield [ask(leader, group) for leader, group in by_leader.items()]
        for group, answer in zip(by_leader.values(), answers, strict=True):
            if isinstance(answer, RetriableError):
                others = f" and {len(group) - 1} more" if len(group) > 1 else ""
                later = type(answer)(f"{what} {group[0]}{others}: {answer}")
                continue
            if isinstance(answer, OttlaError):
                raise answer
            for place, code, value in read(answer):
                if place not in wanted:
                    continue
                problem = problem_of(f"{what} {place}", code)
                is_passing = (
                    code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or code in passing
                )  # the broker does not know it yet
                if is_passing or isinstance(problem, RetriableError):
                    later = PartitionUnavailable(str(problem))
                elif problem is not None:
                    raise problem
                else:
                    found[place] = value
        if all(place in found for place in wanted):
            return found
        return later or PartitionUnavailable(f"{what} {left[0]}: missing in the response of its leader")

    return (yield from until(attempt))


def offsets_at(
    places: Collection[TopicPartition], position: str | dt.datetime, *, now_ms: int
) -> AdminOperation[dict[TopicPartition, int]]:
    """Return the offset of `earliest`, `latest` or a time in each partition. A time that no record has reached is the
    end.

    InputError for a time before 1970: what stands before this position is deleted or skipped.
    """
    timestamp = parse_position_to_change(position, now_ms=now_ms)
    found = yield from list_offsets(dict.fromkeys(places, timestamp))
    late = [place for place, offset in found.items() if offset < 0]
    if late:
        found |= yield from list_offsets(dict.fromkeys(late, LATEST))
    return found
