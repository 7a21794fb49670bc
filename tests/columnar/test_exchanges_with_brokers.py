"""What answers say of brokers, told every ten seconds."""

from __future__ import annotations

from typing import Any

from ottla.columnar.serving.broker_metrics import BrokerMetrics
from ottla.telemetry import Hooks, Listeners
from ottla.telemetry.metrics.measurements import BrokerMeasure
from ottla_wire.protocol import ApiKey


class Heard(Hooks):
    def __init__(self) -> None:
        self.brokers: list[BrokerMeasure] = []

    def brokers_measured(self, **fields: Any) -> None:
        self.brokers = list(fields["brokers"])


def told(broker_metrics: BrokerMetrics, heard: Heard, now_ms: int, asked: list[str]) -> dict[str, BrokerMeasure]:
    assert broker_metrics.is_due(now_ms)
    broker_metrics.report(now_ms, {"a:1": 1, "b:1": 2}, asked)
    assert not broker_metrics.is_due(now_ms)
    return {each.broker: each for each in heard.brokers}


def test_a_fetch_that_waits_at_the_broker_is_no_round_trip_and_each_window_begins_anew() -> None:
    heard = Heard()
    broker_metrics = BrokerMetrics(Listeners(heard), client="c", now_ms=0)
    assert not broker_metrics.is_due(999)
    for api_key, seconds in ((ApiKey.API_VERSIONS, 0.010), (ApiKey.HEARTBEAT, 0.030), (ApiKey.FETCH, 0.500)):
        broker_metrics.answered("a:1", api_key, seconds)
    broker_metrics.throttled("a:1", 300)
    broker_metrics.timed_out("b:1")
    broker_metrics.answered("bootstrap:1", ApiKey.METADATA, 0.1)

    found = told(broker_metrics, heard, 1_000, ["a:1", "a:1"])
    assert found.keys() == {"1", "2"}, "an address that is no broker's is not told"
    assert (found["1"].is_up, found["1"].connects, found["1"].requests_in_flight) == (True, 1, 2)
    assert (round(found["1"].rtt_s, 3), round(found["1"].throttle_s, 3)) == (0.020, 0.100)
    assert (found["2"].is_up, found["2"].timeouts) == (False, 1)

    found = told(broker_metrics, heard, 11_000, [])
    assert (found["1"].is_up, found["1"].connects, found["1"].throttle_s) == (False, 1, 0.0)
    assert found["2"].timeouts == 1
