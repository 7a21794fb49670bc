"""Apache Kafka's own tools read the embedded broker's files, and each opens partitions that the other wrote.

Runs with `make contract KAFKA=real`. The metadata logs are not exchanged: a topic is created by the broker that serves
it, and the other's files take the place of its partition's, but for the id in partition.metadata.
"""

from __future__ import annotations

import random
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafka, Unavailable, libraries, wanted
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker_embedded.cluster import EmbeddedCluster
from ottla_wire.records.batch import iter_batches

pytestmark = [pytest.mark.real_kafka, pytest.mark.timeout(400)]

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000
CONFIG = {"retention.ms": "-1", "segment.bytes": "1048576", "index.interval.bytes": "200"}

Found = list[tuple[int, bytes | None, bytes | None, Any, int]]


@pytest.fixture(autouse=True)
def _needs_kafka() -> None:
    if wanted() is None:
        pytest.skip("Apache Kafka is fetched and run with KAFKA=real")
    try:
        libraries(wanted())
    except Unavailable as reason:
        pytest.skip(str(reason))


def fill(bootstrap: str) -> None:
    """t: 500 records in every compression, then six transactions of which every other one is aborted. Several segments;
    record n has the time n seconds after START_MS."""
    for index, compression in enumerate(COMPRESSIONS):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": compression, "enable.idempotence": True}
        )
        for n in range(index * 100, index * 100 + 100):
            producer.produce(
                "t",
                b"value %d " % n * (20 if index else 1_500),
                b"key %d" % n,
                0,
                timestamp=START_MS + n * 1000,
                headers=[("n", str(n))],
            )
            if n % 20 == 19:
                assert producer.flush(60) == 0
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "files"})
    transactional.init_transactions(60)
    for number in range(6):
        transactional.begin_transaction()
        for n in range(3):
            transactional.produce("t", b"transaction %d %d" % (number, n), None, 0, timestamp=START_MS + 600_000)
        assert transactional.flush(60) == 0
        if number % 2:
            transactional.abort_transaction(60)
        else:
            transactional.commit_transaction(60)


def read(bootstrap: str, isolation: str) -> Found:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    found: Found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append((message.offset(), message.key(), message.value(), message.headers(), message.timestamp()[1]))
    consumer.close()
    return found


def everything(bootstrap: str) -> list[object]:
    """What clients see: records for both isolation levels, both ends, and offsets by time."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    ends = consumer.get_watermark_offsets(TopicPartition("t", 0), 60)
    asked = [TopicPartition("t", 0, START_MS + n * 1000 - 1) for n in (0, 1, 99, 250, 499)]
    by_time = [consumer.offsets_for_times([each], 60)[0].offset for each in asked]
    consumer.close()
    return [read(bootstrap, "read_uncommitted"), read(bootstrap, "read_committed"), ends, by_time]


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (done,) = admin.create_topics([NewTopic("t", 1, 1, config=CONFIG)]).values()
    done.result(60)


def put_in_place(theirs: Path, ours: Path) -> None:
    """One broker's files of t-0 into the other's folder, which keeps its own topic id."""
    identity = (ours / "partition.metadata").read_bytes()
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)
    (ours / "partition.metadata").write_bytes(identity)


def offered(partition: Path, *suffixes: str) -> str:
    return ",".join(str(each) for each in sorted(partition.iterdir()) if each.suffix in suffixes)


@pytest.fixture
def embedded_folder(tmp_path: Path) -> tuple[Path, list[object]]:
    """What the embedded broker wrote, and what its clients saw."""
    folder = tmp_path / "embedded"
    with EmbeddedCluster(data_dir=folder) as cluster:
        create(cluster.bootstrap_servers)
        fill(cluster.bootstrap_servers)
        seen = everything(cluster.bootstrap_servers)
    return folder, seen


def test_kafkas_dump_tool_reads_every_file_without_complaint(embedded_folder: tuple[Path, list[object]]) -> None:
    folder, seen = embedded_folder
    broker, partition = folder / "broker-1", folder / "broker-1" / "t-0"
    assert len(list(partition.glob("*.log"))) > 1
    kafka = ApacheKafka()
    try:
        logs = offered(partition, ".log")
        printed = kafka.dump("--deep-iteration", "--print-data-log", "--files", logs)
        payloads = re.findall(r"^\| offset: (\d+) .*payload: (.*)$", printed, re.MULTILINE)
        records = [(str(offset), value.decode()) for offset, _, value, _, _ in seen[0]]  # type: ignore[attr-defined]
        assert [pair for pair in payloads if pair[1].startswith(("value", "transaction"))] == records
        assert printed.count("endTxnMarker: COMMIT") == printed.count("endTxnMarker: ABORT") == 3
        assert printed.count("isvalid: true") == printed.count("baseOffset: ") > 0
        others = kafka.dump("--files", offered(partition, ".index", ".timeindex", ".txnindex", ".snapshot"))
        assert others.count("producerId: ") > 6
        assert others.count("abortedTxn") + others.count("firstOffset: ") >= 3
        for decoder, name in (
            ("--offsets-decoder", "__consumer_offsets-*"),
            ("--transaction-log-decoder", "__transaction_state-*"),
        ):
            found = [str(log) for log in broker.glob(f"{name}/*.log")]
            if found:
                others += kafka.dump(decoder, "--files", ",".join(found))
        metadata = folder / "controller-1" / "__cluster_metadata-0"
        decoded = kafka.dump("--cluster-metadata-decoder", "--files", offered(metadata, ".log"))
        assert '"type":"TOPIC_RECORD"' in decoded
        for word in ("ismatch", "Non-consecutive", "Indexed offset", "not found", "Could not", "rror", "orrupt"):
            assert word not in printed + others + decoded, word
    finally:
        kafka.__exit__(None, None, None)


def test_kafka_opens_a_partition_that_the_embedded_broker_wrote(
    embedded_folder: tuple[Path, list[object]], tmp_path: Path
) -> None:
    folder, seen = embedded_folder
    kafkas = tmp_path / "kafka"
    with ApacheKafka(data_dir=kafkas) as kafka:
        create(kafka.bootstrap_servers)
    put_in_place(folder / "broker-1" / "t-0", kafkas / "broker-1" / "t-0")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        shutil.copy(folder / "broker-1" / name, kafkas / "broker-1" / name)
    with ApacheKafka(data_dir=kafkas) as kafka:
        assert everything(kafka.bootstrap_servers) == seen
        more = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        more.produce("t", b"more", partition=0)
        assert more.flush(60) == 0
        assert read(kafka.bootstrap_servers, "read_committed")[-1][2] == b"more"


def test_the_embedded_broker_opens_a_partition_that_kafka_wrote(tmp_path: Path) -> None:
    kafkas, folder = tmp_path / "kafka", tmp_path / "embedded"
    with ApacheKafka(data_dir=kafkas) as kafka:
        create(kafka.bootstrap_servers)
        fill(kafka.bootstrap_servers)
        seen = everything(kafka.bootstrap_servers)
    with EmbeddedCluster(data_dir=folder) as cluster:
        create(cluster.bootstrap_servers)
    put_in_place(kafkas / "broker-1" / "t-0", folder / "broker-1" / "t-0")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        shutil.copy(kafkas / "broker-1" / name, folder / "broker-1" / name)
    with EmbeddedCluster(data_dir=folder) as cluster:
        assert everything(cluster.bootstrap_servers) == seen
        more = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        more.produce("t", b"more", partition=0)
        assert more.flush(60) == 0
        assert read(cluster.bootstrap_servers, "read_committed")[-1][2] == b"more"


CLEANED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
    "max.message.bytes": "1000000",
}


def segments_after_cleaning(bootstrap: str, partition: Path) -> list[tuple[str, list[tuple[int, int, int]]]]:
    """Each segment's file with the base offset, last offset and record count of its batches, once nothing is superseded
    but what the active segment supersedes."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (done,) = admin.create_topics([NewTopic("t", 1, 1, config=CLEANED)]).values()
    done.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": False})
    for n in range(11):
        producer.produce("t", random.Random(n).randbytes(400_000), b"key", 0)
        assert producer.flush(60) == 0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [(log.name, log.read_bytes()) for log in sorted(partition.glob("*.log"))]
        if sum(len(data) for _, data in found) < 1_000_000:
            break
        time.sleep(0.1)
    return [
        (name, [(header.base_offset, header.last_offset, header.record_count) for _, header in iter_batches(data)])
        for name, data in found
    ]


def test_cleaning_leaves_the_same_segments_with_the_same_batches(tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": "100"}
    with ApacheKafka(config=settings, data_dir=tmp_path / "kafka") as kafka:
        kafkas = segments_after_cleaning(kafka.bootstrap_servers, tmp_path / "kafka" / "broker-1" / "t-0")
    with EmbeddedCluster(config=settings, data_dir=tmp_path / "embedded") as cluster:
        ours = segments_after_cleaning(cluster.bootstrap_servers, tmp_path / "embedded" / "broker-1" / "t-0")
        assert [offset for offset, *_ in read(cluster.bootstrap_servers, "read_committed")][-1] == 10
    assert ours == kafkas
    assert [batches for _, batches in ours if not batches], "no segment was superseded as a whole"


def test_kafkas_storage_tool_knows_the_embedded_brokers_identity(
    embedded_folder: tuple[Path, list[object]], tmp_path: Path
) -> None:
    directory = embedded_folder[0] / "broker-1"
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:1\n"
        "listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:1\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={directory}\n"
    )
    kafka = ApacheKafka()
    try:
        printed = kafka.tool("kafka.tools.StorageTool", "info", "-c", str(properties))
    finally:
        kafka.__exit__(None, None, None)
    (cluster_id,) = re.findall(r"^cluster.id=(.*)$", (directory / "meta.properties").read_text(), re.MULTILINE)
    assert f"cluster.id={cluster_id}" in printed
    assert "not formatted" not in printed
