"""`ottla broker start --topics`: what exists before the first service starts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.admin import Admin, Part
from ottla.cli import main


def start_broker(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ottla", "broker", "start", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_broker_has_its_topics_before_it_is_ready(tmp_path: Path) -> None:
    for _ in range(2):  # the second time they are there already
        broker = start_broker("--data-dir", str(tmp_path), "--topics", "orders:3,returns", "--topics", "audit:1:1")
        assert broker.stdout is not None
        ready = re.match(r"ready bootstrap=(\S+)", broker.stdout.readline())
        assert ready is not None
        listed = CliRunner().invoke(main, ["topics", "list", "--bootstrap-servers", ready[1]]).stdout
        broker.terminate()
        broker.communicate(timeout=30)
        assert [line.split() for line in listed.splitlines()] == [
            ["audit", "1", "1"],
            ["orders", "3", "1"],
            ["returns", "1", "1"],
        ]


def test_brokers_have_the_racks_and_log_directories_that_were_asked_for() -> None:
    broker = start_broker("--brokers", "2", "--racks", "a,b", "--log-dirs", "2")
    assert broker.stdout is not None
    ready = re.match(r"ready bootstrap=(\S+)", broker.stdout.readline())
    assert ready is not None
    with Admin(ready[1]) as admin:
        facts = admin.facts((Part.LOG_DIRS,))
    broker.terminate()
    broker.communicate(timeout=30)
    assert [each.rack for each in facts.brokers] == ["a", "b"]
    assert [len(each.log_dirs or ()) for each in facts.brokers] == [2, 2]


def test_racks_of_another_number_of_brokers_are_refused() -> None:
    broker = start_broker("--brokers", "3", "--racks", "a,b")
    _, said = broker.communicate(timeout=30)
    assert broker.returncode == 2
    assert "racks: found 2, wanted one for each of 3 brokers" in said


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("orders:many", "--topics: found 'orders:many', wanted NAME[:PARTITIONS[:REPLICAS]]"),
        ("orders,", "--topics: found ''"),
        ("orders:1000000", "with at most 999999 partitions"),
        ("orders:3:3", "--topics: orders cannot be created: Unable to replicate the partition 3 time(s)"),
        ("or/ders", "--topics: or/ders cannot be created"),
        ("orders:0", "--topics: orders cannot be created"),
    ],
)
def test_a_broker_that_cannot_have_its_topics_does_not_start(given: str, told: str) -> None:
    broker = start_broker("--topics", given)
    ready, said = broker.communicate(timeout=60)
    assert (broker.returncode, ready) == (2, "")
    assert told in said
