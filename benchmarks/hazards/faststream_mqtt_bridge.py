"""MQTT messages of QoS 1 are published to a Kafka topic by a FastStream handler. How many of them are in the topic in
the end, when Kafka refuses some, and when the process is killed and started again?

Needs `faststream[mqtt]`, and Debian's mosquitto, which is unpacked into a cache.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _faststream import broker
from _kafka import found, kafka, new_topic
from confluent_kafka import Consumer, TopicPartition

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "kit"))
from foreign_brokers import Mosquitto

MESSAGES = 2_000
WAIT_S = 60.0


def bridge(port: int, bootstrap: str, topic: str, keeps_session: bool, names: str, workers: int) -> None:
    """Runs until it is killed. `names` is the topic filter, `workers` so many handlers run side by side."""
    from faststream.mqtt import MQTTBroker, QoS

    options: dict[str, Any] = {"client_id": "bridge"}
    if keeps_session:
        options |= {"clean_session": False, "session_expiry_interval": 3_600}

    async def run() -> None:
        to_kafka = broker("faststream[confluent]", bootstrap)
        from_mqtt = MQTTBroker(f"mqtt://127.0.0.1:{port}", logger=None, **options)

        async def handle(message: bytes) -> None:
            await to_kafka.publish(message, topic)

        handle.__annotations__ = {"message": bytes, "return": None}
        from_mqtt.subscriber(names, qos=QoS.AT_LEAST_ONCE, max_workers=workers)(handle)
        await to_kafka.start()
        await from_mqtt.start()
        print("subscribed", flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


def started(port: int, bootstrap: str, topic: str, keeps_session: bool) -> subprocess.Popen[str]:
    session = "kept" if keeps_session else ""
    process = subprocess.Popen(
        [sys.executable, __file__, "--bridge", str(port), bootstrap, topic, session, "hazard/#", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def values(bootstrap: str, topic: str) -> set[bytes]:
    """Return the values in the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    try:
        partition = TopicPartition(topic, 0, 0)
        consumer.assign([partition])
        _, end = consumer.get_watermark_offsets(partition, timeout=10)
        there: set[bytes] = set()
        read = 0
        while read < end:
            for record in consumer.consume(1_000, 1.0):
                read += 1
                there.add(record.value())
        return there
    finally:
        consumer.close()


def settled(bootstrap: str, topic: str, wanted: int) -> int:
    """How many different messages are there, once all are or nothing has come for a while."""
    count, since_s = -1, time.monotonic()
    while time.monotonic() - since_s < WAIT_S / 4:
        now = len(values(bootstrap, topic))
        if now == wanted:
            return now
        if now != count:
            count, since_s = now, time.monotonic()
        time.sleep(0.2)
    return count


def refused(mosquitto: Mosquitto, bootstrap: str) -> tuple[int, int]:
    """One of ten messages is larger than the topic takes; then the topic takes it."""
    topic = new_topic(bootstrap, max_message_bytes="1000")
    process = started(mosquitto.port, bootstrap, topic, keeps_session=True)
    try:
        lines = [f"message {number} " + ("x" * 2_000 if number % 10 == 5 else "") for number in range(100)]
        mosquitto.publish("hazard/a", "\n".join(lines) + "\n", "-q", "1")
        there = settled(bootstrap, topic, 100)
        process.kill()
        process.wait()
        process = started(mosquitto.port, bootstrap, topic, keeps_session=True)
        return there, settled(bootstrap, topic, 100)
    finally:
        process.kill()
        process.wait()


def killed(mosquitto: Mosquitto, bootstrap: str, *, keeps_session: bool) -> int:
    """The process is killed while messages come, and started again."""
    topic = new_topic(bootstrap)
    process = started(mosquitto.port, bootstrap, topic, keeps_session)
    lines = "".join(f"message {number}\n" for number in range(MESSAGES))
    publisher = subprocess.Popen([sys.executable, __file__, "--publish", str(mosquitto.port)], stdin=subprocess.PIPE)
    assert publisher.stdin is not None
    publisher.stdin.write(lines.encode())
    publisher.stdin.close()
    try:
        until_s = time.monotonic() + WAIT_S
        while len(values(bootstrap, topic)) < MESSAGES // 10 and time.monotonic() < until_s:
            time.sleep(0.05)
        process.kill()
        process.wait()
        publisher.wait(WAIT_S * 3)
        process = started(mosquitto.port, bootstrap, topic, keeps_session)
        return settled(bootstrap, topic, MESSAGES)
    finally:
        process.kill()
        process.wait()


def main() -> None:
    with kafka() as bootstrap, tempfile.TemporaryDirectory() as folder:
        mosquitto = Mosquitto(Path(folder) / "mosquitto")
        try:
            before, after = refused(mosquitto, bootstrap)
            plain = killed(mosquitto, bootstrap, keeps_session=False)
            kept = killed(mosquitto, bootstrap, keeps_session=True)
        finally:
            mosquitto.stop()
        found(
            "faststream",
            "zmqtt",
            text=f"Kafka refuses 10 of 100 messages: {before} are in the topic, {after} after a restart; killed while "
            f"{MESSAGES:,} messages come: {plain:,} are in the topic, {kept:,} with a persistent session",
        )


def publish(port: int) -> None:
    """Publish the lines of standard input at QoS 1, each once the one before it is acknowledged."""
    from mqtt_client import StrictClient

    with StrictClient(port, "publisher") as client:
        for line in sys.stdin.buffer:
            client.publish("hazard/a", line.strip())
            client.ack()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bridge"]:
        port, bootstrap, topic, session, names, workers = sys.argv[2:8]
        bridge(int(port), bootstrap, topic, bool(session), names, int(workers))
    elif sys.argv[1:2] == ["--publish"]:
        publish(int(sys.argv[2]))
    else:
        main()
