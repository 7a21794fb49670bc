"""`ottla bridge`, as a process: signals, kills, and an oracle of what was acknowledged."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from bridge_kit import Publisher, Start, missing
from click.testing import CliRunner
from foreign_brokers import free_port
from help_examples import examples_of_nouns
from mqtt_client import StrictClient

from broker_embedded.cluster import EmbeddedCluster
from ottla.cli import main
from ottla.testing import Kafka, wait_until


def ottla(*arguments: str, given: str | bytes | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["bridge", *arguments], input=given)
    return result.exit_code, result.output


def test_a_dry_run_shows_what_lines_become(tmp_path: Path):
    file = tmp_path / "bridge.toml"
    file.write_text('[[map]]\nfrom = "n/+"\nto = "numbers"\nkey = "{1}"\nvalue = "json"\n')
    code, output = ottla("mqtt", "--mapping", str(file), "--dry-run", given="n/7 21.5\nn/7 x\nother 1\n")
    assert code == 0, output
    first, second, third = [json.loads(line) for line in output.splitlines()]
    assert first == {"topic": "numbers", "key": "7", "value": "21.5", "headers": {"mqtt-topic": "n/7"}}
    assert second["kind"] == "malformed"
    assert "no rule" in third["refused"]


def test_a_dry_run_refuses_topics_that_mqtt_does_not_have():
    code, output = ottla("mqtt", "--map", "#=all", "--dry-run", given=b"\xff\xfe 1\na\0b 2\nc 3\n")
    assert code == 0, output
    first, second, third = [json.loads(line) for line in output.splitlines()]
    assert "lone surrogate" in first["refused"]
    assert "NUL" in second["refused"]
    assert third["key"] == "c"


def test_a_dry_run_refuses_a_line_that_is_longer_than_a_packet():
    lines = b"a " + b"x" * 5_000 + b"\nb 1\na " + b"x" * 1_021 + b"\n" + b"c" * 9_000
    code, output = ottla("mqtt", "--map", "#=all", "--max-packet-bytes", "1024", "--dry-run", given=lines)
    assert code == 0, output
    long, short, longest, unended = [json.loads(line) for line in output.splitlines()]
    assert long == unended == {"refused": "a line of more than 1,024 bytes", "kind": "invalid"}
    assert short["value"] == "1"
    assert len(longest["value"]) == 1_021


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["mqtt"], "a bridge needs an address to listen at"),
        (["mqtt", "--listen", "x:y:z", "--map", "#=m"], "--listen: found"),
        (["mqtt", "--listen", "127.0.0.1:1"], "the mapping has no rule"),
        (["mqtt", "--listen", "127.0.0.1:1", "--map", "a"], "--map: found 'a'"),
        (["mqtt", "--connect", "mqtt://h", "--map", "#=m"], "--client-id: wanted"),
        (["mqtt", "--connect", "mqtt://h", "--client-id", "b", "--map", "#=m"], "dead-letter-topic: wanted one"),
        (["mqtt", "--connect", "http://u:secret@h", "--client-id", "b"], "--connect: found scheme 'http'"),
        (["amqp", "--connect", "mqtt://h", "--queue", "q"], "--connect: found scheme 'mqtt'"),
        (["mqtt", "--connect", "mqtt://u:secret/x@h:1883", "--client-id", "b"], "--connect: found no host, or no port"),
        (["mqtt", "--connect", "mqtt://u:[secret]@h:1883", "--client-id", "b"], "--connect: found no host, or no port"),
    ],
)
def test_bad_options_are_refused_in_words(arguments: list[str], wanted: str):
    code, output = ottla(*arguments)
    assert code == 2
    assert wanted in output
    assert "secret" not in output


def test_doctor_checks_the_topics_of_a_mapping(kafka: Kafka, kafka_topic: str, tmp_path: Path):
    file = tmp_path / "bridge.toml"
    file.write_text(f'[[map]]\nfrom = "#"\nto = "{kafka_topic}"\n')
    arguments = ["doctor", "-b", kafka.bootstrap_servers, "--bridge", str(file), "--only", "TOPIC01"]
    result = CliRunner().invoke(main, [each for each in arguments if each not in ("--only", "TOPIC01")])
    assert f"{kafka_topic}: there, and may be written" in result.output
    file.write_text('[[map]]\nfrom = "#"\nto = "not-there"\n')
    result = CliRunner().invoke(main, arguments[:5])
    assert result.exit_code == 2
    assert "not-there" in result.output
    assert "A bridge creates no topics. Create it with `ottla topics create not-there" in result.output
    assert "create_topics" not in result.output


def test_signals_reload_and_stop(kafka: Kafka, make_topic, tmp_path: Path, start: Start):
    first, second = make_topic(), make_topic()
    file = tmp_path / "bridge.toml"
    file.write_text(f'[[map]]\nfrom = "#"\nto = "{first}"\n')
    port, health = free_port(), free_port()
    options = ("--listen", f"127.0.0.1:{port}", "--mapping", str(file), "--health-port", str(health))
    process = start(kafka.bootstrap_servers, *options)
    with StrictClient(port) as client:
        client.publish("a", b"1")
        client.ack()
        with urllib.request.urlopen(f"http://127.0.0.1:{health}/health/ready", timeout=20) as answer:
            assert json.loads(answer.read())["ready"]

        def counted() -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{health}/metrics", timeout=20) as answer:
                text = answer.read().decode()
            found = re.search(r'ottla_bridge_messages_total\{.*outcome="acknowledged".*\} (\d+)', text)
            return found is not None and int(found.group(1)) >= 1

        pytest.importorskip("prometheus_client", reason="prometheus-client is not installed: pip install 'ottla[otel]'")
        wait_until(counted, timeout_s=30)
        file.write_text(f'[[map]]\nfrom = "#"\nto = "{second}"\n')
        process.send_signal(signal.SIGHUP)

        def arrives() -> bool:
            client.publish("a", b"2")
            client.ack()
            return bool(kafka.consume_all(second))

        wait_until(arrives, timeout_s=30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.complete
@pytest.mark.parametrize("example", sorted({line for _, line in examples_of_nouns("bridge")}))
def test_the_examples_run(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    dead = 'dead-letter-topic = "dead"\n'
    Path("bridge.toml").write_text(f'{dead}[[map]]\nfrom = "#"\nto = "sensors"\n')
    with EmbeddedCluster() as cluster:
        for topic in ("sensors", "dead"):
            cluster.create_topic(topic)
        line = example.replace("127.0.0.1:1883", "127.0.0.1:0").replace("--health-port 8080", "--health-port 0")
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla", *shlex.split(line)[1:]],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers},
        )
        assert process.stderr is not None
        lines = []
        for shown in process.stderr:
            lines.append(shown)
            if "bridge_listening" in shown or "bridge_source_lost" in shown:
                break
        assert process.poll() is None, lines
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        process.stderr.close()
        assert process.wait(30) == 0


@pytest.mark.complete
@pytest.mark.parametrize("version", [4, pytest.param(5, marks=pytest.mark.representative)])
def test_every_acknowledged_message_is_in_kafka_when_bridge_and_leader_are_killed(start: Start, version: int):
    with EmbeddedCluster(brokers=3) as cluster:
        kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
        kafka.create_topic("m", partitions=3, replication_factor=3)
        port = free_port()
        options = ("--listen", f"127.0.0.1:{port}", "--map", "#=m")
        process = start(cluster.bootstrap_servers, *options)
        publishers = [Publisher(port, version, f"p{number}") for number in range(3)]
        for publisher in publishers:
            publisher.thread.start()

        def acknowledged() -> int:
            return sum(len(publisher.acknowledged) for publisher in publishers)

        for round_number in range(3):
            before = acknowledged()
            wait_until(lambda before=before: acknowledged() > before + 200, timeout_s=60)
            if round_number == 1:
                leader = cluster.leader("m", 0)
                cluster.kill(leader)
                before = acknowledged()
                wait_until(lambda before=before: acknowledged() > before + 200, timeout_s=90)
                cluster.start_broker(leader)
            else:
                process.kill()
                process.wait(20)
                process = start(cluster.bootstrap_servers, *options)
        before = acknowledged()
        wait_until(lambda: acknowledged() > before + 200, timeout_s=60)
        for publisher in publishers:
            publisher.stop()
        assert not missing(publishers, kafka)
