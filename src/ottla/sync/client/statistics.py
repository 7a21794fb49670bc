"""librdkafka's statistics as measures of brokers and of a producer's batches.

It makes some 50 KB of JSON of 64 partitions, so they are requested only while there is a listener, every ten seconds,
and only what is reported is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ottla.telemetry import Listeners
from ottla.telemetry.metrics.measurements import BatchMeasure, BrokerMeasure

_EVERY_MS: Final = 10_000


class _StatisticsWindow(msgspec.Struct):
    avg: int = 0


class _Broker(msgspec.Struct):
    nodeid: int = -1
    state: str = ""
    outbuf_cnt: int = 0
    waitresp_cnt: int = 0
    connects: int = 0
    req_timeouts: int = 0
    rtt: _StatisticsWindow = msgspec.field(default_factory=_StatisticsWindow)
    throttle: _StatisticsWindow = msgspec.field(default_factory=_StatisticsWindow)


class _Topic(msgspec.Struct):
    topic: str = ""
    batchcnt: _StatisticsWindow = msgspec.field(default_factory=_StatisticsWindow)
    batchsize: _StatisticsWindow = msgspec.field(default_factory=_StatisticsWindow)


class _Statistics(msgspec.Struct):
    type: str = ""
    brokers: dict[str, _Broker] = msgspec.field(default_factory=dict)
    topics: dict[str, _Topic] = msgspec.field(default_factory=dict)


_DECODER: Final = msgspec.json.Decoder(_Statistics)


def _brokers_in(found: _Statistics) -> list[BrokerMeasure]:
    """Return the brokers that have an id: bootstrap addresses and the group's logical connection repeat them."""
    return [
        BrokerMeasure(
            broker=str(each.nodeid),
            is_up=each.state == "UP",
            rtt_s=each.rtt.avg / 1e6,
            requests_waiting=each.outbuf_cnt,
            requests_in_flight=each.waitresp_cnt,
            connects=each.connects,
            timeouts=each.req_timeouts,
            throttle_s=each.throttle.avg / 1e3,
        )
        for each in found.brokers.values()
        if each.nodeid >= 0
    ]


def _batches_in(found: _Statistics) -> list[BatchMeasure]:
    """Return the batches of the topics to which something was sent in the window."""
    return [
        BatchMeasure(topic=each.topic, records=each.batchcnt.avg, size_bytes=each.batchsize.avg)
        for each in found.topics.values()
        if each.batchcnt.avg
    ]


def with_statistics(config: Mapping[str, Any], hooks: Listeners) -> dict[str, Any]:
    """Return the configuration with statistics enabled, if a listener needs them and the user set no interval."""
    return {**({"statistics.interval.ms": _EVERY_MS} if hooks else {}), **config}


def on_statistics(hooks: Listeners, client: str) -> Callable[[str], None]:
    """Return the client's `stats_cb`."""

    def on_statistics(statistics: str) -> None:
        if hooks:
            try:
                found = _DECODER.decode(statistics)
            except msgspec.MsgspecError:  # of another librdkafka
                return
            hooks.brokers_measured(client=client, brokers=_brokers_in(found))
            if found.type == "producer":
                hooks.batches_measured(client=client, batches=_batches_in(found))

    return on_statistics
