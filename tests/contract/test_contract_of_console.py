"""What doctor and console say of a healthy cluster of one node is true on any version of Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from apache_kafka import wanted
from command_output import Run
from console_kit import Running, running_console

from ottla import Consumer, Producer
from ottla.cli.shared.cluster_options import cluster_settings
from ottla.console.state import ConsoleOptions
from ottla.testing import wait_until

pytestmark = pytest.mark.client_contract

TRUE_OF_THE_TESTS = {"STO06", "SEC01", "STO04"}
"""The broker of the tests keeps its logs below /tmp and lets everybody do everything. Kafka 3.9 takes any date."""


@pytest.fixture
def console(bootstrap_servers: str) -> Iterator[Running]:
    settings = cluster_settings(bootstrap_servers, {}, environ={})
    with running_console(settings, ConsoleOptions(may_write=True)) as running:
        yield running


@pytest.fixture
def topic(kafka: Any, bootstrap_servers: str) -> str:
    """Ten records, of which the group with the topic's name has committed some."""
    name: str = kafka.create_topic(partitions=2)
    with Producer(bootstrap_servers) as producer:
        producer.send_many(name, [(b"%d" % number,) for number in range(10)])
    with Consumer(name, group=name, bootstrap_servers=bootstrap_servers) as consumer:
        for _, _record in zip(range(5), consumer, strict=False):
            pass
    return name


def test_the_doctor_finds_what_is_so(ottla: Run, topic: str) -> None:
    found = json.loads(ottla("doctor", "--format", "json").stdout)
    of_this = [each for each in found["items"] if topic in each["subject"]]
    of_brokers = [each for each in found["items"] if each["subject"].startswith(("broker", "cluster", "controller"))]
    assert of_this == []
    assert {each["id"] for each in of_brokers} <= TRUE_OF_THE_TESTS


def test_the_console_shows_what_is_there(console: Running, topic: str) -> None:
    def topics() -> dict[str, Any]:
        return {each["topic"]: each for each in console.get("topics")["items"]}

    wait_until(lambda: topics().get(topic, {}).get("records") == 10, timeout_s=30, what="ten records on the page")
    assert topics()[topic]["problems"] is None
    state = console.get("topics")["state"]
    assert (state["problem"], state["not_read"]) == (None, [])
    (group,) = (each for each in console.get("groups", size=200)["items"] if each["group"] == topic)
    assert group["type"] == "Classic"
    assert (group["state"], group["lost"]) == ("Empty", 0)
    assert 0 <= group["lag"] <= 10
    cluster = console.get("cluster")
    ((broker),) = cluster["brokers"]
    assert (broker["state"], broker["controller"], cluster["cluster"]["fenced_brokers"]) == ("ok", True, [])
    version = wanted()
    if version is not None and version < "4":
        assert {each["type"] for each in console.get("groups", size=200)["items"]} == {"Classic"}
    of_brokers = [each for each in console.get("doctor")["items"] if each["subject"].startswith("broker")]
    assert {each["id"] for each in of_brokers} <= TRUE_OF_THE_TESTS


def test_the_exporter_shows_what_is_there(ottla: Run, topic: str) -> None:
    done = ottla("exporter", "--once")
    assert done.exit_code == 0, done.stderr
    found = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in done.stdout.splitlines() if line[0] != "#"
    }
    assert found["ottla_cluster_up"] == 1
    assert found[f'ottla_cluster_topic_records{{topic="{topic}"}}'] == 10
    assert 0 <= found[f'ottla_cluster_group_lag_records{{group="{topic}",topic="{topic}"}}'] <= 10
    assert found['ottla_cluster_broker_up{broker="1"}'] == 1
    assert found["ottla_cluster_open_transactions"] == 0
    hidden = {name for name, count in found.items() if name.startswith("ottla_exporter_hidden") and count}
    assert {name.partition('part="')[2].partition('"')[0] for name in hidden} <= {"acls"}, "it has no authorizer"
