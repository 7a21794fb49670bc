"""librdkafka's error codes as Ottla's errors, which are sorted by what the caller should do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from confluent_kafka import KafkaError

from ottla.config import Principal, unknown_topics
from ottla.errors import (
    BrokerUnavailable,
    ConfigError,
    FencedError,
    NoCommittedOffset,
    OttlaError,
    RetriableError,
)

_REBALANCING: Final = frozenset(
    {KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.STALE_MEMBER_EPOCH}
)
_FENCED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._STATE,
    }
)
UNREACHABLE: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
    }
)
_UNKNOWN_TOPIC: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
NOT_ALLOWED: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
NOT_ACCEPTED: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
    }
)
"""A login that failed, or a certificate."""
_MISCONFIGURED: Final = frozenset(
    {
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.UNSUPPORTED_ASSIGNOR,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.GROUP_MAX_SIZE_REACHED,
    }
)


_SAME_INSTANCE: Final = frozenset({KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID})


def is_of_another_generation(error: KafkaError) -> bool:
    """Return whether a commit failed because the group rebalances: the same member may commit when it has joined
    again."""
    return error.code() in _REBALANCING


def is_fenced(error: KafkaError) -> bool:
    """Return whether a commit failed because this member is not, or no longer, part of the group's current
    generation."""
    return error.code() in _FENCED


def error_of(
    error: KafkaError, servers: str, *, topics: Sequence[str] = (), asking: Principal | None = None
) -> Exception:
    """Return the error to raise for what the client reported. `OttlaError`s end the consumer, except
    `RetriableError`s."""
    code = _first_code(error)
    if code in UNREACHABLE:
        return BrokerUnavailable(f"no Kafka broker answers at {servers}: {error.str()}")
    if code in _UNKNOWN_TOPIC:
        return unknown_topics(topics_named(error, topics) or topics or [error.str()], servers)
    if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        return NoCommittedOffset(
            f"no committed offset, or one that is no longer in the log: {error.str()}. "
            "Set auto.offset.reset to earliest or latest, or reset the group's offsets"
        )
    if code in _SAME_INSTANCE:
        return FencedError(f"another member runs with the same group.instance.id: {error.str()}")
    if code in NOT_ALLOWED:
        who = asking or Principal(topics=topics)
        return who.refused(KafkaError(code).name(), error.str(), servers=servers)
    if code in NOT_ACCEPTED:
        return (asking or Principal(topics=topics)).not_accepted(error.str(), servers=servers)
    if code in _MISCONFIGURED:
        return ConfigError(f"the group coordinator at {servers} refused the consumer's settings: {error.str()}")
    if error.fatal() or code == KafkaError._FATAL:
        return OttlaError(f"{error.name()}: {error.str()}")
    return RetriableError(f"{error.name()}: {error.str()}")


def is_unknown_topic(error: KafkaError) -> bool:
    """Return whether the cluster does not have a topic."""
    return _first_code(error) in _UNKNOWN_TOPIC


def is_inconsistent_protocol(error: KafkaError) -> bool:
    """Return whether the group uses another assignor than the member offers."""
    return _first_code(error) == KafkaError.INCONSISTENT_GROUP_PROTOCOL


def topics_named(error: KafkaError, topics: Sequence[str]) -> list[str]:
    """Return the topics that an error is about: librdkafka names them in its text only."""
    words = {word.rstrip(".") for word in _NOT_IN_NAMES.split(error.str())}
    return [name for name in topics if name.rstrip(".") in words]


_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAY_BE_FATAL: Final = (*_SAME_INSTANCE, *_MISCONFIGURED, *NOT_ALLOWED, *NOT_ACCEPTED)


def _first_code(error: KafkaError) -> int:
    """Return the code of an error's cause. A fatal error is raised by a poll as _FATAL, without the flag `fatal()`, and
    names its cause only in its text."""
    if error.code() != KafkaError._FATAL:
        return int(error.code())
    text = error.str()
    return next((code for code in _MAY_BE_FATAL if KafkaError(code).str() in text), KafkaError._FATAL)
