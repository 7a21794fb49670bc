"""For the tests of your services: a Kafka to run against, records without one, and waiting without sleeping.

The fixtures come with pytest's plugin (`ottla.testing.plugin`, registered by installing Ottla). Names are imported when
they are used, so that pytest runs that do not touch Kafka do not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.lazy import lazy_names

if TYPE_CHECKING:
    from ottla.clock import ManualClock as ManualClock
    from ottla.testing.builders import make_record as make_record
    from ottla.testing.builders import make_records as make_records
    from ottla.testing.healthy import assert_healthy as assert_healthy
    from ottla.testing.kafka import Kafka as Kafka
    from ottla.testing.kafka import running_kafka as running_kafka
    from ottla.testing.offline import DeliveredRecord as DeliveredRecord
    from ottla.testing.offline import OfflineConsumer as OfflineConsumer
    from ottla.testing.offline import consumer_for as consumer_for
    from ottla.testing.oidc import OidcEndpoint as OidcEndpoint
    from ottla.testing.oidc import oidc_endpoint as oidc_endpoint
    from ottla.testing.registry import EmbeddedRegistry as EmbeddedRegistry
    from ottla.testing.running import RunningApp as RunningApp
    from ottla.testing.running import ServedApp as ServedApp
    from ottla.testing.secure import Certificates as Certificates
    from ottla.testing.secure import SecureKafka as SecureKafka
    from ottla.testing.secure import make_certificates as make_certificates
    from ottla.testing.secure import secure_kafka as secure_kafka
    from ottla.testing.waiting import wait_until as wait_until
    from ottla.testing.waiting import wait_until_async as wait_until_async
    from ottla.testing.watched import AppFailed as AppFailed

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "ottla.clock": ["ManualClock"],
        "ottla.testing.builders": ["make_record", "make_records"],
        "ottla.testing.healthy": ["assert_healthy"],
        "ottla.testing.kafka": ["Kafka", "running_kafka"],
        "ottla.testing.offline": ["DeliveredRecord", "OfflineConsumer", "consumer_for"],
        "ottla.testing.oidc": ["OidcEndpoint", "oidc_endpoint"],
        "ottla.testing.registry": ["EmbeddedRegistry"],
        "ottla.testing.running": ["RunningApp", "ServedApp"],
        "ottla.testing.secure": ["Certificates", "SecureKafka", "make_certificates", "secure_kafka"],
        "ottla.testing.waiting": ["wait_until", "wait_until_async"],
        "ottla.testing.watched": ["AppFailed"],
    },
)
