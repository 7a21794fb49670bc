"""Every command that reaches a cluster is called in this folder, where its tests also run on Apache Kafka."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
from command_tree import walked

from ottla.cli import main

CALLED_BY = ("ottla", "started")
"""The fixtures of conftest.py that run a command."""
OPTIONS_OF_A_CLUSTER = {"bootstrap_servers", "cluster", "config_file", "timeout_s"}

OF_NO_CLUSTER = {
    "asyncapi": "reads the declarations of an app, and files",
    "broker": "it is the embedded broker itself; its other commands speak to its control API",
    "contexts list": "reads a file",
    "contexts use": "writes a file",
    "completion": "prints a script",
    "config explain": "reads settings and the environment",
    "demo": "starts an embedded broker for itself",
    "explain": "reads the pages of errors",
    "new": "writes files",
    "schemas": "speaks to a schema registry",
    "outbox drop": "changes rows of a database",
    "outbox retry": "changes rows of a database",
    "pipeline checkpoint": "reads and changes files of Spark; what looks positions up is the wire client's",
    "pipeline prepare": "makes an archive of Spark's classes, on an embedded broker",
}
"""Commands, or groups of them, that talk to no cluster, and what they do instead."""

ELSEWHERE = {
    "bridge amqp": "tests/bridge",
    "pipeline batch": "tests/spark",
    "pipeline describe": "tests/spark",
    "pipeline lag": "tests/spark",
    "pipeline replay": "tests/spark",
    "pipeline run": "tests/spark",
    "pipeline switch": "tests/spark",
}
"""Commands that need Spark or RabbitMQ, and which tests have them, on the embedded broker. What they ask a broker,
clients ask whose contract is in this folder."""


def test_every_command_is_called_here_or_says_why_not() -> None:
    commands = set(leaves(main, ()))
    called = set(called_in(Path(__file__).parent, commands))
    reasons = {*OF_NO_CLUSTER, *ELSEWHERE}
    excused = {command for command in commands for reason in reasons if f"{command} ".startswith(f"{reason} ")}
    assert sorted(commands - called - excused) == [], "give each of them a test in this folder"
    assert sorted(called & excused) == [], "what is called here needs no reason"
    unused = [reason for reason in reasons if not any(f"{each} ".startswith(f"{reason} ") for each in commands)]
    assert unused == []


def test_what_takes_the_options_of_a_cluster_is_not_excused() -> None:
    excused = {
        command for command in leaves(main, ()) for reason in OF_NO_CLUSTER if f"{command} ".startswith(f"{reason} ")
    }
    takes = {
        path
        for path, command in walked(main)
        if {parameter.name for parameter in command.params} >= OPTIONS_OF_A_CLUSTER
    }
    assert "topics list" in takes, "it is known by its options"
    assert sorted(excused & takes) == []


def test_a_command_is_found_where_it_is_called_and_not_where_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(
        'def test(ottla):\n    """ottla topics show"""\n    # ottla("topics", "delete")\n'
        '    names = ("groups", "list")\n    ottla("topics", "list", *names)\n    ottla("doctor", "--deep")\n'
    )
    found = set(called_in(tmp_path, {"topics list", "topics show", "topics delete", "groups list", "doctor"}))
    assert found == {"topics list", "doctor"}


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    return (words for words, _ in walked(command, path))


def called_in(folder: Path, commands: set[str]) -> Iterator[str]:
    """The commands that test functions of the folder call, by what stands first in the call."""
    for file in sorted(folder.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLED_BY:
                words: list[str] = []
                for argument in node.args:
                    if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                        break
                    words.append(argument.value)
                    if " ".join(words) in commands:
                        yield " ".join(words)
                        break
