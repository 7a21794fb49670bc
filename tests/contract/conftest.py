"""One suite, two brokers: the embedded one, and Apache Kafka with `make contract KAFKA=real` or `KAFKA=4.1.0`.

What these tests say is what Kafka does. Where the embedded broker differs it is wrong, or docs/reference/differences.md
says why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafka, Unavailable, libraries, wanted
from click.testing import CliRunner
from command_output import Run
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from ottla.cli import main
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message
from ottla_wire.records.record import RecordData, encode_batch

_numbers = count(1)
AS_KAFKA = {"auto.create.topics.enable": "true", "log.records.validation.enable": "true"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where Apache Kafka cannot be had, every test that wants it is skipped for the same reason.

    On Kafka 3 only what Ottla's clients and tools do is tested (`client_contract`): the rest says what Kafka 4 answers.
    """
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    try:
        if (version := wanted()) is not None:
            libraries(version)
    except Unavailable as reason:
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=str(reason)))
        return
    if version is not None and version < "4":
        for item in ours:
            if item.get_closest_marker("client_contract") is None:
                item.add_marker(pytest.mark.skip(reason=f"it says what Kafka 4 answers, and this is {version}"))


@pytest.fixture(scope="session")
def bootstrap_servers() -> Iterator[str]:
    """One broker with Kafka's own defaults, but for what makes groups start at once."""
    if wanted() is None:
        with EmbeddedCluster(config=AS_KAFKA) as embedded:
            yield embedded.bootstrap_servers
        return
    with ApacheKafka() as real:
        yield real.bootstrap_servers


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[str]:
    """The addresses of three brokers with two log directories each."""
    if wanted() is None:
        with EmbeddedCluster(brokers=3, log_dirs=2) as embedded:
            yield embedded.bootstrap_servers
        return
    with ApacheKafka(3, log_dirs=2) as real:
        yield real.bootstrap_servers


@pytest.fixture
def ottla(bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`ottla("topics", "list")` on the module's cluster, in an empty folder, with no clusters file.

    `test_every_command_has_a_contract.py` reads in the sources which commands are called by it.
    """
    monkeypatch.chdir(tmp_path)
    env = {"OTTLA_BOOTSTRAP_SERVERS": bootstrap_servers, "OTTLA_CLUSTERS": str(tmp_path / "clusters.toml")}
    return lambda *arguments, input=None: CliRunner().invoke(main, list(arguments), env=env, input=input)


@pytest.fixture
def started(bootstrap_servers: str, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`started("schedule", "run")`: the same as a process, which is killed if it has not ended with the test."""
    begun: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **more: str) -> subprocess.Popen[str]:
        named = {"OTTLA_BOOTSTRAP_SERVERS": bootstrap_servers, "OTTLA_CLUSTERS": str(tmp_path / "clusters.toml")}
        command = [sys.executable, "-m", "ottla", *arguments]
        pipe = subprocess.PIPE
        env = {**os.environ, **named, **more}
        begun.append(subprocess.Popen(command, cwd=tmp_path, env=env, stdout=pipe, stderr=pipe, text=True))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


class Contract(WireClient):
    """A wire client with the few things that most tests begin with."""

    def create_topic(
        self, *, partitions: int = 1, replication_factor: int = 1, configs: dict[str, str] | None = None
    ) -> str:
        """A topic of the test's own; returns its name when it can be written to."""
        name = f"contract-{os.getpid()}-{next(_numbers)}"
        result = self.create(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[{"name": key, "value": value} for key, value in (configs or {}).items()],
        )
        assert result.error_code == ErrorCode.NONE, result.error_message
        self.until(lambda: all(self.leader(name, number) >= 0 for number in range(partitions)))
        self.until(lambda: all(self.offset(name, -1, partition=number) == 0 for number in range(partitions)))
        return name

    def create(self, *, validate_only: bool = False, **topic: Any) -> Message:
        body = {"topics": [topic], "timeout_ms": 10_000, "validate_only": validate_only}
        result: Message = self.call(ApiKey.CREATE_TOPICS, 5, body).topics[0]
        return result

    def leader(self, topic: str, partition: int = 0) -> int:
        answer = self.call(ApiKey.METADATA, 9, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
        found = [each.leader_id for each in answer.topics[0].partitions if each.partition_index == partition]
        return found[0] if found else -1

    def list_offset(self, topic: str, timestamp_ms: int, *, partition: int = 0, version: int = 7) -> Message:
        body = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [
                {"name": topic, "partitions": [{"partition_index": partition, "timestamp": timestamp_ms}]},
            ],
        }
        answer: Message = self.call(ApiKey.LIST_OFFSETS, version, body).topics[0].partitions[0]
        return answer

    def offset(self, topic: str, timestamp_ms: int, *, partition: int = 0) -> int:
        """-1: the end, -2: the start; -1 is also the answer when there is none, or an error."""
        answer = self.list_offset(topic, timestamp_ms, partition=partition)
        return -1 if answer.error_code else int(answer.offset)

    @staticmethod
    def until(is_so: Callable[[], bool], timeout_s: float = 20) -> None:
        """Wait for a condition, asking again and again."""
        import time

        deadline = time.monotonic() + timeout_s
        while not is_so():
            assert time.monotonic() < deadline, "the condition was not met in time"
            time.sleep(0.02)


@pytest.fixture
def kafka(bootstrap_servers: str) -> Iterator[Contract]:
    client = Contract(bootstrap_servers, timeout_s=30)
    yield client
    client.close()


@pytest.fixture
def connect(bootstrap_servers: str) -> Iterator[Callable[[], Contract]]:
    """A function that opens one more connection."""
    opened: list[Contract] = []

    def open_one() -> Contract:
        opened.append(Contract(bootstrap_servers, timeout_s=30))
        return opened[-1]

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def make_records() -> Callable[..., bytes]:
    """A function that encodes one batch: values in order, or (key, value) pairs; now is the time unless it is given."""
    import time

    def make(*values: bytes | tuple[bytes | None, bytes | None], timestamp_ms: int | None = None, **more: Any) -> bytes:
        start = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        pairs = [each if isinstance(each, tuple) else (None, each) for each in values]
        return bytes(
            encode_batch(
                [
                    RecordData(offset=index, timestamp_ms=start + index, key=key, value=value, headers=())
                    for index, (key, value) in enumerate(pairs)
                ],
                **more,
            )
        )

    return make
