"""`ottla topics copy`: settings and records byte for byte, and a copy that fails half way goes on where it stopped."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from click.testing import CliRunner
from command_output import Run, document, rows

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.browse import writing
from ottla.browse.reading import read_blocks
from ottla.browse.spans import SpanBoundary, resolved
from ottla.cli import main
from ottla.testing import Kafka, wait_until
from ottla.wire_client import Cluster, wire_settings
from ottla.wire_client.cluster.cluster_client import EARLIEST, LATEST

_numbers = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers, timeout_s=20) as made:
        yield made


@pytest.fixture
def ottla(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Writes in small batches, so that there are several."""
    monkeypatch.setattr(writing, "_MOST_RECORDS", 100)
    env = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    return lambda *arguments, input=None: CliRunner().invoke(main, list(arguments), env=env, input=input)


@pytest.fixture
def written(ottla: Run, admin: Admin) -> str:
    """Three partitions of records with everything that a record can have."""
    name = f"source-{next(_numbers)}"
    config = {"retention.ms": 3_600_000_000, "max.message.bytes": 2_000_000}
    admin.create_topics({name: TopicSpec(partitions=3, replication_factor=2, config=config)})
    headers = [{"key": "a", "value": "1"}, {"key": "a", "value": None}, {"key": "b", "value_base64": "/w=="}]
    lines = [
        json.dumps(
            {
                "partition": number % 3,
                "timestamp": 1_700_000_000_000 + number,
                "key": f"k{number}",
                "value_base64": "/wAB",
                "headers": headers,
            }
        )
        for number in range(3_000)
    ]
    lines += ['{"partition": 1, "key": "gone", "value": null}', '{"partition": 1, "key": null, "value": ""}']
    assert ottla("produce", name, "--format", "json", "-q", input="\n".join(lines)).exit_code == 0
    return name


def contents(cluster: EmbeddedCluster, topic: str) -> dict[int, list[tuple[object, ...]]]:
    """All records of each partition, without their offsets."""
    found: dict[int, list[tuple[object, ...]]] = {}
    with Cluster(wire_settings({"bootstrap.servers": cluster.bootstrap_servers})) as client:
        spans = resolved(
            client,
            topic,
            start=SpanBoundary(timestamp=EARLIEST),
            until=SpanBoundary(timestamp=LATEST),
            only=None,
            say=print,
        )
        for block in read_blocks(client, spans):
            assert block is not None
            found.setdefault(block.partition, []).extend(row[1:] for row in block.rows)
    return found


def test_a_copy_is_the_topic_byte_for_byte(ottla: Run, cluster: EmbeddedCluster, admin: Admin, written: str) -> None:
    to = f"{written}-copy"
    ended = ottla("topics", "copy", written, to, "--yes")
    assert [row[0] for row in rows(ended)] == ["0", "1", "2"]
    assert ended.stderr.endswith(f"3,002 records written to {to}\n")
    assert contents(cluster, to) == contents(cluster, written)
    (copied,) = admin.describe_topics(to)
    assert (len(copied.partitions), copied.replication_factor) == (3, 2)
    assert (copied.number("retention.ms"), copied.number("max.message.bytes")) == (3_600_000_000, 2_000_000)


def test_a_dry_run_creates_and_writes_nothing(ottla: Run, admin: Admin, written: str) -> None:
    planned = ottla("topics", "copy", written, f"{written}-copy", "--dry-run", "--format", "json")
    found = document(planned, "ottla.topics.copy/1")
    assert (found["creates"], sum(item["records"] for item in found["items"])) == (True, 3_002)
    assert f"{written}-copy" not in {each.name for each in admin.list_topics()}


def test_a_part_is_copied(ottla: Run, cluster: EmbeddedCluster, written: str) -> None:
    to = f"{written}-part"
    assert (
        ottla("topics", "copy", written, to, "--from", "0:10,2:990", "--until", "0:15,2:1000", "--yes").exit_code == 0
    )
    whole, part = contents(cluster, written), contents(cluster, to)
    assert part == {0: whole[0][10:15], 2: whole[2][990:1000]}


def test_what_cannot_take_a_copy_is_refused(ottla: Run, cluster: EmbeddedCluster, admin: Admin, written: str) -> None:
    def refused(*arguments: str) -> str:
        ended = ottla("topics", "copy", *arguments, "--yes")
        assert ended.exit_code == 2, ended.output
        return ended.stderr

    small = f"{written}-small"
    admin.create_topics({small: TopicSpec(partitions=2)})
    assert "wanted 3 as" in refused(written, small)
    assert "wanted another topic" in refused(written, written)
    assert "wanted a name" in refused(written, "not a name")
    assert "no-such-topic" in refused("no-such-topic", small)
    assert "--from" in refused(written, f"{written}-copy", "--from", "soon")
    assert rows(ottla("topics", "copy", written, f"{written}-copy", "--yes"))
    assert "--append" in refused(written, f"{written}-copy")
    once = contents(cluster, f"{written}-copy")
    assert rows(ottla("topics", "copy", written, f"{written}-copy", "--append", "--yes"))
    assert {number: len(each) for number, each in contents(cluster, f"{written}-copy").items()} == {
        number: 2 * len(each) for number, each in once.items()
    }


@pytest.mark.representative("0")
@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_copy_that_fails_says_how_to_go_on(
    ottla: Run, cluster: EmbeddedCluster, written: str, skip: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = f"{written}-again"
    refused = {"api": "PRODUCE", "topic": to, "error": "TOPIC_AUTHORIZATION_FAILED", "skip": skip}
    # Until the end: what the first command has sent and given up may reach the broker behind it.
    with cluster.faults.add(**refused, client_id="fails"):
        monkeypatch.setenv("OTTLA_CLIENT_CLIENT_ID", "fails")
        failed = ottla("topics", "copy", written, to, "--yes")
        assert failed.exit_code in (1, 2), failed.output
        assert "TOPIC_AUTHORIZATION_FAILED" in failed.stderr
        found = re.search(r"continue with: ottla (.+)", failed.stderr)
        assert found is not None, failed.stderr
        monkeypatch.setenv("OTTLA_CLIENT_CLIENT_ID", "goes-on")
        assert ottla(*shlex.split(found[1]), "--yes").exit_code == 0
        assert contents(cluster, to) == contents(cluster, written)


def test_a_leader_that_dies_during_a_copy_costs_and_doubles_nothing(
    ottla: Run, cluster: EmbeddedCluster, written: str, make_dying: Callable[[str], None]
) -> None:
    to = f"{written}-survives"
    assert rows(ottla("topics", "copy", written, to, "--until", "0:0,1:0,2:0", "--yes")) == []
    make_dying(to)
    assert rows(ottla("topics", "copy", written, to, "--yes", "--timeout", "60"))
    assert contents(cluster, to) == contents(cluster, written)


@pytest.fixture
def make_dying(cluster: EmbeddedCluster) -> Iterator[Callable[[str], None]]:
    """The leader of partition 0 dies after it has appended, before it says so, and comes back after the test."""
    from threading import Thread

    started: list[Thread] = []
    died: list[int] = []

    def begin(topic: str) -> None:
        cluster.wait_for_isr(topic)
        leader = cluster.wait_for_leader(topic)
        fault = cluster.faults.add(api="PRODUCE", topic=topic, broker=leader, hold=True, after_apply=True, count=1)

        def kill() -> None:
            fault.wait(hits=1)
            cluster.kill(leader)
            died.append(leader)
            fault.release()

        started.append(Thread(target=kill))
        started[0].start()

    yield begin
    started[0].join(60)
    cluster.start_broker(died[0])


@pytest.mark.representative("2")
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_copy_that_a_signal_ends_says_how_to_go_on(
    ottla: Run, cluster: EmbeddedCluster, admin: Admin, ending: signal.Signals
) -> None:
    source = f"ended-{next(_numbers)}"
    to = f"{source}-copy"
    admin.create_topics({source: TopicSpec(partitions=1, replication_factor=1)})
    kafka = Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)
    kafka.produce(source, [bytes(100_000)] * 60)
    with cluster.faults.add(api="FETCH", topic=source, skip=1, delay_ms=60_000, client_id="ended"):
        command = ["-m", "ottla", "topics", "copy", source, to, "--yes", "-b", cluster.bootstrap_servers]
        command += ["--set", "client.id=ended"]
        with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True) as copying:
            wait_until(lambda: to in {each.name for each in admin.list_topics()}, timeout_s=30)
            wait_until(lambda: len(kafka.consume_all(to)) > 0, timeout_s=30)
            copying.send_signal(ending)
            _, err = copying.communicate(timeout=60)
    assert copying.returncode == 128 + ending
    assert err.endswith("interrupted\n" if ending == signal.SIGINT else "terminated\n")
    found = re.search(r"continue with: ottla (.+)", err)
    assert found is not None, err
    assert ottla(*shlex.split(found[1]), "--yes").exit_code == 0
    assert len(kafka.consume_all(to)) == 60
