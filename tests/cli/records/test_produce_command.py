"""`ottla produce` on the embedded broker, and copies of topics through a pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from broker_embedded.cluster import EmbeddedCluster
from ottla.browse.record_input import InputRecord
from ottla.browse.writing import RecordWriter
from ottla.cli import main
from ottla.cli.records.produce import Lines
from ottla.errors import InputError
from ottla.testing import EmbeddedRegistry, Kafka, SecureKafka, secure_kafka
from ottla.wire_client import Cluster, OffsetRange, wire_settings
from ottla.wire_client.fetching.range_reading import batches_of_ranges
from ottla.wire_client.fetching.record_rows import rows_of


@pytest.fixture
def ottla(kafka: Kafka) -> Callable[..., Result]:
    def run(*arguments: str, input: str | bytes = b"") -> Result:
        env = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
        return CliRunner().invoke(main, [*arguments], env=env, input=input)

    return run


def process(servers: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "ottla", "produce", "-b", servers, *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **{**pipes, **options})


def contents(kafka: Kafka, topic: str) -> list[tuple[Any, ...]]:
    return [(each.raw_key, each.raw_value, list(each.headers)) for each in kafka.consume_all(topic)]


def test_lines_become_records_and_say_where_they_are(ottla, kafka: Kafka, make_topic) -> None:
    topic = make_topic("lines")
    result = ottla("produce", topic, "-k", "7", "-H", "a=1", "-H", "b", input="one\n\ntwo")
    assert (result.exit_code, result.stdout) == (0, "0@0\n0@1\n0@2\n")
    assert result.stderr == f"3 records written to {topic}\n"
    headers = [("a", b"1"), ("b", None)]
    assert contents(kafka, topic) == [(b"7", b"one", headers), (b"7", b"", headers), (b"7", b"two", headers)]


def test_keys_go_where_kafkas_own_clients_put_them(ottla, kafka: Kafka, make_topic) -> None:
    topic, other = make_topic("keys", partitions=5), make_topic("keys", partitions=5)
    lines = "".join(f"k{number}\tv{number}\n" for number in range(50))
    assert ottla("produce", topic, "-K", "\\t", "-q", input=lines).stdout == ""
    kafka.produce(other, [b"v%d" % n for n in range(50)], keys=[b"k%d" % n for n in range(50)])
    placed = [{(each.raw_key, each.partition) for each in kafka.consume_all(name)} for name in (topic, other)]
    assert placed[0] == placed[1]


def test_null_values_and_files(ottla, kafka: Kafka, make_topic, tmp_path: Path) -> None:
    topic = make_topic("nulls")
    assert ottla("produce", topic, "-k", "a", "--null").exit_code == 0
    (tmp_path / "in.txt").write_bytes(b"b:NULL\nNULL:\xff")
    assert ottla("produce", topic, str(tmp_path / "in.txt"), "-K", ":", "--null-as", "NULL").exit_code == 0
    assert contents(kafka, topic) == [(b"a", None, []), (b"b", None, []), (None, b"\xff", [])]


@pytest.mark.parametrize(
    ("arguments", "lines", "problem"),
    [
        (["--format", "json"], b'{"value": "a"}\n{"value": }\n{"value": "c"}', "line 2: found "),
        (["--format", "json"], b'{"value": "a"}\n\xff\xfe', "line 2: "),
        (["--format", "json"], b'{"value": "a"}\n\n{"value": "b", "partition": 9}', "line 3: found partition 9"),
        (
            ["--format", "json"],
            b'{"value": "a"}\n{"value": 1, "value_as": "avro"}',
            "line 2: found avro, wanted --as avro",
        ),
        (["--as", "json"], b"1\n{\n", "line 2: value: wanted JSON"),
        (["--as", "hex"], b"ff\nfg\n", "line 2: value: found 'fg', wanted hexadecimal"),
        (["-K", ":"], b"a:b\nab\n", "line 2: found no b':'"),
    ],
)
def test_a_wrong_line_is_named_and_those_before_it_are_written(
    ottla, kafka: Kafka, make_topic, arguments: list[str], lines: bytes, problem: str
) -> None:
    topic = make_topic("bad")
    result = ottla("produce", topic, *arguments, input=lines)
    assert result.exit_code == 1
    assert problem in result.stderr
    assert f"1 record written to {topic}" in result.stderr
    assert len(contents(kafka, topic)) == 1
    again = ottla("produce", topic, *arguments, "--keep-going", input=lines)
    assert again.exit_code == 1
    assert problem in again.stderr
    assert "1 lines were left out" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nowhere"], "no such topic"),
        (["{topic}", "nowhere.txt"], "nowhere.txt: No such file"),
        (["{topic}", "--null"], "wanted the key"),
        (["{topic}", "--null", "-k", "a", "--format", "json"], "wanted one of them"),
        (["{topic}", "-p", "7"], "found partition 7"),
        (["{topic}", "-H", "=a"], "wanted NAME=VALUE"),
        (["{topic}", "-K", ":", "--format", "json"], "--key-separator: found --format json"),
        (["{topic}", "--as", "avro"], "wanted --registry URL or --schema FILE"),
        (["{topic}", "--as", "protobuf", "--schema", "x"], "--message"),
        (["{topic}", "--registry", "http://127.0.0.1:1", "--as", "avro"], "127.0.0.1:1"),
        (["{topic}", "-b", "127.0.0.1:1"], "127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(ottla, make_topic, arguments: list[str], problem: str) -> None:
    topic = make_topic("none")
    result = ottla("produce", *[each.format(topic=topic) for each in arguments], input=b"x\n")
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr


def test_a_record_that_the_broker_refuses_is_named(ottla, kafka: Kafka, make_topic) -> None:
    compacted = make_topic("compacted", config={"cleanup.policy": "compact"})
    lines = b'{"key": "a", "value": "1"}\n{"value": "2"}\n{"key": "c", "value": "3"}'
    result = ottla("produce", compacted, "--format", "json", input=lines)
    assert result.exit_code == 2, result.output
    assert "line 2: " in result.stderr
    small = make_topic("small", config={"max.message.bytes": "2000"})
    result = ottla("produce", small, "--compression", "none", input=b"a\n" + b"x" * 3_000 + b"\nb\n")
    assert result.exit_code == 1, result.output
    assert "line 2: " in result.stderr
    assert "max.message.bytes" in result.stderr
    assert ottla("produce", small, input=b"x" * 3_000).exit_code == 0  # it fits when it is compressed


_parts = st.none() | st.binary(max_size=40) | st.just(b"x" * 5_000)
_records = st.builds(
    InputRecord,
    line=st.just(1),
    key=_parts,
    value=_parts,
    headers=st.lists(st.tuples(st.binary(max_size=5).map(lambda n: n.decode("utf-8", "surrogateescape")), _parts)).map(
        tuple
    ),
    partition=st.integers(0, 2),
    timestamp_ms=st.integers(-1, 1_700_000_000_000),
)


@given(records=st.lists(_records, max_size=12))
def test_a_copy_has_the_same_bytes(kafka: Kafka, records: list[InputRecord]) -> None:
    def ottla(*arguments: str, input: bytes = b"") -> Result:
        return CliRunner().invoke(main, [*arguments, "-b", kafka.bootstrap_servers], input=input)

    source, copy = (kafka.create_topic(kafka.fresh_name("copied"), partitions=3) for _ in range(2))
    with Cluster(wire_settings({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        writer = RecordWriter(cluster, source, acknowledged=lambda *_: None)
        for record in records:
            writer.add(record)
        writer.flush()
    printed = ottla("consume", source, "--format", "json")
    assert printed.exit_code == 0, printed.output
    written = ottla("produce", copy, "--format", "json", input=printed.stdout_bytes)
    assert written.exit_code == 0, written.output
    again = ottla("consume", copy, "--format", "json").stdout_bytes.splitlines()
    assert sorted(again) == sorted(printed.stdout_bytes.replace(source.encode(), copy.encode()).splitlines())
    with Cluster(wire_settings({"bootstrap.servers": kafka.bootstrap_servers})) as cluster:
        for partition in range(3):
            meant = [tuple(each)[1:] for each in records if each.partition == partition]
            assert rows(cluster, copy, partition, len(meant)) == meant
    kafka.delete_topics([source, copy])


def rows(cluster: Cluster, topic: str, partition: int, end: int) -> list[tuple[Any, ...]]:
    """What is in a partition, as the bytes on the wire say it."""
    wanted = OffsetRange(topic=topic, partition=partition, start=0, end=end)
    return [
        (key, value, tuple(headers), partition, at)
        for found in batches_of_ranges(cluster, [wanted])
        for block in rows_of(found, cluster.settings.decode_limits)
        for _, at, key, value, headers in block.rows
    ]


def test_a_copy_through_a_pipe(kafka: Kafka, make_topic) -> None:
    source, copy = make_topic("source", partitions=2), make_topic("copy", partitions=2)
    kafka.produce(source, [b"%d" % number * 50 for number in range(3_000)], keys=lambda value: value[:9])
    command = [sys.executable, "-m", "ottla", "consume", "-b", kafka.bootstrap_servers, source, "--format", "json"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as reading,
        process(kafka.bootstrap_servers, copy, "--format", "json", "-q", stdin=reading.stdout) as writing,
    ):
        _, err = writing.communicate(timeout=60)
    assert (reading.returncode, writing.returncode) == (0, 0), err
    assert contents(kafka, copy) == contents(kafka, source)
    repartitioned = make_topic("copy", partitions=1)
    lines = b'{"key": "a", "value": "b", "partition": 1}'
    runner = CliRunner().invoke
    arguments = ["produce", repartitioned, "-b", kafka.bootstrap_servers, "--format", "json"]
    assert runner(main, arguments, input=lines).exit_code == 2
    assert runner(main, [*arguments, "--repartition"], input=lines).exit_code == 0


def test_values_are_encoded_by_the_registrys_schema_and_come_back(ottla, kafka: Kafka, make_topic) -> None:
    topic = make_topic("avro")
    fields = [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
    ]
    with EmbeddedRegistry() as registry:
        from ottla.serdes import SchemaRegistry

        schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
        assert (
            "subject" in ottla("produce", topic, "--as", "avro", "--registry", registry.url, input=b"{}").stderr.lower()
        )
        SchemaRegistry(registry.url).register(f"{topic}-value", schema)
        lines = b'{"id": 7, "at": "2026-11-22T10:00:00Z", "raw": "/w=="}\n{"id": "7"}\n'
        result = ottla("produce", topic, "--as", "avro", "--registry", registry.url, input=lines)
        assert result.exit_code == 1
        assert "line 2: value: does not fit the Avro schema" in result.stderr
        shown = ottla("consume", topic, "--registry", registry.url, "--format", "json").stdout_bytes
        assert json.loads(shown)["value"] == json.loads(lines.splitlines()[0])
        copy = make_topic("avro")
        SchemaRegistry(registry.url).register(f"{copy}-value", schema)
        options = ["--as", "avro", "--registry", registry.url, "--format", "json"]
        assert ottla("produce", copy, *options, input=shown).exit_code == 0
    assert contents(kafka, copy) == contents(kafka, topic)


def test_what_is_typed_is_written_before_the_input_ends(kafka: Kafka, make_topic) -> None:
    topic = make_topic("typed")
    with process(kafka.bootstrap_servers, topic) as writing:
        assert writing.stdin is not None
        assert writing.stdout is not None
        for number in range(2):
            writing.stdin.write(b"line\n")
            writing.stdin.flush()
            assert writing.stdout.readline() == b"0@%d\n" % number
        writing.stdin.write(b"a part")
        writing.stdin.flush()
        writing.send_signal(signal.SIGINT)
        _, err = writing.communicate(timeout=20)
    assert writing.returncode == 130
    assert err.decode().splitlines() == [f"2 records written to {topic}", "interrupted"]
    assert len(contents(kafka, topic)) == 2


def test_a_reader_of_offsets_that_goes_away_loses_no_record(kafka: Kafka, make_topic, tmp_path: Path) -> None:
    topic = make_topic("unread")
    (tmp_path / "in.txt").write_bytes(b"line\n" * 50_000)
    with process(kafka.bootstrap_servers, topic, str(tmp_path / "in.txt")) as writing:
        assert writing.stdout is not None
        writing.stdout.close()
        assert writing.stderr is not None
        assert b"50,000 records written" in writing.stderr.read()
        assert writing.wait(20) == 0
    assert len(contents(kafka, topic)) == 50_000


def test_a_broker_that_dies_half_way_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=3) as cluster:
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
        topic = kafka.create_topic("orders", replication_factor=3, config={"min.insync.replicas": 2})
        with process(cluster.bootstrap_servers, topic) as writing:
            assert writing.stdin is not None
            assert writing.stdout is not None
            writing.stdin.write(b"before\n")
            writing.stdin.flush()
            assert writing.stdout.readline() == b"0@0\n"
            cluster.kill(cluster.leader(topic, 0))
            _, err = writing.communicate(b"after\n" * 20_000, timeout=60)
        assert writing.returncode == 0, err
        assert [each.raw_value for each in kafka.consume_all(topic)] == [b"before", *[b"after"] * 20_000]


def test_a_broker_that_dies_for_good_says_how_many_are_written() -> None:
    with EmbeddedCluster() as cluster:
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
        topic = kafka.create_topic("orders")
        with process(cluster.bootstrap_servers, topic, "--timeout", "1") as writing:
            assert writing.stdin is not None
            assert writing.stdout is not None
            writing.stdin.write(b"before\n")
            writing.stdin.flush()
            assert writing.stdout.readline() == b"0@0\n"
            cluster.kill(cluster.leader(topic, 0))
            _, err = writing.communicate(b"after\n", timeout=60)
    assert writing.returncode == 1, err
    assert b"1 record written to orders" in err
    assert b"Traceback" not in err


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-256") as running:
        running.create_topic("orders")
        yield running


def test_a_cluster_with_tls_and_a_password(secured: SecureKafka) -> None:
    settings = {**secured.settings}
    environment = {"OTTLA_CLIENT_SASL_PASSWORD": settings.pop("sasl.password")}
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    arguments = ["produce", "orders", "-b", secured.bootstrap_servers, *options]
    result = CliRunner().invoke(main, arguments, env=environment, input=b"x")
    assert (result.exit_code, result.stdout) == (0, "0@0\n"), result.output


def test_a_read_only_cluster_is_not_written_to(kafka: Kafka, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f'[clusters.prod]\nbootstrap.servers = "{kafka.bootstrap_servers}"\nread_only = true\n')
    path.chmod(0o600)
    arguments = ["produce", "orders", "--cluster", "prod"]
    result = CliRunner().invoke(main, arguments, env={"OTTLA_CLUSTERS": str(path)}, input=b"x")
    assert (result.exit_code, "read_only" in result.stderr) == (2, True)


def test_a_rate_is_kept(ottla, make_topic) -> None:
    started_s = time.monotonic()
    assert ottla("produce", make_topic("paced"), "--per-second", "20", input=b"x\n" * 11).exit_code == 0
    assert time.monotonic() - started_s >= 0.49


def test_it_needs_no_client_library(kafka: Kafka, make_topic) -> None:
    topic = make_topic("bare")
    program = (
        "import sys\n"
        "for name in ('pyarrow', 'numpy', 'confluent_kafka', 'aiokafka', 'fastavro', 'google.protobuf'):\n"
        "    sys.modules[name] = None\n"
        "from ottla.cli import main\n"
        f"main(['produce', '-b', '{kafka.bootstrap_servers}', '{topic}'])\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], input=b"x\n", capture_output=True, env={**os.environ})
    assert (ended.returncode, ended.stdout) == (0, b"0@0\n"), ended.stderr


@given(st.lists(st.binary(max_size=6)), st.lists(st.integers(0, 12)))
def test_lines_are_the_same_however_they_come(lines: list[bytes], cuts: list[int]) -> None:
    text = b"\n".join(line.replace(b"\n", b"") for line in lines)
    places = sorted({min(cut, len(text)) for cut in cuts})
    chunks = [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
    reader = Lines()
    found = [each for chunk in chunks for each in reader.feed(chunk)] + reader.end()
    wanted = text.split(b"\n")
    if not wanted[-1]:
        wanted.pop()
    assert found == list(enumerate(wanted, 1))


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    reader = Lines(longest=100)
    assert reader.feed(b"a\n" + b"x" * 90) == [(1, b"a")]
    with pytest.raises(InputError, match="line 2: found more than 100 bytes"):
        reader.feed(b"x" * 20)
