"""Start, stop and health of a bridge in a thread."""

from __future__ import annotations

import socket
import time

import pytest
from foreign_brokers import free_port

from ottla import BrokerUnavailable, LifecycleError
from ottla.bridge import AmqpSource, Bridge, BridgeSettings, Rule, source_url
from ottla.testing import Kafka, wait_until


def made(servers: str, topic: str = "m") -> Bridge:
    return Bridge(servers, BridgeSettings(listen=["127.0.0.1:0"], rules=[Rule("#", topic)]))


def test_a_start_whose_kafka_does_not_answer_says_so_and_stops_the_bridge():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bridge = made(f"127.0.0.1:{silent.getsockname()[1]}")
        began_s = time.monotonic()
        with pytest.raises(BrokerUnavailable, match=r"not ready after 0.2 s, and is stopped: Kafka at 127.0.0.1:\d+"):
            bridge.start(timeout_s=0.2)
        assert time.monotonic() - began_s < 10
        assert not bridge.health().is_ready
        with pytest.raises(LifecycleError, match="was stopped: make a new one"):
            bridge.start()
    bridge.close()


def test_a_bridge_is_started_once(kafka: Kafka, make_topic):
    bridge = made(kafka.bootstrap_servers, make_topic())
    with bridge:
        with pytest.raises(LifecycleError, match="was started already"):
            bridge.start()
        with pytest.raises(LifecycleError, match="has run"):
            bridge.run()
        assert bridge.health().is_ready
    assert bridge.health().problems == ("the bridge has ended",)
    with pytest.raises(LifecycleError, match="was stopped: make a new one"):
        bridge.start()


def test_a_bridge_that_was_stopped_does_not_start(kafka: Kafka, make_topic):
    bridge = made(kafka.bootstrap_servers, make_topic())
    bridge.stop()
    with pytest.raises(LifecycleError, match="was stopped: make a new one"):
        bridge.start()
    assert bridge.ports == []


def test_a_broker_that_is_not_there_is_a_problem_in_words(kafka: Kafka, make_topic):
    pytest.importorskip("pika", reason="pika is not installed: pip install 'ottla[amqp]'")
    topic = make_topic()
    queue = AmqpSource(url=source_url(f"amqp://127.0.0.1:{free_port()}", kind="amqp"), queue="q")
    settings = BridgeSettings(queues=[queue], rules=[Rule("#", topic)], dead_letter_topic=topic)
    with Bridge(kafka.bootstrap_servers, settings) as bridge:
        wait_until(lambda: any("Connection refused" in each for each in bridge.health().problems))
        assert not bridge.health().is_ready
