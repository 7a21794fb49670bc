"""The page on moving data: its commands run in their order, on a cluster that a broker joined."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker_embedded.cluster import EmbeddedCluster
from ottla.admin import Admin, TopicSpec
from ottla.cli import main
from ottla.testing import Kafka

pytestmark = pytest.mark.complete

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "move-data.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with EmbeddedCluster(brokers=3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics({"orders": TopicSpec(partitions=12, replication_factor=2)})
        for number in range(12):
            Kafka(cluster.bootstrap_servers, kind="embedded", cluster=cluster).produce(
                "orders", [b"x" * 1_000] * 100, partition=number
            )
        before = {each.partition: each.replicas for each in admin.list_topics()[0].partitions}
        joined = cluster.add_broker()
        assert COMMANDS
        for line in COMMANDS:
            assert line.startswith("$ ottla plan "), line
            environment = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "OTTLA_CLUSTERS": "none.toml"}
            result = CliRunner().invoke(main, shlex.split(line)[2:], env=environment)
            assert result.exit_code == 0, f"{line}\n{result.output}"
            replicas = {each.partition: each.replicas for each in admin.list_topics()[0].partitions}
            if "plan run" in line:
                assert sum(joined in each for each in replicas.values()) == 6, "a quarter of all replicas"
            if "--revert" in line:
                assert replicas == before


def test_the_other_plans_of_the_page_are_commands() -> None:
    named = set(re.findall(r"`ottla plan ([a-z-]+)", PAGE))
    group = main.get_command(None, "plan")  # type: ignore[arg-type]
    assert named <= set(group.commands), named  # type: ignore[union-attr]
    assert {"add-brokers", "remove-brokers", "replication-factor", "dirs", "leaders"} <= named


@pytest.mark.representative
def test_the_options_of_the_page_are_those_of_the_commands() -> None:
    group = main.get_command(None, "plan")  # type: ignore[arg-type]
    known = {option for command in group.commands.values() for each in command.params for option in each.opts}  # type: ignore[union-attr]
    others = {"--generate", "--verify", "--log-dir-bytes"}
    assert set(re.findall(r"--[a-z][\w-]+", PAGE)) - others <= known
