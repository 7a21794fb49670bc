"""The page on records runs, literally; the examples of `--help` run; and help stays quick."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from broker_embedded.cluster import EmbeddedCluster
from ottla.cli import main
from ottla.testing import Kafka

pytestmark = pytest.mark.complete

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "records.md").read_text(encoding="utf-8")
COMMANDS = ("consume", "produce", "dlq list", "dlq show", "dlq redrive", "dlq purge", "topics copy")
LETTER = [("ottla-dlq-topic", b"orders"), ("ottla-dlq-partition", b"0"), ("ottla-dlq-offset", b"0")]


@pytest.fixture
def kafka_of_its_own() -> Iterator[Kafka]:
    with EmbeddedCluster() as cluster:
        yield Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster)


def shell(command: str, kafka: Kafka, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OTTLA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    environment |= {"OTTLA_CLUSTERS": str(folder / "none.toml")}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{{ {command}; }} 2>&1"],
        capture_output=True, text=True, env=environment, cwd=folder, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def dialogues(page: str) -> Iterator[tuple[str, str]]:
    """Each command of the page's consoles, and what it prints."""
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        for dialogue in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = dialogue.partition("\n")
            yield command, printed


def test_what_the_page_shows_is_what_happens(kafka_of_its_own: Kafka, tmp_path: Path) -> None:
    kafka_of_its_own.create_topic("orders")
    count = 0
    for command, printed in dialogues(PAGE):
        ended = shell(command, kafka_of_its_own, tmp_path)
        pattern = re.escape(printed).replace(re.escape("..."), ".*")
        assert re.fullmatch(pattern, ended.stdout, re.DOTALL), f"$ {command}\n{ended.stdout}"
        assert ended.returncode == ("InputError" in printed), command
        count += 1
    assert count >= 12


@pytest.mark.representative
@pytest.mark.parametrize("path", COMMANDS)
def test_the_options_that_the_page_names_are_there(path: str) -> None:
    shown = CliRunner().invoke(main, [*path.split(), "--help"])
    assert shown.exit_code == 0
    command: click.Command = main
    for name in path.split():
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, f"{parameter.name} says nothing"


@pytest.mark.representative
def test_every_option_of_the_page_is_one() -> None:
    known = set()
    for name in ("consume", "produce", "topics copy"):
        known |= set(re.findall(r"--[a-z][\w-]+", CliRunner().invoke(main, [*name.split(), "--help"]).output))
    named = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", PAGE)) - {"--include_imports"}
    assert named
    assert named <= known


@pytest.mark.parametrize("path", COMMANDS)
def test_the_examples_of_help_run(path: str, kafka_of_its_own: Kafka, tmp_path: Path) -> None:
    kafka = kafka_of_its_own
    for topic in ("orders", "copy", "orders.dead-letters", "orders.to-repair"):
        kafka.create_topic(topic)
    kafka.produce("orders", [b'{"id": 7, "total": 200}'])
    kafka.produce("orders.dead-letters", [b"x"], headers=LETTER)
    for name in ("order.json", "lines.txt"):
        (tmp_path / name).write_text('a:{"id": 7}\n')
    help_text = CliRunner().invoke(main, [*path.split(), "--help"]).output
    examples = re.findall(
        r"^\s+(ottla .+)$", help_text.partition("Examples:")[2].partition("Options:")[0], re.MULTILINE
    )
    assert len(examples) >= 2
    for example in examples:
        ended = shell(example, kafka, tmp_path)
        assert ended.returncode == 0, f"{example}\n{ended.stdout}"


@pytest.mark.parametrize("noun", ["consume", "produce", "dlq"])
def test_help_loads_no_client(noun: str) -> None:
    program = (
        "import sys\nsys.argv = ['ottla', *sys.argv[1:], '--help']\nfrom ottla.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, noun], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = set(ended.stderr.split())
    assert not loaded & {
        "confluent_kafka",
        "pyarrow",
        "aiokafka",
        "ottla.admin.admin_client",
        "ottla.config",
        "msgspec",
    }
