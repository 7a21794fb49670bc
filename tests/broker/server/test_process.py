"""`python -m broker_embedded`: one ready line, a clean end, and one clear line for what cannot work."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla_wire.protocol import ApiKey

READY = re.compile(r"ready bootstrap=(127\.0\.0\.1:\d+(?:,127\.0\.0\.1:\d+)*)\n")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts the broker as a process; what still runs at the end is killed."""
    processes: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "broker_embedded", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield run
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def bootstrap_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    match = READY.fullmatch(line)
    assert match, f"{line!r} {process.communicate()[1]}"
    return match[1]


@pytest.mark.representative("15")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_ready_once_and_ends_cleanly_on_a_signal(
    start: Start, make_wire_client: Callable[[str], Any], number: signal.Signals, tmp_path: Path
) -> None:
    process = start("--data-dir", str(tmp_path))
    client = make_wire_client(bootstrap_of(process))
    assert client.call(ApiKey.API_VERSIONS, 2, {}).error_code == 0
    process.send_signal(number)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "")
    assert (tmp_path / "broker-1" / ".kafka_cleanshutdown").exists()


def test_three_brokers_share_the_leaders_and_keep_copies_of_each_other_s_partitions(
    start: Start, make_wire_client: Callable[[str], Any]
) -> None:
    process = start("--brokers", "3", "--set", "num.partitions=6", "--set", "default.replication.factor=3")
    addresses = bootstrap_of(process).split(",")
    assert len(set(addresses)) == 3
    for address in addresses:
        topics = make_wire_client(address).call(ApiKey.METADATA, 9, {"topics": [{"name": "t"}]}).topics
        assert sorted(each.leader_id for each in topics[0].partitions) == [1, 1, 2, 2, 3, 3]
        assert all(sorted(each.isr_nodes) == [1, 2, 3] for each in topics[0].partitions)
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_data_and_topics_are_there_after_a_restart(
    start: Start, make_wire_client: Callable[[str], Any], make_batch: Callable[..., bytes], tmp_path: Path
) -> None:
    first = start("--data-dir", str(tmp_path))
    client = make_wire_client(bootstrap_of(first))
    client.call(ApiKey.METADATA, 9, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
    client.produce("t", make_batch(b"kept"))
    first.terminate()
    first.communicate(timeout=20)
    second = start("--data-dir", str(tmp_path))
    client = make_wire_client(bootstrap_of(second))
    assert b"kept" in bytes(client.fetch("t").records)


def test_what_was_acknowledged_is_there_after_a_kill(
    start: Start, make_wire_client: Callable[[str], Any], make_batch: Callable[..., bytes], tmp_path: Path
) -> None:
    first = start("--data-dir", str(tmp_path))
    client = make_wire_client(bootstrap_of(first))
    client.call(ApiKey.METADATA, 9, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True})
    for number in range(50):
        assert client.produce("t", make_batch(b"record %d" % number)).base_offset == number
    first.kill()
    first.communicate(timeout=20)
    second = start("--data-dir", str(tmp_path))
    client = make_wire_client(bootstrap_of(second))
    assert client.fetch("t").high_watermark == 50
    assert client.produce("t", make_batch(b"next")).base_offset == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "num.partitions"], "--set: found 'num.partitions', wanted KEY=VALUE"),
        (["--set", "num.partitions=x"], "num.partitions: found 'x', wanted a whole number"),
        (["--set", "num.partition=1"], "num.partition: found '1', wanted a broker setting; there is none of this name"),
        (["--brokers", "0"], "brokers: found 0, wanted at least 1"),
        (["--brokers", "two"], "argument --brokers: invalid int value: 'two'"),
        (["--port", "70000"], "port 70000: wanted a number from 0 to 65535"),
        (["--virtual-clock", "-3"], "--virtual-clock: found -3, wanted 0 (frozen) or more"),
        (["--virtual-clock", "nan"], "--virtual-clock: found nan, wanted 0 (frozen) or more"),
        (["--virtual-clock", "inf"], "--virtual-clock: found inf, wanted 0 (frozen) or more"),
        (["--nope"], "unrecognized arguments: --nope\n"),
        (["--use=alice=secret"], "unrecognized arguments: --use\n"),
        (["--usr", "alice=secret", "--nope"], "unrecognized arguments: --usr --nope\n"),
        (["--user", "alice=x", "secret"], "unrecognized arguments: values without an option\n"),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_code_2(start: Start, arguments: list[str], message: str) -> None:
    process = start(*arguments)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (2, "")
    assert err.startswith(f"broker_embedded: {message}")
    assert err.count("\n") == 1


def test_a_port_in_use_is_named(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = start("--port", str(port))
        _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert err == f"broker_embedded: port {port} on 127.0.0.1 is in use: stop what listens there or choose another\n"


def test_a_data_directory_in_use_is_named(start: Start, tmp_path: Path) -> None:
    first = start("--data-dir", str(tmp_path))
    bootstrap_of(first)
    second = start("--data-dir", str(tmp_path))
    _, err = second.communicate(timeout=20)
    assert second.returncode == 2
    assert str(tmp_path) in err
    assert "lock" in err
    assert err.count("\n") == 1


def test_a_data_directory_that_cannot_be_used_is_named(start: Start, tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    process = start("--data-dir", str(in_the_way))
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert str(in_the_way) in err
    assert err.count("\n") == 1


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a directory that nobody can write to")
def test_a_data_directory_where_nothing_can_be_made_is_named(start: Start) -> None:
    process = start("--data-dir", "/proc/nothing-here")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert err.startswith("broker_embedded: data directory /proc/nothing-here cannot be used: ")
    assert err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_directory_that_is_not_writable_is_named(start: Start, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    process = start("--data-dir", str(closed))
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert str(closed) in err
    assert err.count("\n") == 1
