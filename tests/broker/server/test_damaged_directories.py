"""Directories that were damaged while the broker was down: nothing is deleted, and the reason is said in one line."""

from __future__ import annotations

import asyncio
import base64
import errno
import logging
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from wire_client import WireClient

from broker_embedded.cluster.cluster import Cluster
from broker_embedded.cluster.embedded import EmbeddedCluster
from broker_embedded.common.errors import StartupError
from broker_embedded.common.filesystem import write_whole
from broker_embedded.common.memory_filesystem import MemoryFileSystem
from broker_embedded.common.os_filesystem import OsFileSystem
from broker_embedded.controller.raft.disk import QuorumStateFile
from ottla_wire.protocol import ApiKey
from ottla_wire.records.batch import BATCH_OVERHEAD, compute_crc, iter_batches
from ottla_wire.records.record import RecordData, encode_batch

METADATA_LOG = "controller-1/__cluster_metadata-0/00000000000000000000.log"
NOW_MS = 1_700_000_000_000


def batch(value: bytes) -> bytes:
    return bytes(encode_batch([RecordData(offset=0, timestamp_ms=NOW_MS, key=b"k", value=value, headers=())]))


def fetched(client: WireClient, topic: str) -> bytes:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    body = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20}
    answer = client.call(ApiKey.FETCH, 11, {**body, "topics": [{"topic": topic, "partitions": [partition]}]})
    return bytes(answer.responses[0].partitions[0].records or b"")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that was stopped in order, with a topic of three records."""
    path = tmp_path_factory.mktemp("written")
    with EmbeddedCluster(data_dir=path) as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("gone")
        client = WireClient(cluster.bootstrap_servers)
        for value in (b"first", b"second", b"third"):
            assert client.produce("orders", batch(value)).error_code == 0
        client.close()
    return path


@pytest.fixture
def directory(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "data"))


@pytest.fixture(autouse=True)
def no_endless_loop() -> Iterator[None]:
    """A start that never ends would hold up all the tests."""

    def end(*_: object) -> None:
        raise TimeoutError("the start did not end within 30 s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def start_and_stop(path: Path) -> None:
    async def run() -> None:
        cluster = Cluster(data_dir=path)
        await cluster.start()
        await cluster.stop()

    asyncio.run(run())


def refusal_of(path: Path) -> str | None:
    """Why a start was refused; None if it was not."""
    try:
        start_and_stop(path)
    except StartupError as error:
        return str(error)
    return None


def lose_all(path: Path) -> None:
    path.write_bytes(b"")


def remove_log(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("lose", [lose_all, remove_log])
def test_records_outlive_metadata_that_was_lost_also_when_their_topic_is_made_again(
    directory: Path, lose: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    lose(directory / METADATA_LOG)
    with caplog.at_level(logging.ERROR), EmbeddedCluster(data_dir=directory) as cluster:
        assert "not in the metadata" in caplog.text
        assert "__cluster_metadata-0" in caplog.text
        assert (directory / "broker-1" / "orders-0").is_dir()
        cluster.create_topic("orders")
        client = WireClient(cluster.bootstrap_servers)
        assert fetched(client, "orders") == b""
        client.close()
        assert "-stray" in caplog.text
    kept = [each for each in (directory / "broker-1").iterdir() if each.name.endswith("-stray")]
    assert len(kept) == 1
    assert b"first" in (kept[0] / "00000000000000000000.log").read_bytes()
    start_and_stop(directory)
    assert kept[0].is_dir()


def test_a_topic_that_was_deleted_while_its_broker_was_down_is_removed_at_the_start(directory: Path) -> None:
    whole = Path(shutil.copytree(directory / "broker-1" / "gone-0", directory / "kept"))
    with EmbeddedCluster(data_dir=directory) as cluster:
        client = WireClient(cluster.bootstrap_servers)
        answer = client.call(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["gone"], "timeout_ms": 10_000})
        assert answer.responses[0].error_code == 0
        client.close()
    shutil.copytree(whole, directory / "broker-1" / "gone-0", dirs_exist_ok=True)  # as if it had not been there
    start_and_stop(directory)
    assert not (directory / "broker-1" / "gone-0").exists()
    assert (directory / "broker-1" / "orders-0").exists()


def test_retention_leaves_alone_what_the_metadata_does_not_know(directory: Path) -> None:
    lose_all(directory / METADATA_LOG)
    with EmbeddedCluster(data_dir=directory, config={"log.retention.ms": 1, "log.retention.check.interval.ms": 1}) as c:
        client = WireClient(c.bootstrap_servers)
        for _ in range(20):
            client.call(ApiKey.API_VERSIONS, 2, {})
        client.close()
    assert b"first" in (directory / "broker-1" / "orders-0" / "00000000000000000000.log").read_bytes()


@pytest.mark.parametrize("marker", ["clean", "killed"])
def test_a_start_is_refused_when_valid_metadata_follows_a_damaged_batch(directory: Path, marker: str) -> None:
    path = directory / METADATA_LOG
    if marker == "killed":
        (directory / "controller-1" / ".kafka_cleanshutdown").unlink()
    damaged = bytearray(path.read_bytes())
    damaged[70] ^= 1
    path.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(StartupError, match=r"damaged at position 0, after offset -1, and valid batches follow at"):
            start_and_stop(directory)
        assert path.read_bytes() == bytes(damaged)


def test_metadata_that_was_torn_at_its_end_is_cut_there(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = directory / METADATA_LOG
    (directory / "controller-1" / ".kafka_cleanshutdown").unlink()
    path.write_bytes(path.read_bytes()[:-5])
    start_and_stop(directory)
    assert "not a whole valid batch" in caplog.text


@pytest.mark.parametrize("length", [-12, -13, -(2**31), 0, 48, 2**31 - 1])
@pytest.mark.parametrize("where", [METADATA_LOG, "broker-1/orders-0/00000000000000000000.log"])
@pytest.mark.parametrize("number", [0, 1])
def test_a_length_that_cannot_be_ends_no_walk_in_a_loop(directory: Path, length: int, where: str, number: int) -> None:
    path = directory / where
    data = bytearray(path.read_bytes())
    at = 0
    for _ in range(number):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    data[at + 8 : at + 12] = length.to_bytes(4, "big", signed=True)
    path.write_bytes(data)
    refusal = refusal_of(directory)
    is_refused = where == METADATA_LOG and "valid batches follow" in str(refusal)
    assert refusal is None or is_refused


def test_a_log_that_was_zeroed_after_a_clean_stop_is_not_served_as_it_is(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = directory / "broker-1" / "orders-0" / "00000000000000000000.log"
    path.write_bytes(bytes(path.stat().st_size))
    with caplog.at_level(logging.WARNING), EmbeddedCluster(data_dir=directory) as cluster:
        assert "ends at offset 0, it was on the disk up to 3" in caplog.text
        client = WireClient(cluster.bootstrap_servers)
        assert fetched(client, "orders") == b""
        assert client.produce("orders", batch(b"new")).base_offset == 0
        assert b"new" in fetched(client, "orders")
        client.close()


def test_what_lies_behind_damage_that_no_crash_has_done_is_kept(directory: Path) -> None:
    path = directory / "broker-1" / "orders-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[8:12] = bytes(4)
    path.write_bytes(data)
    with EmbeddedCluster(data_dir=directory) as cluster:
        client = WireClient(cluster.bootstrap_servers)
        assert fetched(client, "orders") == b""
        client.close()
    assert [each.read_bytes() for each in path.parent.glob("*.damaged")] == [bytes(data)]


def test_damage_that_is_met_while_the_broker_runs_is_an_error_of_that_partition(directory: Path) -> None:
    path = directory / "broker-1" / "orders-0" / "00000000000000000000.log"
    with EmbeddedCluster(data_dir=directory) as cluster:
        path.write_bytes(bytes(path.stat().st_size))
        client = WireClient(cluster.bootstrap_servers)
        partition = {"partition": 0, "fetch_offset": 1, "partition_max_bytes": 1 << 20}
        body = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20}
        answer = client.call(ApiKey.FETCH, 11, {**body, "topics": [{"topic": "orders", "partitions": [partition]}]})
        assert answer.responses[0].partitions[0].error_code == 2  # CORRUPT_MESSAGE
        listed = {
            "replica_id": -1,
            "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "timestamp": 1}]}],
        }
        assert client.call(ApiKey.LIST_OFFSETS, 5, listed).topics[0].partitions[0].error_code == 2
        client.close()


GARBAGE = {
    "nothing": lambda data: b"",
    "not text": lambda data: b"\xff\xfe\x00" + data,
    "half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "ones": lambda data: b"\xff" * max(len(data), 40),
    "text": lambda data: b"0\n1\n\xc2\xb2 \xc2\xb2 \xc2\xb2\n" + data,
    "large numbers": lambda data: b"0\n1\norders 99999999999999999999 99999999999999999999999\n",
}


def every_file(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file())


@pytest.mark.representative("not text")
@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_in_any_file_is_survived_or_refused_in_one_line_that_names_a_path(
    written: Path, tmp_path: Path, kind: str
) -> None:
    for number, name in enumerate(every_file(written)):
        path = tmp_path / str(number)
        shutil.copytree(written, path)
        target = path / name
        target.write_bytes(GARBAGE[kind](target.read_bytes()))
        refusal = refusal_of(path)
        assert refusal is None or (str(path) in refusal and "\n" not in refusal), (name, refusal)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"1", b'{"data_version": 9}', b'{"data_version": {}}'])
def test_garbage_in_the_state_of_a_voter_is_refused_in_one_line_that_names_the_file(content: bytes) -> None:
    memory_fs = MemoryFileSystem()
    memory_fs.make_dirs("/controller-1")
    write_whole(memory_fs, "/controller-1/quorum-state", content)
    with pytest.raises(StartupError, match="/controller-1/quorum-state is not a quorum state"):
        QuorumStateFile(memory_fs, "/controller-1", voters=(1, 2, 3)).read()


STRANGE_NAMES = ["x.log", "\u00b2.log", "1.log", "99999999999999999999.log", "x.swap", ".log", "x.snapshot"]
STRANGE_DIRS = ["t-\u00b2", "t-99999999999999999999", "t-", "-0", "t-0.x-delete", "t-00", "orders-0.x-future"]


def test_files_and_directories_of_strange_names_are_left_alone(directory: Path) -> None:
    for name in STRANGE_NAMES:
        (directory / "broker-1" / "orders-0" / name).write_bytes(b"mine")
    for name in STRANGE_DIRS:
        (directory / "broker-1" / name).mkdir()
    with EmbeddedCluster(data_dir=directory) as cluster:
        client = WireClient(cluster.bootstrap_servers)
        assert all(value in fetched(client, "orders") for value in (b"first", b"second", b"third"))
        client.close()
    assert (directory / "broker-1" / "orders-0" / "x.log").read_bytes() == b"mine"


class Refusing(OsFileSystem):
    """A disk that becomes read-only after a number of steps."""

    def __init__(self, steps: int) -> None:
        super().__init__(fsync=False)
        self.steps = steps

    def _step(self, path: str) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    def open(self, path: str, *, create: bool = False) -> Any:
        self._step(path)
        return super().open(path, create=create)

    def make_dirs(self, path: str) -> None:
        self._step(path)
        super().make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self._step(source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._step(path)
        super().remove(path)

    def list_dir(self, path: str) -> list[str]:
        self._step(path)
        return super().list_dir(path)


def test_a_disk_that_becomes_read_only_during_the_start_is_named_in_one_line(directory: Path) -> None:
    refusals = []
    for steps in range(0, 90, 4):
        disk = Refusing(steps)

        async def run(disk: Refusing = disk) -> None:
            cluster = Cluster(data_dir=directory, filesystem=lambda node: disk)
            await cluster.start()
            await cluster.stop()

        try:
            asyncio.run(run())
        except StartupError as error:
            refusals.append(str(error))
    assert len(refusals) > 5
    for refusal in refusals:
        assert str(directory) in refusal
        assert "read-only" in refusal.lower()


def flipped(path: Path, needle: bytes) -> int:
    """Change the last occurrence of some bytes, and repair the CRC of the batch; return its first offset."""
    data = bytearray(path.read_bytes())
    at = data.rindex(needle)
    position, header = next((p, h) for p, h in iter_batches(bytes(data)) if p <= at < p + h.size_in_bytes)
    data[at] ^= 0x40
    data[position + 17 : position + 21] = compute_crc(bytes(data), position, header).to_bytes(4, "big")
    path.write_bytes(data)
    return header.base_offset


def test_metadata_that_cannot_follow_what_is_before_it_is_refused_in_one_line(directory: Path) -> None:
    log = directory / METADATA_LOG
    partition = (directory / "broker-1" / "orders-0" / "partition.metadata").read_text()
    topic_id = base64.urlsafe_b64decode(partition.split("topic_id: ")[1].strip() + "==")
    offset = flipped(log, topic_id)
    with pytest.raises(StartupError) as refused:
        EmbeddedCluster(data_dir=directory).start()
    assert "\n" not in str(refused.value)
    assert str(log) in str(refused.value)
    found = re.search(
        r"the metadata record at offset (\d+) is none, or cannot follow those before it", str(refused.value)
    )
    assert found is not None
    assert int(found[1]) >= offset


@pytest.mark.parametrize("seed", range(25))
def test_a_changed_bit_of_metadata_is_survived_or_refused_in_one_line(directory: Path, seed: int) -> None:
    log, random = directory / METADATA_LOG, Random(seed)
    data = log.read_bytes()
    position, header = random.choice([(p, h) for p, h in iter_batches(data) if not h.is_control])
    start = random.randrange(position + BATCH_OVERHEAD, position + header.size_in_bytes - 4)
    flipped(log, data[start : position + header.size_in_bytes])
    refused = ""
    try:
        start_and_stop(directory)
    except StartupError as error:
        refused = str(error)
    assert "\n" not in refused


def test_a_start_is_refused_when_the_metadata_of_one_voter_cannot_be_replayed(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=3, data_dir=tmp_path) as cluster:
        cluster.create_topic("orders")
    topic = next(tmp_path.glob("broker-*/orders-0/partition.metadata")).read_text()
    log = tmp_path / METADATA_LOG.replace("controller-1", "controller-2")
    flipped(log, base64.urlsafe_b64decode(topic.split("topic_id: ")[1].strip() + "=="))
    with pytest.raises(StartupError, match=f"{log}: the metadata record at offset"):
        EmbeddedCluster(brokers=3, data_dir=tmp_path).start()
