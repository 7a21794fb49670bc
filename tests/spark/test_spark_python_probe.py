"""A Python that Spark starts and that lacks the package is named, with how to choose another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from spark_processes import SHORT_LIVED, environment

from ottla.errors import ConfigError
from ottla.spark.jvm.python_probe import (
    RequestedPython,
    check_python,
    explained,
    lacks_the_package,
    requested_python,
)


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python without any installed package, called python3."""
    program = tmp_path / "bin" / "python3"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("environ", "program", "said"),
    [
        ({}, "python3", "from the PATH"),
        ({"PYSPARK_PYTHON": "/a/python"}, "/a/python", "PYSPARK_PYTHON"),
        ({"PYSPARK_PYTHON": "/a/python", "PYSPARK_DRIVER_PYTHON": "/b/python"}, "/a/python", "PYSPARK_PYTHON"),
        ({"PYSPARK_DRIVER_PYTHON": "/b/python"}, "python3", "from the PATH"),
    ],
)
def test_spark_asks_the_python_that_the_environment_names(environ: dict[str, str], program: str, said: str) -> None:
    asked = requested_python(environ)
    assert asked.program == program
    assert asked.said_by.startswith(said)


def test_a_python_without_the_package_is_refused_by_name(bare_python: Path) -> None:
    check_python(RequestedPython(sys.executable, "PYSPARK_PYTHON"))
    with pytest.raises(ConfigError, match=r"python3 \(PYSPARK_PYTHON\) for the data source 'ottla'") as caught:
        check_python(RequestedPython(str(bare_python), "PYSPARK_PYTHON"))
    assert f"export PYSPARK_PYTHON={sys.executable}" in str(caught.value)


@pytest.mark.parametrize(
    ("program", "link"),
    [
        ("./env/bin/python", f"ln -s {sys.prefix} env"),
        ("/nowhere/env/bin/python3", f"ln -s {sys.prefix} /nowhere/env"),
        ("/nowhere/python3", f"ln -s {sys.executable} /nowhere/python3"),
    ],
)
def test_a_python_that_only_executors_have_is_refused_with_the_command_that_links_it(program: str, link: str) -> None:
    with pytest.raises(ConfigError, match=r"which cannot be started here: .* No such file or directory") as caught:
        check_python(RequestedPython(program, "PYSPARK_PYTHON"))
    assert str(caught.value).endswith(f"here by: {link}")


def test_the_server_of_spark_connect_is_named_as_such() -> None:
    assert "the Python of the Spark Connect server" in str(lacks_the_package(None))
    assert explained(ValueError("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta"), object()) is None


PROGRAM = """
import sys
from pyspark.sql import SparkSession
import ottla.spark
from ottla.errors import ConfigError
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    ottla.spark.read(spark, "orders", bootstrap_servers="localhost:1")
except ConfigError as error:
    print("TOLD", error)
spark.stop()
"""


@pytest.mark.complete
def test_a_driver_in_an_environment_that_is_not_activated_is_told_which_python_was_asked(bare_python: Path) -> None:
    names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "PYTHONPATH")
    given = os.environ | environment()
    environ = {name: value for name, value in given.items() if name not in names}
    environ["PATH"] = f"{bare_python.parent}{os.pathsep}{environ['PATH']}"
    environ["SPARK_SUBMIT_OPTS"] = f"{environ.get('SPARK_SUBMIT_OPTS', '')} {SHORT_LIVED}"
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, text=True, capture_output=True, timeout=240)
    assert "TOLD Spark asked python3 (from the PATH" in ran.stdout, ran.stderr[-2_000:]


def test_a_session_does_not_start_with_a_python_that_lacks_the_package(bare_python: Path) -> None:
    program = "import ottla.spark\nottla.spark.session(master='spark://127.0.0.1:1')"
    environ = {**os.environ, "PYSPARK_PYTHON": str(bare_python)}
    environ.pop("PYSPARK_DRIVER_PYTHON", None)
    ran = subprocess.run([sys.executable, "-c", program], env=environ, text=True, capture_output=True, timeout=120)
    assert ran.returncode == 1
    assert f"ConfigError: Spark asked {bare_python} (PYSPARK_PYTHON) for the data source 'ottla'" in ran.stderr
