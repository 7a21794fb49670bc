"""Options of `ottla run` that exclude each other, and what a worker is started with."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla import App, Inbox, Outbox
from ottla.app.runtime.worker_checks import check_fits_workers
from ottla.cli import main
from ottla.cli.services.run import _without
from ottla.errors import ConfigError
from ottla.stores import Memory, Sqlite


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--workers", "2", "--reload"], "--workers: found with --reload"),
        (["--workers", "2", "--reload-dir", "."], "--workers: found with --reload"),
        (["--workers", "2", "--console-port", "0"], "--workers: found with --console-port"),
        (["--hung-after", "60"], "--hung-after: found without --workers"),
        (["--workers", "0"], "is not in the range"),
        (["--workers", "2", "--hung-after", "0.5"], "'--hung-after'"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: list[str], problem: str) -> None:
    result = CliRunner().invoke(main, ["run", "there_is_none:app", *options])
    assert result.exit_code == 2
    assert problem in result.output


@pytest.mark.parametrize("options", [[], ["--reload"], ["--workers", "2"]], ids=["alone", "reload", "workers"])
def test_an_address_that_is_none_is_an_error_of_the_option_without_its_password(options: list[str]) -> None:
    result = CliRunner().invoke(main, ["run", "there_is_none:app", "-b", "me:s3cret@broker:9092", *options])
    assert result.exit_code == 2
    assert "--bootstrap-servers: found '********@broker:9092', wanted host:port" in result.output
    assert "OTTLA_BOOTSTRAP_SERVERS" not in result.output
    assert "s3cret" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [["run", "a:app", "--workers", "2", "-b", "x"], ["run", "--workers=2", "a:app", "-b", "x"]],
)
def test_a_worker_gets_the_other_arguments(arguments: list[str]) -> None:
    assert _without(arguments, "--workers", takes_value=True) == ["run", "a:app", "-b", "x"]
    assert _without(["run", "--reload", "a:app"], "--reload") == ["run", "a:app"]


class OfOnesOwn(Memory):
    stays_in_process = False


def test_an_inbox_in_memory_is_refused_and_one_that_is_shared_is_not(tmp_path: Path) -> None:
    for store, is_refused in ((Memory(), True), (Sqlite(f"{tmp_path}/marks.db"), False), (OfOnesOwn(), False)):
        app = App("billing")

        @app.handler("orders", inbox=Inbox(store))
        def on_order(value: bytes) -> None: ...

        if is_refused:
            with pytest.raises(ConfigError, match="--workers: inbox= or offsets= of on_order: found Memory in the"):
                check_fits_workers(app)
        else:
            check_fits_workers(app)


@pytest.mark.parametrize(("url", "is_refused"), [("sqlite://", True), ("sqlite:///{}/out.db", False)])
def test_an_outbox_in_memory_is_refused_and_one_in_a_file_is_not(tmp_path: Path, url: str, is_refused: bool) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed")
    orm = pytest.importorskip("sqlalchemy.orm", reason="SQLAlchemy is not installed")
    from ottla.stores import Sql

    engine = sqlalchemy.create_engine(url.format(tmp_path))
    app = App("billing")
    app.relay(Outbox(Sql(orm.sessionmaker(engine), dialect="sqlite")))
    if is_refused:
        with pytest.raises(ConfigError, match="--workers: the outbox of a relay: found Sql in the memory"):
            check_fits_workers(app)
    else:
        check_fits_workers(app)
    engine.dispose()
