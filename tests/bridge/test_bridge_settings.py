"""What a bridge's settings refuse, before anything listens or connects."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import ConfigError
from ottla.bridge import Bridge, BridgeSettings, ListenerLimits, Rule
from ottla.bridge.listener.listen_address import listen_address


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"listen": "127.0.0.1:0"}, r"listen: found '127.0.0.1:0', wanted a list: \['127.0.0.1:0'\]"),
        ({"limits": None}, "limits: found None"),
        ({"max_in_flight": 0}, "max_in_flight must be 1 or more"),
        ({"max_in_flight_bytes": 1 << 60}, "max_in_flight_bytes must be at most"),
        ({"max_connections": float("nan")}, "max_connections must be of type int"),
        ({"drain_s": float("nan")}, "drain_s must be a number of seconds"),
        ({"drain_s": "5x"}, "drain_s must be a number of seconds"),
        ({"unready_after_s": -1}, "unready_after_s must not be negative"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], wanted: str) -> None:
    given = {"listen": ["127.0.0.1:0"], "rules": [Rule("#", "t")], **settings}
    with pytest.raises(ConfigError, match=wanted):
        Bridge("localhost:1", BridgeSettings(**given))


@pytest.mark.parametrize(
    "limits",
    [
        {"receive_maximum": 0},
        {"receive_maximum": 65_536},
        {"max_qos": 3},
        {"max_packet_bytes": True},
        {"connect_timeout_s": float("inf")},
        {"topic_alias_maximum": -1},
    ],
)
def test_limits_that_cannot_work_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"ListenerLimits: {next(iter(limits))} must"):
        ListenerLimits(**limits)


@pytest.mark.parametrize("text", ["", "ws://", "::1", "h:0000009999999", "h:65536", "h:-1", "h:1x", "[]:1"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--listen: found"):
        listen_address(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("1883", "mqtt://0.0.0.0:1883"),
        (":1883", "mqtt://0.0.0.0:1883"),
        ("h", "mqtt://h:1883"),
        ("wss://h", "wss://h:8084"),
        ("[::1]:1", "mqtt://[::1]:1"),
        ("[::1]", "mqtt://[::1]:1883"),
    ],
)
def test_an_address_may_leave_out_host_or_port(text: str, address: str) -> None:
    assert str(listen_address(text)) == address
