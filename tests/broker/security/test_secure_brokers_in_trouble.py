"""What goes wrong around secure listeners, and is nobody's concern: idle clients, controllers that lose their lead."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from typing import Any

import pytest

from broker_embedded.controller.change_queue import not_controller
from broker_embedded.controller.controller import Controller
from ottla.columnar import Cluster, wire_settings
from ottla.testing import secure_kafka


def test_a_client_that_is_idle_and_says_no_goodbye_is_cut_off_and_a_pause_meanwhile_is_only_that() -> None:
    """The broker looks for idle connections more often than it waits for the end of an encrypted one."""
    with secure_kafka("SSL") as kafka:
        cluster = kafka.cluster
        assert cluster is not None
        assert cluster._loop is not None
        assert kafka.certificates is not None
        server = cluster._cluster.brokers[1].server

        async def close_idle_twice_and_pause() -> int:
            waiting = list(server.connections)
            for connection in waiting:
                connection.last_active_ms = -(1 << 60)
            server.close_idle()
            server.close_idle()
            still_there = len(server.connections)
            server.pause()
            server.resume()
            return still_there

        host, port = kafka.bootstrap_servers.split(":")
        trusted = ssl.create_default_context(cafile=str(kafka.certificates.ca))
        raw = socket.create_connection((host, int(port)), timeout=60)
        with trusted.wrap_socket(raw, server_hostname="localhost") as client:
            client.sendall(bytes(3))  # the broker has it: then the handshake is done on both sides
            deadline = time.monotonic() + 60
            while not server.connections and time.monotonic() < deadline:
                time.sleep(0.001)
            assert asyncio.run_coroutine_threadsafe(close_idle_twice_and_pause(), cluster._loop).result(60) == 1
            assert client.recv(1) == b""


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_controller_that_loses_its_lead_while_users_are_made_does_not_keep_the_cluster_from_starting(
    monkeypatch: pytest.MonkeyPatch, brokers: int
) -> None:
    asked: list[Controller] = []
    set_credentials = Controller.set_scram_credentials

    def lose_the_lead_first(controller: Controller, credentials: Any) -> asyncio.Future[None]:
        asked.append(controller)
        if len(asked) > 1:
            return set_credentials(controller, credentials)
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(not_controller())
        return failed

    monkeypatch.setattr(Controller, "set_scram_credentials", lose_the_lead_first)
    with secure_kafka("SASL_PLAINTEXT", brokers=brokers) as kafka:
        kafka.create_topic("orders")
        with Cluster(wire_settings(kafka.settings, bootstrap_servers=kafka.bootstrap_servers)) as client:
            assert client.topic("orders") is not None
        assert len(asked) == 2
