"""The Python that Spark starts on this machine: the one that runs here, without the zipped copy of PySpark.

Spark puts `pyspark.zip` first in the path of every Python process that it starts. Modules in a zip have no compiled
form, so each process compiles PySpark anew: 1.4 s of a core for each streaming query, and for each kind of worker. A
PySpark that pip installed has the same modules beside it, compiled. A small shell script takes the zip out of the path.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shlex
import site
import sys
from pathlib import Path

from ottla.spark.jvm.cache import cache_folder, write_program

ZIPPED = ("*/python/lib/pyspark.zip", "*/python/lib/py4j-*-src.zip")


def worker_python(*, directory: Path | None = None) -> str:
    """Return PYSPARK_PYTHON for this machine: the script, or this Python where the script would not do."""
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
