"""librdkafka's statistics as measures of brokers. It makes some 50 KB of JSON of 64 partitions, so: while anybody
listens, every ten seconds, and of that only what is told is decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ottla.telemetry import Listeners
from ottla.telemetry.measures import BrokerMeasure

_EVERY_MS: Final = 10_000


class _Window(msgspec.Struct):
    avg: int = 0


class _Broker(msgspec.Struct):
    nodeid: int = -1
    state: str = ""
    outbuf_cnt: int = 0
    waitresp_cnt: int = 0
    connects: int = 0
    req_timeouts: int = 0
    rtt: _Window = msgspec.field(default_factory=_Window)
    throttle: _Window = msgspec.field(default_factory=_Window)


class _Statistics(msgspec.Struct):
    brokers: dict[str, _Broker] = msgspec.field(default_factory=dict)


_DECODER: Final = msgspec.json.Decoder(_Statistics)


def brokers_in(statistics: str) -> list[BrokerMeasure]:
    """The brokers that have an id: bootstrap addresses and the group's logical connection repeat them."""
    found = _DECODER.decode(statistics).brokers.values()
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
        for each in found
        if each.nodeid >= 0
    ]


def with_statistics(config: Mapping[str, Any], hooks: Listeners) -> dict[str, Any]:
    """The configuration with statistics, where anybody listens and the user chose nothing."""
    return {**({"statistics.interval.ms": _EVERY_MS} if hooks else {}), **config}


def on_statistics(hooks: Listeners, client: str) -> Callable[[str], None]:
    """The client's `stats_cb`."""

    def heard(statistics: str) -> None:
        if hooks:
            try:
                brokers = brokers_in(statistics)
            except msgspec.MsgspecError:  # of another librdkafka
                return
            hooks.brokers_measured(client=client, brokers=brokers)

    return heard
