"""Whether topics are there and may be written, asked before anything is written to them (KIP-430).

Both shells ask so before a service starts: a dead letter topic that is missing would show itself at the first bad
record only, and stop its partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from ottla.config import Principal, principal_of
from ottla.config.topic_presence import TOPICS_LONGEST_S, TopicWait
from ottla.errors import ConfigError, RetriableError, UnknownTopic
from ottla.retrying import try_again
from ottla.telemetry import log_event
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import Cluster
from ottla_wire.protocol import ApiKey, ErrorCode

_WRITE: Final = 1 << 4
"""The bit of WRITE in a resource's authorized operations."""

_NOT_TOLD: Final = -(1 << 31)

_UNCHECKED: Final = "dead_letter_topics_unchecked"


def await_writable(
    settings: Mapping[str, Any],
    wait: TopicWait,
    *,
    what: str = "dead letter",
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return once all topics of `wait` are there. `settings` are those of the producer that will write to them, `what`
    it writes.

    A topic that is missing is not created, unless the settings say so (allow.auto.create.topics). Raises `UnknownTopic`
    when one is missing in the end, and `ConfigError` when one may not be written. What cannot be asked now is left for
    later: a broker that is away must not keep a service from starting.
    """
    servers = str(settings.get("bootstrap.servers", ""))
    creates = bool(settings.get("allow.auto.create.topics", False))
    try:
        cluster = Cluster(connection_settings(settings))
    except ConfigError as error:  # a way to log in that only the full clients have
        log_event(_UNCHECKED, "warning", {"topics": wait.topics, "error": str(error)})
        return
    with cluster:

        def attempt() -> None:
            existing, refused = _ask(cluster, wait.topics, create=creates)
            if refused:
                asking = Principal(principal=principal_of(settings), topics=refused, writes=True)
                raise asking.refused("TOPIC_AUTHORIZATION_FAILED", f"no {what} could be written", servers=servers)
            try:
                wait.check(existing, now_s())
            except UnknownTopic as error:
                raise UnknownTopic(f"no {what} could be written: {error}") from None

        try:
            try_again(
                attempt, what="topics", longest_s=TOPICS_LONGEST_S, until_s=wait.until_s, now_s=now_s, sleep=sleep
            )
        except RetriableError as error:
            log_event(_UNCHECKED, "warning", {"topics": wait.topics, "error": str(error)})


def _ask(cluster: Cluster, names: Collection[str], *, create: bool) -> tuple[list[str], list[str]]:
    """Return (existing topics, topics that may not be written)."""
    response = cluster.any_broker().call(
        ApiKey.METADATA,
        {
            "topics": [{"name": name} for name in names],
            "allow_auto_topic_creation": create,
            "include_topic_authorized_operations": True,
        },
    )
    existing: list[str] = []
    refused: list[str] = []
    for topic in response.topics:
        code = ErrorCode.of(topic.error_code)
        allowed = getattr(topic, "topic_authorized_operations", _NOT_TOLD)
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            refused.append(topic.name)
        elif code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            existing.append(topic.name)
            if allowed != _NOT_TOLD and not allowed & _WRITE:
                refused.append(topic.name)
    return existing, refused
