"""What clients do wrong is logged at a bounded rate."""

from __future__ import annotations

import logging
import socket

import pytest

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.server.net.rate_limited_log import BURST, INTERVAL_MS, RateLimitedLog


class Time:
    now_ms = 1_000


def test_the_first_lines_of_an_interval_are_said_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    say = RateLimitedLog(logging.getLogger("t"), now_ms=lambda: time.now_ms)
    for number in range(BURST + 500):
        say(logging.WARNING, "closed %d", number)
    assert [each.message for each in caplog.records] == [f"closed {number}" for number in range(BURST)]
    caplog.clear()
    time.now_ms += INTERVAL_MS - 1
    say.close_interval()
    assert not caplog.records
    time.now_ms += 1
    say.close_interval()
    assert [each.message for each in caplog.records] == ["500 more messages like these in 10 s are left out"]
    caplog.clear()
    say(logging.ERROR, "again", exc_info=ValueError("x"))
    time.now_ms += INTERVAL_MS
    say.close_interval()
    assert [each.message for each in caplog.records] == ["again"]


def test_a_thousand_bad_connections_leave_a_few_lines(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = cluster.bootstrap_servers.split(":")
    with caplog.at_level(logging.INFO):
        for number in range(300):
            with socket.create_connection((host, int(port)), timeout=10) as connection:
                connection.sendall(
                    b"GET / HTTP/1.1\r\n\r\n" if number % 2 else b"\x00\x00\x00\x0a\x7f\xff\x00\x00" + bytes(6)
                )
                try:
                    assert connection.recv(1) == b""
                except ConnectionResetError:
                    pass
    assert 0 < len([each for each in caplog.records if "closed the connection" in each.message]) <= 2 * BURST
