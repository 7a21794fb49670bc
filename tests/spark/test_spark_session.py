"""`ottla.spark.session`: what it sets and why, on the session that the tests share; and what it says without Java."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyspark
from click.testing import CliRunner
from pyspark.sql import SparkSession

from ottla.cli import main
from ottla.errors import ConfigError
from ottla.spark import Java, JavaMissing, session
from ottla.spark.jvm import spark_session
from ottla.spark.jvm.spark_session import CLUSTER_DEFAULTS, DEFAULTS, LOCAL_DEFAULTS, local_cores

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark.md"


class Builder:
    """Takes settings as Spark's builder does, and starts nothing."""

    def __init__(self):
        self.given = {}

    def appName(self, name):
        return self.config("name", name)

    def master(self, where):
        return self.config("master", where)

    def config(self, name, value):
        self.given[name] = value
        return self

    def getOrCreate(self):
        return self

    @property
    def dataSource(self):
        return self

    def register(self, source):
        self.given["registered"] = source.name()


@pytest.fixture
def builder(monkeypatch):
    """No session is active, and none will be: what would have been asked of Spark."""
    made = Builder()
    monkeypatch.setattr(SparkSession, "builder", made)
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda cls: None))
    monkeypatch.setattr(os, "environ", dict(os.environ))
    names = ("MASTER", "PYSPARK_GATEWAY_PORT", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "OTTLA_SPARK_TASKS")
    for name in names:
        os.environ.pop(name, None)
    some_java = Java(home=Path("/opt/java"), version=17, origin="PATH")
    monkeypatch.setattr(spark_session, "find_java", lambda: some_java)
    return made


def no_java():
    raise JavaMissing("Spark needs Java 17 or newer. Found: nothing.")


@pytest.mark.spark
def test_workers_are_forked_with_everything_loaded_and_frozen_and_talk_over_unix_sockets(spark):
    def look(batches):
        import gc
        import os
        import sys

        import pyarrow as pa

        loaded = "ottla.spark.reading.source" in sys.modules
        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {
                    "frozen": [gc.get_freeze_count()],
                    "loaded": [loaded],
                    "unix": [os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() == "true"],
                }
            )

    (row,) = spark.range(1, numPartitions=1).mapInArrow(look, "frozen long, loaded boolean, unix boolean").collect()
    assert row.frozen > 10_000
    assert (row.loaded, row.unix) == (True, True)
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    # New in Spark 4.3, and broken over unix sockets: nobody must turn it on for us.
    assert spark.conf.get("spark.python.udf.pipelined.enabled", "false") == "false"
    assert session("another") is spark


def test_each_setting_has_a_reason_and_is_in_the_page():
    page = PAGE.read_text(encoding="utf-8")
    for default in DEFAULTS + LOCAL_DEFAULTS + CLUSTER_DEFAULTS:
        assert default.why
        assert f"`{default.name}`" in page, default.name


def test_the_users_settings_win(builder):
    builder = session("report", master="local[3]", config={"spark.sql.session.timeZone": "CET"}, log_level=None)
    assert builder.given["master"] == "local[3]"
    assert builder.given["spark.sql.session.timeZone"] == "CET"
    assert builder.given["spark.python.daemon.module"] == "ottla.spark.jvm.daemon"
    assert os.environ["OTTLA_SPARK_TASKS"] == "3"


def test_without_a_word_about_where_it_runs_on_all_cores_of_this_machine(builder):
    assert session("report", log_level=None).given["master"] == "local[*]"
    os.environ["MASTER"] = "spark://there:7077"
    assert session("report", log_level=None).given["master"] == "spark://there:7077"


def test_executors_of_a_cluster_start_pyspark_python_or_the_python_of_the_program(builder):
    given = session("report", master="spark://there:7077", log_level=None).given
    assert given["registered"] == "ottla"
    # 107 bytes are the most that the path of a socket has. Spark's default on YARN is the folder of a container.
    assert given["spark.python.unix.domain.socket.dir"] == "/tmp"
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == spark_session.worker_python()
    os.environ["PYSPARK_PYTHON"] = "./env/bin/python"
    with pytest.raises(ConfigError, match=f"here by: ln -s {sys.prefix} env"):
        session("report", master="spark://there:7077", log_level=None)


def test_under_spark_submit_the_master_and_the_jvm_are_those_that_were_chosen(builder, monkeypatch):
    os.environ["PYSPARK_GATEWAY_PORT"] = "25333"
    monkeypatch.setattr(spark_session, "find_java", no_java)
    given = session("report").given
    assert "master" not in given
    assert given["spark.python.unix.domain.socket.enabled"] == "true"
    assert "spark.ui.enabled" not in given  # what is for one machine only


def test_without_java_there_is_one_clear_line(builder, monkeypatch, tmp_path):
    monkeypatch.setattr(spark_session, "find_java", no_java)
    with pytest.raises(JavaMissing, match="Spark needs Java 17 or newer"):
        session()
    (tmp_path / "its_module.py").write_text(
        "from ottla.spark import Pipeline\n"
        "pipeline = Pipeline('p', bootstrap_servers='127.0.0.1:1', checkpoint='/nowhere')\n"
        "pipeline.read_topic('events')\n"
        "pipeline.write_each('events', print)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ran = CliRunner().invoke(main, ["pipeline", "run", "its_module:pipeline"])
    assert ran.exit_code != 0
    assert ran.output.splitlines()[-1].endswith("Spark needs Java 17 or newer. Found: nothing.")
    assert len(ran.output.splitlines()) == 2  # what is run, and why it does not


def test_a_spark_that_is_too_old_is_named(monkeypatch):
    monkeypatch.setattr(pyspark, "__version__", "4.1.3")
    with pytest.raises(ConfigError, match=r"found pyspark 4.1.3, wanted 4.2 or newer"):
        session()


def test_cores_are_those_of_the_master():
    assert (local_cores("local[3]"), local_cores("local[2,4]"), local_cores("local")) == (3, 2, 1)
    assert local_cores("local[*]") >= 1
