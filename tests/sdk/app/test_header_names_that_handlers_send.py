"""A handler that sends a header name which no client can write fails with that record, and the service lives.

confluent-kafka ends the process at such a name (SIGSEGV), so each service runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, json, sys
from ottla import App, ExactlyOnce, Producer, RetryPolicy
from ottla.testing.kafka import running_kafka
from ottla.testing.running import RunningApp, ServedApp

WAY, SHELL = sys.argv[1:]
NAME = json.loads('"caf\\\\udce9"')

with running_kafka("embedded") as kafka:
    for topic in ("in", "out", "dead"):
        kafka.create_topic(topic)
    once = RetryPolicy(max_attempts=1)
    app = App("g", bootstrap_servers=kafka.bootstrap_servers, dead_letter_topic="dead", retry=once)
    if WAY == "exactly once":

        @app.handler("in", exactly_once=ExactlyOnce())
        def forward(value: bytes, out) -> None:
            out.send("out", value, headers=[(NAME, b"x")] if value == b"bad" else [])

    elif SHELL == "threads":
        producer = app.producer()

        @app.handler("in")
        def forward(value: bytes):
            return producer.send("out", value, headers=[(NAME, b"x")] if value == b"bad" else [])

    else:
        producer = app.async_producer()

        @app.handler("in")
        async def forward(value: bytes):
            return producer.send("out", value, headers=[(NAME, b"x")] if value == b"bad" else [])

    kafka.produce("in", [b"1", b"bad", b"2"])

    def check():
        assert [record.value for record in kafka.consume_all("out", at_least=2)] == [b"1", b"2"]
        (letter,) = kafka.consume_all("dead", at_least=1)
        assert letter.value == b"bad" and "lone surrogate" in letter.header_text("ottla-dlq-error-message"), letter

    async def on_a_loop():
        async with ServedApp(app, kafka.bootstrap_servers):
            await asyncio.to_thread(check)

    if SHELL == "threads":
        with RunningApp(app, kafka.bootstrap_servers):
            check()
    else:
        asyncio.run(on_a_loop())
print("alive")
"""


@pytest.mark.representative("exactly once-asyncio")
@pytest.mark.parametrize("shell", ["threads", "asyncio"])
@pytest.mark.parametrize("way", ["returned", "exactly once"])
def test_the_record_of_such_a_send_is_a_dead_letter(way: str, shell: str) -> None:
    command = [sys.executable, "-c", PROGRAM, way, shell]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "alive", (ended.returncode, ended.stderr[-3_000:])
