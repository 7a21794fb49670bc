"""For the tests of your services: a Kafka to run against, records without one, and waiting without sleeping.

The fixtures come with pytest's plugin (`ottla.testing.plugin`, registered by installing Ottla). Names are imported when
they are used, so that pytest runs that do not touch Kafka do not pay for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.clock import ManualClock
    from ottla.testing.builders import make_record, make_records
    from ottla.testing.kafka import Kafka, running_kafka
    from ottla.testing.offline import OfflineConsumer, consumer_for
    from ottla.testing.registry import EmbeddedRegistry
    from ottla.testing.running import RunningApp
    from ottla.testing.secure import Certificates, SecureKafka, make_certificates, secure_kafka
    from ottla.testing.waiting import wait_until, wait_until_async

__all__ = [
    "Certificates",
    "EmbeddedRegistry",
    "Kafka",
    "ManualClock",
    "OfflineConsumer",
    "RunningApp",
    "SecureKafka",
    "consumer_for",
    "make_certificates",
    "make_record",
    "make_records",
    "running_kafka",
    "secure_kafka",
    "wait_until",
    "wait_until_async",
]

_HOMES = {
    "Certificates": "ottla.testing.secure",
    "EmbeddedRegistry": "ottla.testing.registry",
    "Kafka": "ottla.testing.kafka",
    "ManualClock": "ottla.clock",
    "OfflineConsumer": "ottla.testing.offline",
    "RunningApp": "ottla.testing.running",
    "SecureKafka": "ottla.testing.secure",
    "consumer_for": "ottla.testing.offline",
    "make_certificates": "ottla.testing.secure",
    "make_record": "ottla.testing.builders",
    "make_records": "ottla.testing.builders",
    "running_kafka": "ottla.testing.kafka",
    "secure_kafka": "ottla.testing.secure",
    "wait_until": "ottla.testing.waiting",
    "wait_until_async": "ottla.testing.waiting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
