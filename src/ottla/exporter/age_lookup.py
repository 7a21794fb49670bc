"""Asks brokers which offsets were written first after a moment, for records that are older than the history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.admin.facts.admin_operation import AdminOperation
from ottla.admin.facts.cluster_facts import ClusterFacts
from ottla.admin.facts.facts_reader import offsets_ask
from ottla.admin.facts.lag import GroupLag
from ottla.browse.group_items import lagging
from ottla.errors import OttlaError
from ottla.exporter.offset_history import OffsetHistory
from ottla.topics import TopicPartition

MOST_QUESTIONS: Final = 2_000
"""In one reading: each costs a leader a search in an index. Other partitions have their turn later."""
_ROUNDS: Final = 6


def look_up_ages(history: OffsetHistory, groups: Iterable[GroupLag], facts: ClusterFacts) -> AdminOperation[None]:
    """Ask until the history knows how old the first uncommitted records are, or it was asked for enough. Errors are
    left out: the next reading asks again."""
    behind: dict[TopicPartition, list[int]] = {}
    for topic, partition, offset in lagging(groups):
        behind.setdefault(TopicPartition(topic, partition), []).append(offset)
    left = MOST_QUESTIONS
    for _ in range(_ROUNDS):
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for place, offsets in behind.items():
            info = facts.by_partition.get(place)
            moments = (history.moment_to_ask(place, offset) for offset in offsets)
            moment = next((each for each in moments if each is not None), None)
            if moment is not None and left > 0 and info is not None and info.leader is not None:
                by_leader.setdefault(info.leader, {})[place] = moment
                left -= 1
        if not by_leader:
            break
        answers = yield [offsets_ask(broker, asked) for broker, asked in by_leader.items()]
        for asked, answer in zip(by_leader.values(), answers, strict=True):
            if isinstance(answer, OttlaError):
                continue
            for topic_answer in answer.topics:
                for each in topic_answer.partitions:
                    place = TopicPartition(topic_answer.name, each.partition_index)
                    if place in asked and not each.error_code:
                        history.take_answer(place, asked[place], each.offset)
    history.forget_answers({place: min(offsets) for place, offsets in behind.items()})
