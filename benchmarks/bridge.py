"""The bridge: PUBACKs per second of processor time, their wait, idle connections, and the roads from a broker.

    make bench ONLY=bridge
    python benchmarks/bridge.py [--messages 200000] [--rounds 3] [--results bench-results]

Messages have 100 bytes and QoS 1. The listener writes them to the embedded broker with acks=all before each PUBACK;
mosquitto runs in the same round and acknowledges messages without storing them, as it has no subscriber. The measure is
the processor time of all threads of the measured process, which other work on the machine does not change. The wait
for a PUBACK does depend on that work, so the publishers, the bridge and the broker are scheduled before it (SCHED_RR)
where that is allowed; a second row is the wait beside that work. They share the machine's CPUs in both. Debian's
packages of mosquitto and RabbitMQ are unpacked into a cache; where they cannot be had, the page says so.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import servers
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from goals_of_bridge import ALONE, FASTSTREAM, FROM_MOSQUITTO, FROM_RABBITMQ, IDLE, PIKA, PUBACKS, WAIT
from results import Results, Shown

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "kit"))
from bridge_rabbitmq import from_rabbitmq
from bridge_servers import LISTENER, bridging, embedded, ends_at, total
from foreign_brokers import Mosquitto, free_port

HERE = Path(__file__).resolve().parent
CONNECTIONS = 1_000
BUSY_WAIT = "the same, beside what else the machine does: p99"


def load(port: int, messages: int, **more: float) -> dict[str, float]:
    options = [f"--{name}={value:g}" for name, value in more.items()]
    command = [sys.executable, str(HERE / "mqtt_load.py"), str(port), f"--messages={messages}", *options]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def listener(results: Results, broker: servers.Server, mosquitto: Mosquitto, messages: int, rounds: int) -> None:
    """Both in turns."""
    bootstrap = broker.bootstrap
    port = free_port()
    rates: dict[str, list[float]] = {LISTENER: [], ALONE: []}
    by_clock: dict[str, list[float]] = {LISTENER: [], ALONE: []}
    waits: list[float] = []
    busy_waits: list[float] = []
    with bridging(bootstrap, "mqtt", "--listen", f"127.0.0.1:{port}") as bridge:
        alone = servers.Server(ALONE, "", mosquitto.pid)
        load(port, messages // 10)
        for _ in range(rounds):
            for server, where in ((bridge, port), (alone, mosquitto.port)):
                before_s = server.cpu_s()
                found = load(where, messages, connections=CONNECTIONS)
                rates[server.name].append(messages / (server.cpu_s() - before_s))
                by_clock[server.name].append(found["rate"])
            half = min(20_000.0, by_clock[LISTENER][-1] / 2)
            busy_waits.append(load(port, int(half * 5), connections=CONNECTIONS, rate=half)["p99_ms"])
            with servers.scheduled_first(*filter(None, (bridge.pid, broker.pid))) as is_first:
                if is_first:
                    waits.append(load(port, int(half * 5), connections=CONNECTIONS, rate=half)["p99_ms"])
    write_listener(results, rates, by_clock, waits or busy_waits)
    results.add(BUSY_WAIT, LISTENER, busy_waits, "ms")


def write_listener(
    results: Results, rates: Mapping[str, list[float]], by_clock: Mapping[str, list[float]], waits: list[float]
) -> None:
    for name in (LISTENER, ALONE):
        results.add(PUBACKS, name, rates[name], "messages/s")
        results.add("PUBACKs by the clock", name, by_clock[name], "messages/s")
    results.add(WAIT, LISTENER, waits, "ms")


def idle(results: Results, bootstrap: str, connections: int) -> None:
    """Memory that idle connections add, all of them."""
    port = free_port()
    with bridging(bootstrap, "mqtt", "--listen", f"127.0.0.1:{port}") as bridge, contextlib.ExitStack() as stack:
        before_mb = bridge.rss_mb()
        for number in range(connections):
            made = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            client = b"%08d" % number
            made.sendall(b"\x10\x14\0\4MQTT\4\2\0\0\0\x08" + client)
            if made.recv(4) != b"\x20\2\0\0":
                raise SystemExit("a connection was refused")
        grown_mb = bridge.rss_mb() - before_mb
    write_idle(results, connections, [grown_mb])


def write_idle(results: Results, connections: int, grown_mb: list[float]) -> None:
    results.add(IDLE.format(connections), LISTENER, grown_mb, "MB")


def from_mosquitto(results: Results, bootstrap: str, mosquitto: Mosquitto, messages: int, rounds: int) -> None:
    options = ("--connect", f"mqtt://127.0.0.1:{mosquitto.port}", "--subscribe", "load/#", "--client-id", "bench")
    rates, by_clock = [], []
    with bridging(bootstrap, "mqtt", *options, "--dead-letter-topic", "dead") as bridge:
        for _ in range(rounds):
            there = total(bootstrap)
            before_s, began_s = bridge.cpu_s(), time.perf_counter()
            load(mosquitto.port, messages, connections=50)
            done_s = ends_at(bootstrap, there + messages)
            rates.append(messages / (bridge.cpu_s() - before_s))
            by_clock.append(messages / (done_s - began_s))
    write_mosquitto(results, LISTENER, rates, by_clock)


def write_mosquitto(results: Results, who: str, rates: list[float], by_clock: list[float]) -> None:
    results.add(FROM_MOSQUITTO, who, rates, "messages/s")
    results.add("messages from mosquitto, by the clock", who, by_clock, "messages/s")


def by_faststream(results: Results, bootstrap: str, mosquitto: Mosquitto, messages: int) -> None:
    """FastStream's handler that publishes to Kafka, 50 side by side; it waits for Kafka before it acknowledges."""
    if importlib.util.find_spec("zmqtt") is None or importlib.util.find_spec("faststream") is None:
        results.problem(FROM_MOSQUITTO, FASTSTREAM, "faststream[mqtt] is not installed (benchmarks/peers.txt)")
        return
    program = HERE / "hazards" / "faststream_mqtt_bridge.py"
    command = [sys.executable, program, "--bridge", str(mosquitto.port), bootstrap, "m", "", "load/#", "50"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        peer = servers.Server(FASTSTREAM, bootstrap, process.pid)
        there = total(bootstrap)
        before_s, began_s = peer.cpu_s(), time.perf_counter()
        load(mosquitto.port, messages, connections=50)
        done_s = ends_at(bootstrap, there + messages)
        rate, by_clock = messages / (peer.cpu_s() - before_s), messages / (done_s - began_s)
        write_mosquitto(results, FASTSTREAM, [rate], [by_clock])
    finally:
        process.kill()
        process.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true", help="one short round: rough figures")
    parser.add_argument("--results", type=Path, help="the folder for bridge.jsonl")
    given = parser.parse_args()
    if given.quick:
        given.messages, given.rounds, given.idle = 30_000, 1, 1_000
    results = Shown("bridge", given.results, is_quick=given.quick)
    with tempfile.TemporaryDirectory(prefix="ottla-bridge-") as folder, embedded() as broker:
        topics = [NewTopic("m", 4, 1), NewTopic("dead", 1, 1)]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics(topics).values():
            made.result(30)
        idle(results, broker.bootstrap, given.idle)
        try:
            mosquitto = Mosquitto(Path(folder) / "mosquitto", settings="persistence false")
        except pytest.skip.Exception as reason:
            results.problem(PUBACKS, ALONE, str(reason))
        else:
            try:
                listener(results, broker, mosquitto, given.messages, given.rounds)
                from_mosquitto(results, broker.bootstrap, mosquitto, given.messages // 4, given.rounds)
                by_faststream(results, broker.bootstrap, mosquitto, given.messages // 40)
            finally:
                mosquitto.stop()
        try:
            from_rabbitmq(results, broker.bootstrap, Path(folder) / "rabbitmq", given.messages // 10, given.rounds)
        except (pytest.skip.Exception, ImportError) as reason:
            results.problem(FROM_RABBITMQ, PIKA, str(reason))
    results.close()


if __name__ == "__main__":
    os.environ.setdefault("OTTLA_LOG_FORMAT", "json")
    main()
