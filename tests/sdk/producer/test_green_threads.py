"""Where gevent has replaced threads, librdkafka would wait for ever: clients of threads are refused with the reason."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ottla.testing import Kafka

pytest.importorskip("gevent", reason="pip install gevent")

PATCHED = """
import sys
from gevent import monkey

monkey.patch_all({patched})
from ottla import App, ConfigError, Consumer, Producer, shared_producer

servers, topic = sys.argv[1:]


def run_app():
    app = App("billing", bootstrap_servers=servers)
    app.handler(topic)(print)
    app.run(handle_signals=False)


def run_queue():
    app = App("billing", bootstrap_servers=servers, dead_letter_topic=topic)
    app.queue("jobs")(print)
    app.run(handle_signals=False)


def run_consumer():
    with Consumer(topic, group="billing", bootstrap_servers=servers) as consumer:
        consumer.poll(0.1)


def send():
    return Producer(servers).send(topic, b"1").result(30).topic


def send_shared():
    return shared_producer(servers).send(topic, b"1").result(30).topic


for client in ({clients}):
    try:
        print(client(), flush=True)
    except ConfigError as error:
        print(error, flush=True)
"""


def run_in(kafka: Kafka, topic: str, *, patched: str, clients: str) -> list[str]:
    program = PATCHED.format(patched=patched, clients=clients)
    command = [sys.executable, "-c", program, kafka.bootstrap_servers, topic]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return ran.stdout.splitlines()


def test_clients_of_threads_are_refused_with_the_reason(kafka: Kafka, kafka_topic: str) -> None:
    printed = run_in(kafka, kafka_topic, patched="", clients="send, send_shared, run_consumer, run_app, run_queue")
    assert len(printed) == 5
    for line in printed:
        assert line.startswith("gevent has replaced threads by greenlets in this process"), line
        assert "gunicorn --worker-class gthread" in line


def test_gevent_that_leaves_threads_alone_is_no_reason(kafka: Kafka, kafka_topic: str) -> None:
    assert run_in(kafka, kafka_topic, patched="thread=False", clients="send,") == [kafka_topic]
