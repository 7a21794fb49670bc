"""`--kafka=container`: what Ottla asks of testcontainers, and a run on a real container where there is an engine."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import types
from typing import Any

import pytest

from ottla.errors import BrokerUnavailable
from ottla.testing import kafka as kafka_module
from ottla.testing.kafka import running_kafka


def test_the_container_runs_without_zookeeper_with_settings_that_suit_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []

    class KafkaContainer:
        def __init__(self, image: str) -> None:
            events.append(image)

        def with_kraft(self) -> KafkaContainer:
            events.append("kraft")
            return self

        def with_env(self, name: str, value: str) -> None:
            events.append((name, value))

        def get_bootstrap_server(self) -> str:
            return "localhost:32768"

        def __enter__(self) -> KafkaContainer:
            events.append("started")
            return self

        def __exit__(self, *_: object) -> None:
            events.append("stopped")

    package, module = types.ModuleType("testcontainers"), types.ModuleType("testcontainers.kafka")
    module.KafkaContainer = KafkaContainer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "testcontainers", package)
    monkeypatch.setitem(sys.modules, "testcontainers.kafka", module)
    monkeypatch.setattr(kafka_module.importlib.util, "find_spec", lambda name: object())
    with running_kafka("container", config={"auto.create.topics.enable": False}) as kafka:
        assert (kafka.bootstrap_servers, kafka.kind, kafka.cluster) == ("localhost:32768", "container", None)
        events.append("used")
    assert events == [
        kafka_module.CONTAINER_IMAGE,
        "kraft",
        ("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0"),
        ("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "False"),
        "started",
        "used",
        "stopped",
    ]


@pytest.mark.parametrize("fails_at", ["the client", "the start"])
def test_without_an_engine_the_error_says_so_and_what_needs_none(
    monkeypatch: pytest.MonkeyPatch, fails_at: str
) -> None:
    class KafkaContainer:
        def __init__(self, image: str) -> None:
            if fails_at == "the client":
                raise ConnectionError("Error while fetching server API version")

        def with_kraft(self) -> KafkaContainer:
            return self

        def with_env(self, name: str, value: str) -> None: ...

        def __enter__(self) -> KafkaContainer:
            raise ConnectionError("No such image")

        def __exit__(self, *_: object) -> None: ...

    package, module = types.ModuleType("testcontainers"), types.ModuleType("testcontainers.kafka")
    module.KafkaContainer = KafkaContainer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "testcontainers", package)
    monkeypatch.setitem(sys.modules, "testcontainers.kafka", module)
    monkeypatch.setattr(kafka_module.importlib.util, "find_spec", lambda name: object())
    with (
        pytest.raises(BrokerUnavailable, match=r"ConnectionError: .*Does a container engine run here"),
        running_kafka("container"),
    ):
        raise AssertionError("it never starts")


def has_container_engine() -> bool:
    if importlib.util.find_spec("testcontainers") is None or shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, timeout=20, check=False).returncode == 0


@pytest.mark.container
@pytest.mark.slow
def test_a_real_container_takes_and_gives_records() -> None:
    if not has_container_engine():
        pytest.skip("no container engine, or testcontainers is not installed")
    with running_kafka("container") as kafka:
        topic = kafka.create_topic(kafka.fresh_name("container"))
        kafka.produce(topic, ["a", "b"])
        assert [record.raw_value for record in kafka.consume_all(topic, at_least=2, timeout_s=30)] == [b"a", b"b"]
