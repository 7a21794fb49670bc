"""Reachability and brokers of a cluster, as a client of librdkafka sees them."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from ottla.app.member.broker_wait import START_ATTEMPTS, START_LONGEST_S
from ottla.retrying import try_again

NO_TOPIC: Final = "?"
"""No topic can have this name: the answer about it has the brokers, without all topics, and creates nothing. librdkafka
cannot ask for the brokers alone."""
_CUT: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def metadata_of(client: Any, timeout_s: float, topic: str | None = None) -> Any:
    """Return what the cluster says of itself to this client of librdkafka, with all its topics or this one. Raises
    `KafkaException` if none responds.

    All of a large cluster's topics take seconds. To name one creates it, unless the client or the broker forbids that.
    """
    ask = client.list_topics if topic is None else partial(client.list_topics, topic)
    until_s = time.monotonic() + timeout_s

    def attempt() -> Any:
        try:
            return ask(timeout=max(0.1, until_s - time.monotonic()))
        except KafkaException as error:
            if error.args[0].code() in _CUT:
                raise _CutError(*error.args) from error
            raise

    return try_again(
        attempt,
        what="metadata",
        errors=_CutError,
        longest_s=START_LONGEST_S,
        until_s=until_s,
        attempts=START_ATTEMPTS,
    )


class _CutError(KafkaException):
    """The connection was cut, perhaps by a broker that has just come up."""


def brokers_of(client: Any, timeout_s: float) -> dict[int, Any]:
    """Return the cluster's brokers by id, as this client of librdkafka sees them. Raises `KafkaException` if none
    responds."""
    found: dict[int, Any] = metadata_of(client, timeout_s, NO_TOPIC).brokers
    return found
