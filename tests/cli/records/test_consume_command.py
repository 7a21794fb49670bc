"""`ottla consume` on the embedded broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin
from ottla.cli import main
from ottla.sync.produce.producer import Producer
from ottla.testing import Kafka, SecureKafka, secure_kafka

AT_MS = 1_700_000_000_000


@pytest.fixture
def orders(kafka: Kafka, make_topic: Callable[..., str]) -> str:
    """Ten orders in each of two partitions, a second apart, and a tombstone at the end of the first."""
    topic = make_topic("orders", partitions=2)
    with Producer(kafka.bootstrap_servers) as producer:
        for partition in range(2):
            for number in range(10):
                producer.send(
                    topic,
                    json.dumps({"id": number, "total": number * 50, "from": f"p{partition}"}).encode(),
                    key=b"k%d" % number,
                    headers=[("source", b"web" if number % 2 else b"app")],
                    partition=partition,
                    timestamp_ms=AT_MS + number * 1_000,
                )
        producer.send(topic, None, key=b"k0", partition=0, timestamp_ms=AT_MS + 10_000)
    return topic


@pytest.fixture
def ottla(kafka: Kafka) -> Callable[..., Result]:
    def run(*arguments: str, **environment: str) -> Result:
        env = {"OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers, **environment}
        return CliRunner().invoke(main, ["consume", *arguments], env=env)

    return run


def process(kafka: Kafka, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """`ottla consume` as a process of its own, its stdout a pipe."""
    command = [sys.executable, "-m", "ottla", "consume", "-b", kafka.bootstrap_servers, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_plain_is_a_line_per_record_up_to_the_end(ottla, orders: str) -> None:
    result = ottla(orders, "-H", "--null", "NULL")
    assert result.exit_code == 0, result.output
    names, *lines = result.stdout.splitlines()
    assert names.split("\t") == ["partition", "offset", "time", "key", "value", "headers"]
    assert len(lines) == 21
    assert lines[0].split("\t") == [
        *("0", "0", "2023-11-14T22:13:20.000Z", "k0"),
        *('{"id": 0, "total": 0, "from": "p0"}', "source=app"),
    ]
    assert [line.split("\t")[4] for line in lines if line.startswith("0\t10\t")] == ["NULL"]


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["-n", "3"], 3),
        (["-p", "1"], 10),
        (["--from", "-2"], 4),
        (["--from", "0:9"], 2),
        (["--from", "1:4,0:10"], 7),
        (["--until", "0:3"], 3),
        (["--from", "2023-11-14T22:13:25"], 11),
        (["--from", "2023-11-14T22:13:25", "--until", "2023-11-14T22:13:27"], 4),
        (["--from", "1960-01-01"], 21),
        (["--from", "1960-01-01", "--until", "1969-12-31T23:59:59.999"], 0),
        (["--from", "latest"], 0),
        (["--from", "now"], 0),
        (["--key", "k3"], 2),
        (["--header", "source=web"], 10),
        (["--header", "source", "-p", "0"], 10),
        (["--grep", '"total": 4[05]0'], 4),
        (["--grep", "^k7$"], 2),
        (["--grep", "(.*.*.*.*)*zzz"], 0),
        (["--where", "value.total > 400"], 2),
        (["--where", 'value.total >= 400 and headers.source == "web" and partition == 1'], 1),
        (["--where", "value == null"], 1),
        (["--where", 'timestamp < "2023-11-14T22:13:22"', "--as", "json", "-p", "1"], 2),
        (["--key", "k3", "--where", "value.total == 0"], 0),
    ],
)
def test_what_is_asked_for_is_printed(ottla, orders: str, arguments: list[str], count: int) -> None:
    result = ottla(orders, *arguments, "--format", "%o\\n")
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == count
    assert ("no records" in result.stderr) is (count == 0)


def test_json_has_a_schema_and_a_format_is_kcats(ottla, orders: str) -> None:
    lines = [json.loads(line) for line in ottla(orders, "--format", "json", "--from", "0:9").stdout.splitlines()]
    assert [line["schema"] for line in lines] == ["ottla.record/1"] * 2
    assert lines[0]["headers"] == [{"key": "source", "value": "web"}]
    assert (lines[1]["key"], lines[1]["value"], lines[1]["time"]) == ("k0", None, "2023-11-14T22:13:30.000Z")
    assert ottla(orders, "--from", "0:9", "-n", "1", "--format", "%t-%p@%o %k %S\\n").stdout == f"{orders}-0@9 k9 37\n"


def test_headers_only_shows_sizes_instead_of_values(ottla, orders: str) -> None:
    lines = ottla(orders, "--headers-only", "--from", "0:9").stdout.splitlines()
    assert [line.split("\t")[4:] for line in lines] == [["37", "source=web"], ["-1", ""]]
    (line, _) = ottla(orders, "--headers-only", "--format", "json", "--from", "0:9").stdout.splitlines()
    assert (json.loads(line)["value_bytes"], "value" in json.loads(line)) == (37, False)


def test_values_are_decoded_and_what_cannot_be_is_shown_and_counted(ottla, kafka: Kafka, make_topic) -> None:
    topic = make_topic("mixed")
    kafka.produce(topic, [b'{"id": 7}', b"{\xff", b""])
    result = ottla(topic, "--as", "json", "--format", "%v|")
    assert result.stdout_bytes == b'{"id":7}|{\xff||'
    assert result.exit_code == 1
    assert "2 values could not be decoded" in result.stderr
    assert ottla(topic, "--as", "hex", "--format", "%v|").stdout == "7b226964223a20377d|7bff||"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--where", "value.total >"], "found its end"),
        (["--grep", "("], "wanted a regular expression"),
        (["--grep", r"(k)\1"], "without back references and look-around"),
        (["--from", "yesterday"], "--from: found 'yesterday'"),
        (["--from", "9:0"], "found partition 9, wanted one of its 2"),
        (["-p", "2"], "found partition 2"),
        (["-p", "x"], "wanted numbers and ranges"),
        (["--format", "xml"], "wanted table, plain, json, or a format"),
        (["--format", "%z"], "wanted one of %s"),
        (["--header", "=x"], "wanted NAME=VALUE"),
        (["-f", "--until", "now"], "wanted one of them"),
        (["--as", "avro"], "wanted --registry URL or --schema FILE"),
        (["--as", "avro", "--schema", "nowhere.avsc"], "nowhere.avsc"),
        (["--as", "protobuf", "--schema", "x.desc"], "--message"),
        (["-n", "0"], "not in the range"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_printed(ottla, orders, arguments: list[str], problem: str) -> None:
    result = ottla(orders, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert problem in result.stderr


def test_a_topic_that_is_not_there_and_an_address_that_refuses(ottla) -> None:
    gone = ottla("no-such-topic")
    assert (gone.exit_code, "no such topic" in gone.stderr) == (2, True)
    refused = ottla("t", "-b", "127.0.0.1:1")
    assert (refused.exit_code, "127.0.0.1:1" in refused.stderr) == (2, True)


def test_an_offset_that_is_not_there_is_said(ottla, orders: str) -> None:
    result = ottla(orders, "--from", "0:99")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"{orders}-0: offset 99 is not there; the partition holds 0 to 10" in result.stderr


@pytest.mark.parametrize("signal_number", [signal.SIGINT])
def test_a_follower_prints_what_comes_and_ends_with_130(kafka: Kafka, orders: str, signal_number: int) -> None:
    with process(kafka, orders, "-f", "--from", "1:9", "--format", "%v\\n") as follower:
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["id"] == 9
        kafka.produce(orders, [b"new"], partition=1)
        assert follower.stdout.readline() == b"new\n"
        follower.send_signal(signal_number)
        out, err = follower.communicate(timeout=20)
    assert (follower.returncode, out, err) == (130, b"", b"interrupted\n")


def test_a_reader_that_goes_away_ends_it_quietly(kafka: Kafka, orders: str) -> None:
    kafka.produce(orders, [b"x" * 1_000] * 2_000)
    with process(kafka, orders) as reading:
        assert reading.stdout is not None
        assert reading.stdout.readline()
        reading.stdout.close()
        assert reading.stderr is not None
        assert reading.stderr.read() == b""
        assert reading.wait(20) == 0


def test_a_follower_reads_partitions_that_are_added(kafka: Kafka, make_topic) -> None:
    topic = make_topic("growing", partitions=1)
    kafka.produce(topic, [b"first"], partition=0)
    with process(kafka, topic, "-f", "--from", "earliest", "--format", "%p %o %v\\n") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"0 0 first\n"
        with Admin(kafka.bootstrap_servers) as admin:
            admin.add_partitions(topic, 3)
        kafka.produce(topic, [b"second"], partition=2)
        assert follower.stdout.readline() == b"2 0 second\n"
        kafka.produce(topic, [b"third"], partition=0)
        assert follower.stdout.readline() == b"0 1 third\n", "nothing is printed twice"
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=30)
    assert (follower.returncode, out, err) == (130, b"", b"interrupted\n")


def test_a_follower_survives_a_broker_that_dies() -> None:
    with EmbeddedCluster(brokers=3) as cluster:
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
        topic = kafka.create_topic("orders", replication_factor=3)
        kafka.produce(topic, [b"before"])
        with process(kafka, topic, "-f", "--from", "earliest", "--format", "%v\\n") as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline() == b"before\n"
            cluster.kill(cluster.leader(topic, 0))
            kafka.produce(topic, [b"after"])
            assert follower.stdout.readline() == b"after\n"
            follower.send_signal(signal.SIGINT)
            assert follower.wait(20) == 130


def test_a_broker_that_dies_for_good_is_an_error_that_names_it() -> None:
    with EmbeddedCluster() as cluster:
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
        topic = kafka.create_topic("orders")
        kafka.produce(topic, [b"before"])
        with process(kafka, topic, "-f", "--from", "earliest", "--format", "%v\\n", "--timeout", "1") as follower:
            assert follower.stdout is not None
            assert follower.stdout.readline() == b"before\n"
            cluster.kill(cluster.leader(topic, 0))
            _, err = follower.communicate(timeout=30)
    assert follower.returncode == 2
    assert kafka.bootstrap_servers.encode() in err
    assert len(err.splitlines()) == 1


@pytest.fixture(scope="module")
def secured() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-512") as running:
        running.create_topic("orders")
        running.produce("orders", [b"one", b"two"])
        yield running


def test_a_cluster_with_tls_and_a_password(secured: SecureKafka, tmp_path: Path) -> None:
    settings = {**secured.settings}
    password = settings.pop("sasl.password")
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    arguments = ["consume", "orders", "-b", secured.bootstrap_servers, *options, "--format", "%v\\n"]
    result = CliRunner().invoke(main, arguments, env={"OTTLA_CLIENT_SASL_PASSWORD": password})
    assert (result.exit_code, result.stdout) == (0, "one\ntwo\n"), result.output
    refused = CliRunner().invoke(main, arguments, env={"OTTLA_CLIENT_SASL_PASSWORD": "wrong"})
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "refused 'alice'" in refused.stderr
    assert "wrong" not in refused.stderr


def test_it_needs_neither_arrow_nor_a_client_library(kafka: Kafka, orders: str) -> None:
    program = (
        "import sys\n"
        "for name in ('pyarrow', 'numpy', 'confluent_kafka', 'aiokafka', 'fastavro', 'google.protobuf'):\n"
        "    sys.modules[name] = None\n"
        "from ottla.cli import main\n"
        f"main(['consume', '-b', '{kafka.bootstrap_servers}', '{orders}', '-n', '1', '--format', '%k'])\n"
    )
    environment = {**os.environ}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, env=environment)
    assert (ended.returncode, ended.stdout) == (0, b"k0"), ended.stderr
