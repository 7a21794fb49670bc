"""Offsets as Spark stores them: JSON of topics and partitions, always in the same order.

Spark compares offsets as text, so equal offsets must give equal JSON: topics by name, partitions by number. The format
is that of Spark's own Kafka connector, `{"orders": {"0": 17, "1": 4}}`, and beside it, under names no topic can have:

- the ids of the topics: a topic that was deleted and created anew has the same name and another id (KIP-516);
- the number of tasks of the micro-batch that ends there. A batch that is repeated after a restart is divided as before,
  whatever the parallelism is then: the exactly-once sink has one transaction for each task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from ottla.errors import ConfigError
from ottla.records import TopicPartition
from ottla.showing import shown

Offsets: TypeAlias = dict[TopicPartition, int]

TOPIC_IDS = "@topic-ids"
TASKS = "@tasks"


def to_json_dict(
    offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None, *, tasks: int | None = None
) -> dict[str, Any]:
    """Return Spark's form for its offset log. `tasks` is the number of tasks of the batch that ends at `offsets`."""
    body: dict[str, Any] = {}
    for partition in sorted(offsets):
        body.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    if topic_ids:
        body[TOPIC_IDS] = {name: topic_ids[name] for name in sorted(topic_ids)}
    if tasks is not None:
        body[TASKS] = tasks
    return body


def from_json_dict(body: Mapping[str, Any] | None) -> tuple[Offsets, dict[str, str]]:
    """Return (offsets, topic ids) of what `to_json_dict` wrote, or Spark's own connector."""
    offsets: Offsets = {}
    for topic, partitions in (body or {}).items():
        if topic not in (TOPIC_IDS, TASKS):
            offsets.update({TopicPartition(topic, int(number)): int(value) for number, value in partitions.items()})
    ids = dict((body or {}).get(TOPIC_IDS, {}))
    return offsets, ids


def tasks_of(body: Mapping[str, Any]) -> int | None:
    """Return the number of tasks of the batch that ends there; None where it was not kept."""
    found = body.get(TASKS)
    return found if _is_whole(found, 1, _INT_MAX) else None


def parse_offsets_option(name: str, text: str) -> Offsets:
    """Return the offset of each partition in the JSON of `startingOffsets` or `endingOffsets`; -1 is the end and -2 the
    beginning. Raises `ConfigError` for anything else."""
    return _numbers_by_partition(name, text, least=-2, wanted="an offset, -1 (latest) or -2 (earliest)")


def parse_timestamps_option(name: str, text: str) -> Offsets:
    """Return what the JSON of a ByTimestamp option says: milliseconds since 1970 for each partition."""
    return _numbers_by_partition(name, text, least=0, wanted="milliseconds since 1970")


def parse_assign_option(text: str) -> list[TopicPartition]:
    """Return the partitions that the JSON of `assign` names, in order. Raises `ConfigError` for one named twice."""
    example = 'JSON like {"topic": [0, 1]}'
    body = _topics("assign", text, example)
    found: list[TopicPartition] = []
    for topic, numbers in body.items():
        if not isinstance(numbers, list) or not numbers or not all(_is_whole(n, 0, _INT_MAX) for n in numbers):
            raise ConfigError(f"assign: found {shown(numbers, _SHOWN)} for {topic}, wanted {example}")
        found += [TopicPartition(topic, number) for number in numbers]
    twice = sorted({str(p) for p in found if found.count(p) > 1}) if len(set(found)) != len(found) else []
    if twice:
        raise ConfigError(f"assign: found {', '.join(twice)} twice, wanted each partition once")
    return sorted(found)


_SHOWN = 200
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


def _numbers_by_partition(name: str, text: str, *, least: int, wanted: str) -> Offsets:
    example = 'JSON like {"topic": {"0": 23, "1": -2}}' if least < 0 else 'JSON like {"topic": {"0": 1767225600000}}'
    found: Offsets = {}
    for topic, partitions in _topics(name, text, example).items():
        if not isinstance(partitions, dict):
            raise ConfigError(f"{name}: found {shown(partitions, _SHOWN)} for {topic}, wanted {example}")
        for number, value in partitions.items():
            is_number = number.isascii() and number.isdecimal() and str(int(number[:10])) == number
            if not is_number or int(number) > _INT_MAX:
                raise ConfigError(f"{name}: found {shown(number, _SHOWN)} as a partition of {topic}, wanted {example}")
            if not _is_whole(value, least, _LONG_MAX):
                raise ConfigError(f"{name}: found {shown(value, _SHOWN)} for {topic}-{number}, wanted {wanted}")
            found[TopicPartition(topic, int(number))] = value
    return found


def _topics(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        body = json.loads(text, object_pairs_hook=_once)
    except KeyError as error:
        raise ConfigError(f"{name}: found {shown(error.args[0], _SHOWN)} twice in one object, wanted it once") from None
    except (ValueError, TypeError, RecursionError):
        body = None
    if not isinstance(body, dict) or not body:
        raise ConfigError(f"{name}: found {shown(text, _SHOWN)}, wanted {example}")
    return body


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise KeyError(name)
        found[name] = value
    return found


def _is_whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
