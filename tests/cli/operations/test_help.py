"""`--help` of every command of operations: quick, of one shape, and with examples that run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli import main
from ottla.testing import Kafka

NOUNS = ("topics", "groups", "cluster", "doctor", "completion")


def commands_of(noun: str) -> Iterator[tuple[str, click.Command]]:
    command = main.get_command(click.Context(main), noun)
    assert command is not None
    yield noun, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield f"{noun} {name}", below


def examples_of(text: str) -> list[str]:
    return re.findall(r"^\s+(ottla .+)$", text.partition("Examples:")[2], re.MULTILINE)


ALL = [each for noun in NOUNS for each in commands_of(noun)]


@pytest.mark.parametrize(("path", "command"), ALL, ids=[path for path, _ in ALL])
def test_a_command_explains_itself_with_examples(path: str, command: click.Command) -> None:
    shown = CliRunner().invoke(main, [*path.split(), "--help"])
    assert shown.exit_code == 0
    examples = examples_of(shown.stdout)
    assert examples, "an example is what people read first"
    assert all(example.startswith(f"ottla {path}") for example in examples)
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, f"{parameter.name} says nothing"


def restored(cluster: EmbeddedCluster, admin: Admin) -> None:
    """What the examples speak of: topics, a group, and its undo file."""
    for name in [each.name for each in admin.list_topics()]:
        admin.delete_topics(name)
    for group in ("billing", "billing-2"):
        if group in {each.group_id for each in admin.list_groups()}:
            admin.delete_groups(group)
    admin.create_topics({"orders": TopicSpec(partitions=3)})
    Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster).produce("orders", [b"1", b"2"], partition=0)
    admin.apply_reset(admin.plan_reset("billing", to="earliest", topics={"orders": None}))
    plan = admin.plan_reset("billing", to="latest")
    admin.apply_reset(plan, undo_file="billing-offsets.json")


EXAMPLES = [(path, example) for path, command in ALL for example in examples_of(command.help or "")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.mark.parametrize(("path", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_the_examples_run(
    path: str,
    example: str,
    cluster: EmbeddedCluster,
    admin: Admin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    restored(cluster, admin)
    line, _, _ = example.partition(" >")
    environment = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": str(tmp_path / "none.toml")}
    ended = CliRunner().invoke(main, shlex.split(line)[1:], env=environment)
    if path == "doctor":
        assert ended.exit_code in (0, 1), ended.output  # it finds what one broker of a test is
    else:
        assert ended.exit_code == 0, ended.output
    assert "Traceback" not in ended.output


@pytest.mark.parametrize("noun", NOUNS)
def test_help_loads_neither_a_client_nor_the_admin_library(noun: str) -> None:
    program = (
        "import sys\nsys.argv = ['ottla', *sys.argv[1:], '--help']\nfrom ottla.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, noun], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(ended.stderr.split())
    assert not loaded & {"confluent_kafka", "pyarrow", "aiokafka", "ottla.admin.client", "ottla.config", "msgspec"}


def test_a_command_needs_no_client_of_records(cluster: EmbeddedCluster) -> None:
    """Administration stands on the wire client alone: what is not loaded does not slow a command down."""
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom ottla.cli import main\n"
        "print(CliRunner().invoke(main, ['topics', 'list', '-b', sys.argv[1]]).exit_code)\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout == "0\n"
    assert not set(ended.stderr.split()) & {"confluent_kafka", "pyarrow", "numpy", "aiokafka"}
