"""Bytes of a shell that are no UTF-8 reach commands as lone surrogates: each says so, and none shows a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ottla.cli import main

if TYPE_CHECKING:
    from ottla.testing import Kafka

BAD = "caf\udce9"

COMMANDS = [
    ("acls", "create", "--allow-principal", f"User:{BAD}", "--producer", "--topic", "orders", "--yes"),
    ("acls", "create", "--allow-principal", "User:x", "--producer", "--topic", BAD, "--yes"),
    ("acls", "list", "--principal", f"User:{BAD}"),
    ("topics", "create", BAD),
    ("topics", "create", "settings", f"cleanup.policy={BAD}"),
    ("topics", "show", BAD),
    ("topics", "delete", BAD, "--yes"),
    ("topics", "delete-records", BAD, "--before", "1h", "--yes"),
    ("groups", "show", BAD),
    ("groups", "reset", BAD, "--topic", "orders", "--to", "earliest", "--yes"),
    ("groups", "delete", BAD, "--yes"),
    ("consume", BAD),
    ("produce", BAD),
    ("dlq", "list", BAD),
    ("dlq", "redrive", BAD, "--yes"),
    ("quotas", "set", "--user", BAD, "producer_byte_rate=1000", "--yes"),
    ("schedule", "list", "--name", BAD),
    ("schedule", "cancel", BAD, "--yes"),
    ("schedule", "run", "--name", BAD),
    ("topics", "list", "--set", f"client.id={BAD}"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command).encode("ascii", "replace").decode())
def test_an_argument_that_is_no_text_is_an_error_of_one_line(kafka: Kafka, command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*command, "--bootstrap-servers", kafka.bootstrap_servers], input="1\n")
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 2
    assert "Traceback" not in done.output
