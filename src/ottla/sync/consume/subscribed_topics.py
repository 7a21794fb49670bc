"""Waits, before a service starts, until the cluster has the topics it reads. The rule is `config.topic_presence`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from ottla.config import Asking
from ottla.config.topic_presence import TopicWait
from ottla.sync.client.reachable import metadata_of
from ottla.telemetry import log_event

_ANSWER_S = 10.0
_REFUSED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def await_topics(
    client: Any, wait: TopicWait, *, asking: Asking, servers: str, should_give_up: Callable[[], bool] = lambda: False
) -> Any:
    """Return what the cluster says to `client`, a consumer, once all topics are there. Raises `UnknownTopic`.

    Each missing topic is asked for by name as well: a list of all leaves out those that this client may not see, and
    with allow.auto.create.topics=true the question creates it. Raises `ConfigError` for a topic that may not be seen.
    """
    while True:
        found = metadata_of(client, _ANSWER_S)
        existing = {name for name, topic in found.topics.items() if topic.error is None and topic.partitions}
        for name in wait.missing(existing):
            if _is_refused(client, name):
                raise asking.refused("TOPIC_AUTHORIZATION_FAILED", "it may not even be described", servers=servers)
        again = wait.after(existing, time.monotonic(), gives_up=should_give_up())
        if again is None:
            return found
        if again.warning is not None:
            log_event("topics_awaited", "warning", again.warning)
        time.sleep(again.in_s)


def _is_refused(client: Any, name: str) -> bool:
    try:
        topic = client.list_topics(name, timeout=_ANSWER_S).topics.get(name)
    except KafkaException as error:
        return error.args[0].code() in _REFUSED  # anything else is asked again
    return topic is not None and topic.error is not None and topic.error.code() in _REFUSED
