"""`ottla config explain` says what a client would run with, where it came from and why."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from command_output import follows_its_schema

from ottla.cli import main


def explain(*arguments: str, env: dict[str, str] | None = None) -> str:
    result = CliRunner().invoke(main, ["config", "explain", *arguments], env=env)
    assert result.exit_code == 0, result.output
    return result.output


def test_each_line_has_setting_value_origin_and_reason() -> None:
    lines = [line.split("\t") for line in explain("--set", "linger.ms=7").splitlines()]
    by_name = {line[0]: line[1:] for line in lines}
    assert by_name["linger.ms"][:2] == ["7", "argument"]
    assert by_name["acks"][:2] == ["all", "default"]
    assert all(len(line) == 4 and line[3] for line in lines)


def test_the_profile_and_the_environment_are_named_as_origins() -> None:
    output = explain("--profile", "high_throughput", env={"OTTLA_PRODUCER_ACKS": "all"})
    assert "linger.ms\t50\tprofile high_throughput\t" in output
    assert "acks\tall\tOTTLA_PRODUCER_ACKS\t" in output


def test_json_is_for_programs() -> None:
    found = json.loads(explain("--format", "json"))
    follows_its_schema(found)
    settings = {setting["name"]: setting for setting in found["items"]}
    assert settings["enable.idempotence"]["value"] is True
    assert settings["enable.idempotence"]["source"] == "default"


def test_the_table_is_for_people() -> None:
    output = explain("--format", "table", env={"COLUMNS": "200"})
    assert output.splitlines()[0].split() == ["setting", "value", "from", "why"]
    assert "enable.idempotence" in output


def test_consumers_are_explained_too() -> None:
    assert "enable.auto.commit\tfalse\tdefault\t" in explain("--for", "consumer")


@pytest.mark.parametrize("arguments", [["--shell", "threads"], ["--shell", "asyncio"], ["--all"]])
def test_what_a_client_gets_and_what_there_is_are_json_as_well(arguments: list[str]) -> None:
    found = json.loads(explain(*arguments, "--set", "security.protocol=SSL", "--format", "json"))
    follows_its_schema(found)
    assert found["items"]


def test_a_client_is_shown_in_its_own_words() -> None:
    assert "queue.buffering.max.kbytes=65536" in explain("--shell", "threads")
    assert "enable_idempotence=True" in explain("--shell", "asyncio")


def test_all_lists_what_there_is() -> None:
    output = explain("--all")
    assert "compression.type\tnone | gzip | snappy | lz4 | zstd\tthreads, asyncio; also compression.codec" in output
    assert "sticky.partitioning.linger.ms\t\tthreads only" in output


@pytest.mark.parametrize("arguments", [[], ["--shell", "threads"], ["--format", "json"]])
def test_a_secret_is_never_printed(arguments: list[str]) -> None:
    pairs = ["security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=u", "sasl.password=hunter2"]
    output = explain(*arguments, *(part for pair in pairs for part in ("--set", pair)))
    assert "hunter2" not in output
    assert "********" in output


@pytest.mark.parametrize("arguments", [[], ["--shell", "threads"], ["--format", "json"]])
@pytest.mark.parametrize(
    "pair",
    [
        "sasl.oauthbearer.config=principal=me clientSecret=hunter2",
        "sasl.kerberos.kinit.cmd=echo hunter2 | kinit me",
        "sasl.oauthbearer.token.endpoint.url=https://me:hunter2@issuer/token",
    ],
)
def test_a_secret_within_a_setting_is_never_printed(arguments: list[str], pair: str) -> None:
    pairs = ["security.protocol=SASL_SSL", "sasl.mechanism=GSSAPI", pair]
    output = explain(*arguments, *(part for pair in pairs for part in ("--set", pair)))
    assert "hunter2" not in output
    assert "********" in output


def test_a_mistake_is_one_line_and_exit_code_2() -> None:
    result = CliRunner().invoke(main, ["config", "explain", "--set", "lingr.ms=3"])
    assert result.exit_code == 2
    assert result.stderr == "ottla: ConfigError: lingr.ms: no producer setting has this name; did you mean linger.ms?\n"


@pytest.mark.parametrize(
    ("arguments", "assignors"),
    [([], "roundrobin"), (["--set", "partition.assignment.strategy=range,roundrobin"], "range,roundrobin")],
)
def test_the_assignor_that_aiokafka_gets_is_listed(arguments: list[str], assignors: str) -> None:
    output = explain("--for", "consumer", "--shell", "asyncio", *arguments)
    assert f"partition_assignment_strategy={assignors}\n" in output
