"""The broker's settings in the Compose file, on Apache Kafka from its packages: containers do not run here."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
import yaml
from apache_kafka import ApacheKafka, Unavailable
from confluent_kafka.admin import AdminClient

from ottla import Consumer, Producer
from ottla.admin import Admin, TopicSpec

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "local-development.md"
pytestmark = [pytest.mark.complete, pytest.mark.timeout(300)]


def kafka_service() -> tuple[str, dict[str, str]]:
    """Return the version of the image, and the environment as the image reads it: `KAFKA_NODE_ID` is `node.id`."""
    (text,) = re.findall(r'```yaml title="compose.yaml"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)
    service = yaml.safe_load(text)["services"]["kafka"]
    names = {name: name.removeprefix("KAFKA_").lower().replace("_", ".") for name in service["environment"]}
    return service["image"].partition(":")[2], {names[name]: value for name, value in service["environment"].items()}


def free_ports(*wanted: str) -> dict[str, str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in wanted]
    ports = {port: str(each.getsockname()[1]) for port, each in zip(wanted, sockets, strict=True)}
    for each in sockets:
        each.close()
    return ports


def on_loopback(value: str, ports: dict[str, str]) -> str:
    """Return the value with free ports for those of the file, and loopback for the name of the container."""
    value = re.sub(r"(?<=:)\d{4,5}\b", lambda port: ports[port[0]], value)
    return re.sub(r"(?<=://)(?=:)|\bkafka(?=:)", "127.0.0.1", value)


def test_each_listener_advertises_the_address_that_its_clients_use() -> None:
    version, settings = kafka_service()
    ports = free_ports("19092", "9092", "9093")
    config = {name: on_loopback(value, ports) for name, value in settings.items()}
    host, containers = f"localhost:{ports['9092']}", f"127.0.0.1:{ports['19092']}"
    try:
        kafka = ApacheKafka(config=config, version=version, address=host)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with kafka:
        for address in (host, containers):
            (broker,) = AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).brokers.values()
            assert f"{broker.host}:{broker.port}" == address
        with Admin(host) as admin:
            admin.create_topics({"orders": TopicSpec()})
        with Producer(host) as producer:
            producer.send("orders", b"from the host")
        with Consumer("orders", group="billing", bootstrap_servers=containers) as consumer:
            (record,) = consumer.poll(timeout_s=60)
            consumer.ack(record)
        assert record.value == b"from the host"
