"""The Python that Spark starts on this machine: compiled modules of PySpark instead of those in its zip."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark.jvm import spark_session as module
from ottla.spark.jvm.daemon import _quiet
from ottla.spark.jvm.spark_session import worker_python
from ottla.spark.reading.source import end_quietly_when_spark_hangs_up

pyspark = pytest.importorskip("pyspark")

HOME = Path(pyspark.__file__).parent


def test_the_zips_are_taken_out_of_the_path_and_everything_else_is_kept(tmp_path):
    python = worker_python(directory=tmp_path / "a folder")
    zips = [str(HOME / "python" / "lib" / "pyspark.zip"), "/opt/spark/python/lib/py4j-0.10.9.9-src.zip"]
    given = os.pathsep.join([*zips, "/opt/my modules", "", "/opt/*.zip"])
    program = "import os, sys, pyspark; print(os.environ['PYTHONPATH'], sys.executable, pyspark.__file__, sys.argv[1:])"
    ran = subprocess.run(
        [python, "-c", program, "an argument", "*"],
        env=os.environ | {"PYTHONPATH": given},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout.strip() == f"/opt/my modules::/opt/*.zip {sys.executable} {pyspark.__file__} ['an argument', '*']"
    assert worker_python(directory=tmp_path / "a folder") == python  # written once


def test_a_pyspark_that_workers_would_not_find_without_the_zip_keeps_it(monkeypatch, tmp_path):
    monkeypatch.setenv("SPARK_HOME", str(HOME))
    assert worker_python(directory=tmp_path) != sys.executable
    monkeypatch.setenv("SPARK_HOME", "/opt/spark-of-another-version")
    assert worker_python(directory=tmp_path) == sys.executable
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setattr(module.site, "getsitepackages", list)
    monkeypatch.setattr(module.site, "getusersitepackages", lambda: "/nowhere")
    assert worker_python(directory=tmp_path) == sys.executable


def test_a_source_that_spark_hangs_up_on_ends_without_a_traceback_and_with_one_for_all_else(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: shown.append(error[0]))
    end_quietly_when_spark_hangs_up()
    assert sys.excepthook.__name__ == "<lambda>"  # this is no process of Spark's
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "/spark/python_streaming_source_runner.py", raising=False)
    end_quietly_when_spark_hangs_up()
    for error in (EOFError(), BrokenPipeError(), ConnectionResetError(), ValueError("a mistake")):
        sys.excepthook(type(error), error, None)
    assert shown == [ValueError]


def test_a_worker_that_spark_hangs_up_on_ends_without_a_traceback_and_fails_with_all_else(monkeypatch):
    """`limit()` and `show()` hang up on every worker that has more than they want."""
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)

    def worker(error):
        raise error

    _quiet(worker)(BrokenPipeError())
    assert ended == [0]
    with pytest.raises(ValueError, match="a mistake"):
        _quiet(worker)(ValueError("a mistake"))


@pytest.mark.spark
def test_workers_of_a_session_run_compiled_modules(spark):
    def where(batches):
        import pyarrow as pa
        import pyspark as there

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [there.__file__]})

    found = {row.file for row in spark.range(1, numPartitions=1).mapInArrow(where, "file string").collect()}
    assert found == {pyspark.__file__}
    assert spark.conf.get("spark.sql.streaming.checkpointFileManagerClass").endswith(
        "FileSystemBasedCheckpointFileManager"
    )
