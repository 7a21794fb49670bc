"""Names of topics and partitions; apart from records, for users of metadata alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeVar

from ottla.showing import shown
from ottla_wire.partitions import TopicPartition as TopicPartition

T = TypeVar("T")

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def topic_problem(name: object) -> str | None:
    """Return why a topic name breaks Kafka's rules, or None. A broker's error has no reason."""
    if isinstance(name, str) and _TOPIC_NAME.fullmatch(name) and name not in (".", ".."):
        return None
    return f"topic: found {shown(name, 300)}, wanted a name of 1 to 249 letters, digits, '.', '_' or '-'"


def text_problem(text: str) -> str | None:
    """Return why a text cannot be passed to a C client, or None.

    Text with a lone surrogate (of `json.loads`, of a file name that is no UTF-8) cannot be encoded. A NUL ends a text
    of C: what is behind it would be lost.
    """
    if "\0" in text:
        return "found a NUL character, wanted text without"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return f"found {text[error.start]!r}, a lone surrogate, wanted text that is valid Unicode"
    return None


def by_topic(entries: Iterable[tuple[TopicPartition, T]]) -> dict[str, list[T]]:
    """Return the entries of partitions by topic, in their order: requests of Kafka name a topic once."""
    topics: dict[str, list[T]] = {}
    for place, entry in entries:
        topics.setdefault(place.topic, []).append(entry)
    return topics


def named_topics(entries: Iterable[tuple[TopicPartition, object]]) -> list[dict[str, object]]:
    """Return the topics of a request, each with the entries of its partitions."""
    return [{"name": name, "partitions": each} for name, each in by_topic(entries).items()]
