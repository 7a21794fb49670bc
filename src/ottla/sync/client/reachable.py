"""What a cluster says of itself to a client of librdkafka, and waiting for one that is not there yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from ottla.config import Settings
from ottla.consumer.member.broker_wait import START_AGAIN_S, BrokerWait
from ottla.telemetry import log_event
from ottla.wire_client.listening import first_answering

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


def await_broker(settings: Settings, timeout_s: float, should_give_up: Callable[[], bool]) -> None:
    """Wait until a broker listens at the address. Raises `BrokerUnavailable` with what was found there, and what
    `first_answering` raises."""
    wait = BrokerWait(settings, timeout_s, time.monotonic())
    while wait.addresses:
        problem = first_answering(wait.addresses, settings, timeout_s=wait.connect_s(time.monotonic()))
        again = wait.after(problem, time.monotonic(), gives_up=should_give_up())
        if again is None:
            return
        if again.warning is not None:
            log_event("broker_awaited", "warning", again.warning)
        time.sleep(again.in_s)
