"""What a cluster says of itself to a client of librdkafka."""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from ottla.consumer.member.broker_wait import START_AGAIN_S

_CUT: Final = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def metadata_of(client: Any, timeout_s: float) -> Any:
    """What the cluster says of itself to this client of librdkafka. Raises `KafkaException` when nobody answers."""
    deadline_s = time.monotonic() + timeout_s
    for again_s in START_AGAIN_S:
        left_s = deadline_s - time.monotonic()
        try:
            return client.list_topics(timeout=max(0.1, left_s))
        except KafkaException as error:
            if error.args[0].code() not in _CUT or time.monotonic() + again_s >= deadline_s:
                raise
            time.sleep(again_s)
    return client.list_topics(timeout=max(0.1, deadline_s - time.monotonic()))
