"""Options that are durations, times and numbers."""

from __future__ import annotations

import time

import click
import pytest
from click.testing import CliRunner, Result

from ottla.cli import main
from ottla.cli.shared.parameter_types import Milliseconds, Number, Seconds, TimeMs


def given(kind: click.ParamType, text: str) -> Result:  # type: ignore[type-arg]
    @click.command()
    @click.option("--it", type=kind)
    def command(it: object) -> None:
        click.echo(repr(it))

    return CliRunner().invoke(command, [f"--it={text}"])


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Seconds(0), "1.5", "1.5"),
        (Seconds(0), "1.5h", "5400.0"),
        (Seconds(0), "250ms", "0.25"),
        (Milliseconds(0), "1500", "1500"),
        (Milliseconds(0), "1.5s", "1500"),
        (TimeMs(), "1970-01-01T00:00:01", "1000"),
        (TimeMs(), "1960-01-01", "-315619200000"),
        (Number(0), "0.5", "0.5"),
    ],
)
def test_an_option_takes_a_number_or_a_number_with_its_unit(kind, text: str, value: str) -> None:
    ended = given(kind, text)
    assert (ended.exit_code, ended.output.strip()) == (0, value)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "-1", "soon"])
@pytest.mark.parametrize("kind", [Seconds(0, min_open=True, max=10), Number(0, 1), Milliseconds(5), TimeMs()])
def test_what_is_no_number_is_refused(kind, text: str) -> None:
    assert given(kind, text).exit_code == 2


def test_no_timeout_is_longer_than_kafka_can_wait() -> None:
    assert "wanted at most 2000000 seconds" in given(Seconds(0), "99w").output


def test_dead_letters_are_chosen_by_a_time_ago() -> None:
    before_ms = time.time_ns() // 1_000_000 - 7_200_000
    found = TimeMs().convert("-2h", None, None)
    assert before_ms <= found <= time.time_ns() // 1_000_000 - 7_200_000


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["topics", "list", "--timeout", "nan"], "Invalid value for '--timeout'"),
        (["dlq", "redrive", "t", "--per-second", "nan"], "Invalid value for '--per-second'"),
        (["dlq", "list", "t", "--since", "yesterday"], "Invalid value for '--since': found 'yesterday', wanted now"),
        (["groups", "lag", "g", "--watch", "inf"], "Invalid value for '--watch'"),
    ],
)
def test_commands_refuse_numbers_that_are_none(arguments: list[str], problem: str) -> None:
    ended = CliRunner().invoke(main, arguments)
    assert ended.exit_code == 2
    assert problem in ended.stderr


def test_settings_on_the_command_line_take_units() -> None:
    ended = CliRunner().invoke(main, ["config", "explain", "--for", "producer", "--set", "linger.ms=0.05s"], env={})
    assert ended.exit_code == 0, ended.output
    assert "linger.ms\t50\t" in ended.stdout


def test_the_help_of_a_time_shows_no_bounds() -> None:
    shown = CliRunner().invoke(main, ["dlq", "list", "--help"]).output
    assert "--since TIME" in shown
    assert "None" not in shown
