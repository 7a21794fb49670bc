"""The page on the cluster as code: its file is applied as it stands, and its options are those of the commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from help_examples import commands_of

from broker_embedded.cluster import EmbeddedCluster
from ottla.browse.cluster_file import parse_cluster_file
from ottla.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "cluster-as-code.md").read_text(encoding="utf-8")
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}[^\n]*\n(.*?)```", PAGE, re.DOTALL)


def test_the_file_is_applied_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cluster.toml").write_text(blocks("toml")[0])
    with EmbeddedCluster(config=AUTHORIZED) as cluster:
        environment = {"OTTLA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "BILLING_PASSWORD": "secret"}
        applied = CliRunner().invoke(main, ["apply", "cluster.toml", "--yes"], env=environment)
        assert applied.exit_code == 0, applied.output
        drift = CliRunner().invoke(main, ["apply", "plan", "cluster.toml", "--exit-code"], env=environment)
        assert drift.exit_code == 0, drift.output


def test_the_other_file_is_one() -> None:
    pruned, _ = blocks("toml")[1:]
    assert parse_cluster_file(pruned.encode(), source="page").prune.prefixes == ("billing.",)


def test_the_code_prints_what_is_unset(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("python")
    exec(compile(code, "cluster-as-code.md", "exec", dont_inherit=True), {"__name__": "cluster_as_code_page"})
    assert capsys.readouterr().out == "topic setting orders retention.ms: 3600000 to none\n"


def test_the_options_are_those_of_the_commands() -> None:
    known = {
        option
        for noun in ("apply", "doctor")
        for _, command in commands_of(noun)
        for each in command.params
        for option in each.opts
    }
    named = {*re.findall(r"--[a-z][\w-]+", PAGE)}
    assert named
    assert named <= known
