"""A process with a low limit of open files: logs share what there is, and connections come first."""

from __future__ import annotations

import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from wire_client import WireClient

from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.record import RecordData, encode_batch

TOPICS = 100
BROKERS = 3

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a broker process with a soft and a hard limit of descriptors."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, soft: int, hard: int) -> subprocess.Popen[str]:
        limits = (
            f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, ({soft}, {hard}));"
            "import sys; from broker_embedded.process import main; sys.exit(main(sys.argv[1:]))"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", limits, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def addresses_of(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return re.sub(r"^ready bootstrap=", "", process.stdout.readline().strip()).split(",")


def batch(value: bytes) -> bytes:
    record = RecordData(offset=0, timestamp_ms=int(time.time() * 1000), key=None, value=value, headers=())
    return bytes(encode_batch([record]))


def until(is_so: Callable[[], bool], *, timeout_s: float = 40) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, f"the condition was not met within {timeout_s} s"
        time.sleep(0.01)


def leaders(client: WireClient) -> dict[str, int]:
    topics = client.call(ApiKey.METADATA, 9, {"topics": None}).topics
    return {each.name: each.partitions[0].leader_id for each in topics}


def append_to_each(clients: dict[int, WireClient], leader_of: dict[str, int], value: bytes) -> None:
    for topic, leader in leader_of.items():
        assert clients[leader].produce(topic, batch(value)).error_code == 0, topic


def test_the_soft_limit_is_raised_to_the_hard_one_at_the_start(start: Start) -> None:
    process = start(soft=200, hard=700)
    assert addresses_of(process)[0]
    assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (700, 700)


@pytest.mark.complete
def test_more_replicas_than_descriptors_are_written_and_read_and_connections_that_took_all_are_survived(
    start: Start,
) -> None:
    limit = 200
    process = start("--brokers", str(BROKERS), soft=limit, hard=limit)
    addresses = addresses_of(process)
    clients = {node: WireClient(address, timeout_s=60) for node, address in enumerate(addresses, start=1)}
    topics = [{"name": f"t{n}", "num_partitions": 1, "replication_factor": 3} for n in range(TOPICS)]

    def are_known() -> bool:
        """Asked again where the controller has moved meanwhile, as clients do."""
        created = clients[1].call(ApiKey.CREATE_TOPICS, 5, {"topics": topics, "timeout_ms": 60_000})
        assert {ErrorCode(each.error_code) for each in created.topics} <= {
            ErrorCode.NONE,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.NOT_CONTROLLER,
        }
        return all(len(leaders(each)) == TOPICS for each in clients.values())

    until(are_known)
    leader_of = leaders(clients[1])
    append_to_each(clients, leader_of, b"first")

    # Connections take every descriptor: nobody waits for ever, and what is connected is still served.
    taken = []
    host, port = addresses[0].split(":")
    for _ in range(2 * limit):
        taken.append(socket.create_connection((host, int(port)), timeout=30))
    append_to_each(clients, leader_of, b"second")
    for each in taken:
        each.close()

    def is_reachable() -> bool:
        try:
            client = WireClient(addresses[0], timeout_s=5)
            is_answered = client.call(ApiKey.API_VERSIONS, 2, {}).error_code == 0
            client.close()
        except OSError:
            return False
        return is_answered

    until(is_reachable)
    append_to_each(clients, leader_of, b"third")
    for topic, leader in leader_of.items():
        body = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "topics": [
                {"topic": topic, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 9999}]}
            ],
        }
        answer = clients[leader].call(ApiKey.FETCH, 11, body).responses[0].partitions[0]
        assert (answer.error_code, answer.high_watermark) == (0, 3)
        assert [value in bytes(answer.records) for value in (b"first", b"second", b"third")] == [True] * 3
    for client in clients.values():
        client.close()
    process.terminate()
    assert process.wait(30) == 0
