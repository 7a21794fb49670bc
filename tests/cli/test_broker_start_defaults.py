"""`ottla broker start` serves a cluster on which a misspelt topic is an error."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer as ConfluentProducer

from ottla.admin import Admin
from ottla.cli import main


@contextmanager
def _started(*arguments: str) -> Iterator[str]:
    command = [sys.executable, "-m", "ottla", "broker", "start", "--log-level", "error", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("ready bootstrap=").strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.mark.parametrize(("arguments", "found"), [((), set()), (("--set", "auto.create.topics.enable=true"), {"typo"})])
def test_a_client_that_asks_for_a_topic_creates_it_only_where_that_was_chosen(
    arguments: tuple[str, ...], found: set[str]
) -> None:
    with _started(*arguments) as servers:
        client = ConfluentProducer({"bootstrap.servers": servers, "log_level": 0})
        client.list_topics("typo", timeout=30)
        with Admin(servers) as admin:
            assert {topic.name for topic in admin.list_topics()} == found


def test_the_help_shows_that_sizes_may_have_units() -> None:
    shown = CliRunner().invoke(main, ["broker", "start", "--help"], env={"COLUMNS": "200"}).output

    assert "10MiB" in shown
