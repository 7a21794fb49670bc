"""Commands whose stdout has no reader, is closed, or is full: what they were asked to change is changed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ottla.admin import Admin, TopicSpec
from ottla.testing import Kafka

HOWS = ["no reader", "closed", "full"]


@pytest.fixture
def ottla(kafka: Kafka, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """`ottla` as a process whose stdout fails in one of three ways."""

    def run(how: str, *arguments: str, stdin: bytes = b"", timeout_s: float = 60) -> subprocess.CompletedProcess[bytes]:
        command: Sequence[str] = [sys.executable, "-m", "ottla", *arguments]
        if how == "closed":
            command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
        reader, writer = os.pipe()
        os.close(reader)
        full = os.open("/dev/full", os.O_WRONLY)
        try:
            return subprocess.run(
                command,
                input=stdin,
                stdout=full if how == "full" else writer,
                stderr=subprocess.PIPE,
                cwd=tmp_path,
                env={**os.environ, "OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers},
                timeout=timeout_s,
                check=False,
            )
        finally:
            os.close(writer)
            os.close(full)

    return run


@pytest.fixture
def admin(kafka: Kafka):
    with Admin(kafka.bootstrap_servers, timeout_s=20) as made:
        yield made


def complaint(how: str) -> bytes:
    """What a command writes to stderr about its stdout."""
    reasons = {"closed": b"it is closed", "full": b"No space left on device"}
    return b"ottla: cannot write to stdout: " + reasons[how] + b"\n" if how in reasons else b""


@pytest.mark.parametrize("how", HOWS)
def test_a_group_is_reset_although_nobody_reads_the_table(ottla, kafka, admin, make_topic, how: str) -> None:
    topic = make_topic("unread", partitions=3)
    kafka.produce(topic, [b"1", b"2"], partition=0)
    group = f"{topic}-group"
    admin.apply_reset(admin.plan_reset(group, to="latest", topics={topic: None}))
    ended = ottla(how, "groups", "reset", group, "--to", "earliest", "--yes")
    assert [each.offset for each in admin.describe_groups(group)[0].offsets] == [0, 0, 0]
    assert f"{group}: 1 offset set" in ended.stderr.decode()
    assert ended.returncode == (0 if how == "no reader" else 1)
    assert ended.stderr.startswith(complaint(how))
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "change",
    [
        ["topics", "create", "NEW"],
        ["topics", "set", "TOPIC", "retention.ms=1h", "--yes"],
        ["topics", "delete-records", "TOPIC", "--before", "latest", "--yes"],
        ["topics", "delete", "TOPIC", "--yes"],
        ["topics", "copy", "TOPIC", "NEW", "--yes"],
        ["quotas", "set", "producer_byte_rate=1GB", "--client-id", "TOPIC", "--yes"],
    ],
)
def test_what_was_to_be_changed_is_changed(ottla, kafka, admin, make_topic, how: str, change: list[str]) -> None:
    topic = make_topic("change")
    kafka.produce(topic, [b"1"])
    words = [{"TOPIC": topic, "NEW": f"{topic}-new"}.get(each, each) for each in change]
    ended = ottla(how, *words)
    assert ended.returncode == (0 if how == "no reader" else 1), ended.stderr
    assert b"Traceback" not in ended.stderr
    assert ended.stderr.count(b"cannot write to stdout") == (0 if how == "no reader" else 1)
    names = {each.name for each in admin.list_topics()}
    if change[1] in ("create", "copy"):
        assert f"{topic}-new" in names
    elif change[1] == "delete":
        assert topic not in names
    elif change[0] == "quotas":
        assert b"changed" in ended.stderr
        ottla(how, "quotas", "remove", "producer_byte_rate", "--client-id", topic, "--yes")
    elif change[1] == "delete-records":
        assert admin.describe_topics(topic)[0].partitions[0].log_start == 1
    else:
        assert admin.topic_settings(topic)["retention.ms"].value == "3600000"


@pytest.mark.parametrize("how", HOWS)
def test_all_lines_are_written_and_counted_although_no_place_can_be_printed(ottla, kafka, make_topic, how: str) -> None:
    topic = make_topic("lines")
    ended = ottla(how, "produce", topic, stdin=b"line\n" * 12_000)
    assert len(kafka.consume_all(topic)) == 12_000
    assert ended.stderr == complaint(how) + f"12,000 records written to {topic}\n".encode()
    assert ended.returncode == (0 if how == "no reader" else 1)


@pytest.mark.representative("full")
@pytest.mark.parametrize("how", HOWS)
def test_what_was_found_stays_in_the_exit_code(ottla, kafka, admin, make_topic, how: str) -> None:
    topic = make_topic("behind")
    kafka.produce(topic, [b"1", b"2", b"3"])
    group = f"{topic}-group"
    admin.apply_reset(admin.plan_reset(group, to="earliest", topics={topic: None}))
    assert ottla(how, "groups", "lag", group, "--above", "2").returncode == 1
    assert ottla(how, "groups", "lag", group, "--above", "3").returncode == (0 if how == "no reader" else 1)
    watched = ottla(how, "groups", "lag", group, "--above", "2", "--watch", "1h")
    assert watched.returncode == 1
    assert b"3 records behind, more than 2" in watched.stderr
    admin.create_topics({f"{topic}-risky": TopicSpec(config={"min.insync.replicas": 9})})
    assert ottla(how, "doctor", "--fail-on", "note").returncode == 1


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "question",
    [["topics", "list"], ["--help"], ["topics", "--help"], ["--version"], ["config", "explain", "--for", "producer"]],
)
def test_a_question_without_a_reader_ends_quietly(ottla, make_topic, how: str, question: list[str]) -> None:
    make_topic("listed")
    ended = ottla(how, *question)
    assert ended.stderr == complaint(how)
    assert ended.returncode == (0 if how == "no reader" else 1)


@pytest.mark.parametrize("how", HOWS)
def test_following_a_quiet_topic_ends_without_a_reader(ottla, kafka, make_topic, how: str) -> None:
    topic = make_topic("quiet")
    if how != "no reader":
        kafka.produce(topic, [b"1"])
    ended = ottla(how, "consume", topic, "-f", "--from", "earliest", timeout_s=30)
    assert ended.returncode == (0 if how == "no reader" else 1)
    assert b"Traceback" not in ended.stderr


def test_a_change_that_cannot_be_shown_is_not_asked_for(ottla, admin, make_topic) -> None:
    topic = make_topic("asked")
    ended = ottla("full", "topics", "delete", topic)
    assert ended.returncode == 1
    assert b"nothing was changed (--yes changes it all the same)" in ended.stderr
    assert topic in {each.name for each in admin.list_topics()}


def test_stderr_without_a_reader_stops_no_change(kafka, admin, make_topic, tmp_path: Path) -> None:
    topic = make_topic("silent")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "ottla", "topics", "delete", topic, "--yes", "-b", kafka.bootstrap_servers, "-v"]
    try:
        ended = subprocess.run(command, stdout=writer, stderr=writer, cwd=tmp_path, timeout=60, check=False)
    finally:
        os.close(writer)
    assert ended.returncode == 0
    assert topic not in {each.name for each in admin.list_topics()}
