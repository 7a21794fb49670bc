"""Waits, before a service starts, until the cluster has the topics it reads. The rule is `config.topic_presence`."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from ottla.config.topic_presence import TOPICS_LONGEST_S, TopicWait
from ottla.retrying import try_again
from ottla.stepping import run
from ottla.sync.client.client_errors import is_unknown_topic
from ottla.sync.client.reachable import metadata_of

_ANSWER_S: Final = 10.0
_SOON_S: Final = 1.0
_REFUSALS: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)

_THERE: Final = "there"
_MISSING: Final = "missing"
_REFUSED: Final = "refused"


def await_topics(client: Any, wait: TopicWait) -> dict[str, int]:
    """Return how many partitions each topic has, once all are there, as `client`, a consumer, sees them. Raises
    `UnknownTopic`.

    Each is asked for by name: a list of all takes seconds where there are many, and leaves out those that this client
    may not see. With allow.auto.create.topics=true the question creates it. Raises `ConfigError` for a topic that may
    not be seen.
    """

    def attempt() -> dict[str, int]:
        found = {name: _look(client, name) for name in wait.topics}
        if any(state == _REFUSED for state, _ in found.values()):
            raise wait.refusal()
        existing = {name for name, (state, _) in found.items() if state == _THERE}
        run(wait.checking(existing, time.monotonic(), partial(all_topics, client)))
        return {name: count for name, (_, count) in found.items()}

    return try_again(attempt, what="topics", longest_s=TOPICS_LONGEST_S, until_s=wait.until_s)


def _look(client: Any, name: str) -> tuple[str, int]:
    try:
        topic = metadata_of(client, _ANSWER_S, name).topics[name]
    except KafkaException as error:
        return _REFUSED if error.args[0].code() in _REFUSALS else _MISSING, 0  # anything else is asked again
    if topic.error is not None and topic.error.code() in _REFUSALS:
        return _REFUSED, 0
    count = len(topic.partitions)
    return _THERE if topic.error is None and count else _MISSING, count


def has_topic(client: Any, name: str) -> bool | None:
    """Return whether the cluster has a topic; None when it does not say so soon."""
    try:
        topic = client.list_topics(name, timeout=_SOON_S).topics[name]
    except KafkaException:
        return None
    if topic.error is None:
        return bool(topic.partitions)
    return False if is_unknown_topic(topic.error) else None


def all_topics(client: Any) -> set[str]:
    """Return the names of all topics that this client may see; empty if no broker responds."""
    try:
        return set(metadata_of(client, _ANSWER_S).topics)
    except KafkaException:
        return set()
