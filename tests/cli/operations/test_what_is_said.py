"""What a command says beside its results: progress while it waits, what it asks (`-v`), nothing (`-q`)."""

from __future__ import annotations

import pytest
from command_output import Run
from terminal import Terminal

from broker_embedded.cluster import EmbeddedCluster


@pytest.mark.parametrize("arguments", [("topics", "list"), ("doctor", "--only", "REP01"), ("cluster", "facts")])
def test_a_person_sees_that_facts_are_waited_for(cluster: EmbeddedCluster, topic: str, arguments: tuple[str]) -> None:
    with cluster.faults.add(api="METADATA", client_id="ottla-admin", hold=True) as fault:
        terminal = Terminal(*arguments, "-b", cluster.bootstrap_servers, "--timeout", "120", of="stderr")
        terminal.read(lambda shown: "answers 0 of 2" in shown)
        fault.release()
    exit_code, printed = terminal.end()
    assert exit_code in (0, 1)
    assert "answers" not in terminal.shown.rpartition("\r\x1b[K")[2], "the line is removed"
    assert "\x1b" not in printed


def test_quiet_says_only_what_is_wrong(ottla: Run, topic: str) -> None:
    assert "would" not in ottla("topics", "delete-records", topic, "--before", "latest", "--yes").stderr
    assert ottla("topics", "delete-records", topic, "--before", "latest", "--yes").stderr == "nothing to delete\n"
    assert ottla("topics", "delete-records", topic, "--before", "latest", "--yes", "-q").stderr == ""
    deleted = ottla("topics", "delete", topic, "--yes", "--quiet")
    assert (deleted.exit_code, deleted.stderr) == (0, "")
    again = ottla("topics", "delete", topic, "--yes", "--quiet")
    assert (again.exit_code, "no such topic" in again.stderr) == (2, True)


def test_quiet_ends_with_its_command(ottla: Run, topic: str) -> None:
    ottla("topics", "list", "-q")
    assert ottla("topics", "delete-records", topic, "--before", "latest", "--yes").stderr == "nothing to delete\n"


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
