"""What a command says beside its results: progress while it waits, what it asks (`-v`), nothing (`-q`)."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time

import pytest
from command_output import Run

from broker_embedded.cluster import EmbeddedCluster


def read_until(terminal: int, text: str, *, timeout_s: float = 90.0) -> str:
    deadline = time.monotonic() + timeout_s
    shown = ""
    while text not in shown:
        assert time.monotonic() < deadline, shown[-500:]
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                shown += os.read(terminal, 65_536).decode()
            except OSError:  # its end, on Linux
                break
    return shown


@pytest.mark.parametrize("arguments", [("topics", "list"), ("doctor", "--only", "REP01"), ("cluster", "facts")])
def test_a_person_sees_that_facts_are_waited_for(cluster: EmbeddedCluster, topic: str, arguments: tuple[str]) -> None:
    here, there = pty.openpty()
    command = [sys.executable, "-m", "ottla", *arguments, "-b", cluster.bootstrap_servers, "--timeout", "120"]
    with cluster.faults.add(api="METADATA", client_id="ottla-admin", hold=True) as fault:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=there, stdin=subprocess.DEVNULL)
        os.close(there)
        shown = read_until(here, "answers 0 of 2")
        fault.release()
    printed, _ = process.communicate(timeout=90)
    shown += read_until(here, "never shown")
    os.close(here)
    assert process.returncode in (0, 1)
    assert "answers" not in shown.rpartition("\r\x1b[K")[2], "the line is removed"
    assert b"\x1b" not in printed


def test_quiet_says_only_what_is_wrong(ottla: Run, topic: str) -> None:
    assert "would" not in ottla("topics", "trim", topic, "--before", "latest", "--yes").stderr
    assert ottla("topics", "trim", topic, "--before", "latest", "--yes").stderr == "nothing to delete\n"
    assert ottla("topics", "trim", topic, "--before", "latest", "--yes", "-q").stderr == ""
    deleted = ottla("topics", "delete", topic, "--yes", "--quiet")
    assert (deleted.exit_code, deleted.stderr) == (0, "")
    again = ottla("topics", "delete", topic, "--yes", "--quiet")
    assert (again.exit_code, "no such topic" in again.stderr) == (2, True)


def test_quiet_ends_with_its_command(ottla: Run, topic: str) -> None:
    ottla("topics", "list", "-q")
    assert ottla("topics", "trim", topic, "--before", "latest", "--yes").stderr == "nothing to delete\n"


@pytest.mark.parametrize("arguments", [("topics", "list"), ("consume", "TOPIC"), ("groups", "list")])
def test_verbose_says_what_is_asked_of_whom(
    ottla: Run, cluster: EmbeddedCluster, topic: str, arguments: tuple[str, ...]
) -> None:
    named = [topic if each == "TOPIC" else each for each in arguments]
    quiet, verbose = ottla(*named), ottla(*named, "-v")
    assert verbose.exit_code == 0, verbose.output
    assert verbose.stdout == quiet.stdout, "it says so beside the results"
    said = verbose.stderr.splitlines()
    assert said[0] == f"{cluster.bootstrap_servers}: PLAINTEXT"
    assert any(": METADATA in " in line and line.endswith(" ms") for line in said), said


def test_verbose_shows_no_password(ottla: Run, cluster: EmbeddedCluster) -> None:
    secret = (
        "--set",
        "security.protocol=SASL_PLAINTEXT",
        "--set",
        "sasl.mechanism=PLAIN",
        "--set",
        "sasl.username=ops",
    )
    ended = ottla("topics", "list", "-v", *secret, OTTLA_CLIENT_SASL_PASSWORD="hunter2-secret")
    assert ended.exit_code == 2, "this cluster takes no login"
    assert "hunter2" not in ended.output
