"""What a command says about the database of `--store` that cannot be used: a sentence, and no password."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from ottla.cli import main

COMMANDS = [["outbox", "show"], ["store-offsets", "show", "billing", "-b", "127.0.0.1:1"]]


@pytest.mark.parametrize("command", COMMANDS, ids=["outbox", "store-offsets"])
def test_a_database_that_does_not_answer_is_named_without_its_password(command: list[str]) -> None:
    ended = CliRunner().invoke(main, [*command, "--store", "postgresql://billing:s3same@127.0.0.1:1/shop"])
    assert ended.exit_code == 2, ended.output
    assert "ottla: StoreUnavailable: Postgres(" in ended.stderr
    assert "s3same" not in ended.output


def test_a_store_of_another_kind_is_refused_without_its_password() -> None:
    ended = CliRunner().invoke(main, ["outbox", "show", "--store", "redis://billing:s3same@127.0.0.1:1/0"])
    assert "--store: found 'redis://...@127.0.0.1:1/0', wanted postgresql://host/database" in ended.stderr
    assert "s3same" not in ended.output


@pytest.mark.parametrize(
    ("package", "store", "needs"),
    [
        ("psycopg", "Postgres", "psycopg: pip install 'ottla[postgres]'"),
        ("redis", "Redis", "redis: pip install 'ottla[redis]'"),
        ("sqlalchemy", "Sql", "SQLAlchemy 2: pip install 'ottla[sqlalchemy]'"),
    ],
)
def test_a_store_without_its_extra_is_a_config_error_that_names_it(package: str, store: str, needs: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from ottla.stores import {store}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert f"ottla.errors.ConfigError: ottla.stores.{store} needs {needs}" in ended.stderr


def test_a_command_whose_store_lacks_its_extra_says_so_without_a_traceback() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None; from ottla.cli import main; "
        "main(['outbox', 'show', '--store', 'postgresql://localhost/shop'])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.stderr == "ottla: ConfigError: ottla.stores.Postgres needs psycopg: pip install 'ottla[postgres]'\n"
    assert ended.returncode == 2
